%% Does the agent get into a VM by environment alone, and does the VM never suffer from it?
-module(livestash_agent_boot_tests).

-include_lib("eunit/include/eunit.hrl").

-export([log/2]).

-import(livestash_agent_fixture, [start/1, stop/1, call/2, call/4, eventually/1, request/2, free_port/0]).

boot_test_() ->
    [{timeout, 60, Test} || Test <- [
        fun starts_in_embedded_mode/0,
        fun second_vm_is_left_alone/0,
        fun vm_without_a_node_is_left_alone/0,
        fun missing_files_do_not_stop_the_boot/0,
        fun damaged_module_does_not_stop_the_boot/0,
        fun taken_port_costs_only_http/0,
        fun crash_is_survived/0,
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
