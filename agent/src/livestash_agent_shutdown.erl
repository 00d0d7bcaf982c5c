%% What happens when the VM is stopped, but not by SIGTERM? By init:stop, which is `bin/app stop` and System.stop, or
%% because a permanent application has ended: the drain, before the first application is stopped.
%%
%% The kernel has a hook for that moment, shutdown_func. A callback of the agent's own application would not do: that
%% application may have given up, may be stopped alone, and is not told why it stops.
-module(livestash_agent_shutdown).

-export([install/0]).
-export([drain/1]).

%% Sets the hook, once. One that the application has set comes after the drain.
-spec install() -> ok.
install() ->
    case application:get_env(kernel, shutdown_func) of
        {ok, {?MODULE, drain}} -> ok;
        {ok, Own} -> install(Own);
        undefined -> install(none)
    end.

install(Own) ->
    persistent_term:put(?MODULE, Own),
    application:set_env(kernel, shutdown_func, {?MODULE, drain}).

%% Called by the application controller when it begins to terminate. It waits, and answers nobody meanwhile: the drain
%% must not ask it anything.
-spec drain(Reason :: term()) -> ok.
drain(Reason) ->
    ok = livestash_agent_drain:run(),
    own(persistent_term:get(?MODULE), Reason).

own({Module, Function}, Reason) ->
    _ = Module:Function(Reason),
    ok;
own(_None, _Reason) ->
    ok.
