%% Does a URL mean to the agent what it means to Redix, and is nothing of a bad one repeated?
-module(livestash_agent_redis_url_tests).

-include_lib("eunit/include/eunit.hrl").

good_test_() ->
    Plain = #{tls => false, host => "shop-redis", port => 6379, login => [], database => undefined},
    [
        {Url, ?_assertEqual({ok, maps:merge(Plain, Parts)}, livestash_agent_redis_url:parse(Url))}
     || {Url, Parts} <- [
            {"redis://shop-redis", #{}},
            {"redis://shop-redis/", #{}},
            {"redis://shop-redis:", #{}},
            {"REDIS://shop-redis", #{}},
            {"valkey://shop-redis", #{}},
            {"redis://shop-redis?timeout=5s", #{}},
            {"redis://shop-redis#fragment", #{}},
            {"rediss://shop-redis", #{tls => true}},
            {"redis://shop_redis.ns.svc.cluster.local.:7000/3",
                #{host => "shop_redis.ns.svc.cluster.local.", port => 7000, database => 3}},
            {"redis://shop-redis/03/x", #{database => 3}},
            {"redis://10.0.0.1:1", #{host => "10.0.0.1", port => 1}},
            {"redis://[fd00::1]", #{host => "fd00::1"}},
            {"redis://:pw@[::1]:65535/0", #{host => "::1", port => 65535, login => [<<"pw">>], database => 0}},
            {"redis://:pw@shop-redis", #{login => [<<"pw">>]}},
            {"redis://user:pw@shop-redis", #{login => [<<"user">>, <<"pw">>]}},
            {"redis://user:@shop-redis", #{login => [<<"user">>, <<>>]}},
            {"redis://:p:w@shop-redis", #{login => [<<"p:w">>]}},
            {"redis://:p@w@shop-redis", #{login => [<<"p@w">>]}},
            {"redis://u%3Aser:%2F%3f%23%40%25+%C3%A9%ff@shop-redis",
                #{login => [<<"u:ser">>, <<"/?#@%+", 16#c3, 16#a9, 16#ff>>]}},
            {"redis://:p\"<^>{|}`é€@shop-redis", #{login => [<<"p\"<^>{|}`é€"/utf8>>]}}
        ]
    ].

bad_test_() ->
    [
        {Url, fun() ->
            {error, Sentence} = livestash_agent_redis_url:parse(Url),
            ?assertMatch("LIVE_STASH_REDIS_URL " ++ _, Sentence),
            ?assertEqual(nomatch, re:run(Sentence, "secret|sec|ret"))
        end}
     || Url <- [
            "", " ", "redis", "redis:", "redis://", "redis:///3", "redis://:6379", "http://host", "unix:///secret",
            "redis:host", "host:6379", "redis://host\n", "redis://host/3\n", " redis://host", "redis://ho st",
            "redis://host:0", "redis://host:65536", "redis://host:123456", "redis://host:x", "redis://host:-1",
            "redis://host/secret", "redis://host/-1", "redis://host/1.5", "redis://host/1234567890",
            "redis://secret@host", "redis://@:6379", "redis://:secret%@host", "redis://:secret%4@host",
            "redis://:secret%zz@host", "redis://sec:12/ret@host", "redis://:sec/ret@host", "redis://sec:12?ret@host",
            "redis://sec:12#ret@host", "redis://[::1", "redis://::1", "redis://[secret]", "redis://hôst",
            [16#d800], lists:duplicate(100000, $x), "redis://" ++ lists:duplicate(100000, $@)
        ]
    ].

missing_test() ->
    ?assertEqual(
        {error, "LIVE_STASH_REDIS_URL is not set: the pod needs it to find Redis."},
        livestash_agent_redis_url:parse(undefined)
    ).
