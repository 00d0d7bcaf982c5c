-module(livestash_agent_config_tests).

-include_lib("eunit/include/eunit.hrl").

defaults_test() ->
    with([], fun() ->
        ?assertEqual(9568, livestash_agent_config:get(port)),
        ?assertEqual(30000, livestash_agent_config:get(ready_grace)),
        ?assertEqual(3600000, livestash_agent_config:get(drain_keep_for)),
        ?assertEqual(268435456, livestash_agent_config:get(drain_keep_bytes)),
        ?assertEqual(none, livestash_agent_config:get(adapter)),
        ?assertEqual(undefined, livestash_agent_config:get(app_port)),
        ?assertEqual(undefined, livestash_agent_config:get(dns_query))
    end).

given_test() ->
    Given = [
        {"LIVESTASH_AGENT_PORT", "1234"},
        {"LIVE_STASH_ADAPTER", "browser_memory"},
        {"LIVE_STASH_REDIS_URL", "redis://:secret@shop-redis"},
        {"LIVE_STASH_REDIS_CACERTFILE", "/livestash-redis/ca.crt"},
        {"LIVESTASH_PEERS_QUERY", "shop-nodes.ns.svc.cluster.local"}
    ],
    with(Given, fun() ->
        ?assertEqual(1234, livestash_agent_config:get(port)),
        ?assertEqual(browser_memory, livestash_agent_config:get(adapter)),
        ?assertEqual("redis://:secret@shop-redis", livestash_agent_config:get(redis_url)),
        ?assertEqual("/livestash-redis/ca.crt", livestash_agent_config:get(redis_cacertfile)),
        ?assertEqual("shop-nodes.ns.svc.cluster.local", livestash_agent_config:get(dns_query))
    end).

%% Where a file is named, nobody should be told by the environment besides.
secret_in_a_file_test() ->
    File = filename:join("/tmp", "livestash_agent_config_tests." ++ os:getpid()),
    Named = {"LIVE_STASH_REDIS_URL_FILE", File},
    ok = file:write_file(File, "redis://:s%C3%BC@shop-redis"),
    with([Named], fun() -> ?assertEqual("redis://:s%C3%BC@shop-redis", livestash_agent_config:get(redis_url)) end),
    with([Named, {"LIVE_STASH_REDIS_URL", "redis://other"}], fun() ->
        ?assertEqual("redis://:s%C3%BC@shop-redis", livestash_agent_config:get(redis_url))
    end),
    ok = file:write_file(File, ""),
    with([Named], fun() -> ?assertEqual(undefined, livestash_agent_config:get(redis_url)) end),
    ok = file:delete(File),
    with([Named], fun() -> ?assertEqual(undefined, livestash_agent_config:get(redis_url)) end).

bad_values_become_defaults_test_() ->
    [
        {Value, fun() ->
            with([{"LIVESTASH_AGENT_PORT", Value}, {"LIVE_STASH_ADAPTER", Value}], fun() ->
                ?assertEqual(9568, livestash_agent_config:get(port)),
                ?assertEqual(none, livestash_agent_config:get(adapter))
            end)
        end}
     || Value <- ["0", "65536", "-1", "9568x", " ", "0x10", "9568.0", "Ets", [16#20ac]]
    ].

keep_test_() ->
    Cases = [
        {"nothing", {"0", 0}, {"0", 0}},
        {"most", {"604800000", 604800000}, {"1125899906842624", 1125899906842624}},
        {"more than that", {"604800001", 3600000}, {"1125899906842625", 268435456}},
        {"less than nothing", {"-1", 3600000}, {"-1", 268435456}}
    ],
    [
        {Name, fun() ->
            with([{"LIVESTASH_DRAIN_KEEP_FOR_MS", For}, {"LIVESTASH_DRAIN_KEEP_BYTES", Bytes}], fun() ->
                ?assertEqual(ForRead, livestash_agent_config:get(drain_keep_for)),
                ?assertEqual(BytesRead, livestash_agent_config:get(drain_keep_bytes))
            end)
        end}
     || {Name, {For, ForRead}, {Bytes, BytesRead}} <- Cases
    ].

with(Environment, Test) ->
    livestash_agent_fixture:environment(Environment),
    ok = livestash_agent_config:load(),
    try
        Test()
    after
        livestash_agent_fixture:environment([]),
        livestash_agent_config:load()
    end.
