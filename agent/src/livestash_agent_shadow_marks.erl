%% Which stashes have changed since they were last copied to another node? Each page says so itself, in LiveView's
%% telemetry, when the fingerprint of what it has stashed is another one: it writes its key into a set. No process is
%% asked or told, and a page that changes ten times between two looks is in the set once.
%%
%% A page that has come back and found nothing says that, too. A copy of its stash may be taken over a moment later, and LiveStash
%% would refuse what this page stashes for as long as the older page's stash is there.
-module(livestash_agent_shadow_marks).

-export([new/0, attach/0, handle/4, mark/1, arrived/1, take/1]).
-export([found_nothing/1, looked/1, begins_anew/1, forget_ended/0]).

%% Where pages are about to look for their stash, and where they stash. What a page does elsewhere, in handle_info without rendering, is found
%% by livestash_agent_shadow_scan.
-define(EVENTS, [
    [phoenix, live_view, mount, start],
    [phoenix, live_view, mount, stop],
    [phoenix, live_view, handle_params, stop],
    [phoenix, live_view, handle_event, stop],
    [phoenix, live_view, render, stop]
]).
%% Bytes of an id. A browser brings it along, so it may be anything.
-define(MAX_ID, 1024).
%% The pages that have found nothing, by their keys.
-define(ANEW, livestash_agent_shadow_anew).

%% Makes the sets, which the calling process owns.
-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [named_table, public, {write_concurrency, true}]),
    ?ANEW = ets:new(?ANEW, [named_table, public, {write_concurrency, true}]),
    ok.

%% Listens, when telemetry is there. Attaching a second time changes nothing.
-spec attach() -> ok.
attach() ->
    _ = erlang:module_loaded(telemetry) andalso telemetry:attach_many(?MODULE, ?EVENTS, fun ?MODULE:handle/4, []),
    ok.

%% Runs in the LiveView's process, which remembers what it has said in its dictionary. A page that is rendered for a
%% request without a socket stashes nothing. No shape of the socket makes it fail, and neither does a set that is gone
%% because the agent has ended, or a release without crypto.
-spec handle([atom()], map(), map(), []) -> ok.
handle([_, _, mount, start], _Measurements, #{socket := #{transport_pid := Transport}}, []) when is_pid(Transport) ->
    livestash_agent_shadow_store:await_taken_over();
handle(_Event, _Measurements, #{socket := #{transport_pid := Transport, private := #{live_stash_context := Context}}}, []) when
    is_pid(Transport)
->
    saw(Context);
handle(_Event, _Measurements, _Metadata, []) ->
    ok.

saw(#{id := Id, secret := Secret, stash_fingerprint := Fingerprint} = Context) when
    is_binary(Id), byte_size(Id) =< ?MAX_ID, is_binary(Secret)
->
    case get(?MODULE) of
        {Id, Fingerprint, _Key} ->
            ok;
        {Id, found_nothing, Key} when Fingerprint =:= nil ->
            _ = put(?MODULE, {Id, begun_anew, Key}),
            looked(Key);
        {Id, begun_anew, _Key} when Fingerprint =:= nil ->
            ok;
        {Id, Anew, Key} when Anew =:= found_nothing; Anew =:= begun_anew ->
            _ = put(?MODULE, {Id, Fingerprint, Key}),
            ok = stashes(Key),
            arrived([Key]);
        {Id, _Other, Key} ->
            said(Id, Fingerprint, Key);
        undefined when Fingerprint =:= nil, map_get('reconnected?', Context) =:= true ->
            Key = key(Id, Secret),
            _ = put(?MODULE, {Id, found_nothing, Key}),
            found_nothing(Key);
        undefined when Fingerprint =:= nil ->
            ok;
        undefined ->
            Key = key(Id, Secret),
            _ = put(?MODULE, {Id, Fingerprint, Key}),
            arrived([Key]);
        %% It has reset its stash, and has a new one.
        {_Former, _Other, Key} ->
            _ = mark(Key),
            said(Id, Fingerprint, key(Id, Secret))
    end;
saw(_Context) ->
    ok.

said(Id, Fingerprint, Key) ->
    _ = put(?MODULE, {Id, Fingerprint, Key}),
    mark(Key).

%% The calling process is a page that has come back and found nothing under its key. Nothing is deleted here: it may look for its stash
%% only after it has mounted.
-spec found_nothing(Key :: term()) -> ok.
found_nothing(Key) ->
    try
        true = ets:insert(?ANEW, {Key, self()}),
        ok
    catch
        error:badarg -> ok
    end.

%% The page goes on, so it will not look for its stash any more. A copy that was taken over after it had looked makes way now: LiveStash
%% would refuse what the page stashes next, and this may be the last time that it stashes.
-spec looked(Key :: term()) -> ok.
looked(Key) ->
    try
        livestash_agent_shadow_promotion:give_back(Key)
    catch
        error:_ -> ok
    end.

stashes(Key) ->
    try
        true = ets:delete(?ANEW, Key),
        ok
    catch
        error:badarg -> ok
    end.

%% Whether a page of this node lives that has found nothing under the key, and has stashed nothing yet.
-spec begins_anew(Key :: term()) -> boolean().
begins_anew(Key) ->
    case ets:lookup(?ANEW, Key) of
        [{Key, Page}] -> is_process_alive(Page);
        [] -> false
    end.

%% Forgets those that have ended.
-spec forget_ended() -> ok.
forget_ended() ->
    Ended = fun({_Key, Page} = Anew, Acc) -> [Anew || not is_process_alive(Page)] ++ Acc end,
    lists:foreach(fun(Anew) -> ets:delete_object(?ANEW, Anew) end, ets:foldl(Ended, [], ?ANEW)).

%% As LiveStash makes it. One that cannot be made is in no table.
key(Id, Secret) ->
    try
        binary:part(base64:encode(crypto:hash(sha256, [Id, Secret])), 0, 43)
    catch
        error:_ -> none
    end.

%% The stash with this key has changed, or is gone.
-spec mark(Key :: term()) -> ok.
mark(Key) ->
    try
        true = ets:insert(?MODULE, {Key}),
        ok
    catch
        error:badarg -> ok
    end.

%% Stashes with these keys have come to this node. Where they were nobody has them any more, so they do not wait for the
%% interval.
-spec arrived([Key :: term()]) -> ok.
arrived(Keys) ->
    lists:foreach(fun mark/1, Keys),
    livestash_agent_shadow:wake().

%% Some keys that were marked, which they are no more. Whatever is written from now on marks them again, so the row has
%% to be read after this.
-spec take(Most :: pos_integer()) -> [Key :: term()].
take(Most) ->
    case ets:select(?MODULE, [{{'$1'}, [], ['$1']}], Most) of
        {Keys, _Continuation} ->
            [ets:delete(?MODULE, Key) || Key <- Keys],
            Keys;
        '$end_of_table' ->
            []
    end.
