%% Runs modules of EUnit tests, ends the VM, and says in one last line how many tests passed and failed.
-module(livestash_agent_eunit).

-behaviour(eunit_listener).

-export([run/1]).
-export([start/1, init/1, handle_begin/3, handle_end/3, handle_cancel/3, terminate/2]).

-spec run([module()]) -> no_return().
run(Modules) ->
    ok = io:setopts([{encoding, unicode}]),
    io:format("OTP ~s~n", [erlang:system_info(otp_release)]),
    %% What is expected to go wrong in tests would otherwise fill the screen.
    logger:set_primary_config(level, none),
    %% Seconds for a whole module. What hangs is ended by the time that its test has.
    Tests = [{timeout, 3600, {module, Module}} || Module <- Modules],
    case eunit:test(Tests, [no_tty, {report, {?MODULE, [{owner, self()}]}}]) of
        ok -> halt(0);
        error -> halt(1)
    end.

start(Options) ->
    eunit_listener:start(?MODULE, Options).

init(_Options) ->
    #{passed => 0, failed => 0}.

handle_begin(_Kind, _Data, State) ->
    State.

handle_end(test, Data, #{passed := Passed, failed := Failed} = State) ->
    case proplists:get_value(status, Data) of
        ok ->
            say("ok", Data, ""),
            State#{passed := Passed + 1};
        {skipped, Reason} ->
            say("not run", Data, Reason),
            State#{failed := Failed + 1};
        {error, Reason} ->
            say("FAILED", Data, Reason),
            State#{failed := Failed + 1}
    end;
handle_end(group, _Data, State) ->
    State.

%% A group that is cancelled had no chance to run its tests.
handle_cancel(_Kind, Data, #{failed := Failed} = State) ->
    case proplists:get_value(reason, Data) of
        undefined ->
            State;
        Reason ->
            say("FAILED", Data, Reason),
            State#{failed := Failed + 1}
    end.

terminate({ok, _Data}, #{passed := Passed, failed := Failed}) ->
    io:format("~b passed, ~b failed~n", [Passed, Failed]);
terminate({error, Reason}, _State) ->
    io:format("the tests did not run: ~tp~n", [Reason]).

say(Result, Data, Reason) ->
    {Module, Function, _Arity} = proplists:get_value(source, Data, {'', '', 0}),
    Description = [[" ", Text] || Text <- [proplists:get_value(desc, Data)], is_list(Text) orelse is_binary(Text)],
    io:format("~s ~s:~s~ts~n", [Result, Module, Function, Description]),
    [io:format("    ~tp~n", [Reason]) || Reason =/= ""].
