%% What does a node do that is offered stashes? Takes those that rank higher than what it has, as long as it stays and its
%% LiveStash can read them, and drops what has become worse, or what it should not have taken.
-module(livestash_agent_intake).

-export([took/1, adopt/3]).
%% Called by nodes that hand over.
-export([ranks/2, kept_ranks/2, take/3, drop/2, drop_worse/2, give_way/2]).

-export_type([answer/0, offered/0]).

%% What became of one row: this node took it, and its LiveStash may not give it back, because it is of another version of the
%% application, or will; it has a better one; its LiveStash cannot read it; it has no such table, it stops as well, or the
%% offer was withdrawn.
-type answer() :: accepted | other_version | taken | other_shape | no_table | draining | withdrawn.
%% A row on its way, how good it is, and until which unix second it has to live at least.
-type offered() :: {tuple(), livestash_agent_rank:rank(), KeepUntil :: integer()}.

%% Milliseconds.
-define(ASK_OFFER, 2000).

%% Whether the answer means that the row is there now.
-spec took(answer()) -> boolean().
took(Answer) ->
    Answer =:= accepted orelse Answer =:= other_version.

%% Takes one row that this node has from elsewhere. Known: what its LiveStash understands.
-spec adopt(atom(), tuple(), livestash_agent_shape:known()) -> answer().
adopt(Table, Row, Known) ->
    take_fitting(livestash_agent_shape:fits(Row, Known), Table, Row, livestash_agent_rank:rank(Row)).

%% How good this node's versions of the keys are.
-spec ranks(atom(), [term()]) -> [livestash_agent_rank:rank() | absent].
ranks(Table, Keys) ->
    [rank_of(ets:lookup(Table, Key)) || Key <- Keys].

%% The same for whoever drops its own version when there is a better one. What a node that drains has, it does not keep, and it may have handed
%% it over to the very node that asks. So only by its younger page it is better than another one.
-spec kept_ranks(atom(), [term()]) -> [livestash_agent_rank:rank() | absent].
kept_ranks(Table, Keys) ->
    Ranks = ranks(Table, Keys),
    case livestash_agent_state:draining() of
        true -> [by_birth(Rank) || Rank <- Ranks];
        false -> Ranks
    end.

by_birth(absent) -> absent;
by_birth({Birth, _Until, _Alive, _AtHome}) -> {Birth, 0, false, false}.

rank_of([]) -> absent;
rank_of([Row]) -> livestash_agent_rank:rank(Row).

%% Takes rows for this node. Offer is a process of the node that hands over; once it is dead, the rows may be elsewhere.
-spec take(atom(), [offered()], pid()) -> [answer()].
take(Table, Offered, Offer) ->
    case refusal(Table, Offer) of
        none ->
            Room = ets:info(Table, memory) * erlang:system_info(wordsize) < livestash_agent_config:get(drain_keep_bytes),
            Known = livestash_agent_shape:known(Table),
            %% First: the rows are ranked as soon as they are here.
            ok = livestash_agent_rank:learn([{livestash_agent_row:owner(Row), Birth} || {Row, {Birth, _, _, _}, _Keep} <- Offered]),
            Answers = [
                take_fitting(livestash_agent_shape:fits(Row, Known), Table, kept(Row, Keep, Room), Rank)
             || {Row, Rank, Keep} <- Offered
            ],
            Taken = [Row || {{Row, _Rank, _Keep}, Answer} <- lists:zip(Offered, Answers), took(Answer)],
            livestash_agent_state:count(handoffs_received, length(Taken)),
            [livestash_agent_shadow_marks:arrived(keys(Table, Taken)) || livestash_agent_shadow:is_on()],
            Answers;
        Refusal ->
            [Refusal || _ <- Offered]
    end.

keys(Table, Rows) ->
    Position = ets:info(Table, keypos),
    [element(Position, Row) || Row <- Rows].

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
    [{Head, Guards, _}] = livestash_agent_row:exactly(Other, ets:info(Table, keypos)),
    case ets:select_replace(Table, [{Head, Guards, [{const, Row}]}]) of
        1 -> accepted;
        0 -> take_row(Table, Row, Rank)
    end.

refusal(Table, Offer) ->
    case {ets:info(Table, protection), livestash_agent_state:takes_stashes()} of
        {public, true} ->
            case erpc:call(node(Offer), erlang, is_process_alive, [Offer], ?ASK_OFFER) of
                true -> none;
                false -> withdrawn
            end;
        {public, false} ->
            draining;
        {_, _} ->
            no_table
    end.

%% Deletes rows that are still the same. Returns how many.
-spec drop(atom(), [livestash_agent_row:identity()]) -> non_neg_integer().
drop(Table, Rows) ->
    length([Row || Row <- Rows, livestash_agent_row:delete(Table, Row)]).

%% The same for whoever has these stashes now, and perhaps from this very node: one that drains may be handing them over. They
%% live longer there, which makes them look better, and what is gone here during a hand-over is taken for pulled by its user,
%% and is taken back there. So a node that drains leaves them to its hand-over.
-spec give_way(atom(), [{Key :: term(), livestash_agent_rank:rank()}]) -> ok.
give_way(Table, Better) ->
    livestash_agent_state:draining() orelse drop_worse(Table, Better),
    ok.

%% Deletes this node's versions of stashes of which there is a better one elsewhere.
-spec drop_worse(atom(), [{Key :: term(), livestash_agent_rank:rank()}]) -> ok.
drop_worse(Table, Better) ->
    Position = ets:info(Table, keypos),
    [
        ets:select_delete(Table, livestash_agent_row:exactly(Row, Position))
     || {Key, Rank} <- Better, Row <- ets:lookup(Table, Key), livestash_agent_rank:rank(Row) < Rank
    ],
    ok.
