%% Who keeps the stashes of a node that goes away? Moves the rows of an ETS table to peers, while clients that have
%% returned elsewhere are pulling their rows from here at the same time.
%%
%% What must hold is that a lookup finds a row at any moment, that in the end no key has two, and that of two versions the
%% right one stays. So each row is
%% 1. left alone as long as its page lives, which would only write it again: such pages are ended, and the row is
%%    found by the next pass;
%% 2. left alone when a peer has a version that ranks higher: its client is there, and the row here is old;
%% 3. given to the peer that has a worse version, which it replaces, else to one that is chosen by the key;
%% 4. left here a little longer: a lookup that had looked at the peer before step 3 will look here before step 5;
%% 5. deleted here, if it is still the same. If it is not, a client has pulled or changed it meanwhile, and the
%%    copy at the peer is deleted, if that is still the same.
%% A peer whose answer does not come in time may or may not have taken a row. That is withdrawn in two ways, by an offer
%% that it asks about before it takes anything, and by a deletion sent after it.
-module(livestash_agent_handoff).

-export([hand_over/3, hand_over/4, add/2]).
%% Called by peers.
-export([ranks/2, take/3, drop/2, drop_worse/2]).

-export_type([answer/0, result/0, keep/0]).

%% What became of one row at a peer: it took the row, which its LiveStash may not give back, because it is of another version
%% of the application, or which it will; it has a better one; its LiveStash cannot read it; it has no such table, it stops
%% as well, or the offer was withdrawn.
-type answer() :: accepted | other_version | taken | other_shape | no_table | draining | withdrawn.
%% other_version: how many of the rows handed over are of another version.
-type result() :: #{
    handed_over := non_neg_integer(), other_version := non_neg_integer(), left := non_neg_integer(), reason := string()
}.
%% The rows of these pages live at least until the given unix second.
-type keep() :: {fun((pid()) -> boolean()), Until :: integer()} | none.
%% A row on its way.
-type offered() :: {tuple(), livestash_agent_rank:rank(), KeepUntil :: integer()}.
%% A row that a peer has taken.
-type taken() :: livestash_agent_row:identity().

%% Of a batch. Large ones would delay the calls of users, which go over the same connections.
-define(BATCH_ROWS, 500).
-define(BATCH_BYTES, 262144).
%% Batches that are being sent at the same time: with the limits above it bounds the memory that a hand-over takes, and
%% what the calls of users wait for. More of them are hardly faster.
-define(MAX_SENDING, 2).
%% Rows that peers have taken and that are still here, for ?OVERLAP milliseconds: a lookup asks one node after the
%% other, on a busy machine a call takes long to get its turn, and a row that is deleted before that is found nowhere.
-define(MAX_RESTING, 100000).
-define(OVERLAP, 250).
-define(LOOK_AGAIN, 50).
%% Milliseconds.
-define(PEER_TIMEOUT, 2000).
-define(ASK_GOING, 500).
%% Bytes per millisecond that a connection to a peer should carry at least.
-define(SLOWEST, 4096).
%% Clients that have lost their socket pull their rows during the next second: waiting spares moving rows twice, and
%% whoever has come back cannot meet its row on its way.
-define(QUIET, 1000).
-define(MAX_QUIET, 5000).
-define(POLL, 100).
%% Milliseconds for pages that live on to end by themselves.
-define(END, 500).
%% Keys that are looked at at once.
-define(CHUNK, 500).
%% When the time is up, the oldest rows are left. They go in so many classes, the youngest first.
-define(CLASSES, 8).

-record(pass, {
    table :: atom(),
    key_position :: pos_integer(),
    until_position :: pos_integer() | none,
    %% Monotonic milliseconds.
    deadline :: integer(),
    %% Peers that answer and take rows, sorted: several draining nodes that have the same key pick the same one.
    peers :: [node()],
    %% Other nodes that answer: they go as well, and take none.
    going :: [node()],
    keep :: keep(),
    %% The next batch, and its size in bytes.
    rows = [] :: [tuple()],
    bytes = 0 :: non_neg_integer(),
    %% The processes of the batches that are being sent, and of those whose rows are still here, with their monitors.
    sending = #{} :: #{pid() => reference()},
    resting = #{} :: #{pid() => reference()},
    resting_rows = 0 :: non_neg_integer(),
    %% Pages that are still alive.
    living = [] :: [pid()],
    %% Rows that peers have taken, and those of them that were deleted here then.
    accepted = 0 :: non_neg_integer(),
    moved = 0 :: non_neg_integer(),
    %% Of all passes: rows that peers have taken and that are of another version, and whether a peer could not read one.
    other_version = 0 :: non_neg_integer(),
    unreadable = false :: boolean(),
    %% Rows with which nothing is lost: a peer has a better version, or their time is over.
    needless = 0 :: non_neg_integer()
}).

%% What became of a batch.
-record(batch, {
    accepted = 0 :: non_neg_integer(),
    moved = 0 :: non_neg_integer(),
    superseded = 0 :: non_neg_integer(),
    other_version = 0 :: non_neg_integer(),
    unreadable = false :: boolean(),
    useless = [] :: [node()]
}).

-spec hand_over([atom()], [node()], Milliseconds :: non_neg_integer()) -> result().
hand_over(Tables, Peers, Within) ->
    hand_over(Tables, Peers, Within, none).

%% Moves the rows of the tables to the peers within the given milliseconds. `left` counts rows that no other node has.
-spec hand_over([atom()], [node()], Milliseconds :: non_neg_integer(), keep()) -> result().
hand_over(Tables, Peers, Within, Keep) ->
    Deadline = now_ms() + Within,
    await_quiet(Tables, Peers, now_ms() + min(?MAX_QUIET, Within div 4)),
    lists:foldl(
        fun(Table, Result) -> add(Result, hand_over_table(Table, lists:usort(Peers), Deadline, Keep)) end,
        result(0, 0, ""),
        Tables
    ).

%% Until the tables have not shrunk for a moment. Without peers there is nowhere that clients could return to.
await_quiet(_Tables, [], _Deadline) ->
    ok;
await_quiet(Tables, _Peers, Deadline) ->
    await_quiet(Tables, sizes(Tables), now_ms() + ?QUIET, Deadline).

await_quiet(Tables, Sizes, QuietAt, Deadline) ->
    Now = now_ms(),
    case Now >= min(QuietAt, Deadline) orelse lists:sum(Sizes) =:= 0 of
        true ->
            ok;
        false ->
            timer:sleep(?POLL),
            case sizes(Tables) of
                Sizes -> await_quiet(Tables, Sizes, QuietAt, Deadline);
                Changed -> await_quiet(Tables, Changed, now_ms() + ?QUIET, Deadline)
            end
    end.

sizes(Tables) ->
    [row_count(Table) || Table <- Tables].

row_count(Table) ->
    case ets:info(Table, size) of
        undefined -> 0;
        Size -> Size
    end.

%% The result of two hand-overs.
-spec add(result(), result()) -> result().
add(#{reason := First} = One, #{reason := Second} = Other) ->
    Sum = maps:merge_with(fun(_What, A, B) -> A + B end, maps:remove(reason, One), maps:remove(reason, Other)),
    Sum#{reason => hd([Reason || Reason <- [First, Second], Reason =/= ""] ++ [""])}.

hand_over_table(Table, Peers, Deadline, Keep) ->
    case {row_count(Table), ets:info(Table, protection), ets:info(Table, type)} of
        {0, _, _} ->
            result(0, 0, "");
        {Size, public, Type} when Type =:= set; Type =:= ordered_set ->
            hand_over_rows(Table, Size, Peers, Deadline, Keep);
        {Size, public, Type} ->
            result(0, Size, lists:concat(["The ETS table ", Table, " is a ", Type, ", not a set."]));
        {Size, Protection, _} ->
            result(0, Size, lists:concat(["The ETS table ", Table, " is ", Protection, ", not public."]))
    end.

result(HandedOver, Left, Reason) ->
    #{handed_over => HandedOver, other_version => 0, left => Left, reason => Reason}.

hand_over_rows(_Table, Size, [], _Deadline, _Keep) ->
    result(0, Size, "There was no other node that takes stashes.");
hand_over_rows(Table, _Size, Peers, Deadline, Keep) ->
    %% So that peers can rank our pages when we are gone.
    Births = livestash_agent_rank:births(),
    tell(Peers, livestash_agent_rank, learn, [Births]),
    Until = until_position(Table),
    Pass = #pass{
        table = Table,
        key_position = ets:info(Table, keypos),
        until_position = Until,
        deadline = Deadline,
        peers = Peers,
        going = nodes() -- Peers,
        keep = Keep
    },
    passes(Pass, classes(Table, Until), 0).

%% By the first row: they are all alike.
until_position(Table) ->
    case ets:match_object(Table, '_', 1) of
        {[Row], _} -> livestash_agent_row:until_position(Row);
        '$end_of_table' -> none
    end.

%% Rows that a peer refused stay, and so do rows that changed while they were moved and those of pages that lived; the next
%% pass finds them. The last one is that in which no peer takes anything, none turns out to be of no use, and no page has
%% to be ended.
passes(Pass, Classes, Moved) ->
    Done = pass(Pass#pass{accepted = 0, moved = 0, needless = 0, living = []}, Classes),
    Total = Moved + Done#pass.moved,
    Left = max(0, row_count(Done#pass.table) - Done#pass.needless),
    Stuck = Done#pass.accepted =:= 0 andalso Done#pass.peers =:= Pass#pass.peers andalso Done#pass.living =:= [],
    Result = (result(Total, Left, ""))#{other_version := Done#pass.other_version},
    case {Left, Done#pass.peers, now_ms() >= Done#pass.deadline} of
        {0, _, _} ->
            Result;
        %% Whose answers do not come in time look useless then.
        {_, _, true} ->
            Result#{reason := "The time for handing over was up."};
        {_, Peers, false} when Peers =:= []; Stuck ->
            Result#{reason := refused(Done)};
        {_, _, false} ->
            end_pages(Done#pass.living),
            passes(Done, [all], Total)
    end.

refused(#pass{unreadable = true}) -> "Peers run another version of LiveStash, which cannot read the remaining rows.";
refused(#pass{unreadable = false}) -> "No peer took the remaining rows.".

end_pages([]) ->
    ok;
end_pages(Pages) ->
    Ended = livestash_agent_endpoint:end_sessions(Pages, ?END),
    logger:warning("livestash agent: ended ~b pages that were still alive after the web endpoints had stopped.", [Ended]).

%% Bounds of the ends of rows' time, in unix seconds, so that each class has about as many rows.
classes(_Table, none) ->
    [all];
classes(Table, Position) ->
    Counts = count_untils(ets:select(Table, [{'_', [], [{element, Position, '$_'}]}], ?CHUNK), #{}),
    Share = 1 + lists:sum(maps:values(Counts)) div ?CLASSES,
    bounds(lists:reverse(lists:sort(maps:to_list(Counts))), Share, 0, none).

count_untils('$end_of_table', Counts) ->
    Counts;
count_untils({Untils, Continuation}, Counts) ->
    Count = fun(Until, Acc) -> maps:update_with(coarse(Until), fun(N) -> N + 1 end, 1, Acc) end,
    count_untils(ets:select(Continuation), lists:foldl(Count, Counts, Untils)).

coarse(Until) when is_integer(Until) -> Until band -8;
coarse(_Other) -> 0.

%% From the youngest to the oldest; the first has no upper bound, the last no lower one.
bounds([], _Share, _Rows, Upper) -> [{none, Upper}];
bounds([{_Lower, _Count}], _Share, _Rows, Upper) -> [{none, Upper}];
bounds([{Lower, Count} | Rest], Share, Rows, Upper) when Rows + Count >= Share ->
    [{Lower, Upper} | bounds(Rest, Share, 0, Lower)];
bounds([{_Lower, Count} | Rest], Share, Rows, Upper) ->
    bounds(Rest, Share, Rows + Count, Upper).

pass(#pass{table = Table} = Pass, Classes) ->
    %% So that the walk goes on behind a row that is deleted meanwhile.
    true = ets:safe_fixtable(Table, true),
    try
        await_all(send(lists:foldl(fun walk/2, Pass, Classes)))
    after
        ets:safe_fixtable(Table, false)
    end.

walk(Class, #pass{table = Table, key_position = Position, until_position = Until} = Pass) ->
    Keys = [{'_', guards(Class, Until), [{element, Position, '$_'}]}],
    walk_on(ets:select(Table, Keys, ?CHUNK), Pass).

guards(all, _Until) ->
    [];
guards({Lower, Upper}, Until) ->
    [{'>=', {element, Until, '$_'}, Lower} || Lower =/= none] ++ [{'<', {element, Until, '$_'}, Upper} || Upper =/= none].

walk_on('$end_of_table', Pass) ->
    Pass;
walk_on(_Keys, #pass{peers = []} = Pass) ->
    Pass;
walk_on({Keys, Continuation}, #pass{table = Table} = Pass) ->
    case now_ms() >= Pass#pass.deadline of
        true ->
            Pass#pass{rows = [], bytes = 0};
        false ->
            Now = os:system_time(second),
            Collect = fun(Key, Acc) -> collect(ets:lookup(Table, Key), Now, Acc) end,
            walk_on(ets:select(Continuation), lists:foldl(Collect, Pass, Keys))
    end.

collect([], _Now, Pass) ->
    Pass;
collect([Row], Now, #pass{needless = Needless, living = Living} = Pass) ->
    case {livestash_agent_row:until(Row), livestash_agent_row:lives(Row)} of
        {_, true} -> Pass#pass{living = [livestash_agent_row:owner(Row) | Living]};
        %% The next round of LiveStash's cleaner deletes it.
        {Until, _} when is_integer(Until), Until < Now -> Pass#pass{needless = Needless + 1};
        _ -> add_row(Row, erlang:external_size(Row), Pass)
    end.

add_row(Row, Size, #pass{rows = [_ | _] = Rows, bytes = Bytes} = Pass) when
    Bytes + Size > ?BATCH_BYTES; length(Rows) >= ?BATCH_ROWS
->
    add_row(Row, Size, send(Pass));
add_row(Row, Size, #pass{rows = Rows, bytes = Bytes} = Pass) ->
    Pass#pass{rows = [Row | Rows], bytes = Bytes + Size}.

%% Sends the rows that were collected on their way, as one batch.
send(#pass{sending = Sending, resting_rows = Resting} = Pass) when
    map_size(Sending) >= ?MAX_SENDING; Resting >= ?MAX_RESTING
->
    send(await_one(Pass));
send(#pass{rows = Rows, peers = Peers} = Pass) when Rows =:= []; Peers =:= [] ->
    Pass#pass{rows = [], bytes = 0};
send(#pass{rows = Rows, bytes = Bytes, sending = Sending} = Pass) ->
    Walker = self(),
    Context = Pass#pass{rows = [], sending = #{}, resting = #{}, living = []},
    Move = fun() -> exit({?MODULE, move(Rows, Context#pass{bytes = Bytes}, Walker)}) end,
    {Pid, Monitor} = spawn_opt(Move, [monitor, {priority, low}]),
    Pass#pass{rows = [], bytes = 0, sending = Sending#{Pid => Monitor}}.

await_all(#pass{sending = Sending, resting = Resting} = Pass) when map_size(Sending) + map_size(Resting) =:= 0 -> Pass;
await_all(Pass) -> await_all(await_one(Pass)).

%% Until a batch has been sent, or is done.
await_one(#pass{sending = Sending, resting = Resting, resting_rows = Rows} = Pass) ->
    receive
        {?MODULE, Pid, sent, Count} when is_map_key(Pid, Sending) ->
            {Monitor, Others} = maps:take(Pid, Sending),
            Pass#pass{sending = Others, resting = Resting#{Pid => {Monitor, Count}}, resting_rows = Rows + Count};
        {'DOWN', Monitor, process, Pid, {?MODULE, #batch{} = Batch}} when is_map_key(Pid, Resting) ->
            {{Monitor, Count}, Others} = maps:take(Pid, Resting),
            done(Batch, Pass#pass{resting = Others, resting_rows = Rows - Count});
        {'DOWN', _Monitor, process, Pid, Reason} when is_map_key(Pid, Sending); is_map_key(Pid, Resting) ->
            exit(Reason)
    end.

done(#batch{accepted = Accepted, moved = Moved, superseded = Superseded, useless = Useless} = Batch, Pass) ->
    #pass{peers = Peers} = Pass,
    Gone = [Peer || Peer <- Peers, lists:member(Peer, Useless)],
    [logger:warning("livestash agent: ~ts takes no stashes from this node.", [Peer]) || Peer <- Gone],
    Pass#pass{
        peers = Peers -- Gone,
        going = Pass#pass.going -- Useless,
        accepted = Pass#pass.accepted + Accepted,
        moved = Pass#pass.moved + Moved,
        other_version = Pass#pass.other_version + Batch#batch.other_version,
        unreadable = Pass#pass.unreadable orelse Batch#batch.unreadable,
        needless = Pass#pass.needless + Superseded
    }.

%% Moves one batch, and tells the walker when only its rest has to be waited for.
move(Rows, Pass, Walker) ->
    #pass{peers = Peers} = Pass,
    {Newest, Mute} = newest(Rows, Pass),
    {Versions, Silent} = versions(Newest, Pass),
    Offers = offer(Newest, Versions, Pass#pass{peers = Peers -- Silent}),
    TakenAt = now_ms(),
    Superseded = length(Rows) - lists:sum([length(Share) || {_Peer, Share, _Outcome} <- Offers]),
    [take_back(Peer, identities(Share, Pass), Pass) || {Peer, Share, {error, _}} <- Offers],
    Accepted = [
        {Peer, identities([Offered || {Offered, Answer} <- lists:zip(Share, Answers), took(Answer)], Pass)}
     || {Peer, Share, {ok, Answers}} <- Offers
    ],
    Walker ! {?MODULE, self(), sent, length(Rows)},
    rest(Accepted, TakenAt + ?OVERLAP, Pass, #batch{
        accepted = count(accepted, Offers) + count(other_version, Offers),
        other_version = count(other_version, Offers),
        unreadable = count(other_shape, Offers) > 0,
        superseded = count_superseded(Superseded, Silent, Peers, Offers),
        useless = Mute ++ Silent ++ useless(Offers)
    }).

%% Rows for which nobody was left to offer them to are not superseded.
count_superseded(_Superseded, Peers, Peers, _Offers) -> 0;
count_superseded(Superseded, _Silent, _Peers, Offers) -> Superseded + count(taken, Offers).

%% Without the rows, only their keys are held here: what is not needed any more goes at once.
rest(Accepted, Until, Pass, Batch) ->
    erlang:garbage_collect(),
    {Moved, Lost} = settle(watch(Accepted, Until, Pass), Pass),
    Batch#batch{moved = Moved, useless = Lost ++ Batch#batch.useless}.

identities(Offered, #pass{key_position = Position}) ->
    [livestash_agent_row:identity(Row, Position) || {Row, _Rank, _Keep} <- Offered].

count(Answer, Offers) ->
    length([Given || {_Peer, _Share, {ok, Answers}} <- Offers, Given <- Answers, Given =:= Answer]).

%% The rows but those of which a node that goes as well has a version of a younger page, which it hands over itself: an
%% older one would be found before it. Versions of older pages there must not be found either. Of the same page both may
%% have one for a moment, when one has given it to the other. Also returns those of the nodes that did not say.
newest(Rows, #pass{table = Table, key_position = Position, going = Going}) ->
    Keys = [element(Position, Row) || Row <- Rows],
    Ask = fun(Node) -> livestash_agent_remote:call(Node, ?MODULE, ranks, [Table, Keys]) end,
    Outcomes = livestash_agent_tasks:run([{Node, fun() -> Ask(Node) end} || Node <- Going], ?ASK_GOING),
    Compared = [
        {Node, element(Position, Row), livestash_agent_rank:rank(Row), Rank}
     || {Node, {ok, Ranks}} <- Outcomes, {Row, Rank} <- lists:zip(Rows, Ranks), Rank =/= absent
    ],
    [tell([Node], ?MODULE, drop_worse, [Table, [{Key, Here}]]) || {Node, Key, Here, There} <- Compared, younger(Here, There)],
    Younger = maps:from_keys([Key || {_Node, Key, Here, There} <- Compared, younger(There, Here)], []),
    {
        [Row || Row <- Rows, not is_map_key(element(Position, Row), Younger)],
        [Node || {Node, {error, _}} <- Outcomes]
    }.

younger(Rank, Other) ->
    element(1, Rank) > element(1, Other).

%% Which peers have a version of each row, the best first, and the peers that did not say.
versions(Rows, #pass{table = Table, key_position = Position, peers = Peers} = Pass) ->
    Keys = [element(Position, Row) || Row <- Rows],
    Outcomes = ask(Pass, [{Peer, fun() -> ranks_at(Peer, Table, Keys) end} || Peer <- Peers]),
    Found = [{Key, {Rank, Peer}} || {Peer, {ok, Ranks}} <- Outcomes, {Key, Rank} <- lists:zip(Keys, Ranks), Rank =/= absent],
    Versions = maps:groups_from_list(fun({Key, _}) -> Key end, fun({_, Version}) -> Version end, Found),
    {
        maps:map(fun(_Key, Several) -> lists:reverse(lists:sort(Several)) end, Versions),
        [Peer || {Peer, {error, _}} <- Outcomes]
    }.

%% Of a peer without the agent it is only known that it has the key: its client is there.
ranks_at(Peer, Table, Keys) ->
    try
        livestash_agent_remote:call(Peer, ?MODULE, ranks, [Table, Keys])
    catch
        error:Reason ->
            case livestash_agent_remote:without_agent(Reason) of
                true -> [unknown_rank(Has) || Has <- at_peer(Peer, fun ets:member/2, Table, Keys)];
                false -> error(Reason)
            end
    end.

unknown_rank(true) -> {infinity, 0, false, false};
unknown_rank(false) -> absent.

%% What each peer answers to its share of the rows. Those that are not offered are superseded.
offer(_Rows, _Versions, #pass{peers = []}) ->
    [];
offer(Rows, Versions, #pass{table = Table} = Pass) ->
    Offered = [{choose(Row, maps:get(element(Pass#pass.key_position, Row), Versions, []), Pass), Row} || Row <- Rows],
    Shares = maps:groups_from_list(
        fun({{Peer, _Rank}, _Row}) -> Peer end,
        fun({{_Peer, Rank}, Row}) -> {Row, Rank, keep_until(Row, Pass#pass.keep)} end,
        [Offer || {{_, _}, _} = Offer <- Offered]
    ),
    List = maps:to_list(Shares),
    Outcomes = ask(Pass, [{Peer, fun() -> give(Peer, Table, Share) end} || {Peer, Share} <- List]),
    lists:zipwith(fun({Peer, Share}, {Peer, Outcome}) -> {Peer, Share, Outcome} end, List, Outcomes).

%% Who is offered a row: whoever has a version that is worse, and no other one; the other versions must go.
choose(Row, [], #pass{key_position = Position, peers = Peers}) ->
    {lists:nth(1 + erlang:phash2(element(Position, Row), length(Peers)), Peers), livestash_agent_rank:rank(Row)};
choose(Row, [{Best, Peer} | Others], Pass) ->
    case livestash_agent_rank:rank(Row) of
        Rank when Rank > Best ->
            Key = element(Pass#pass.key_position, Row),
            tell([Other || {_, Other} <- Others], ?MODULE, drop_worse, [Pass#pass.table, [{Key, Rank}]]),
            {Peer, Rank};
        _ ->
            superseded
    end.

keep_until(_Row, none) ->
    0;
keep_until(Row, {IsKept, Until}) ->
    Owner = livestash_agent_row:owner(Row),
    case is_pid(Owner) andalso IsKept(Owner) of
        true -> Until;
        false -> 0
    end.

%% A peer that takes rows answers nothing else.
useless(Offers) ->
    [Peer || {Peer, _Share, Outcome} <- Offers, not takes(Outcome)].

takes({ok, Answers}) -> lists:all(fun(Answer) -> took(Answer) orelse Answer =:= taken end, Answers);
takes({error, _}) -> false.

took(Answer) ->
    Answer =:= accepted orelse Answer =:= other_version.

%% A large row must not make a good peer look like a dead one.
ask(#pass{deadline = Deadline, bytes = Bytes}, Tasks) ->
    Limit = ?PEER_TIMEOUT + Bytes div ?SLOWEST,
    livestash_agent_tasks:run(Tasks, min(Limit, max(0, Deadline - now_ms()))).

%% Until the lookups that do not know of the copies are over. Copies of rows that are pulled from here meanwhile are
%% taken back at once: their clients live on elsewhere, and must not find them.
watch(Accepted, Until, Pass) ->
    Left = [{Peer, still_here(Peer, Taken, Pass)} || {Peer, Taken} <- Accepted],
    case Until - now_ms() of
        Time when Time > 0 ->
            timer:sleep(min(Time, ?LOOK_AGAIN)),
            watch(Left, Until, Pass);
        _ ->
            Left
    end.

still_here(Peer, Taken, #pass{table = Table} = Pass) ->
    {Here, Gone} = lists:partition(fun({Key, _Version}) -> ets:member(Table, Key) end, Taken),
    take_back(Peer, Gone, Pass),
    Here.

%% Deletes here what peers have. A peer that is gone died with it. Returns how many rows were deleted, and who is gone.
settle(Accepted, #pass{table = Table} = Pass) ->
    {Alive, Dead} = lists:partition(fun({Peer, _Taken}) -> lists:member(Peer, nodes()) end, Accepted),
    Moved = lists:sum([settle(Peer, Taken, Table, Pass) || {Peer, Taken} <- Alive]),
    livestash_agent_state:count(handoffs_sent, Moved),
    {Moved, [Peer || {Peer, _Taken} <- Dead]}.

settle(Peer, Taken, Table, Pass) ->
    {Deleted, Changed} = lists:partition(fun(Row) -> drop_row(Table, Row) end, Taken),
    take_back(Peer, Changed, Pass),
    length(Deleted).

%% Not waited for: the peer may be frozen, and what it does later is right at any time.
take_back(_Peer, [], _Pass) ->
    ok;
take_back(Peer, Taken, Pass) ->
    spawn(fun() -> catch drop_at(Peer, Taken, Pass) end),
    ok.

drop_at(Peer, Taken, #pass{table = Table} = Pass) ->
    try
        livestash_agent_remote:call(Peer, ?MODULE, drop, [Table, Taken])
    catch
        error:Reason ->
            [drop_plainly(Peer, Pass, Each) || livestash_agent_remote:without_agent(Reason), Each <- Taken]
    end.

drop_plainly(Peer, #pass{table = Table, key_position = Position}, {Key, _Version} = Taken) ->
    [
        erpc:call(Peer, ets, select_delete, [Table, Same])
     || Row <- erpc:call(Peer, ets, lookup, [Table, Key]), Same <- [livestash_agent_row:same(Taken, Row, Position)], Same =/= none
    ].

tell(Peers, Module, Function, Arguments) ->
    [spawn(fun() -> catch livestash_agent_remote:call(Peer, Module, Function, Arguments) end) || Peer <- Peers],
    ok.

%% A peer without the agent cannot refuse, so it is just told to insert.
give(Peer, Table, Offered) ->
    Offer = self(),
    try
        livestash_agent_remote:call(Peer, ?MODULE, take, [Table, Offered, Offer])
    catch
        error:Reason ->
            case livestash_agent_remote:without_agent(Reason) of
                true ->
                    Rows = [livestash_agent_row:keep(Row, Keep) || {Row, _Rank, Keep} <- Offered],
                    [answer(Inserted) || Inserted <- at_peer(Peer, fun ets:insert_new/2, Table, Rows)];
                false ->
                    error(Reason)
            end
    end.

answer(true) -> accepted;
answer(false) -> taken.

%% One call for all, of functions that every peer has.
at_peer(Peer, Function, Table, Arguments) ->
    erpc:call(Peer, lists, zipwith, [Function, [Table || _ <- Arguments], Arguments]).

%% How good this node's versions of the keys are.
-spec ranks(atom(), [term()]) -> [livestash_agent_rank:rank() | absent].
ranks(Table, Keys) ->
    [rank_of(ets:lookup(Table, Key)) || Key <- Keys].

rank_of([]) -> absent;
rank_of([Row]) -> livestash_agent_rank:rank(Row).

%% Takes rows for this node. Offer is a process of the node that hands over; once it is dead, the rows may be elsewhere.
-spec take(atom(), [offered()], pid()) -> [answer()].
take(Table, Offered, Offer) ->
    case refusal(Table, Offer) of
        none ->
            Room = ets:info(Table, memory) * erlang:system_info(wordsize) < livestash_agent_config:get(drain_keep_bytes),
            Known = livestash_agent_shape:known(Table),
            Answers = [
                take_fitting(livestash_agent_shape:fits(Row, Known), Table, kept(Row, Keep, Room), Rank)
             || {Row, Rank, Keep} <- Offered
            ],
            livestash_agent_state:count(handoffs_received, length([Answer || Answer <- Answers, took(Answer)])),
            Answers;
        Refusal ->
            [Refusal || _ <- Offered]
    end.

kept(Row, Keep, true) -> livestash_agent_row:keep(Row, Keep);
kept(Row, _Keep, false) -> Row.

take_fitting(other_shape, _Table, _Row, _Rank) ->
    other_shape;
take_fitting(Fit, Table, Row, Rank) ->
    case {take_row(Table, Row, Rank), Fit} of
        {accepted, other_version} -> other_version;
        {Answer, _} -> Answer
    end.

take_row(Table, Row, Rank) ->
    case ets:insert_new(Table, Row) orelse ets:lookup(Table, element(ets:info(Table, keypos), Row)) of
        true -> accepted;
        [] -> take_row(Table, Row, Rank);
        [Other] -> replace(Table, Other, Row, Rank > livestash_agent_rank:rank(Other), Rank)
    end.

replace(_Table, _Other, _Row, false, _Rank) ->
    taken;
replace(Table, Other, Row, true, Rank) ->
    [{Head, Guards, _}] = exactly(Other, ets:info(Table, keypos)),
    case ets:select_replace(Table, [{Head, Guards, [{const, Row}]}]) of
        1 -> accepted;
        0 -> take_row(Table, Row, Rank)
    end.

refusal(Table, Offer) ->
    case {ets:info(Table, protection), livestash_agent_state:takes_stashes()} of
        {public, true} ->
            case erpc:call(node(Offer), erlang, is_process_alive, [Offer], ?PEER_TIMEOUT) of
                true -> none;
                false -> withdrawn
            end;
        {public, false} ->
            draining;
        {_, _} ->
            no_table
    end.

%% Deletes rows that are still the same. Returns how many.
-spec drop(atom(), [taken()]) -> non_neg_integer().
drop(Table, Taken) ->
    length([Row || Row <- Taken, drop_row(Table, Row)]).

drop_row(Table, {Key, _Version} = Taken) ->
    case ets:lookup(Table, Key) of
        [Row] -> delete(Table, livestash_agent_row:same(Taken, Row, ets:info(Table, keypos)));
        [] -> false
    end.

delete(_Table, none) -> false;
delete(Table, Same) -> ets:select_delete(Table, Same) =:= 1.

%% Deletes this node's versions of stashes of which there is a better one elsewhere.
-spec drop_worse(atom(), [{Key :: term(), livestash_agent_rank:rank()}]) -> ok.
drop_worse(Table, Better) ->
    Position = ets:info(Table, keypos),
    [
        ets:select_delete(Table, exactly(Row, Position))
     || {Key, Rank} <- Better, Row <- ets:lookup(Table, Key), livestash_agent_rank:rank(Row) < Rank
    ],
    ok.

%% Matches this very row. The pattern has its key, so that no other row is looked at; what is compared is the whole row,
%% as a constant, because atoms such as '_' in a row would be wildcards in a pattern.
exactly(Row, Position) ->
    Head = setelement(Position, erlang:make_tuple(tuple_size(Row), '_'), element(Position, Row)),
    [{Head, [{'=:=', '$_', {const, Row}}], [true]}].

now_ms() ->
    erlang:monotonic_time(millisecond).
