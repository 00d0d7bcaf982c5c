%% Where are the copies of a stash?
-module(livestash_agent_shadow_holders_tests).

-include_lib("eunit/include/eunit.hrl").

-define(H, livestash_agent_shadow_holders).
-define(KEYS, lists:seq(1, 300)).

%% Nobody knows of machines: the same as the highest weights.
unknown_places_test() ->
    Nodes = #{a => {"", ""}, b => {"", ""}, c => {"", ""}},
    [
        ?assertEqual(heaviest(Key, [a, b, c], 2), ?H:choose(Key, {{"", ""}, Nodes}, 2))
     || Key <- ?KEYS
    ].

heaviest(Key, Nodes, Count) ->
    Weighed = lists:sort([{?H:weight(Key, Node), Node} || Node <- Nodes]),
    lists:sublist([Node || {_, Node} <- lists:reverse(Weighed)], Count).

other_machine_first_test() ->
    Nodes = #{same => {"", "m1"}, b => {"", "m2"}, c => {"", "m2"}, unknown => {"", ""}},
    Holders = [?H:choose(Key, {{"", "m1"}, Nodes}, 1) || Key <- ?KEYS],
    ?assertEqual([[b], [c]], lists:usort(Holders)).

%% An agent that does not say where it is may be elsewhere, which is better than not.
unknown_before_same_test() ->
    Nodes = #{same => {"", "m1"}, unknown => {"", ""}},
    ?assertEqual([[unknown]], lists:usort([?H:choose(Key, {{"", "m1"}, Nodes}, 1) || Key <- ?KEYS])).

same_machine_rather_than_none_test() ->
    Nodes = #{b => {"", "m1"}, c => {"", "m1"}},
    ?assertEqual([[b], [c]], lists:usort([?H:choose(Key, {{"", "m1"}, Nodes}, 1) || Key <- ?KEYS])).

other_zone_first_test() ->
    Nodes = #{b => {"z1", "m2"}, c => {"z2", "m3"}, d => {"", "m4"}},
    ?assertEqual([[c]], lists:usort([?H:choose(Key, {{"z1", "m1"}, Nodes}, 1) || Key <- ?KEYS])).

%% Two copies are not on one machine where that can be.
two_copies_apart_test() ->
    Nodes = #{b => {"", "m2"}, c => {"", "m2"}, d => {"", "m3"}},
    Holders = [lists:sort(?H:choose(Key, {{"", "m1"}, Nodes}, 2)) || Key <- ?KEYS],
    ?assertEqual([[b, d], [c, d]], lists:usort(Holders)).

fewer_nodes_than_copies_test() ->
    ?assertEqual([], ?H:choose(key, {{"", "m1"}, #{}}, 2)),
    ?assertEqual([b], ?H:choose(key, {{"", "m1"}, #{b => {"", "m1"}}}, 2)).

%% Whoever had the stash before, its holders are told.
former_test_() ->
    Places = #{a => {"", "m1"}, b => {"", "m1"}, c => {"", "m2"}, d => {"z", "m3"}, e => {"", ""}},
    [
        {lists:concat([Self, " after ", Owner, ", ", Copies]), fun() ->
            [
                ?assertEqual(
                    [],
                    ?H:choose(Key, {maps:get(Owner, Places), maps:remove(Owner, Places)}, Copies) --
                        ?H:former(Key, Self, {maps:get(Self, Places), maps:remove(Self, Places)}, Copies)
                )
             || Key <- ?KEYS
            ]
        end}
     || Self <- maps:keys(Places), Owner <- maps:keys(Places), Owner =/= Self, Copies <- [1, 2]
    ].
