%% Does the agent get into a VM by environment alone, and does the VM never suffer from it?
-module(livestash_agent_boot_tests).

-include_lib("eunit/include/eunit.hrl").

-export([log/2]).

-import(livestash_agent_fixture, [start/1, stop/1, call/2, call/4, eventually/1, request/2, free_port/0]).

%% What boots an application besides those that every VM has.
-define(RELEASE, ["-boot", "start_sasl"]).

boot_test_() ->
    [{timeout, 60, Test} || Test <- [
        fun starts_in_embedded_mode/0,
        fun second_vm_is_left_alone/0,
        fun vm_without_a_node_is_left_alone/0,
        fun release_with_a_name_of_its_own/0,
        fun release_without_a_name/0,
        fun node_that_peers_do_not_look_for/0,
        fun vm_that_opens_the_port/0,
        fun tools_of_a_release_are_left_alone/0,
        fun second_application_of_a_pod_is_left_alone/0,
        fun missing_files_do_not_stop_the_boot/0,
        fun damaged_module_does_not_stop_the_boot/0,
        fun taken_port_costs_only_http/0,
        fun crash_is_survived/0,
        fun whoever_needs_too_much_memory_says_so/0,
        fun crash_loop_ends_with_one_line_and_the_vm_lives/0
    ]].

starts_in_embedded_mode() ->
    Vm = start(#{}),
    eventually(fun() -> answers(Vm) end),
    ?assertMatch(<<"HTTP/1.1 200 OK\r\n", _/binary>>, request(Vm, "/healthz")),
    ?assertNotEqual(nomatch, binary:match(request(Vm, "/healthz"), <<"\r\nlivestash-agent: 0.1.0\r\n">>)),
    ?assertEqual(embedded, call(Vm, code, get_mode, [])),
    stop(Vm).

second_vm_is_left_alone() ->
    Vm = start(#{environment => #{"RELEASE_NODE" => "another@127.0.0.1"}}),
    eventually(fun() -> call(Vm, erlang, module_loaded, [livestash_agent]) end),
    ?assertEqual(ok, call(Vm, livestash_agent, start, [])),
    ?assertEqual(false, loaded(Vm)),
    ?assertMatch({error, econnrefused}, request(Vm, "/healthz")),
    stop(Vm).

vm_without_a_node_is_left_alone() ->
    Erl = "erl -noshell -pa $EBIN -eval '[livestash_agent:start()||{module,_}<-[code:load_file(livestash_agent)]]' "
        "-eval 'io:format(\"~p ~p\", [node(), lists:keymember(livestash_agent, 1, application:loaded_applications())])' "
        "-eval 'halt().'",
    ?assertEqual("nonode@nohost false", os:cmd(Erl)).

%% Its own vm.args, as Distillery has them.
release_with_a_name_of_its_own() ->
    Log = log_file(),
    Vm = start(#{environment => #{"RELEASE_NODE" => "another@127.0.0.1"}, log => "warning", flags => ?RELEASE ++ logged_to(Log)}),
    eventually(fun() -> answers(Vm) end),
    ?assert(handles_signals(Vm)),
    eventually(fun() -> length(lines_with("its peers look for another@127.0.0.1", Log)) =:= 1 end),
    ?assertEqual(#{expected => [], connected => [], missing => []}, call(Vm, livestash_agent_mesh, peers, [])),
    stop(Vm).

%% RELEASE_DISTRIBUTION=none in its own env.sh.
release_without_a_name() ->
    Log = log_file(),
    Port = free_port(),
    {ok, Peer, _Node} = peer:start_link(#{
        connection => standard_io,
        env => [
            {"RELEASE_NODE", "app@127.0.0.1"},
            {"RELEASE_COMMAND", "start"},
            {"LIVESTASH_AGENT_PORT", integer_to_list(Port)},
            {"LIVESTASH_DRAIN_ENDPOINT_WAIT_MS", "600000"},
            {"ERL_AFLAGS",
                "-pa " ++ os:getenv("EBIN") ++ " -eval [livestash_agent:start()||{module,_}<-[code:load_file(livestash_agent)]]."}
        ],
        args => ?RELEASE ++ logged_to(Log)
    }),
    Vm = #{peer => Peer, port => Port},
    eventually(fun() -> answers(Vm) end),
    ?assertEqual('nonode@nohost', call(Vm, erlang, node, [])),
    eventually(fun() -> length(lines_with("this node has no name", Log)) =:= 1 end),
    ?assertMatch(<<"HTTP/1.1 200", _/binary>>, request(Vm, "/status")),
    ?assertMatch(<<"HTTP/1.1 200", _/binary>>, request(Vm, "/metrics")),
    eventually(fun() -> binary:part(request(Vm, "/readyz"), 0, 12) =:= <<"HTTP/1.1 200">> end),
    %% It drains, and has nobody to wait for.
    "" = os:cmd("kill -TERM " ++ call(Vm, os, getpid, [])),
    eventually(fun() -> not is_process_alive(Peer) end).

%% RELEASE_NODE is what the release's own env.sh has made of it, and nobody looks for that.
node_that_peers_do_not_look_for() ->
    Log = log_file(),
    Operators = #{"LIBCLUSTER_APP" => "app", "POD_NAME" => "app-0", "LIVESTASH_PEERS_QUERY" => "app-nodes.test"},
    Vm = start(#{environment => Operators#{"LIVESTASH_READY_GRACE_MS" => "600000"}, log => "warning", flags => logged_to(Log)}),
    eventually(fun() -> answers(Vm) end),
    eventually(fun() -> length(lines_with("its peers look for app@app-0.app-nodes.test", Log)) =:= 1 end),
    %% Peers cannot be named, so none is waited for, and who is connected is one.
    eventually(fun() -> binary:part(request(Vm, "/readyz"), 0, 12) =:= <<"HTTP/1.1 200">> end),
    Peer = start(#{}),
    true = call(Vm, net_kernel, connect_node, [maps:get(node, Peer)]),
    Connected = [maps:get(node, Peer)],
    ?assertEqual(#{expected => Connected, connected => Connected, missing => []}, call(Vm, livestash_agent_mesh, peers, [])),
    stop(Peer),
    stop(Vm).

%% `elixir -S mix phx.server` boots no application, but starts one later.
vm_that_opens_the_port() ->
    Port = free_port(),
    Environment = #{"RELEASE_NODE" => "another@127.0.0.1", "PORT" => integer_to_list(Port)},
    Vm = start(#{environment => Environment}),
    %% A connection from that port, here one that is just being made, is not what is looked for.
    Connect = fun() ->
        {ok, Socket} = prim_inet:open(tcp, inet, stream),
        {ok, _} = prim_inet:bind(Socket, {127, 0, 0, 1}, Port)
    end,
    Client = call(Vm, fun() -> hold(Connect) end),
    timer:sleep(2000),
    ?assertEqual(false, loaded(Vm)),
    true = call(Vm, erlang, exit, [Client, kill]),
    _ = call(Vm, fun() -> hold(fun() -> {ok, _} = gen_tcp:listen(Port, [{reuseaddr, true}]) end) end),
    eventually(fun() -> answers(Vm) end),
    stop(Vm).

tools_of_a_release_are_left_alone() ->
    Log = log_file(),
    Tools = [{#{"RELEASE_COMMAND" => "rpc"}, []}, {#{}, ["-hidden"]}],
    Vms = [
        start(#{
            environment => Environment#{"RELEASE_NODE" => "another@127.0.0.1"},
            log => "warning",
            flags => Flags ++ ?RELEASE ++ logged_to(Log)
        })
     || {Environment, Flags} <- Tools
    ],
    timer:sleep(1000),
    [?assertEqual(false, loaded(Vm)) || Vm <- Vms],
    ?assertEqual([], lines_with("livestash agent", Log)),
    [stop(Vm) || Vm <- Vms].

second_application_of_a_pod_is_left_alone() ->
    Log = log_file(),
    First = #{port := Port} = start(#{}),
    eventually(fun() -> answers(First) end),
    Environment = #{"RELEASE_NODE" => "another@127.0.0.1"},
    Second = start(#{port => Port, environment => Environment, log => "warning", flags => ?RELEASE ++ logged_to(Log)}),
    eventually(fun() -> length(lines_with("it does not start on", Log)) =:= 1 end),
    ?assertEqual(false, loaded(Second)),
    stop(Second),
    stop(First).

%% Runs a function in a process that stays, and owns what it has opened.
hold(Function) ->
    Caller = self(),
    Pid = spawn(fun() ->
        Function(),
        Caller ! {self(), done},
        receive
            never -> ok
        end
    end),
    receive
        {Pid, done} -> Pid
    end.

log_file() ->
    lists:concat([os:getenv("TESTS"), "/log.", erlang:unique_integer([positive])]).

logged_to(Log) ->
    Handler = "[{handler,default,logger_std_h,#{config=>#{file=>~0p}}}]",
    ["-kernel", "logger", lists:flatten(io_lib:format(Handler, [Log]))].

lines_with(Words, Log) ->
    Text =
        case file:read_file(Log) of
            {ok, Content} -> Content;
            {error, enoent} -> <<>>
        end,
    [Line || Line <- binary:split(Text, <<"\n">>, [global]), binary:match(Line, list_to_binary(Words)) =/= nomatch].

missing_files_do_not_stop_the_boot() ->
    Flags = "-pa /nowhere -eval [livestash_agent:start()||{module,_}<-[code:load_file(livestash_agent)]].",
    Vm = start(#{environment => #{"ERL_AFLAGS" => Flags}}),
    ?assertEqual(false, running(Vm)),
    stop(Vm).

damaged_module_does_not_stop_the_boot() ->
    Folder = filename:join(os:getenv("TESTS"), "damaged"),
    ok = filelib:ensure_dir(filename:join(Folder, "x")),
    Files = filelib:wildcard(os:getenv("EBIN") ++ "/*"),
    [{ok, _} = file:copy(File, filename:join(Folder, filename:basename(File))) || File <- Files],
    ok = file:write_file(filename:join(Folder, "livestash_agent_http.beam"), <<"FOR1 and then nothing">>),
    Flags = "-pa " ++ Folder ++ " -eval [livestash_agent:start()||{module,_}<-[code:load_file(livestash_agent)]].",
    Vm = start(#{environment => #{"ERL_AFLAGS" => Flags}}),
    eventually(fun() -> loaded(Vm) end),
    ?assertEqual(false, running(Vm)),
    ?assertMatch({error, econnrefused}, request(Vm, "/healthz")),
    stop(Vm).

taken_port_costs_only_http() ->
    Port = free_port(),
    {ok, Taken} = gen_tcp:listen(Port, [{reuseaddr, true}]),
    Vm = start(#{port => Port}),
    eventually(fun() -> running(Vm) end),
    ?assert(handles_signals(Vm)),
    ?assert(is_pid(call(Vm, erlang, whereis, [livestash_agent_mesh]))),
    ok = gen_tcp:close(Taken),
    eventually(fun() -> answers(Vm) end),
    stop(Vm).

%% Else it is missing, begins anew without what it knew, and nobody knows why.
whoever_needs_too_much_memory_says_so() ->
    Log = log_file(),
    Vm = start(#{log => "warning", flags => logged_to(Log)}),
    eventually(fun() -> answers(Vm) end),
    _ = call(Vm, fun() -> spawn(sys, replace_state, [livestash_agent_rank, fun(_) -> lists:seq(1, 4000000) end]) end),
    eventually(fun() -> length(lines_with("maximum heap size reached", Log)) =:= 1 end),
    eventually(fun() -> is_pid(call(Vm, erlang, whereis, [livestash_agent_rank])) end),
    stop(Vm).

crash_is_survived() ->
    Vm = start(#{}),
    eventually(fun() -> answers(Vm) end),
    ok = call(Vm, livestash_agent_state, count, [handoffs_received, 7]),
    ok = call(Vm, livestash_agent_state, set_draining, [closing]),
    [kill(Vm, Name) || Name <- [livestash_agent_http, livestash_agent_mesh, livestash_agent_network]],
    eventually(fun() -> answers(Vm) end),
    ?assertMatch(#{handoffs_received := 7}, call(Vm, livestash_agent_state, counters, [])),
    ?assertEqual(closing, call(Vm, livestash_agent_state, phase, [])),
    stop(Vm).

crash_loop_ends_with_one_line_and_the_vm_lives() ->
    Vm = start(#{}),
    eventually(fun() -> answers(Vm) end),
    ok = call(Vm, fun collect_lines/0),
    eventually(fun() ->
        kill(Vm, livestash_agent_http),
        not running(Vm)
    end),
    ?assertMatch({error, econnrefused}, request(Vm, "/healthz")),
    ?assertMatch([_], [Line || "livestash agent: it has stopped" ++ _ = Line <- call(Vm, fun lines/0)]),
    %% What a drain and the peers need goes on.
    ?assert(handles_signals(Vm)),
    ?assertEqual(false, call(Vm, livestash_agent_state, draining, [])),
    ?assertEqual(#{expected => [], connected => [], missing => []}, call(Vm, livestash_agent_mesh, peers, [])),
    stop(Vm).

answers(Vm) ->
    is_binary(request(Vm, "/healthz")).

loaded(Vm) ->
    lists:keymember(livestash_agent, 1, call(Vm, application, loaded_applications, [])).

running(Vm) ->
    lists:keymember(livestash_agent, 1, call(Vm, application, which_applications, [])).

handles_signals(Vm) ->
    lists:member(livestash_agent_signal, call(Vm, gen_event, which_handlers, [erl_signal_server])).

%% The process may be between two lives.
kill(Vm, Name) ->
    case call(Vm, erlang, whereis, [Name]) of
        undefined -> ok;
        Pid -> call(Vm, erlang, exit, [Pid, kill])
    end.

collect_lines() ->
    Lines = ets:new(lines, [public, named_table]),
    ets:give_away(Lines, whereis(init), none),
    logger:set_primary_config(level, all),
    logger:add_handler(collect, ?MODULE, #{level => all}).

lines() ->
    [Line || {_Key, Line} <- ets:tab2list(lines)].

%% A logger handler.
log(#{msg := {Format, Arguments}}, _Config) when is_list(Format) ->
    ets:insert(lines, {erlang:unique_integer(), lists:flatten(io_lib:format(Format, Arguments))});
log(#{msg := {string, Text}}, _Config) ->
    ets:insert(lines, {erlang:unique_integer(), lists:flatten(Text)});
log(_Event, _Config) ->
    ok.
