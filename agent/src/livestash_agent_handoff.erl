%% Who keeps the stashes of a node that goes away? Moves the rows of an ETS table to peers, while clients that have
%% returned elsewhere are pulling their rows from here at the same time.
%%
%% Rows are opaque tuples: only the position of their key is known. What must hold is that a lookup finds a row at any
%% moment, and that in the end no key has two. So each row is
%% 1. left alone when a peer that stays has its key: its client is there, and the row here is old;
%% 2. inserted at a peer, chosen by the key, unless the key is there;
%% 3. left here a little longer: a lookup that had looked at the peer before step 2 will look here before step 4;
%% 4. deleted here, if it is still the very same. If it is not, a client has pulled or changed it meanwhile, and the
%%    copy at the peer is deleted, if that is still the very same.
%% A peer whose answer does not come in time may or may not have inserted. Its insertion is withdrawn in two ways, by
%% an offer that it asks about before it inserts, and by a deletion sent after it.
-module(livestash_agent_handoff).

-export([hand_over/3]).
-export([accept/3]).

-export_type([answer/0, result/0]).

%% What became of one row at a peer: it took the row; it had its key; it has no such table, it stops as well, or the
%% offer was withdrawn.
-type answer() :: accepted | taken | no_table | draining | withdrawn.
-type result() :: #{handed_over := non_neg_integer(), left := non_neg_integer(), reason := string()}.

-define(BATCH_ROWS, 200).
-define(BATCH_BYTES, 1048576).
%% Batches on their way at the same time. With the limits above it bounds the memory that a hand-over takes, and with
%% ?OVERLAP its rate.
-define(MAX_BATCHES, 4).
%% Milliseconds. A lookup asks one node after the other: on a busy machine a call takes long to get its turn, and a row
%% that is deleted here before that is found nowhere.
-define(OVERLAP, 250).
-define(LOOK_AGAIN, 10).
-define(PEER_TIMEOUT, 2000).
%% Bytes per millisecond that a connection to a peer should carry at least.
-define(SLOWEST, 4096).
%% Clients that have lost their socket pull their rows during the next second: waiting spares moving rows twice, and
%% whoever has come back cannot meet its row on its way.
-define(QUIET, 1000).
-define(MAX_QUIET, 5000).
-define(POLL, 100).

-record(pass, {
    table :: atom(),
    key_position :: pos_integer(),
    %% Monotonic milliseconds.
    deadline :: integer(),
    %% Peers that stay and answer, sorted: several draining nodes that have the same key pick the same one.
    peers :: [node()],
    %% The next batch, and its size in bytes.
    rows = [] :: [tuple()],
    bytes = 0 :: non_neg_integer(),
    %% The processes of the batches that are on their way, oldest first.
    batches = [] :: [{pid(), reference()}],
    %% Rows that peers have inserted, and those of them that were deleted here then.
    accepted = 0 :: non_neg_integer(),
    moved = 0 :: non_neg_integer(),
    %% Rows whose key is at a peer: nothing is lost with them.
    superseded = 0 :: non_neg_integer()
}).

%% Moves the rows of the tables to the peers within the given milliseconds. `left` counts rows that no other node has.
-spec hand_over([atom()], [node()], Milliseconds :: non_neg_integer()) -> result().
hand_over(Tables, Peers, Within) ->
    Deadline = now_ms() + Within,
    await_quiet(Tables, Peers, now_ms() + min(?MAX_QUIET, Within div 4)),
    lists:foldl(
        fun(Table, Result) -> add(Result, hand_over_table(Table, lists:usort(Peers), Deadline)) end,
        #{handed_over => 0, left => 0, reason => ""},
        Tables
    ).

%% Takes rows for this node. Offer is a process of the node that hands over; once it is dead, the rows may be elsewhere.
-spec accept(atom(), [tuple()], pid()) -> [answer()].
accept(Table, Rows, Offer) ->
    case refusal(Table, Offer) of
        none ->
            Answers = [answer(ets:insert_new(Table, Row)) || Row <- Rows],
            livestash_agent_state:count(handoffs_received, length([accepted || accepted <- Answers])),
            Answers;
        Refusal ->
            [Refusal || _ <- Rows]
    end.

refusal(Table, Offer) ->
    case {ets:info(Table, protection), livestash_agent_state:draining()} of
        {public, false} ->
            case erpc:call(node(Offer), erlang, is_process_alive, [Offer], ?PEER_TIMEOUT) of
                true -> none;
                false -> withdrawn
            end;
        {public, true} ->
            draining;
        {_, _} ->
            no_table
    end.

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

add(#{handed_over := H1, left := L1, reason := R1}, #{handed_over := H2, left := L2, reason := R2}) ->
    Reason =
        case R1 of
            "" -> R2;
            _ -> R1
        end,
    #{handed_over => H1 + H2, left => L1 + L2, reason => Reason}.

hand_over_table(Table, Peers, Deadline) ->
    case {row_count(Table), ets:info(Table, protection), ets:info(Table, type)} of
        {0, _, _} ->
            result(0, 0, "");
        {Size, public, Type} when Type =:= set; Type =:= ordered_set ->
            hand_over_rows(Table, Size, Peers, Deadline);
        {Size, public, Type} ->
            result(0, Size, lists:concat(["The ETS table ", Table, " is a ", Type, ", not a set."]));
        {Size, Protection, _} ->
            result(0, Size, lists:concat(["The ETS table ", Table, " is ", Protection, ", not public."]))
    end.

result(HandedOver, Left, Reason) ->
    #{handed_over => HandedOver, left => Left, reason => Reason}.

hand_over_rows(_Table, Size, [], _Deadline) ->
    result(0, Size, "There was no other node that stays.");
hand_over_rows(Table, _Size, Peers, Deadline) ->
    Pass = #pass{table = Table, key_position = ets:info(Table, keypos), deadline = Deadline, peers = Peers},
    passes(Pass, 0).

%% Rows that a peer refused stay, and so do rows that changed while they were moved; the next pass finds them. The last
%% one is that in which no peer accepts anything, and none turns out to be of no use.
passes(Pass, Moved) ->
    Done = pass(Pass#pass{accepted = 0, moved = 0, superseded = 0}),
    Total = Moved + Done#pass.moved,
    Left = max(0, row_count(Done#pass.table) - Done#pass.superseded),
    Stuck = Done#pass.accepted =:= 0 andalso Done#pass.peers =:= Pass#pass.peers,
    case {Left, Done#pass.peers, now_ms() >= Done#pass.deadline} of
        {0, _, _} -> result(Total, 0, "");
        {_, [], _} -> result(Total, Left, "No peer took the remaining rows.");
        {_, _, true} -> result(Total, Left, "The time for handing over was up.");
        {_, _, false} when Stuck -> result(Total, Left, "No peer took the remaining rows.");
        {_, _, false} -> passes(Done, Total)
    end.

pass(#pass{table = Table} = Pass) ->
    %% So that the walk goes on behind a row that is deleted meanwhile.
    true = ets:safe_fixtable(Table, true),
    try
        await_all(send(walk(ets:first(Table), Pass)))
    after
        ets:safe_fixtable(Table, false)
    end.

walk('$end_of_table', Pass) ->
    Pass;
walk(_Key, #pass{peers = []} = Pass) ->
    Pass;
walk(Key, #pass{table = Table} = Pass) ->
    case now_ms() >= Pass#pass.deadline of
        true -> Pass#pass{rows = [], bytes = 0};
        false -> walk(ets:next(Table, Key), collect(ets:lookup(Table, Key), Pass))
    end.

collect([], Pass) ->
    Pass;
collect([Row], #pass{rows = Rows, bytes = Bytes} = Pass) ->
    Size = erlang:external_size(Row),
    case Rows =/= [] andalso (Bytes + Size > ?BATCH_BYTES orelse length(Rows) >= ?BATCH_ROWS) of
        true -> collect([Row], send(Pass));
        false -> Pass#pass{rows = [Row | Rows], bytes = Bytes + Size}
    end.

%% Sends the rows that were collected on their way, as one batch.
send(#pass{batches = [_ | _] = Batches} = Pass) when length(Batches) >= ?MAX_BATCHES ->
    send(await_oldest(Pass));
send(#pass{rows = Rows, peers = Peers} = Pass) when Rows =:= []; Peers =:= [] ->
    Pass;
send(#pass{batches = Batches} = Pass) ->
    Batch = spawn_monitor(fun() -> exit({?MODULE, move(Pass)}) end),
    Pass#pass{rows = [], bytes = 0, batches = Batches ++ [Batch]}.

await_all(#pass{batches = []} = Pass) -> Pass;
await_all(Pass) -> await_all(await_oldest(Pass)).

await_oldest(#pass{batches = [{Pid, Monitor} | Batches], peers = Peers} = Pass) ->
    receive
        {'DOWN', Monitor, process, Pid, {?MODULE, {Accepted, Moved, Superseded, Useless}}} ->
            Gone = [Peer || Peer <- Peers, lists:member(Peer, Useless)],
            [logger:warning("livestash agent: ~ts takes no stashes from this node.", [Peer]) || Peer <- Gone],
            Pass#pass{
                batches = Batches,
                peers = Peers -- Gone,
                accepted = Pass#pass.accepted + Accepted,
                moved = Pass#pass.moved + Moved,
                superseded = Pass#pass.superseded + Superseded
            };
        {'DOWN', Monitor, process, Pid, Reason} ->
            exit(Reason)
    end.

%% Moves one batch. Returns how many rows peers accepted, how many of them were moved, how many are at a peer anyway,
%% and which peers are of no use.
move(#pass{rows = Rows} = Pass) ->
    {Free, Silent} = free_rows(Pass),
    Offers = offer(Free, Pass#pass{peers = Pass#pass.peers -- Silent}),
    AcceptedAt = now_ms(),
    [take_back(Peer, Share, Pass) || {Peer, Share, {error, _}} <- Offers],
    Accepted = [
        {Peer, [Row || {Row, accepted} <- lists:zip(Share, Answers)]}
     || {Peer, Share, {ok, Answers}} <- Offers
    ],
    Taken = count(taken, Offers),
    {Moved, Lost} = settle(watch(Accepted, AcceptedAt + ?OVERLAP, Pass), Pass),
    {count(accepted, Offers), Moved, length(Rows) - length(Free) + Taken, Silent ++ Lost ++ useless(Offers)}.

count(Answer, Offers) ->
    length([Given || {_Peer, _Share, {ok, Answers}} <- Offers, Given <- Answers, Given =:= Answer]).

%% The rows whose keys no peer has, and the peers that did not say.
free_rows(#pass{table = Table, key_position = Position, rows = Rows, peers = Peers} = Pass) ->
    Keys = [element(Position, Row) || Row <- Rows],
    Outcomes = ask(Pass, [{Peer, fun() -> at_peer(Peer, fun ets:member/2, Table, Keys) end} || Peer <- Peers]),
    Held = [Key || {_Peer, {ok, Members}} <- Outcomes, {Key, true} <- lists:zip(Keys, Members)],
    HeldSet = maps:from_keys(Held, []),
    {
        [Row || Row <- Rows, not is_map_key(element(Position, Row), HeldSet)],
        [Peer || {Peer, {error, _}} <- Outcomes]
    }.

%% What each peer answers to its share of the rows.
offer(_Rows, #pass{peers = []}) ->
    [];
offer(Rows, #pass{table = Table} = Pass) ->
    Shares = maps:to_list(maps:groups_from_list(fun(Row) -> choose(Row, Pass) end, Rows)),
    Outcomes = ask(Pass, [{Peer, fun() -> insert_at(Peer, Table, Share) end} || {Peer, Share} <- Shares]),
    lists:zipwith(fun({Peer, Share}, {Peer, Outcome}) -> {Peer, Share, Outcome} end, Shares, Outcomes).

choose(Row, #pass{key_position = Position, peers = Peers}) ->
    lists:nth(1 + erlang:phash2(element(Position, Row), length(Peers)), Peers).

%% A peer that takes rows answers nothing but these two.
useless(Offers) ->
    [Peer || {Peer, _Share, Outcome} <- Offers, not takes(Outcome)].

takes({ok, Answers}) -> lists:all(fun(Answer) -> Answer =:= accepted orelse Answer =:= taken end, Answers);
takes({error, _}) -> false.

%% A large row must not make a good peer look like a dead one.
ask(#pass{deadline = Deadline, bytes = Bytes}, Tasks) ->
    Limit = ?PEER_TIMEOUT + Bytes div ?SLOWEST,
    livestash_agent_tasks:run(Tasks, min(Limit, max(0, Deadline - now_ms()))).

%% Until the lookups that do not know of the copies are over. Copies of rows that are pulled from here meanwhile are
%% taken back at once: their clients live on elsewhere, and must not find them.
watch(Accepted, Until, Pass) ->
    Left = [{Peer, still_here(Peer, Rows, Pass)} || {Peer, Rows} <- Accepted],
    case Until - now_ms() of
        Time when Time > 0 ->
            timer:sleep(min(Time, ?LOOK_AGAIN)),
            watch(Left, Until, Pass);
        _ ->
            Left
    end.

still_here(Peer, Rows, #pass{table = Table, key_position = Position} = Pass) ->
    {Here, Gone} = lists:partition(fun(Row) -> ets:member(Table, element(Position, Row)) end, Rows),
    take_back(Peer, Gone, Pass),
    Here.

%% Deletes here what peers have. A peer that is gone died with it. Returns how many rows were deleted, and who is gone.
settle(Accepted, Pass) ->
    {Alive, Dead} = lists:partition(fun({Peer, _Rows}) -> lists:member(Peer, nodes()) end, Accepted),
    Moved = lists:sum([delete(Peer, Rows, Pass) || {Peer, Rows} <- Alive]),
    livestash_agent_state:count(handoffs_sent, Moved),
    {Moved, [Peer || {Peer, _Rows} <- Dead]}.

delete(Peer, Rows, #pass{table = Table} = Pass) ->
    {Deleted, Changed} = lists:partition(fun(Row) -> ets:select_delete(Table, exactly([Row], Pass)) =:= 1 end, Rows),
    take_back(Peer, Changed, Pass),
    length(Deleted).

%% Not waited for: the peer may be frozen, and what it does later is right at any time.
take_back(_Peer, [], _Pass) ->
    ok;
take_back(Peer, Rows, #pass{table = Table} = Pass) ->
    Copies = exactly(Rows, Pass),
    spawn(fun() -> catch erpc:call(Peer, ets, select_delete, [Table, Copies]) end),
    ok.

%% Matches these very rows. The pattern of each has its key, so that no other row is looked at; what is compared is the
%% whole row, as a constant, because atoms such as '_' in a row would be wildcards in a pattern.
exactly(Rows, #pass{key_position = Position}) ->
    [
        {setelement(Position, erlang:make_tuple(tuple_size(Row), '_'), element(Position, Row)),
            [{'=:=', '$_', {const, Row}}], [true]}
     || Row <- Rows
    ].

%% A peer without the agent cannot refuse, so it is just told to insert.
insert_at(Peer, Table, Rows) ->
    Offer = self(),
    try
        erpc:call(Peer, ?MODULE, accept, [Table, Rows, Offer])
    catch
        error:{exception, undef, [{?MODULE, accept, _, _} | _]} ->
            [answer(Inserted) || Inserted <- at_peer(Peer, fun ets:insert_new/2, Table, Rows)]
    end.

answer(true) -> accepted;
answer(false) -> taken.

%% One call for all, of functions that every peer has.
at_peer(Peer, Function, Table, Arguments) ->
    erpc:call(Peer, lists, zipwith, [Function, [Table || _ <- Arguments], Arguments]).

now_ms() ->
    erlang:monotonic_time(millisecond).
