%% What is a node sent that holds copies of this node's stashes? The next entries of its queue, as one batch, which is
%% bounded in stashes and in bytes. Of a stash whose page has only moved the end of its time on, that time; of one that
%% is gone, its key.
-module(livestash_agent_shadow_batch).

-export([send/2]).

-export_type([way/0, change/0, version/0, outcome/0]).

-define(INDEX, livestash_agent_shadow_index).

-type way() :: #{
    table := atom(),
    %% As this node calls itself, and for whom the batch is.
    sender := {node(), ?INDEX:token()},
    peer := ?INDEX:peer(),
    %% All nodes that hold copies, and how many there are to be of each stash.
    peers := #{node() => ?INDEX:peer()},
    copies := pos_integer()
}.
%% Of two versions of one page that with the higher stamp is the later one; else see livestash_agent_rank:is_newer/2.
-type version() :: livestash_agent_rank:version().
-type change() ::
    {put, Key :: term(), version(), Until :: integer() | none, Payload :: binary()}
    | {touch, Key :: term(), Until :: integer() | none}
    | {drop, Key :: term()}.
%% What became of an entry: the node has this copy; it has none, as it should be, or though it should have one; it
%% refused it; or there was nothing to do.
-type outcome() :: {has, ?INDEX:copy()} | dropped | missing | refused | nothing.

%% Of a batch. Large ones would delay the calls of users, which go over the same connections.
-define(BATCH_ROWS, 500).
-define(BATCH_BYTES, 262144).
%% Compression: of all levels the fastest, and only what is larger than this, in bytes.
-define(LEVEL, 1).
-define(WORTH, 512).

%% Sends the next batch to the node and says what became of each entry. Raises when that is not known.
-spec send(node(), way()) ->
    [{?INDEX:entry(), outcome()}] | {other, ?INDEX:token()} | gone.
send(Node, #{sender := Sender, peer := {Token, _, _}} = Way) ->
    Done = collect(?INDEX:first(Node), Node, Way, [], 0, ?BATCH_ROWS),
    case [Change || {_Entry, Change, _Then} <- Done, Change =/= none] of
        [] ->
            [{Entry, Then} || {Entry, none, Then} <- Done];
        Changes ->
            case livestash_agent_remote:call(Node, livestash_agent_shadow_store, take, [Sender, Token, Changes]) of
                {ok, Answers} -> outcomes(Done, Answers);
                Otherwise -> Otherwise
            end
    end.

outcomes([{Entry, none, Then} | Done], Answers) -> [{Entry, Then} | outcomes(Done, Answers)];
outcomes([{Entry, _Change, Then} | Done], [ok | Answers]) -> [{Entry, Then} | outcomes(Done, Answers)];
outcomes([{Entry, _Change, _Then} | Done], [missing | Answers]) -> [{Entry, missing} | outcomes(Done, Answers)];
outcomes([{Entry, _Change, _Then} | Done], [refused | Answers]) -> [{Entry, refused} | outcomes(Done, Answers)];
outcomes([], []) -> [].

collect(none, _Node, _Way, Done, _Bytes, _Left) ->
    lists:reverse(Done);
collect(_Entry, _Node, _Way, Done, Bytes, Left) when Bytes >= ?BATCH_BYTES; Left =:= 0 ->
    lists:reverse(Done);
collect({Node, _Order, Key} = Entry, Node, Way, Done, Bytes, Left) ->
    {Change, Then} = change(Key, Node, Way),
    Next = ?INDEX:next(Entry),
    collect(Next, Node, Way, [{Entry, Change, Then} | Done], Bytes + size_of(Change), Left - 1).

size_of({put, _Key, _Version, _Until, Payload}) -> byte_size(Payload);
size_of(_Other) -> 0.

%% The stamp is taken before the row is read, so that a version with a higher one is not older.
change(Key, Node, #{table := Table, peers := Peers, copies := Copies} = Way) ->
    Now = erlang:system_time(microsecond),
    Holders = livestash_agent_shadow:holders(Key, Peers, Copies),
    case {ets:lookup(Table, Key), lists:member(Node, Holders)} of
        {[], _} -> {{drop, Key}, dropped};
        {[Row], true} -> changed(Key, Row, ?INDEX:stamp(Key, Row, Now), Node, Way);
        {[_Row], false} -> superfluous(Key, Holders, Peers)
    end.

%% Another node holds the copy now. This one's goes when that has it.
superfluous(Key, Holders, Peers) ->
    Has = [Node || #{node := Node} <- ?INDEX:valid(Key, Peers)],
    case Holders -- Has of
        [] -> {{drop, Key}, dropped};
        _Missing -> {none, nothing}
    end.

changed(Key, Row, Stamp, Node, #{peer := Peer, peers := Peers}) ->
    Until = livestash_agent_row:until(Row),
    Timeless = livestash_agent_row:timeless(Row),
    Number = livestash_agent_row:number(Timeless),
    case [Copy || #{node := Other} = Copy <- ?INDEX:valid(Key, Peers), Other =:= Node] of
        [#{number := Number, until := Until}] ->
            {none, nothing};
        [#{number := Number} = Copy] ->
            {{touch, Key, Until}, {has, Copy#{until := Until}}};
        _ ->
            Version = livestash_agent_rank:version(Row, Stamp),
            Copy = #{node => Node, peer => Peer, stamp => Stamp, number => Number, until => Until},
            {{put, Key, Version, Until, payload(Timeless)}, {has, Copy}}
    end.

payload(Row) ->
    case erlang:external_size(Row) > ?WORTH of
        true -> term_to_binary(Row, [{compressed, ?LEVEL}]);
        false -> term_to_binary(Row)
    end.
