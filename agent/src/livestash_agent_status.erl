%% What does /status say? The node as the operator wants to know it.
-module(livestash_agent_status).

-export([json/0]).

%% How many of the missing peers are named: an answer must not grow with the fleet.
-define(NAMED, 10).

-spec json() -> iodata().
json() ->
    {Ready, Reason} = livestash_agent_ready:check(),
    {StoreReady, StoreReason} = store(livestash_agent_store:ready()),
    {Stashes, Bytes} = livestash_agent_store:size(),
    #{handoffs_sent := Sent, handoffs_received := Received, handoffs_failed := Failed} = livestash_agent_state:counters(),
    #{expected := Expected, connected := Connected, missing := Missing} = livestash_agent_mesh:peers(),
    livestash_agent_json:encode({object, [
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
        {uptimeSeconds, livestash_agent_state:uptime() div 1000}
    ]}).

%% Readiness knows nothing of the second: a pod whose copies are being repaired goes on serving.
store({true, _}) -> livestash_agent_reunion:whole();
store({false, Reason}) -> {false, Reason}.
