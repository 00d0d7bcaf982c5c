-module(livestash_agent_stop_tests).

-include_lib("eunit/include/eunit.hrl").

-behaviour(application).
-behaviour(supervisor).

-define(F, livestash_agent_fixture).
-define(TABLE, live_stash_server_storage).
-define(EARLY, "timeout 60 erl -noshell -name early@127.0.0.1 -mode embedded >/dev/null 2>&1; echo ended $?").

%% Called in other VMs.
-export([start/2, stop/1, init/1, note/1]).

%% Each test ends a node in another way than SIGTERM alone, and looks at what it leaves: rows at its peer and one report.

all_test_() ->
    [
        {Name, {timeout, 100, Test}}
     || {Name, Test} <- [
            {"init:stop, which is what `bin/app stop` calls", fun init_stop/0},
            {"init:restart", fun init_restart/0},
            {"a permanent application that ends", fun permanent_application/0},
            {"SIGTERM drains once", fun signal/0},
            {"SIGTERM during a stop", fun signal_during_stop/0},
            {"a stop during the drain of SIGTERM", fun stop_during_drain/0},
            {"an agent that has given up", fun given_up/0},
            {"a SIGTERM that came before the VM could handle it", fun lost_signal/0},
            {"the agent alone is stopped", fun agent_stopped/0},
            {"an application with a function of its own for the end", fun own_function/0}
        ]
    ].

init_stop() ->
    [Vm, Peer] = Vms = fleet(#{}),
    ok = ?F:call(Vm, livestash_agent_endpoint_tests, serve, [{7, plain}]),
    ok = ?F:call(Vm, init, stop, []),
    drained(Vm, Peer),
    ?assertNotEqual(nomatch, binary:match(report(Vm), <<"\"socketsClosed\":7,">>)),
    stop_all(Vms).

%% The operating system's process goes on, but nothing that was in its memory.
init_restart() ->
    [Vm, Peer] = Vms = fleet(#{}),
    _ = spawn(fun() -> ?F:call(Vm, init, restart, []) end),
    ?F:eventually(fun() -> rows(Peer) =:= 5 end),
    stop_all([Peer | Vms]).

permanent_application() ->
    [Vm, Peer] = Vms = fleet(#{"ERL_CRASH_DUMP_BYTES" => "0"}),
    ok = ?F:call(Vm, fun start_permanent/0),
    _ = ?F:call(Vm, erlang, exit, [?F:call(Vm, erlang, whereis, [?MODULE]), kill]),
    drained(Vm, Peer),
    stop_all(Vms).

%% A second drain would report that there were no stashes.
signal() ->
    [Vm, Peer] = Vms = fleet(#{}),
    terminate(Vm),
    drained(Vm, Peer),
    stop_all(Vms).

signal_during_stop() ->
    [Vm, Peer] = Vms = fleet(#{"LIVESTASH_DRAIN_ENDPOINT_WAIT_MS" => "1500"}),
    ok = ?F:call(Vm, init, stop, []),
    ?F:eventually(fun() -> draining(Vm, Peer) end),
    terminate(Vm),
    drained(Vm, Peer),
    stop_all(Vms).

stop_during_drain() ->
    [Vm, Peer] = Vms = fleet(#{"LIVESTASH_DRAIN_ENDPOINT_WAIT_MS" => "1500"}),
    terminate(Vm),
    ?F:eventually(fun() -> draining(Vm, Peer) end),
    ok = ?F:call(Peer, rpc, call, [maps:get(node, Vm), init, stop, []]),
    drained(Vm, Peer),
    stop_all(Vms).

given_up() ->
    [Vm, Peer] = Vms = fleet(#{}),
    ok = ?F:call(Vm, application, stop, [livestash_agent]),
    ok = ?F:call(Vm, init, stop, []),
    drained(Vm, Peer),
    stop_all(Vms).

%% The helper's file comes, or is there when the agent starts.
lost_signal() ->
    Folder = lists:concat([os:getenv("TESTS"), "/volume.", erlang:unique_integer([positive])]),
    ok = filelib:ensure_dir(Folder ++ "/ebin/x"),
    Code = filelib:wildcard(os:getenv("EBIN") ++ "/*"),
    [{ok, _} = file:copy(File, Folder ++ "/ebin/" ++ filename:basename(File)) || File <- Code],
    Flags = "-pa " ++ Folder ++ "/ebin -eval [livestash_agent:start()||{module,_}<-[code:load_file(livestash_agent)]].",
    #{peer := Process} = Vm = boot(#{"ERL_AFLAGS" => Flags}, []),
    ok = file:write_file(Folder ++ "/stopping", ""),
    ?F:eventually(fun() -> not is_process_alive(Process) end),
    ?assertMatch({_, _}, binary:match(report(Vm), <<"\"livestash\":1,">>)),
    Next = lists:concat(["RELEASE_NODE=early@127.0.0.1 LIVESTASH_AGENT_PORT=", ?F:free_port(), " ERL_AFLAGS='", Flags, "' "]),
    ?assertEqual("ended 0\n", os:cmd(Next ++ ?EARLY)).

agent_stopped() ->
    [Vm, Peer] = Vms = fleet(#{}),
    ok = ?F:call(Vm, application, stop, [livestash_agent]),
    ?assertEqual(false, ?F:call(Vm, livestash_agent_state, draining, [])),
    ?assertEqual({5, 0}, {rows(Vm), rows(Peer)}),
    stop_all(Vms).

%% It runs after the drain, as everything else that ends with the VM.
own_function() ->
    Note = lists:concat([os:getenv("TESTS"), "/note.", erlang:unique_integer([positive])]),
    [Vm, Peer] = Vms = fleet(#{"NOTE" => Note}, ["-kernel", "shutdown_func", "{livestash_agent_stop_tests,note}"]),
    ok = ?F:call(Vm, init, stop, []),
    drained(Vm, Peer),
    ?assertEqual({ok, <<"shutdown, done">>}, file:read_file(Note)),
    stop_all(Vms).

note(Reason) ->
    Text = io_lib:format("~p, ~p", [Reason, livestash_agent_state:phase()]),
    file:write_file(os:getenv("NOTE"), Text).

start_permanent() ->
    Specification = {application, ?MODULE, [{mod, {?MODULE, []}}, {applications, [kernel, stdlib]}]},
    ok = application:load(Specification),
    application:start(?MODULE, permanent).

start(_Type, _Arguments) ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).

stop(_State) ->
    ok.

init([]) ->
    {ok, {#{}, []}}.

drained(#{peer := Process} = Vm, Peer) ->
    ?F:eventually(fun() -> not is_process_alive(Process) end),
    ?assertEqual(5, rows(Peer)),
    ?assertNotEqual(nomatch, binary:match(report(Vm), <<"\"sessionsBefore\":5,">>)),
    ?assertNotEqual(nomatch, binary:match(report(Vm), <<"\"handedOff\":5,\"otherVersion\":0,\"notHandedOff\":0,">>)).

%% Two connected nodes, each with a table of stashes; the first one's has 5.
fleet(Settings) ->
    fleet(Settings, []).

fleet(Settings, Flags) ->
    [Vm, Peer] = Vms = [boot(Settings, Flags) || _ <- [1, 2]],
    true = ?F:call(Vm, net_kernel, connect_node, [maps:get(node, Peer)]),
    Rows = [{state, {maps:get(node, Vm), N}, undefined, 0, #{}, nil} || N <- lists:seq(1, 5)],
    true = ?F:call(Vm, ets, insert, [?TABLE, Rows]),
    Vms.

boot(Settings, Flags) ->
    Report = lists:concat([os:getenv("TESTS"), "/report.", erlang:unique_integer([positive])]),
    Environment = #{
        "LIVE_STASH_ADAPTER" => "ets",
        "LIVESTASH_DRAIN_ENDPOINT_WAIT_MS" => "0",
        "LIVESTASH_TERMINATION_LOG" => Report
    },
    Vm = ?F:start(#{environment => maps:merge(Environment, Settings), flags => ["-pa", os:getenv("TESTS") | Flags]}),
    ?F:eventually(fun() -> is_pid(?F:call(Vm, erlang, whereis, [livestash_agent])) end),
    [] = ?F:call(Vm, fun livestash_agent_endpoint_tests:'__sockets__'/0),
    {module, ?MODULE} = ?F:call(Vm, code, load_file, [?MODULE]),
    true = ?F:call(Vm, fun livestash_agent_fixture:make_table/0),
    Vm#{report => Report}.

report(#{report := File}) ->
    {ok, Text} = file:read_file(File),
    Text.

rows(Vm) ->
    ?F:call(Vm, ets, info, [?TABLE, size]).

%% Asked from its peer, as a node that stops answers nobody else.
draining(#{node := Node}, Peer) ->
    ?F:call(Peer, erpc, call, [Node, livestash_agent_state, draining, []]).

terminate(Vm) ->
    "" = os:cmd("kill -TERM " ++ ?F:call(Vm, os, getpid, [])).

stop_all(Vms) ->
    [?F:stop(Vm) || #{peer := Process} = Vm <- Vms, is_process_alive(Process)].
