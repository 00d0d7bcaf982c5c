%% How are versions of a stash made one with ETS, where each node has its own rows? The best one stays where it is, the others
%% are deleted, each only as the very row that was compared and while the better one is there.
-module(livestash_agent_copies_ets).

-export([settle/3]).
%% Called by peers, by way of livestash_agent_copies.
-export([drop/3]).

-spec settle(atom(), [node()], [term()]) -> non_neg_integer().
settle(Table, Nodes, Keys) ->
    Losers = [
        {{Node, Best}, {Key, Version}}
     || {Key, Seen} <- livestash_agent_copies:see({ets, Table}, Nodes, Keys), {Node, Best, Version} <- losers(Seen)
    ],
    Groups = maps:to_list(maps:groups_from_list(fun({Of, _}) -> Of end, fun({_, Row}) -> Row end, Losers)),
    lists:sum([livestash_agent_copies:call(Node, drop, [Table, Best, Rows]) || {{Node, Best}, Rows} <- Groups]).

losers(Seen) ->
    case livestash_agent_copies:best(Seen) of
        none -> [];
        {Best, _Rank} -> [{Node, Best, Version} || {Node, {present, Version, _, _}} <- Seen, Node =/= Best]
    end.

%% Deletes rows of this node that have not changed, whose keys the other one has.
-spec drop(atom(), node(), [{term(), livestash_agent_copies:version()}]) -> non_neg_integer().
drop(Table, Best, Doomed) ->
    Rows = [Row || {Key, Version} <- Doomed, Row <- ets:lookup(Table, Key), livestash_agent_row:number(Row) =:= Version],
    Position = ets:info(Table, keypos),
    Held = livestash_agent_copies:call(Best, held, [Table, [element(Position, Row) || Row <- Rows]]),
    livestash_agent_copies:refuse_draining(),
    length([true = ets:delete_object(Table, Row) || {Row, true} <- lists:zip(Rows, Held)]).
