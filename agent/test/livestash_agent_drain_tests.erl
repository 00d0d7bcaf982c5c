-module(livestash_agent_drain_tests).

-include_lib("eunit/include/eunit.hrl").

%% Called in other VMs.
-export([stand_still/0]).

-define(F, livestash_agent_fixture).
-define(MNESIA, 'Elixir.LiveStash.Adapters.Mnesia.State').
-define(TABLE, live_stash_server_storage).

%% Each test ends nodes by SIGTERM, as the kubelet does, and looks at what they have left: rows at peers and a report.

all_test_() ->
    [
        {Name, {timeout, 100, Test}}
     || {Name, Test} <- [
            {"sessions and sockets move to the peers", fun rolling/0},
            {"a second SIGTERM changes nothing", fun second_signal/0},
            {"a fleet that stops as a whole waits for nothing", fun whole_fleet/0},
            {"a node without peers waits for nothing", fun single_node/0},
            {"a peer that is not connected is waited for", fun unconnected_peer/0},
            {"a peer that can take rows a little later", fun late_peer/0},
            {"a pod that still boots is waited for", fun booting_pod/0},
            {"a pod that still boots is given nothing", fun booting_peer/0},
            {"a pod that boots for longer than anybody can wait is given what would be lost", fun booting_for_ever/0},
            {"tables of another adapter than the fleet's", fun redis/0},
            {"a table that is missing", fun missing_table/0},
            {"a Mnesia table of which a peer has a copy", fun mnesia_copy_elsewhere/0},
            {"a Mnesia table of which nobody else has a copy", fun only_mnesia_copy/0},
            {"an endpoint that does not stop", fun stuck_endpoint/0},
            {"an agent that has given up", fun given_up/0},
            {"a drain that fails", fun failing_drain/0},
            {"a report that cannot be written", fun unwritable_report/0}
        ]
    ].

rolling() ->
    [Vm, P1, P2] = Vms = fleet(3, #{"LIVESTASH_DRAIN_ENDPOINT_WAIT_MS" => "1500"}),
    serve(Vm, {7, plain}),
    fill(Vm, 300),
    terminate(Vm),
    ?F:eventually(fun() -> ?F:call(P1, erpc, call, [node_of(Vm), livestash_agent_state, draining, []]) end),
    ?assertEqual(300, rows(Vm)),
    ended(Vm),
    Report = report(Vm),
    ?assertMatch(#{before := 300, closed := 7, handed_off := 300, left := 0, reason := ""}, Report),
    ?assert(maps:get(seconds, Report) >= 1.5),
    ?assertEqual(300, rows(P1) + rows(P2)),
    stop(Vms).

second_signal() ->
    [Vm, P1] = Vms = fleet(2, #{"LIVESTASH_DRAIN_ENDPOINT_WAIT_MS" => "2000"}),
    fill(Vm, 10),
    [terminate(Vm) || _ <- lists:seq(1, 5)],
    ?F:eventually(fun() -> ?F:call(Vm, livestash_agent_state, draining, []) end),
    terminate(Vm),
    ?assertMatch(#{drains := 1}, ?F:call(Vm, livestash_agent_state, counters, [])),
    ended(Vm),
    Report = report(Vm),
    ?assertMatch(#{handed_off := 10}, Report),
    ?assert(maps:get(seconds, Report) >= 2.0),
    ?assertEqual(10, rows(P1)),
    stop(Vms).

%% They would wait for ten minutes.
whole_fleet() ->
    Vms = fleet(3, #{"LIVESTASH_DRAIN_ENDPOINT_WAIT_MS" => "600000"}),
    [serve(Vm, {1, plain}) || Vm <- Vms],
    [fill(Vm, 5) || Vm <- Vms],
    lists:foreach(fun(Vm) -> terminate(Vm), timer:sleep(300) end, Vms),
    [ended(Vm) || Vm <- Vms],
    [?assertMatch(#{before := 5, closed := 1, handed_off := 0, left := 5, reason := [_ | _]}, report(Vm)) || Vm <- Vms].

single_node() ->
    [Vm] = fleet(1, #{"LIVESTASH_DRAIN_ENDPOINT_WAIT_MS" => "600000"}),
    fill(Vm, 5),
    terminate(Vm),
    ended(Vm),
    ?assertMatch(#{before := 5, handed_off := 0, left := 5, reason := [_ | _]}, report(Vm)).

%% It may serve, and be what clients find.
unconnected_peer() ->
    Environment = maps:merge(environment(), #{"LIVESTASH_DRAIN_ENDPOINT_WAIT_MS" => "600000"}),
    livestash_agent_dns:with_dns(
        ["gone.nodes.test"],
        "app",
        fun(Vm, _Server) ->
            ?F:eventually(fun() -> maps:get(missing, ?F:call(Vm, livestash_agent_mesh, peers, [])) =/= [] end),
            terminate(Vm),
            ?F:eventually(fun() -> ?F:call(Vm, livestash_agent_state, draining, []) end),
            timer:sleep(1000),
            ?assertEqual(keeping, ?F:call(Vm, livestash_agent_state, phase, []))
        end,
        #{environment => Environment}
    ).

late_peer() ->
    [Vm, P1] = Vms = fleet(2, #{}),
    fill(Vm, 5),
    true = ?F:call(P1, ets, delete, [?TABLE]),
    terminate(Vm),
    ?F:eventually(fun() -> ?F:call(Vm, livestash_agent_state, phase, []) =:= handing_over end),
    timer:sleep(1000),
    true = ?F:call(P1, livestash_agent_fixture, make_table, []),
    ended(Vm),
    ?assertMatch(#{handed_off := 5, left := 0, reason := ""}, report(Vm)),
    ?assertEqual(5, rows(P1)),
    stop(Vms).

%% The last pod of a fleet keeps its users until the one in its place listens, be it without the agent.
booting_pod() ->
    {Dns, Environment} = livestash_agent_dns:serve([], "app"),
    [#{peer := Peer} = Vm] = fleet(1, Environment),
    fill(Vm, 5),
    with_booting(fun(Booting) ->
        meet(Vm, Booting),
        terminate(Vm),
        ?F:eventually(fun() -> ?F:call(Vm, livestash_agent_state, phase, []) =:= keeping end),
        timer:sleep(5000),
        ?assert(is_process_alive(Peer)),
        ?assertEqual(keeping, ?F:call(Vm, livestash_agent_state, phase, [])),
        Witness = ?F:start(#{}),
        true = ?F:call(Witness, net_kernel, connect_node, [Booting]),
        go = ?F:call(Witness, erpc, call, [Booting, erlang, send, [?MODULE, go]]),
        ended(Vm),
        ?assertEqual(5, ?F:call(Witness, erpc, call, [Booting, ets, info, [?TABLE, size]])),
        ?F:stop(Witness)
    end),
    exit(Dns, kill).

booting_for_ever() ->
    {Dns, Environment} = livestash_agent_dns:serve([], "app"),
    Short = Environment#{"LIVESTASH_DRAIN_ENDPOINT_WAIT_MS" => "0", "LIVESTASH_DRAIN_CLOSE_TIMEOUT_MS" => "4000", "LIVESTASH_DRAIN_HANDOFF_TIMEOUT_MS" => "5000"},
    [Vm] = fleet(1, Short),
    fill(Vm, 5),
    with_booting(fun(Booting) ->
        meet(Vm, Booting),
        terminate(Vm),
        ended(Vm),
        ?assertMatch(#{handed_off := 5, left := 0, reason := ""}, report(Vm)),
        Witness = ?F:start(#{}),
        true = ?F:call(Witness, net_kernel, connect_node, [Booting]),
        ?assertEqual(5, ?F:call(Witness, erpc, call, [Booting, ets, info, [?TABLE, size]])),
        ?F:stop(Witness)
    end),
    exit(Dns, kill).

%% It may crash in its boot, again and again.
booting_peer() ->
    [Vm, P1] = Vms = fleet(2, #{}),
    fill(Vm, 100),
    with_booting(fun(Booting) ->
        [meet(Each, Booting) || Each <- Vms],
        terminate(Vm),
        ended(Vm)
    end),
    ?assertMatch(#{handed_off := 100, left := 0, reason := ""}, report(Vm)),
    ?assertEqual(100, rows(P1)),
    stop(Vms).

%% A node that makes LiveStash's table, and of which a later application does not start. Nobody reads what it says.
with_booting(Test) ->
    Name = lists:concat(["booting", erlang:unique_integer([positive]), "x", os:getpid(), "@127.0.0.1"]),
    {ok, Boot} = file:read_file(code:root_dir() ++ "/bin/start_clean.boot"),
    {script, Id, Commands} = binary_to_term(Boot),
    {Before, After} = lists:splitwith(fun(Command) -> Command =/= {progress, started} end, Commands),
    Script = filename:join(os:getenv("TESTS"), Name),
    ok = file:write_file(Script ++ ".boot", term_to_binary({script, Id, Before ++ [{apply, {?MODULE, stand_still, []}} | After]})),
    Arguments = ["-boot", Script, "-noinput", "-name", Name, "-setcookie", "tests", "-pa", os:getenv("TESTS"), "-kernel", "prevent_overlapping_partitions", "false"],
    Port = open_port({spawn_executable, os:find_executable("erl")}, [{args, Arguments}, {env, [{"ERL_AFLAGS", false}]}]),
    {os_pid, Pid} = erlang:port_info(Port, os_pid),
    try
        Test(list_to_atom(Name))
    after
        "" = os:cmd("kill -KILL " ++ integer_to_list(Pid))
    end.

%% In the process that boots.
stand_still() ->
    true = ?F:make_table(),
    true = register(?MODULE, self()),
    receive
        go -> ok
    end.

%% Returns when the node stands still.
meet(Vm, Node) ->
    ?F:eventually(fun() -> ?F:call(Vm, net_kernel, connect_node, [Node]) end),
    ?F:eventually(fun() -> is_pid(?F:call(Vm, erpc, call, [Node, erlang, whereis, [?MODULE]])) end).

redis() ->
    [Vm, P1] = Vms = fleet(2, #{"LIVE_STASH_ADAPTER" => "redis"}),
    fill(Vm, 5),
    terminate(Vm),
    ended(Vm),
    ?assertMatch(#{before := 0, handed_off := 5, left := 0, reason := ""}, report(Vm)),
    ?assertEqual(5, rows(P1)),
    stop(Vms).

missing_table() ->
    [Vm | _] = Vms = fleet(2, #{}),
    true = ?F:call(Vm, ets, delete, [?TABLE]),
    terminate(Vm),
    ended(Vm),
    ?assertMatch(#{before := 0, handed_off := 0, left := 0, reason := [_ | _]}, report(Vm)),
    stop(Vms).

%% It is ended by force, or the application would not stop either, and the kubelet would have to kill it.
stuck_endpoint() ->
    [Vm, P1] = Vms = fleet(2, #{"LIVESTASH_DRAIN_CLOSE_TIMEOUT_MS" => "300"}),
    serve(Vm, {1, slow}),
    fill(Vm, 5),
    terminate(Vm),
    ended(Vm),
    ?assertMatch(#{closed := 1, handed_off := 5, left := 0}, report(Vm)),
    ?assertEqual(5, rows(P1)),
    stop(Vms).

given_up() ->
    [Vm, P1] = Vms = fleet(2, #{}),
    fill(Vm, 5),
    ok = ?F:call(Vm, application, stop, [livestash_agent]),
    terminate(Vm),
    ended(Vm),
    ?assertMatch(#{handed_off := 5}, report(Vm)),
    ?assertEqual(5, rows(P1)),
    stop(Vms).

failing_drain() ->
    [Vm] = fleet(1, #{}),
    true = ?F:call(Vm, persistent_term, erase, [livestash_agent_state]),
    true = ?F:call(Vm, persistent_term, erase, [livestash_agent_config]),
    terminate(Vm),
    ended(Vm).

unwritable_report() ->
    [Vm, P1] = Vms = fleet(2, #{"LIVESTASH_TERMINATION_LOG" => "/nonexistent/log"}),
    fill(Vm, 5),
    terminate(Vm),
    ended(Vm),
    ?assertEqual(5, rows(P1)),
    stop(Vms).

mnesia_copy_elsewhere() ->
    [Vm, Other] = Vms = mnesia_fleet(),
    {atomic, ok} = ?F:call(Other, mnesia, add_table_copy, [?MNESIA, node_of(Other), ram_copies]),
    terminate(Vm),
    ended(Vm),
    ?assertMatch(#{before := 1, handed_off := 0, left := 0, reason := ""}, report(Vm)),
    stop(Vms).

only_mnesia_copy() ->
    [Vm | _] = Vms = mnesia_fleet(),
    terminate(Vm),
    ended(Vm),
    ?assertMatch(#{before := 1, handed_off := 0, left := 1, reason := [_ | _]}, report(Vm)),
    stop(Vms).

%% Two nodes with one schema, and the table at the first.
mnesia_fleet() ->
    Settings = #{"LIVE_STASH_ADAPTER" => "mnesia", "LIVESTASH_DRAIN_HANDOFF_TIMEOUT_MS" => "1000"},
    [Vm, Other] = Vms = fleet(2, Settings),
    [ok = ?F:call(Each, mnesia, start, []) || Each <- Vms],
    {ok, [_]} = ?F:call(Other, mnesia, change_config, [extra_db_nodes, [node_of(Vm)]]),
    {atomic, ok} = ?F:call(Vm, mnesia, create_table, [?MNESIA, [{ram_copies, [node_of(Vm)]}]]),
    ok = ?F:call(Vm, mnesia, dirty_write, [{?MNESIA, key, value}]),
    Vms.

%% Nodes that are connected to each other, each with a table of stashes.
fleet(Size, Settings) ->
    Vms = [start(Settings) || _ <- lists:seq(1, Size)],
    [true = ?F:call(Vm, net_kernel, connect_node, [node_of(Other)]) || Vm <- Vms, Other <- Vms],
    Vms.

%% Remembers where its report will be.
start(Settings) ->
    Environment = maps:merge(environment(), Settings),
    %% Mnesia is loaded on demand.
    Vm = ?F:start(#{environment => Environment, mode => "interactive"}),
    ?F:eventually(fun() -> is_pid(?F:call(Vm, erlang, whereis, [livestash_agent])) end),
    [] = ?F:call(Vm, fun livestash_agent_endpoint_tests:'__sockets__'/0),
    true = ?F:call(Vm, fun livestash_agent_fixture:make_table/0),
    Vm#{report => maps:get("LIVESTASH_TERMINATION_LOG", Environment)}.

environment() ->
    Report = lists:concat([os:getenv("TESTS"), "/report.", erlang:unique_integer([positive])]),
    #{
        "LIVE_STASH_ADAPTER" => "ets",
        "LIVESTASH_DRAIN_ENDPOINT_WAIT_MS" => "0",
        "LIVESTASH_TERMINATION_LOG" => Report
    }.

node_of(#{node := Node}) ->
    Node.

serve(Vm, What) ->
    ok = ?F:call(Vm, livestash_agent_endpoint_tests, serve, [What]).

fill(Vm, Count) ->
    Rows = [{state, {node_of(Vm), N}, undefined, 0, #{}, nil} || N <- lists:seq(1, Count)],
    true = ?F:call(Vm, ets, insert, [?TABLE, Rows]).

rows(Vm) ->
    ?F:call(Vm, ets, info, [?TABLE, size]).

terminate(Vm) ->
    "" = os:cmd("kill -TERM " ++ ?F:call(Vm, os, getpid, [])).

ended(#{peer := Peer}) ->
    ?F:eventually(fun() -> not is_process_alive(Peer) end).

%% Those that are left.
stop(Vms) ->
    [?F:stop(Vm) || #{peer := Peer} = Vm <- Vms, is_process_alive(Peer)].

report(#{report := File}) ->
    {ok, Text} = file:read_file(File),
    Format =
        "^{\"livestash\":1,\"sessionsBefore\":([0-9]+),\"socketsClosed\":([0-9]+),\"handedOff\":([0-9]+),\"otherVersion\":([0-9]+),"
        "\"notHandedOff\":([0-9]+),\"largestStashBytes\":0,\"reason\":\"([^\"]*)\",\"seconds\":([0-9]+\\.[0-9])}$",
    {match, Values} = re:run(Text, Format, [{capture, all_but_first, list}]),
    [Before, Closed, HandedOff, OtherVersion, Left, Reason, Seconds] = Values,
    #{
        before => list_to_integer(Before),
        closed => list_to_integer(Closed),
        handed_off => list_to_integer(HandedOff),
        other_version => list_to_integer(OtherVersion),
        left => list_to_integer(Left),
        reason => Reason,
        seconds => list_to_float(Seconds)
    }.
