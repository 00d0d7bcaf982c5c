-module(livestash_agent_row_tests).

-include_lib("eunit/include/eunit.hrl").

%% Whatever the length of a row, its elements are found, and those that are not within the bounds are not.
elements_test() ->
    Table = ets:new(rows, [{keypos, 2}]),
    Row = fun(Length) -> setelement(4, setelement(2, erlang:make_tuple(Length, x), Length), Length * 10) end,
    Lengths = [4, 5, 6, 8, 9, 30],
    true = ets:insert(Table, [Row(Length) || Length <- Lengths]),
    Select = fun(Positions) -> lists:sort(ets:select(Table, livestash_agent_row:elements(Positions))) end,
    ?assertEqual(Lengths, Select([2])),
    ?assertEqual([{Length, Length * 10} || Length <- Lengths], Select([2, 4])),
    ?assertEqual([{Length, none} || Length <- Lengths], Select([2, none])),
    ?assertEqual([{Length, x, Length, Length * 10} || Length <- Lengths], Select([size, 1, 2, 4])),
    ?assertEqual([], Select([31])).
