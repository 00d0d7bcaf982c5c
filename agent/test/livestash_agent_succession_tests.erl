-module(livestash_agent_succession_tests).

-include_lib("eunit/include/eunit.hrl").

-define(SELF, 'app@shop-1.shop-headless.ns.svc.cluster.local').
-define(LOWER, 'app@shop-0.shop-headless.ns.svc.cluster.local').
-define(HIGHER, 'app@shop-10.shop-headless.ns.svc.cluster.local').

decide_test_() ->
    [
        {Name, ?_assertEqual(Role, livestash_agent_succession:decide(What, ?SELF, [{?SELF, leaving()} | Others]))}
     || {Name, Role, What, Others} <- [
            {"nobody else is there", alone, users, []},
            {"one stays", {stay, [?LOWER]}, users, [{?LOWER, staying()}]},
            {"of those that stay, who is ready", {stay, [?LOWER]}, users, [
                {?LOWER, staying()}, {?HIGHER, (staying())#{ready := false}}
            ]},
            {"of those that stay, who has the table", {stay, [?HIGHER]}, ets, [
                {?LOWER, (staying())#{stores := [mnesia]}}, {?HIGHER, (staying())#{ready := false}}
            ]},
            {"the one that stays is not yet ready", wait, users, [{?LOWER, (staying())#{ready := false}}]},
            {"the one that stays has no table yet", wait, ets, [{?LOWER, (staying())#{stores := []}}, {?HIGHER, leaving()}]},
            {"all stop, and the highest ordinal keeps", {follow, ?HIGHER}, ets, [{?LOWER, leaving()}, {?HIGHER, leaving()}]},
            {"which may be this one", keep, ets, [{?LOWER, leaving()}]},
            {"not one that takes nothing any more", keep, ets, [{?HIGHER, (leaving())#{open := false}}]}
        ]
    ].

last_resort_test_() ->
    Booting = (staying())#{open := false, ready := false},
    [
        {Name, ?_assertEqual(Takers, livestash_agent_succession:decide_last(ets, ?SELF, [{?SELF, leaving()} | Others]))}
     || {Name, Takers, Others} <- [
            {"nobody else is there", [], []},
            {"one boots", [?LOWER], [{?LOWER, Booting}]},
            {"one boots and has no table yet", [], [{?LOWER, Booting#{stores := []}}]},
            {"one boots, and one stays and has no table yet", [?LOWER], [{?LOWER, Booting}, {?HIGHER, (staying())#{stores := []}}]},
            {"one boots, and one stops later", [?HIGHER], [{?LOWER, Booting}, {?HIGHER, leaving()}]},
            {"one boots, and one stops too", [?LOWER], [{?LOWER, Booting}, {?HIGHER, (leaving())#{open := false}}]}
        ]
    ].

%% Two nodes that hand over at the same time, and would refuse each other for ever.
nobody_is_open_test() ->
    Closed = (leaving())#{open := false},
    Survey = [{?SELF, Closed}, {?LOWER, Closed}],
    ?assertEqual(keep, livestash_agent_succession:decide(ets, ?SELF, Survey)),
    ?assertEqual({follow, ?SELF}, livestash_agent_succession:decide(ets, ?LOWER, Survey)).

%% Whatever two of them know of each other, one of them keeps: never both, never none.
one_keeper_test() ->
    Bits = [true, false],
    [
        begin
            Survey = [{Node, (leaving())#{open := Open}} || {Node, Open} <- [{?SELF, A}, {?LOWER, B}, {?HIGHER, C}]],
            Roles = [livestash_agent_succession:decide(ets, Node, Survey) || {Node, _} <- Survey],
            ?assertEqual([keep], [Role || Role <- Roles, Role =:= keep])
        end
     || A <- Bits, B <- Bits, C <- Bits
    ].

ordinal_test_() ->
    [
        ?_assertEqual(Ordinal, livestash_agent_succession:ordinal(Node))
     || {Ordinal, Node} <- [{0, ?LOWER}, {10, ?HIGHER}, {3, 'a-7@web-2-3'}, {-1, 'app@10.0.0.7'}, {-1, nonode@nohost}]
    ].

staying() ->
    #{stays => true, open => true, ready => true, stores => [ets]}.

leaving() ->
    #{stays => false, open => true, ready => false, stores => [ets]}.
