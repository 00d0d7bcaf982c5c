%% Do users who come back find their stash? LiveStash writes into the LiveView's socket that the browser was here before,
%% and a fingerprint of what it gave back; the agent looks when LiveView says, through telemetry, that it has mounted.
%% And of which version are its views? That is written in their code, so it is known before anybody has opened one.
-module(livestash_agent_recovery).

-export([attach/0, handle/4]).
-export([versions/0]).

-define(EVENT, [phoenix, live_view, mount, stop]).
%% Views whose version is told. An application has a few.
-define(MAX_VIEWS, 32).

%% Listens, when there is an adapter and telemetry is there. Attaching a second time changes nothing.
-spec attach() -> ok.
attach() ->
    case livestash_agent_config:get(adapter) =/= none andalso erlang:module_loaded(telemetry) of
        true ->
            _ = telemetry:attach_many(?MODULE, [?EVENT], fun ?MODULE:handle/4, []),
            ok = read_views();
        false ->
            ok
    end.

%% Runs in the LiveView's process, so it looks at two fields only, and no shape of the socket makes it fail. The context is
%% the same in all adapters. A page that does not ask for its stash counts as one that did not find it.
-spec handle([atom()], map(), map(), []) -> ok.
handle(_Event, _Measurements, #{socket := #{private := #{live_stash_context := Context}} = Socket}, []) ->
    ok = version(Context),
    ok = saw_view(Socket, Context),
    count(Context);
handle(_Event, _Measurements, _Metadata, []) ->
    ok.

%% What this page would take back is what rows of other nodes are compared with.
version(#{version := Version}) -> livestash_agent_shape:saw_version(Version);
version(_Context) -> ok.

%% Of which LiveStash version this node's views are: another release's pages are held against it. A view that gives itself
%% another one for each page is of none.
saw_view(#{view := View}, #{version := Version}) when is_atom(View) ->
    Seen = persistent_term:get(?MODULE, #{}),
    case Seen of
        #{View := {version, Version}} -> ok;
        #{View := varies} -> ok;
        #{View := _Other} -> persistent_term:put(?MODULE, Seen#{View := varies});
        _ when map_size(Seen) < ?MAX_VIEWS -> persistent_term:put(?MODULE, Seen#{View => {version, Version}});
        _ -> ok
    end;
saw_view(_Socket, _Context) ->
    ok.

%% A release has loaded all of its modules by now. Where modules are loaded when they are needed, views are known once they have mounted.
read_views() ->
    Views = lists:sort([{View, Version} || {View, _} <- code:all_loaded(), {ok, Version} <- [written(View)]]),
    Seen = persistent_term:get(?MODULE, #{}),
    Read = maps:from_list([{View, {version, Version}} || {View, Version} <- lists:sublist(Views, ?MAX_VIEWS)]),
    persistent_term:put(?MODULE, maps:merge(Read, Seen)).

%% The version in `use LiveStash, stored_keys: ..., version: ...`, or in a hook of the application's own with these options. LiveView
%% keeps them among what it calls when a page mounts.
written(View) ->
    try
        true = erlang:function_exported(View, '__live__', 0),
        #{lifecycle := #{mount := Hooks}} = View:'__live__'(),
        [Options | _] = [Options || #{id := {Hook, Options}} <- Hooks, is_stash(Hook, Options)],
        {ok, proplists:get_value(version, Options, nil)}
    catch
        _:_ -> none
    end.

is_stash('Elixir.LiveStash', _Options) -> true;
is_stash(_Hook, Options) -> is_list(Options) andalso lists:keymember(stored_keys, 1, Options).

%% The views that are known here, in the order of their names, and the version of each.
-spec versions() -> [{View :: atom(), Version :: term()}].
versions() ->
    [{View, Version} || {View, {version, Version}} <- lists:sort(maps:to_list(persistent_term:get(?MODULE, #{})))].

count(#{'reconnected?' := true, stash_fingerprint := Fingerprint}) when is_binary(Fingerprint) ->
    livestash_agent_state:count(returns_recovered, 1);
count(#{'reconnected?' := true}) ->
    livestash_agent_state:count(returns_not_recovered, 1);
count(_Context) ->
    ok.
