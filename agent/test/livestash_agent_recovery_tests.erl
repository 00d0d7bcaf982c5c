%% Does the agent count the users who come back, and whether they found their stash, and never break a page?
-module(livestash_agent_recovery_tests).

-include_lib("eunit/include/eunit.hrl").

-import(livestash_agent_fixture, [start_with_telemetry/1, stop/1, call/4, request/2]).

-define(EVENT, [phoenix, live_view, mount, stop]).

attach_test_() ->
    [{timeout, 60, Test} || Test <- [
        fun returns_are_counted/0,
        fun versions_are_told/0,
        fun versions_are_read/0,
        fun without_an_adapter_nothing_is_counted/0
    ]].

%% The socket as LiveStash leaves it when LiveView has mounted.
returns_are_counted() ->
    Vm = start_with_telemetry("ets"),
    ok = call(Vm, livestash_agent_recovery, attach, []),
    ok = call(Vm, livestash_agent_recovery, attach, []),
    ?assertEqual(1, call(Vm, telemetry, handlers, [?EVENT])),
    ?assertEqual({0, 0}, counted(Vm)),
    [mounted(Vm, #{'reconnected?' => true, stash_fingerprint => <<"x">>}) || _ <- lists:seq(1, 3)],
    mounted(Vm, #{'reconnected?' => true, stash_fingerprint => nil}),
    mounted(Vm, #{'reconnected?' => false, stash_fingerprint => nil}),
    ?assertEqual({3, 1}, counted(Vm)),
    %% What a page would take back is remembered, for rows of other nodes.
    mounted(Vm, #{'reconnected?' => false, stash_fingerprint => nil, version => <<"2">>}),
    ?assertMatch(#{versions := [<<"2">>]}, call(Vm, livestash_agent_shape, known, [ac_tab])),
    stop(Vm).

%% Of each view one version, unless it has many.
versions_are_told() ->
    Vm = start_with_telemetry("ets"),
    ok = call(Vm, livestash_agent_recovery, attach, []),
    ?assertMatch({match, _}, re:run(request(Vm, "/status"), <<"\"versions\":\\[\\]">>)),
    Mounts = [{'Cart', nil}, {'Shop', <<"2">>}, {'Cart', nil}, {'Chat', 1}, {'Chat', 2}, {'Chat', 1}],
    [mounted(Vm, View, #{'reconnected?' => true, stash_fingerprint => nil, version => Version}) || {View, Version} <- Mounts],
    ?assertEqual([{'Cart', nil}, {'Shop', <<"2">>}], call(Vm, livestash_agent_recovery, versions, [])),
    Text = request(Vm, "/status"),
    ?assertMatch({match, _}, re:run(Text, <<"\"versions\":\\[{\"view\":\"Cart\",\"version\":\"nil\"},{\"view\":\"Shop\",\"version\":\"\\\\\"2\\\\\"\"}\\]">>)),
    ?assertMatch({match, _}, re:run(Text, <<"\"returns\":{\"recovered\":0,\"notRecovered\":6}">>)),
    [mounted(Vm, list_to_atom("v" ++ integer_to_list(N)), #{version => 1}) || N <- lists:seq(1, 100)],
    ?assertEqual(31, length(call(Vm, livestash_agent_recovery, versions, []))),
    stop(Vm).

%% Before anybody has opened a page.
versions_are_read() ->
    Vm = start_with_telemetry("ets"),
    Hook = fun(Options) -> #{id => {'Elixir.LiveStash', Options}, stage => mount} end,
    Other = #{id => {'Elixir.Shop.Auth', default}, stage => mount},
    load_view(Vm, 'Cart', #{lifecycle => #{mount => [Other, Hook([{stored_keys, [items]}, {version, <<"2">>}])]}}),
    load_view(Vm, 'Chat', #{lifecycle => #{mount => [Hook([])]}}),
    load_view(Vm, 'Form', #{lifecycle => #{mount => [#{id => {'Elixir.Shop.Stash', [{stored_keys, [step]}, {version, 7}]}, stage => mount}]}}),
    load_view(Vm, 'Plain', #{lifecycle => #{mount => [Other]}}),
    load_view(Vm, 'Component', #{kind => component}),
    load_view(Vm, 'Odd', #{lifecycle => #{mount => [Hook(odd)]}}),
    [load_view(Vm, list_to_atom("Old" ++ integer_to_list(N)), old) || N <- lists:seq(1, 3)],
    ok = call(Vm, livestash_agent_recovery, attach, []),
    ?assertEqual([{'Cart', <<"2">>}, {'Chat', nil}, {'Form', 7}], call(Vm, livestash_agent_recovery, versions, [])),
    %% What a page really has is what counts.
    mounted(Vm, 'Chat', #{'reconnected?' => true, stash_fingerprint => nil, version => 3}),
    ?assertEqual([{'Cart', <<"2">>}, {'Form', 7}], call(Vm, livestash_agent_recovery, versions, [])),
    [load_view(Vm, list_to_atom("View" ++ integer_to_list(N)), #{lifecycle => #{mount => [Hook([])]}}) || N <- lists:seq(1, 100)],
    ok = call(Vm, livestash_agent_recovery, attach, []),
    ?assert(length(call(Vm, livestash_agent_recovery, versions, [])) =< 32),
    stop(Vm).

%% A module such as LiveView makes of a page.
load_view(Vm, Name, Live) ->
    Forms = [
        {attribute, 1, module, Name},
        {attribute, 1, export, [{'__live__', 0}]},
        {function, 1, '__live__', 0, [{clause, 1, [], [], [erl_parse:abstract(Live, [{line, 1}])]}]}
    ],
    {ok, Name, Beam} = compile:forms(Forms),
    {module, Name} = call(Vm, code, load_binary, [Name, "nowhere", Beam]).

without_an_adapter_nothing_is_counted() ->
    Vm = start_with_telemetry("none"),
    ok = call(Vm, livestash_agent_recovery, attach, []),
    ?assertEqual(0, call(Vm, telemetry, handlers, [?EVENT])),
    ?assertEqual(nomatch, re:run(request(Vm, "/metrics"), "livestash_returns_total")),
    stop(Vm).

no_shape_fails_test_() ->
    [
        ?_assertEqual(ok, livestash_agent_recovery:handle(?EVENT, #{}, Metadata, []))
     || Metadata <- [
            #{},
            #{socket => nil},
            #{socket => #{private => nil}},
            #{socket => #{private => #{}}},
            #{socket => #{private => #{live_stash_context => nil}}},
            #{socket => #{private => #{live_stash_context => #{}}}},
            #{socket => #{private => #{live_stash_context => #{'reconnected?' => nil, stash_fingerprint => <<"x">>}}}}
        ]
    ].

mounted(Vm, Context) ->
    mounted(Vm, nil, Context).

mounted(Vm, View, Context) ->
    Metadata = #{socket => #{view => View, private => #{live_stash_context => Context}}},
    ok = call(Vm, telemetry, execute, [?EVENT, #{}, Metadata]).

counted(Vm) ->
    Text = request(Vm, "/metrics"),
    {number(Text, "yes"), number(Text, "no")}.

number(Text, Recovered) ->
    {match, [Number]} = re:run(Text, ["\nlivestash_returns_total{recovered=\"", Recovered, "\"} ([0-9]+)\n"], [{capture, all_but_first, list}]),
    list_to_integer(Number).
