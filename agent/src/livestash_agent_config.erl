%% What was the agent told? Reads the environment once, puts defaults where a value is missing or bad, and answers
%% from memory afterwards.
-module(livestash_agent_config).

-export([load/0, get/1, forget/1]).

-export_type([key/0, adapter/0]).

-type key() ::
    port
    | ready_grace
    | drain_endpoint_wait
    | drain_batch_size
    | drain_batch_interval
    | drain_close_timeout
    | drain_handoff_timeout
    | drain_keep_for
    | drain_keep_bytes
    | shadow_copies
    | shadow_interval
    | shadow_max_bytes
    | machine
    | zone
    | app_port
    | adapter
    | redis_url
    | redis_cacertfile
    | dns_query
    | app_name
    | pod_name
    | previous_cookie
    | release_node.
-type adapter() :: none | ets | browser_memory | redis | mnesia.

%% Milliseconds that a day has: no wait of the agent is meant to be longer.
-define(DAY, 86400000).
%% Milliseconds for which a drain keeps the stashes of closed sockets at most: a week.
-define(LONGEST_KEEP, 7 * ?DAY).
%% Bytes that such stashes may take at most, a pebibyte: a typing error more likely than a wish.
-define(MOST_BYTES, 1 bsl 50).

%% Reads the environment. One log line for each value that cannot be used.
-spec load() -> ok.
load() ->
    Values = [{Key, read(Variable, Type, Default)} || {Key, Variable, Type, Default} <- variables()],
    persistent_term:put(?MODULE, maps:from_list(Values)).

%% The value of one setting. Times are in milliseconds, sizes in bytes; `undefined` where the environment says nothing.
-spec get(key()) -> integer() | adapter() | string() | undefined.
get(Key) ->
    maps:get(Key, persistent_term:get(?MODULE)).

%% Drops a value that is no longer needed, and is better not kept.
-spec forget(key()) -> ok.
forget(Key) ->
    persistent_term:put(?MODULE, (persistent_term:get(?MODULE))#{Key := undefined}).

variables() ->
    [
        {port, "LIVESTASH_AGENT_PORT", {1, 65535}, 9568},
        {ready_grace, "LIVESTASH_READY_GRACE_MS", {0, ?DAY}, 30000},
        {drain_endpoint_wait, "LIVESTASH_DRAIN_ENDPOINT_WAIT_MS", {0, ?DAY}, 3000},
        {drain_batch_size, "LIVESTASH_DRAIN_BATCH_SIZE", {1, 1000000}, 50},
        {drain_batch_interval, "LIVESTASH_DRAIN_BATCH_INTERVAL_MS", {0, ?DAY}, 200},
        {drain_close_timeout, "LIVESTASH_DRAIN_CLOSE_TIMEOUT_MS", {0, ?DAY}, 30000},
        {drain_handoff_timeout, "LIVESTASH_DRAIN_HANDOFF_TIMEOUT_MS", {0, ?DAY}, 20000},
        {drain_keep_for, "LIVESTASH_DRAIN_KEEP_FOR_MS", {0, ?LONGEST_KEEP}, 3600000},
        {drain_keep_bytes, "LIVESTASH_DRAIN_KEEP_BYTES", {0, ?MOST_BYTES}, 268435456},
        {shadow_copies, "LIVESTASH_SHADOW_COPIES", {0, 2}, 0},
        {shadow_interval, "LIVESTASH_SHADOW_INTERVAL_MS", {100, 60000}, 1000},
        {shadow_max_bytes, "LIVESTASH_SHADOW_MAX_BYTES", {0, ?MOST_BYTES}, 268435456},
        {machine, "LIVESTASH_MACHINE", text, ""},
        {zone, "LIVESTASH_ZONE", text, ""},
        {app_port, "PORT", {1, 65535}, undefined},
        {adapter, "LIVE_STASH_ADAPTER", adapter, none},
        {redis_url, "LIVE_STASH_REDIS_URL", secret, undefined},
        {redis_cacertfile, "LIVE_STASH_REDIS_CACERTFILE", text, undefined},
        {dns_query, "LIVESTASH_PEERS_QUERY", text, undefined},
        {app_name, "LIBCLUSTER_APP", text, undefined},
        {pod_name, "POD_NAME", text, undefined},
        {previous_cookie, "LIVESTASH_PREVIOUS_COOKIE", text, undefined},
        {release_node, "RELEASE_NODE", text, undefined}
    ].

%% The value is in a file where one is named, by spec.secretsAs.
read(Variable, secret, Default) ->
    case os:getenv(Variable ++ "_FILE", "") of
        "" -> read(Variable, text, Default);
        File -> read_file(Variable, File, Default)
    end;
read(Variable, Type, Default) ->
    case os:getenv(Variable, "") of
        "" ->
            Default;
        Text ->
            case parse(Type, Text) of
                {ok, Value} ->
                    Value;
                error ->
                    logger:warning("livestash agent: ~ts is ~tp, which is not ~ts; using ~tp.", [
                        Variable, Text, wanted(Type), Default
                    ]),
                    Default
            end
    end.

read_file(Variable, File, Default) ->
    case file:read_file(File) of
        {ok, Text} when byte_size(Text) > 0 ->
            binary_to_list(Text);
        Other ->
            logger:warning("livestash agent: the file in ~ts_FILE cannot be used (~ts).", [Variable, problem(Other)]),
            Default
    end.

problem({ok, _Nothing}) -> "it is empty";
problem({error, Reason}) -> file:format_error(Reason).

parse({Min, Max}, Text) ->
    case string:to_integer(Text) of
        {Integer, ""} when Integer >= Min, Integer =< Max -> {ok, Integer};
        _ -> error
    end;
parse(adapter, "none") -> {ok, none};
parse(adapter, "ets") -> {ok, ets};
parse(adapter, "browser_memory") -> {ok, browser_memory};
parse(adapter, "redis") -> {ok, redis};
parse(adapter, "mnesia") -> {ok, mnesia};
parse(adapter, _) -> error;
parse(text, Text) -> {ok, Text}.

wanted({Min, Max}) -> io_lib:format("a number from ~b to ~b", [Min, Max]);
wanted(adapter) -> "none, ets, browser_memory, redis or mnesia".
