%% Does a fleet with Mnesia keep every stash while its nodes are replaced, seeing their peers in time or not? Three nodes that
%% join as LiveStash's do, with the agent. Nodes and ways are drawn by chance; the seed is printed when stashes are lost.
%% LIVESTASH_TEST_ROUNDS=100 takes five minutes, LIVESTASH_TEST_SEED repeats a run.
-module(livestash_agent_join_tests).

-include_lib("eunit/include/eunit.hrl").

-import(livestash_agent_fixture, [start/1, stop/1, call/4, eventually/1, request/2, body/1]).

-define(TABLE, 'Elixir.LiveStash.Adapters.Mnesia.State').
-define(ROWS, 200).
%% Milliseconds.
-define(LATE, 8000).

all_test_() ->
    [
        {"nodes are replaced", {timeout, 3600, fun nodes_are_replaced/0}},
        {"what a node has decided of the table that it made alone", {timeout, 100, fun late_decision/0}},
        {"what was stashed on a node that stood alone", {timeout, 100, fun rows_of_a_lone_node/0}},
        {"a node that made a table waits for the answer of one that is silent", {timeout, 150, fun silent_peer/0}},
        {"a copy that is being loaded is none", {timeout, 60, fun loading_copy/0}},
        {"a node whose Mnesia stops has no stashes", {timeout, 60, fun stopping/0}},
        {"an application with another adapter that uses Mnesia for itself", {timeout, 60, fun other_adapter/0}}
    ].

%% Each of its nodes may well have a Mnesia of its own.
other_adapter() ->
    Vm = start(#{environment => #{"LIVE_STASH_ADAPTER" => "ets"}}),
    eventually(fun() -> is_pid(call(Vm, erlang, whereis, [livestash_agent_ready])) end),
    ?assertEqual(undefined, call(Vm, erlang, whereis, [livestash_agent_join])),
    stop(Vm).

nodes_are_replaced() ->
    Seed = number("LIVESTASH_TEST_SEED", erlang:unique_integer([positive]) + erlang:system_time(second)),
    rand:seed(exsss, Seed),
    Names = names(),
    Vms = fleet(Names),
    %% The first three in any case.
    More = lists:seq(4, number("LIVESTASH_TEST_ROUNDS", 3)),
    Ways = [blind, two_blind, sighted] ++ [lists:nth(rand:uniform(5), ways()) || _ <- More],
    After = lists:foldl(fun(How, Before) -> round(How, Names, Before, Seed) end, Vms, Ways),
    [stop(Vm) || Vm <- maps:values(After)].

%% sighted: the VM is connected to its peers before LiveStash starts. blind: only after it.
ways() -> [sighted, blind, killed, two, two_blind].

round(How, Names, Before, Seed) ->
    [Name, Other | _] = [N || {_, N} <- lists:sort([{rand:uniform(), N} || N <- Names])],
    After = replace(How, Name, Other, Before),
    joined(After),
    ?assertEqual({How, Name, Seed, [?ROWS, ?ROWS, ?ROWS]}, {How, Name, Seed, [rows(Vm) || Vm <- maps:values(After)]}),
    After.

replace(killed, Name, _Other, Vms) ->
    ended("KILL", maps:get(Name, Vms)),
    Vms#{Name := boot(Name, sighted, maps:keys(Vms))};
replace(two, Name, Other, Vms) -> both(sighted, Name, Other, Vms);
replace(two_blind, Name, Other, Vms) -> both(blind, Name, Other, Vms);
replace(How, Name, _Other, Vms) ->
    ended("TERM", maps:get(Name, Vms)),
    Vms#{Name := boot(Name, How, maps:keys(Vms))}.

%% The second goes while the first is coming back.
both(How, Name, Other, Vms) ->
    ended("TERM", maps:get(Name, Vms)),
    Self = self(),
    Starter = spawn_link(fun() -> Self ! {self(), boot(Name, How, maps:keys(Vms))}, timer:sleep(infinity) end),
    ended("TERM", maps:get(Other, Vms)),
    Second = boot(Other, How, maps:keys(Vms)),
    receive
        {Starter, First} -> Vms#{Name := First, Other := Second}
    end.

%% LiveStash's join, which runs in a process of its own, has found two tables and is about to drop its own. By then it has
%% the fleet's.
late_decision() ->
    Names = [Name | Others] = lists:reverse(names()),
    Vms = fleet(Others),
    Vm = boot(Name, alone, Names),
    Joins = 'Elixir.LiveStash.Adapters.Mnesia.TaskSupervisor',
    eventually(fun() -> call(Vm, livestash_agent_store, mnesia_loaded, []) end),
    {ok, Join} = call(Vm, supervisor, start_child, [Joins, [fun drop_late/0]]),
    call(Vm, erlang, send, [Join, go]),
    [true = call(Vm, net_kernel, connect_node, [node_name(Other)]) || Other <- Others],
    All = Vms#{Name => Vm},
    joined(All),
    timer:sleep(?LATE),
    ?assertEqual([?ROWS || _ <- Names], [rows(Each) || Each <- maps:values(All)]),
    [stop(Each) || Each <- maps:values(All)].

drop_late() ->
    timer:sleep(?LATE),
    mnesia:delete_table(?TABLE).

rows_of_a_lone_node() ->
    [Lone | Others] = lists:reverse(names()),
    Vms = fleet(Others),
    Vm = boot(Lone, alone, [Lone | Others]),
    eventually(fun() -> call(Vm, livestash_agent_store, mnesia_loaded, []) end),
    write(Vm, [{?TABLE, lone, call(Vm, erlang, whereis, [init]), os:system_time(second) + 1000, lone}]),
    All = Vms#{Lone => Vm},
    %% Connected again and again, as the agent does with those that DNS names: nodes that meet on a busy machine may part again.
    eventually(fun() ->
        [call(Vm, net_kernel, connect_node, [node_name(Other)]) || Other <- Others],
        [rows(Each) || Each <- maps:values(All)] =:= [?ROWS + 1 || _ <- [Lone | Others]]
    end),
    joined(All),
    [stop(Each) || Each <- maps:values(All)].

%% What the silent one has may be the fleet's table. Here it has none, which cannot be known until it answers.
silent_peer() ->
    [Lone, Other | _] = names(),
    Vm = boot(Lone, alone, [Lone]),
    Peer = start(#{name => Other, environment => #{"LIVE_STASH_ADAPTER" => "mnesia"}}),
    true = call(Vm, net_kernel, connect_node, [node_name(Other)]),
    eventually(fun() -> able(Vm) end),
    Process = call(Peer, os, getpid, []),
    _ = os:cmd("kill -STOP " ++ Process),
    try
        eventually(fun() -> call(Vm, livestash_agent_join, astray, []) end),
        ?assertNot(able(Vm))
    after
        %% A frozen VM would outlive the test.
        os:cmd("kill -CONT " ++ Process)
    end,
    eventually(fun() -> able(Vm) end),
    [stop(Each) || Each <- [Vm, Peer]].

loading_copy() ->
    [A, B | _] = Names = names(),
    Vms = #{A := Vm, B := Peer} = fleet(Names),
    Nodes = lists:sort([node_name(Name) || Name <- Names]),
    ?assertEqual(Nodes, lists:sort(call(Vm, livestash_agent_store, copies, [Nodes]))),
    %% What Mnesia knows while it loads; where_to_write has the node by then.
    true = call(Peer, ets, insert, [mnesia_gvar, {{?TABLE, where_to_read}, node_name(A)}]),
    ?assertEqual(Nodes -- [node_name(B)], lists:sort(call(Vm, livestash_agent_store, copies, [Nodes]))),
    [stop(Each) || Each <- maps:values(Vms)].

%% A newcomer's Mnesia is started anew, and its node must not pass for one that has the fleet's stashes meanwhile.
stopping() ->
    [Name | _] = names(),
    Vm = boot(Name, alone, [Name]),
    eventually(fun() -> able(Vm) end),
    %% What Mnesia says of itself for up to 3 s, while its processes end. It still knows of its tables.
    true = call(Vm, ets, insert, [mnesia_gvar, {mnesia_status, stopping}]),
    ?assertEqual(node_name(Name), call(Vm, mnesia, table_info, [?TABLE, where_to_read])),
    ?assertNot(able(Vm)),
    stop(Vm).

names() ->
    Unique = erlang:unique_integer([positive]),
    [lists:concat(["n", N, "x", Unique, "x", os:getpid()]) || N <- [0, 1, 2]].

fleet(Names) ->
    process_flag(trap_exit, true),
    Vms = maps:from_list([{Name, boot(Name, sighted, Names)} || Name <- Names]),
    joined(Vms),
    Vm = hd(maps:values(Vms)),
    Owner = call(Vm, erlang, spawn, [timer, sleep, [infinity]]),
    Until = os:system_time(second) + 100000,
    write(Vm, [{?TABLE, Id, Owner, Until, Id} || Id <- lists:seq(1, ?ROWS)]),
    Vms.

boot(Name, How, Names) ->
    Peers = [lists:concat(["'", node_name(Other), "'"]) || Other <- Names, Other =/= Name],
    {Early, Late} =
        case How of
            sighted -> {["-kernel", "sync_nodes_optional", "[" ++ string:join(Peers, ",") ++ "]"], ""};
            blind -> {[], string:join([string:trim(Peer, both, "'") || Peer <- Peers], ",")};
            alone -> {[], ""}
        end,
    start(#{
        name => Name,
        mode => "interactive",
        flags => Early ++ ["-kernel", "sync_nodes_timeout", "3000", "-kernel", "prevent_overlapping_partitions", "true"],
        environment => #{
            "LATE_PEERS" => Late,
            "LIVE_STASH_ADAPTER" => "mnesia",
            "LIVESTASH_DRAIN_ENDPOINT_WAIT_MS" => "200",
            "LIVESTASH_DRAIN_CLOSE_TIMEOUT_MS" => "500",
            "LIVESTASH_DRAIN_HANDOFF_TIMEOUT_MS" => "20000",
            "ERL_AFLAGS" =>
                "-pa " ++ os:getenv("EBIN") ++ " -pa " ++ os:getenv("TESTS") ++ " -s livestash_agent_livestash start" ++
                    " -eval [livestash_agent:start()||{module,_}<-[code:load_file(livestash_agent)]]."
        }
    }).

ended(Signal, #{peer := Peer} = Vm) ->
    _ = os:cmd("kill -" ++ Signal ++ " " ++ call(Vm, os, getpid, [])),
    eventually(fun() -> not is_process_alive(Peer) end).

%% Every agent says that it sees the others and has the fleet's stashes: then the operator goes on.
joined(Vms) ->
    eventually(fun() -> lists:all(fun(Vm) -> sees(map_size(Vms) - 1, Vm) andalso able(Vm) end, maps:values(Vms)) end).

sees(Peers, Vm) -> length(call(Vm, erlang, nodes, [])) =:= Peers.

able(Vm) ->
    case request(Vm, "/status") of
        <<"HTTP/1.1 200", _/binary>> = Answer -> binary:match(body(Answer), <<"\"store\":{\"ready\":true">>) =/= nomatch;
        _ -> false
    end.

rows(Vm) -> call(Vm, ets, info, [?TABLE, size]).

write(Vm, Rows) ->
    {atomic, ok} = call(Vm, mnesia, sync_transaction, [fun lists:foreach/2, [fun mnesia:write/1, Rows]]).

node_name(Name) -> list_to_atom(Name ++ "@127.0.0.1").

number(Variable, Default) ->
    case os:getenv(Variable) of
        false -> Default;
        Text -> list_to_integer(Text)
    end.
