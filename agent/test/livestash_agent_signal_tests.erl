-module(livestash_agent_signal_tests).

-include_lib("eunit/include/eunit.hrl").

-behaviour(gen_event).

-define(F, livestash_agent_fixture).

%% Called in other VMs.
-export([replace_handler/0, init/1, handle_event/2, handle_call/2]).

other_signals_do_what_they_did_test_() ->
    {timeout, 100, fun() ->
        Dump = os:getenv("TESTS") ++ "/dump",
        Vm = start(#{"ERL_CRASH_DUMP" => Dump}),
        os:cmd("kill -USR1 " ++ ?F:call(Vm, os, getpid, [])),
        ended(Vm),
        {ok, Text} = file:read_file(Dump),
        ?assertMatch({match, _}, re:run(Text, "Slogan: Received SIGUSR1")),
        Other = start(#{}),
        os:cmd("kill -QUIT " ++ ?F:call(Other, os, getpid, [])),
        ended(Other)
    end}.

installed_once_test_() ->
    {timeout, 60, fun() ->
        Vm = start(#{}),
        Before = handlers(Vm),
        ok = ?F:call(Vm, livestash_agent_signal, install, []),
        ?assertEqual(Before, handlers(Vm)),
        ?assertNot(lists:member(erl_signal_handler, Before)),
        ?F:stop(Vm)
    end}.

%% An application that has put a handler of its own in the place of the runtime's keeps it, and gets no other one back.
handler_of_the_application_test_() ->
    {timeout, 60, fun() ->
        Flags = "-pa " ++ os:getenv("EBIN") ++ " " ++ os:getenv("TESTS"),
        Vm = ?F:start(#{environment => #{"ERL_AFLAGS" => Flags}, mode => "interactive"}),
        ok = ?F:call(Vm, ?MODULE, replace_handler, []),
        Pid = ?F:call(Vm, os, getpid, []),
        os:cmd("kill -USR1 " ++ Pid),
        ?F:eventually(fun() -> ?F:call(Vm, persistent_term, get, [?MODULE, none]) =:= sigusr1 end),
        ?assert(lists:member(livestash_agent_signal, handlers(Vm))),
        os:cmd("kill -TERM " ++ Pid),
        ended(Vm)
    end}.

replace_handler() ->
    ok = gen_event:swap_handler(erl_signal_server, {erl_signal_handler, []}, {?MODULE, []}),
    ok = livestash_agent_config:load(),
    ok = livestash_agent_state:init(),
    livestash_agent_signal:install().

init(_) ->
    {ok, []}.

handle_event(Signal, State) ->
    persistent_term:put(?MODULE, Signal),
    {ok, State}.

handle_call(_Request, State) ->
    {ok, ok, State}.

start(Environment) ->
    Vm = ?F:start(#{environment => Environment}),
    ?F:eventually(fun() -> lists:member(livestash_agent_signal, handlers(Vm)) end),
    Vm.

handlers(Vm) ->
    ?F:call(Vm, gen_event, which_handlers, [erl_signal_server]).

ended(#{peer := Peer}) ->
    ?F:eventually(fun() -> not is_process_alive(Peer) end).
