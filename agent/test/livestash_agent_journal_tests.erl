%% Does the journal have room for what it is there for, and does it say when it has not? Mnesia does not run here: the
%% journal gets the events that Mnesia would send.
-module(livestash_agent_journal_tests).

-include_lib("eunit/include/eunit.hrl").

-define(TABLE, 'Elixir.LiveStash.Adapters.Mnesia.State').
-define(FAR, 4000000000).

all_test_() ->
    {foreach, fun start/0, fun livestash_agent_fixture:kill/1, [
        {"stashes of the published size", {timeout, 60, fun published_size/0}},
        {"what there is no room for", {timeout, 60, fun no_room/0}},
        {"what the younger pages of other nodes write", {timeout, 60, fun moved/0}},
        {"what was deleted, and when", fun deleted/0},
        {"what has expired is forgotten", fun expired/0}
    ]}.

start() ->
    ok = livestash_agent_config:load(),
    {ok, Pid} = livestash_agent_journal:start_link(),
    unlink(Pid),
    livestash_agent_journal:remember(?TABLE),
    Pid.

%% It was full after 4,375 of them.
published_size() ->
    [write(N, self(), published(N)) || N <- lists:seq(1, 6000)],
    ?assertEqual(0, livestash_agent_journal:overlooked()),
    ?assertEqual(6000, ets:info(livestash_agent_journal, size)).

no_room() ->
    %% Bytes that cannot be compressed.
    Large = fun() -> rand:bytes(8 bsl 20) end,
    [write(N, self(), Large()) || N <- lists:seq(1, 7)],
    ?assertEqual(0, livestash_agent_journal:overlooked()),
    write(8, self(), Large()),
    ?assertEqual(1, livestash_agent_journal:overlooked()),
    %% The same stash again takes no more room than before, and less makes room.
    write(1, self(), Large()),
    ?assertEqual(1, livestash_agent_journal:overlooked()),
    write(1, self(), small),
    write(8, self(), Large()),
    ?assertEqual(1, livestash_agent_journal:overlooked()),
    %% An older version must not come back in place of one that was not remembered.
    write(1, self(), Large()),
    ?assertEqual(2, livestash_agent_journal:overlooked()),
    ?assertEqual([], ets:lookup(livestash_agent_journal, 1)),
    livestash_agent_journal:forget(),
    ?assertEqual(0, livestash_agent_journal:overlooked()),
    ?assertEqual(0, ets:info(livestash_agent_journal, size)).

moved() ->
    Options = #{name => peer:random_name(), host => "127.0.0.1", longnames => true, connection => standard_io},
    {ok, Peer, Node} = peer:start_link(Options),
    Other = peer:call(Peer, erlang, self, []),
    ?assertEqual(Node, node(Other)),
    {ok, Rank} = livestash_agent_rank:start_link(),
    unlink(Rank),
    livestash_agent_rank:learn([{self(), 2}, {Other, 1}]),
    write(1, self(), here),
    write(1, Other, there),
    ?assertEqual(0, livestash_agent_journal:overlooked()),
    ?assertMatch([{1, written, _, _}], ets:lookup(livestash_agent_journal, 1)),
    %% Of a page that is younger than this node's.
    Younger = peer:call(Peer, erlang, spawn, [timer, sleep, [infinity]]),
    livestash_agent_rank:learn([{Younger, 3}]),
    write(1, Younger, there),
    ?assertEqual(0, livestash_agent_journal:overlooked()),
    ?assertEqual([], ets:lookup(livestash_agent_journal, 1)),
    livestash_agent_fixture:kill(Rank),
    peer:stop(Peer).

deleted() ->
    Before = os:system_time(millisecond),
    livestash_agent_journal ! {mnesia_table_event, {delete, ?TABLE, {?TABLE, 1}, [], activity}},
    0 = livestash_agent_journal:overlooked(),
    ?assert(livestash_agent_journal:deleted(1) >= Before),
    write(1, self(), again),
    0 = livestash_agent_journal:overlooked(),
    ?assertEqual(none, livestash_agent_journal:deleted(1)).

%% A peer may be away for hours. What the table has is left to LiveStash.
expired() ->
    Table = ets:new(?TABLE, [named_table, {keypos, 2}]),
    true = ets:insert(Table, {?TABLE, 2}),
    write(1, self(), stash),
    %% As long as a stash may live, and be kept.
    Ago = os:system_time(millisecond) - 3600000 - 301000,
    ok = livestash_agent_journal:adopt([{{6, deleted, Ago + 60000}, 0}]),
    0 = livestash_agent_journal:overlooked(),
    Bytes = element(3, sys:get_state(livestash_agent_journal)),
    [write(Key, self(), stash, os:system_time(second) - 1) || Key <- [2, 3]],
    livestash_agent_journal ! {mnesia_table_event, {delete, ?TABLE, {?TABLE, 4}, [], activity}},
    ok = livestash_agent_journal:adopt([{{5, deleted, Ago}, 0}]),
    livestash_agent_journal ! sweep,
    0 = livestash_agent_journal:overlooked(),
    ?assertEqual([1, 2, 4, 6], lists:sort([element(1, Entry) || Entry <- ets:tab2list(livestash_agent_journal)])),
    ets:delete(Table, 2),
    livestash_agent_journal ! sweep,
    0 = livestash_agent_journal:overlooked(),
    ?assertEqual([1, 4, 6], lists:sort([element(1, Entry) || Entry <- ets:tab2list(livestash_agent_journal)])),
    livestash_agent_journal ! {mnesia_table_event, {write, ?TABLE, {?TABLE, 4, none, ?FAR, stash}, [], activity}},
    0 = livestash_agent_journal:overlooked(),
    ?assertEqual(Bytes, element(3, sys:get_state(livestash_agent_journal))),
    ets:delete(Table).

write(Key, Owner, State) ->
    write(Key, Owner, State, ?FAR).

write(Key, Owner, State, Until) ->
    livestash_agent_journal ! {mnesia_table_event, {write, ?TABLE, {?TABLE, Key, Owner, Until, State}, [], activity}}.

%% 150 keys, 5.5 kB as a term.
published(N) ->
    maps:from_list([{lists:concat(["key_", N, "_", I]), I} || I <- lists:seq(1, 150)]).

