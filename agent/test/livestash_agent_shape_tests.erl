-module(livestash_agent_shape_tests).

-include_lib("eunit/include/eunit.hrl").

-define(S, livestash_agent_shape).

fits_test_() ->
    Ours = row(1, self(), nil),
    [
        {Name, fun() -> ?assertEqual(Expected, with_table(Here, Versions, fun(Known) -> ?S:fits(Row, Known) end)) end}
     || {Name, Here, Versions, Row, Expected} <- [
            {"nothing is known", [], [], row(2, other(), "1"), yes},
            {"the same", [Ours], [nil], row(2, other(), nil), yes},
            {"one of several versions", [Ours], [nil, "1", "2"], row(2, other(), "1"), yes},
            {"numbers that are equal", [Ours], [1], row(2, other(), 1.0), yes},
            {"another version", [Ours], ["2"], row(2, other(), "1"), other_version},
            {"no version any more", [Ours], [nil], row(2, other(), "1"), other_version},
            {"another version, and no row here yet", [], ["2"], row(2, other(), "1"), other_version},
            {"one element less", [Ours], [nil], {state, 2, other(), 0, #{}}, other_shape},
            {"one element more", [Ours], [nil], {state, 2, other(), 0, #{}, nil, 0}, other_shape},
            {"another record", [Ours], [nil], {stash, 2, other(), 0, #{}, nil}, other_shape},
            {"nothing at all", [Ours], [nil], {}, other_shape},
            {"rows of another shape are at home here", [{state, 1, self(), 0, #{}}], [nil], {state, 2, other(), 0, #{}}, yes},
            {"where only rows of others are, nothing is known", [row(1, other(), nil)], [], {state, 2, other(), 0, #{}}, yes},
            {"nor of an earlier life of this node", [row(1, earlier(), nil)], [], {state, 2, other(), 0, #{}}, yes},
            {"rows without an owner say nothing", [row(1, undefined, nil)], [], {state, 2, other(), 0, #{}}, yes},
            {"both kinds have been written here", [Ours, {state, 3, self(), 0, #{}}], [nil], {state, 2, other(), 0, #{}}, yes}
        ]
    ].

%% A version for each page would fill the memory, and says nothing.
versions_without_end_test() ->
    Versions = [{page, N} || N <- lists:seq(1, 1000)],
    with_table([], Versions, fun(Known) ->
        ?assertMatch(#{versions := []}, Known),
        ?assertEqual(yes, ?S:fits(row(1, other(), {page, 7}), Known)),
        ?assert(length(persistent_term:get(?S)) < 100)
    end).

%% A look at a big table takes a small part of it.
big_table_test() ->
    Rows = [row(N, self(), nil) || N <- lists:seq(1, 20000)],
    with_table(Rows, [nil], fun(Known) ->
        ?assertEqual(#{shapes => [{6, state}], versions => [nil]}, Known),
        {reductions, Before} = process_info(self(), reductions),
        _ = ?S:known(?MODULE),
        {reductions, After} = process_info(self(), reductions),
        ?assert(After - Before < 20000)
    end).

%% Nothing of what is stashed is copied: 500 stashes of 200 kB are more than a process of the agent may have on its heap.
large_stashes_test() ->
    with_table([], [], fun(_Known) ->
        Stash = lists:seq(1, 12500),
        [ets:insert(?MODULE, setelement(5, row(N, self(), nil), Stash)) || N <- lists:seq(1, 500)],
        Test = self(),
        {Pid, Monitor} = spawn_opt(fun() -> Test ! {self(), ?S:known(?MODULE)} end, [monitor, {max_heap_size, livestash_agent:max_heap_size()}]),
        Outcome = receive {'DOWN', Monitor, process, Pid, Reason} -> Reason end,
        ?assertEqual(normal, Outcome),
        receive {Pid, Known} -> ?assertMatch(#{shapes := [{6, state}]}, Known) end
    end).

with_table(Rows, Versions, Test) ->
    persistent_term:erase(?S),
    ?MODULE = ets:new(?MODULE, [named_table, public, {keypos, 2}]),
    try
        true = ets:insert(?MODULE, Rows),
        lists:foreach(fun ?S:saw_version/1, Versions),
        Test(?S:known(?MODULE))
    after
        ets:delete(?MODULE),
        persistent_term:erase(?S)
    end.

row(Id, Owner, Version) ->
    {state, Id, Owner, 0, #{}, Version}.

other() ->
    process('other@nowhere', 1).

%% The node had this name, and restarted.
earlier() ->
    Pid = process(node(), erlang:system_info(creation) - 1),
    ?assertEqual(node(), node(Pid)),
    Pid.

%% As it comes over the wire.
process(Node, Creation) ->
    Name = atom_to_binary(Node),
    binary_to_term(<<131, 88, 119, (byte_size(Name)), Name/binary, 7:32, 0:32, Creation:32>>).
