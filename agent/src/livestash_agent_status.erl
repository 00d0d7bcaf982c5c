%% What does /status say? The node as the operator wants to know it.
-module(livestash_agent_status).

-export([json/0]).

%% How many of the missing peers are named: an answer must not grow with the fleet.
-define(NAMED, 10).
%% Milliseconds for the processes that are asked: whoever asks for this is not patient either.
-define(PATIENCE, 200).
%% Characters of a version, about.
-define(MAX_VERSION, 64).

-spec json() -> iodata().
json() ->
    [{Ready, Reason}, {StoreReady, StoreReason}, {Stashes, Bytes}, Peers, Sockets] = livestash_agent_tasks:answers([
        {fun livestash_agent_ready:check/0, {false, "This node is too busy to tell whether it is ready."}},
        {fun() -> store(livestash_agent_store:ready()) end, {false, "This node is too busy to tell of its store."}},
        {fun livestash_agent_store:size/0, {0, 0}},
        {fun livestash_agent_mesh:peers/0, #{expected => nodes(), connected => nodes(), missing => []}},
        {fun sockets/0, []}
    ], ?PATIENCE),
    #{handoffs_sent := Sent, handoffs_received := Received, handoffs_failed := Failed} = Counters = livestash_agent_state:counters(),
    #{returns_recovered := Recovered, returns_not_recovered := NotRecovered} = Counters,
    #{expected := Expected, connected := Connected, missing := Missing} = Peers,
    livestash_agent_json:encode({object, Sockets ++ shadow(livestash_agent_shadow:is_on()) ++ [
        {version, livestash_agent:version()},
        {node, node()},
        {otp, erlang:system_info(otp_release)},
        {adapter, livestash_agent_config:get(adapter)},
        {ready, Ready},
        {reason, Reason},
        {draining, livestash_agent_state:draining()},
        {peers, {object, [
            {expected, length(Expected)},
            {connected, length(Connected)},
            {missing, length(Missing)},
            {missingNodes, {array, lists:sublist(Missing, ?NAMED)}}
        ]}},
        {store, {object, [{ready, StoreReady}, {reason, StoreReason}]}},
        {stashes, Stashes},
        {stashBytes, Bytes},
        {largestStashBytes, livestash_agent_browser:largest()},
        {handoffs, {object, [{sent, Sent}, {received, Received}, {failed, Failed}]}},
        {returns, {object, [{recovered, Recovered}, {notRecovered, NotRecovered}]}},
        {versions, {array, [version(View, Version) || {View, Version} <- livestash_agent_recovery:versions()]}},
        {uptimeSeconds, livestash_agent_state:uptime() div 1000}
    ]}).

%% Left out when nobody counts them in time: no number is another thing than none.
sockets() ->
    #{sockets := Sockets} = livestash_agent_network:counts(),
    [{sockets, Sockets}].

%% Left out where nobody asked for copies of stashes.
shadow(false) ->
    [];
shadow(true) ->
    #{lag := Lag, peers := Peers, refused := Refused} = livestash_agent_shadow:status(),
    [{shadow, {object, [{lagSeconds, Lag div 1000}, {holders, Peers}, {refused, Refused}]}}].

%% A version may be any term, of any size. It is compared as text.
version(View, Version) ->
    Text = io_lib:format("~tp", [readable(Version)], [{chars_limit, ?MAX_VERSION}]),
    {object, [{view, atom_to_binary(View)}, {version, unicode:characters_to_binary(Text)}]}.

%% Elixir's texts as it writes them.
readable(Version) when is_binary(Version) ->
    case unicode:characters_to_list(Version) of
        Text when is_list(Text) -> Text;
        _NoText -> Version
    end;
readable(Version) -> Version.

%% Readiness knows nothing of the second: a pod whose copies are being repaired goes on serving.
store({true, _}) -> livestash_agent_reunion:whole();
store({false, Reason}) -> {false, Reason}.
