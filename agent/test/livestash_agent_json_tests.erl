-module(livestash_agent_json_tests).

-include_lib("eunit/include/eunit.hrl").

encode_test_() ->
    [
        {Expected, ?_assertEqual(Expected, unicode:characters_to_list(livestash_agent_json:encode(Value)))}
     || {Expected, Value} <- [
            {"true", true},
            {"false", false},
            {"0", 0},
            {"-12", -12},
            {"0.5", 0.5},
            {"\"ets\"", ets},
            {"\"\"", ""},
            {"\"text\"", "text"},
            {"\"text\"", ["te", <<"xt">>]},
            {"\"a\\\"b\\\\c\"", "a\"b\\c"},
            {"\"\\u000a\\u0000\\u001f\"", "\n\0\x1f"},
            {[$", 228, 16#20ac, 16#1f600, $"], [228, 16#20ac, 16#1f600]},
            {"[]", {array, []}},
            {"[1,\"2\"]", {array, [1, "2"]}},
            {"{}", {object, []}},
            {"{\"a\":{\"b\":[\"c\"]},\"d\":true}", {object, [{a, {object, [{b, {array, [c]}}]}}, {d, true}]}}
        ]
    ].
