%% Do users who come back find their stash? LiveStash writes into the LiveView's socket that the browser was here before,
%% and a fingerprint of what it gave back; the agent looks when LiveView says, through telemetry, that it has mounted.
-module(livestash_agent_recovery).

-export([attach/0, handle/4]).

-define(EVENT, [phoenix, live_view, mount, stop]).

%% Listens, when there is an adapter and telemetry is there. Attaching a second time changes nothing.
-spec attach() -> ok.
attach() ->
    case livestash_agent_config:get(adapter) =/= none andalso erlang:module_loaded(telemetry) of
        true ->
            _ = telemetry:attach_many(?MODULE, [?EVENT], fun ?MODULE:handle/4, []),
            ok;
        false ->
            ok
    end.

%% Runs in the LiveView's process, so it looks at two fields only, and no shape of the socket makes it fail. The context is
%% the same in all adapters. A page that does not ask for its stash counts as one that did not find it.
-spec handle([atom()], map(), map(), []) -> ok.
handle(_Event, _Measurements, #{socket := #{private := #{live_stash_context := Context}}}, []) ->
    ok = version(Context),
    count(Context);
handle(_Event, _Measurements, _Metadata, []) ->
    ok.

%% What this page would take back is what rows of other nodes are compared with.
version(#{version := Version}) -> livestash_agent_shape:saw_version(Version);
version(_Context) -> ok.

count(#{'reconnected?' := true, stash_fingerprint := Fingerprint}) when is_binary(Fingerprint) ->
    livestash_agent_state:count(returns_recovered, 1);
count(#{'reconnected?' := true}) ->
    livestash_agent_state:count(returns_not_recovered, 1);
count(_Context) ->
    ok.
