%% How are versions of a stash made one with Mnesia, where all nodes should have the same? All copies get the best one,
%% written in a transaction under whose locks the versions were read. A stash that a side does not have is missing there,
%% unless it was deleted there after its owner was started.
-module(livestash_agent_copies_mnesia).

-export([settle/3]).

-define(RETRIES, 10).

%% Locked everywhere, because then whatever was written before has arrived everywhere.
-spec settle(atom(), [node()], [term()]) -> non_neg_integer().
settle(Table, Nodes, Keys) ->
    Repair = fun() ->
        [mnesia:lock({record, Table, Key}, write) || Key <- Keys],
        Decided = [{decide(Seen), Key} || {Key, Seen} <- livestash_agent_copies:see({mnesia, Table}, Nodes, Keys)],
        [mnesia:delete({Table, Key}) || {delete, Key} <- Decided],
        Sources = lists:usort([Node || {{keep, Node}, _Key} <- Decided]),
        [[mnesia:write(Table, Row, write) || Row <- fetch(Table, Node, Decided)] || Node <- Sources],
        length([Key || {Decision, Key} <- Decided, Decision =/= same])
    end,
    case mnesia:transaction(Repair, ?RETRIES) of
        {atomic, Repaired} -> Repaired;
        {aborted, {throw, {trouble, Sentence}}} -> livestash_agent_copies:trouble(Sentence);
        {aborted, Reason} -> livestash_agent_copies:trouble(io_lib:format("Mnesia did not repair stashes: ~tp.", [Reason]))
    end.

fetch(Table, Node, Decided) ->
    livestash_agent_copies:call(Node, rows, [Table, [Key || {{keep, From}, Key} <- Decided, From =:= Node]]).

decide(Seen) ->
    Deleted = [At || {_Node, {deleted, At}} <- Seen],
    Versions = lists:usort([version(Candidate) || {_Node, Candidate} <- Seen]),
    case {Versions, livestash_agent_copies:best(Seen)} of
        {[_], _} -> same;
        {_, {Node, _Rank}} when Deleted =:= [] -> {keep, Node};
        {_, {Node, Rank}} -> kept(Node, element(1, Rank) > lists:max(Deleted))
    end.

version({present, Version, _Rank, _Owner}) -> Version;
version(_Absent) -> absent.

kept(Node, true) -> {keep, Node};
kept(_Node, false) -> delete.
