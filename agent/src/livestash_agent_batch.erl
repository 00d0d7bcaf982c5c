%% How does a batch of stashes get to other nodes? Each row, in a process that does nothing else, is
%% 1. left alone when a peer has a version that ranks higher: its client is there, and the row here is old;
%% 2. given to the peer that has a worse version, which it replaces, else to one that is chosen by the key;
%% 3. left here a little longer: a lookup that had looked at the peer before step 2 will look here before step 4;
%% 4. deleted here, if it is still the same. If it is not, a client has pulled or changed it meanwhile, and the
%%    copy at the peer is deleted, if that is still the same.
%% A peer whose answer does not come in time may or may not have taken a row. That is withdrawn in two ways, by an offer
%% that it asks about before it takes anything, and by a deletion sent after it.
-module(livestash_agent_batch).

-export([move/3]).

-export_type([way/0, result/0]).

%% What holds for all rows of a batch.
-type way() :: #{
    table := atom(),
    key_position := pos_integer(),
    %% Monotonic milliseconds.
    deadline := integer(),
    %% Nodes that take rows, sorted: several that hand over and have the same key pick the same one.
    peers := [node()],
    %% Other nodes, which go as well, and take none.
    going := [node()],
    keep := livestash_agent_handoff:keep(),
    %% Of the whole batch.
    bytes := non_neg_integer()
}.
%% Rows that peers have taken, those of them that were deleted here then, and those that are of another version of the
%% application; rows of which a peer has a better one; whether a peer could not read one; nodes that are of no use.
-type result() :: #{
    accepted := non_neg_integer(),
    moved := non_neg_integer(),
    other_version := non_neg_integer(),
    superseded := non_neg_integer(),
    unreadable := boolean(),
    useless := [node()]
}.

%% A lookup asks one node after the other, on a busy machine a call takes long to get its turn, and a row that is deleted
%% before that is found nowhere. How long that may be is seen from the calls that moved the batch: so many times as long as
%% they took, within bounds. Milliseconds, also below.
-define(OVERLAP_PER_CALLS, 2).
-define(LEAST_OVERLAP, 250).
-define(MOST_OVERLAP, 2000).
-define(LOOK_AGAIN, 50).
-define(PEER_TIMEOUT, 2000).
-define(ASK_GOING, 500).
%% Bytes per millisecond that a connection to a peer should carry at least.
-define(SLOWEST, 4096).

%% Moves the rows, and says when only their rest here has to be waited for.
-spec move([tuple()], way(), Sent :: fun(() -> term())) -> result().
move(Rows, #{peers := Peers} = Way, Sent) ->
    Began = livestash_agent_clock:ms(),
    {Newest, Mute} = newest(Rows, Way),
    {Versions, Silent} = versions(Newest, Way),
    Offers = offer(Newest, Versions, Way#{peers := Peers -- Silent}),
    TakenAt = livestash_agent_clock:ms(),
    Superseded = length(Rows) - lists:sum([length(Share) || {_Peer, Share, _Outcome} <- Offers]),
    [take_back(Peer, identities(Share, Way), Way) || {Peer, Share, {error, _}} <- Offers],
    Accepted = [
        {Peer, identities([Offered || {Offered, Answer} <- lists:zip(Share, Answers), livestash_agent_intake:took(Answer)], Way)}
     || {Peer, Share, {ok, Answers}} <- Offers
    ],
    Sent(),
    rest(Accepted, TakenAt + overlap(TakenAt - Began), Way, #{
        accepted => count(accepted, Offers) + count(other_version, Offers),
        moved => 0,
        other_version => count(other_version, Offers),
        superseded => count_superseded(Superseded, Silent, Peers, Offers),
        unreadable => count(other_shape, Offers) > 0,
        useless => Mute ++ Silent ++ useless(Offers)
    }).

overlap(CallsTook) ->
    min(?MOST_OVERLAP, max(?LEAST_OVERLAP, ?OVERLAP_PER_CALLS * CallsTook)).

%% Rows for which nobody was left to offer them to are not superseded.
count_superseded(_Superseded, Peers, Peers, _Offers) -> 0;
count_superseded(Superseded, _Silent, _Peers, Offers) -> Superseded + count(taken, Offers).

%% Without the rows, only their keys are held here: what is not needed any more goes at once.
rest(Accepted, Until, Way, #{useless := Useless} = Result) ->
    erlang:garbage_collect(),
    {Moved, Lost} = settle(watch(Accepted, Until, Way), Way),
    Result#{moved := Moved, useless := Lost ++ Useless}.

identities(Offered, #{key_position := Position}) ->
    [livestash_agent_row:identity(Row, Position) || {Row, _Rank, _Keep} <- Offered].

count(Answer, Offers) ->
    length([Given || {_Peer, _Share, {ok, Answers}} <- Offers, Given <- Answers, Given =:= Answer]).

%% The rows but those of which a node that goes as well has a version of a younger page, which it hands over itself: an
%% older one would be found before it. Versions of older pages there must not be found either. Of the same page both may
%% have one for a moment, when one has given it to the other. Also returns those of the nodes that did not say.
newest(Rows, #{table := Table, key_position := Position, going := Going}) ->
    Keys = [element(Position, Row) || Row <- Rows],
    Ask = fun(Node) -> livestash_agent_remote:call(Node, livestash_agent_intake, ranks, [Table, Keys]) end,
    Outcomes = livestash_agent_tasks:run([{Node, fun() -> Ask(Node) end} || Node <- Going], ?ASK_GOING),
    Compared = [
        {Node, element(Position, Row), livestash_agent_rank:rank(Row), Rank}
     || {Node, {ok, Ranks}} <- Outcomes, {Row, Rank} <- lists:zip(Rows, Ranks), Rank =/= absent
    ],
    [drop_worse([Node], Table, Key, Here) || {Node, Key, Here, There} <- Compared, younger(Here, There)],
    Younger = maps:from_keys([Key || {_Node, Key, Here, There} <- Compared, younger(There, Here)], []),
    {
        [Row || Row <- Rows, not is_map_key(element(Position, Row), Younger)],
        [Node || {Node, {error, _}} <- Outcomes]
    }.

younger(Rank, Other) ->
    element(1, Rank) > element(1, Other).

%% Which peers have a version of each row, the best first, and the peers that did not say.
versions(Rows, #{table := Table, key_position := Position, peers := Peers} = Way) ->
    Keys = [element(Position, Row) || Row <- Rows],
    Outcomes = ask(Way, [{Peer, fun() -> ranks_at(Peer, Table, Keys) end} || Peer <- Peers]),
    Found = [{Key, {Rank, Peer}} || {Peer, {ok, Ranks}} <- Outcomes, {Key, Rank} <- lists:zip(Keys, Ranks), Rank =/= absent],
    Versions = maps:groups_from_list(fun({Key, _}) -> Key end, fun({_, Version}) -> Version end, Found),
    {
        maps:map(fun(_Key, Several) -> lists:reverse(lists:sort(Several)) end, Versions),
        [Peer || {Peer, {error, _}} <- Outcomes]
    }.

%% Of a peer without the agent it is only known that it has the key: its client is there.
ranks_at(Peer, Table, Keys) ->
    try
        livestash_agent_remote:call(Peer, livestash_agent_intake, ranks, [Table, Keys])
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
offer(_Rows, _Versions, #{peers := []}) ->
    [];
offer(Rows, Versions, #{table := Table, key_position := Position, keep := Keep} = Way) ->
    Offered = [{choose(Row, maps:get(element(Position, Row), Versions, []), Way), Row} || Row <- Rows],
    Shares = maps:groups_from_list(
        fun({{Peer, _Rank}, _Row}) -> Peer end,
        fun({{_Peer, Rank}, Row}) -> {Row, Rank, keep_until(Row, Keep)} end,
        [Offer || {{_, _}, _} = Offer <- Offered]
    ),
    List = maps:to_list(Shares),
    Outcomes = ask(Way, [{Peer, fun() -> give(Peer, Table, Share) end} || {Peer, Share} <- List]),
    lists:zipwith(fun({Peer, Share}, {Peer, Outcome}) -> {Peer, Share, Outcome} end, List, Outcomes).

%% Who is offered a row: whoever has a version that is worse, and no other one; the other versions must go.
choose(Row, [], #{key_position := Position, peers := Peers}) ->
    {lists:nth(1 + erlang:phash2(element(Position, Row), length(Peers)), Peers), livestash_agent_rank:rank(Row)};
choose(Row, [{Best, Peer} | Others], #{table := Table, key_position := Position}) ->
    case livestash_agent_rank:rank(Row) of
        Rank when Rank > Best ->
            drop_worse([Other || {_, Other} <- Others], Table, element(Position, Row), Rank),
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

takes({ok, Answers}) -> lists:all(fun(Answer) -> livestash_agent_intake:took(Answer) orelse Answer =:= taken end, Answers);
takes({error, _}) -> false.

%% A large row must not make a good peer look like a dead one.
ask(#{deadline := Deadline, bytes := Bytes}, Tasks) ->
    Limit = ?PEER_TIMEOUT + Bytes div ?SLOWEST,
    livestash_agent_tasks:run(Tasks, min(Limit, livestash_agent_clock:left(Deadline))).

%% Until the lookups that do not know of the copies are over. Copies of rows that are pulled from here meanwhile are
%% taken back at once: their clients live on elsewhere, and must not find them.
watch(Accepted, Until, Way) ->
    Left = [{Peer, still_here(Peer, Taken, Way)} || {Peer, Taken} <- Accepted],
    case livestash_agent_clock:left(Until) of
        0 ->
            Left;
        Time ->
            timer:sleep(min(Time, ?LOOK_AGAIN)),
            watch(Left, Until, Way)
    end.

still_here(Peer, Taken, #{table := Table} = Way) ->
    {Here, Gone} = lists:partition(fun({Key, _Version}) -> ets:member(Table, Key) end, Taken),
    take_back(Peer, Gone, Way),
    Here.

%% Deletes here what peers have. A peer that is gone died with it. Returns how many rows were deleted, and who is gone.
settle(Accepted, Way) ->
    {Alive, Dead} = lists:partition(fun({Peer, _Taken}) -> lists:member(Peer, nodes()) end, Accepted),
    Moved = lists:sum([settle(Peer, Taken, Way) || {Peer, Taken} <- Alive]),
    livestash_agent_state:count(handoffs_sent, Moved),
    {Moved, [Peer || {Peer, _Taken} <- Dead]}.

settle(Peer, Taken, #{table := Table} = Way) ->
    {Deleted, Changed} = lists:partition(fun(Row) -> livestash_agent_row:delete(Table, Row) end, Taken),
    take_back(Peer, Changed, Way),
    length(Deleted).

%% Not waited for: the peer may be frozen, and what it does later is right at any time.
take_back(_Peer, [], _Way) ->
    ok;
take_back(Peer, Taken, Way) ->
    spawn(fun() -> catch drop_at(Peer, Taken, Way) end),
    ok.

drop_at(Peer, Taken, #{table := Table} = Way) ->
    try
        livestash_agent_remote:call(Peer, livestash_agent_intake, drop, [Table, Taken])
    catch
        error:Reason ->
            [drop_plainly(Peer, Way, Each) || livestash_agent_remote:without_agent(Reason), Each <- Taken]
    end.

drop_plainly(Peer, #{table := Table, key_position := Position}, {Key, _Version} = Taken) ->
    [
        erpc:call(Peer, ets, select_delete, [Table, Same])
     || Row <- erpc:call(Peer, ets, lookup, [Table, Key]), Same <- [livestash_agent_row:same(Taken, Row, Position)], Same =/= none
    ].

drop_worse(Nodes, Table, Key, Rank) ->
    livestash_agent_remote:tell(Nodes, livestash_agent_intake, drop_worse, [Table, [{Key, Rank}]]).

%% A peer without the agent cannot refuse, so it is just told to insert.
give(Peer, Table, Offered) ->
    Offer = self(),
    try
        livestash_agent_remote:call(Peer, livestash_agent_intake, take, [Table, Offered, Offer])
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
