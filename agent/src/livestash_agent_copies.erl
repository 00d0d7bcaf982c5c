%% Where do the nodes hold different versions of a stash, and which one is right? Rows are opaque tuples: the position of
%% their key is known, the first process in them is taken for their owner, and a field that Mnesia calls delete_at for
%% the end of their time in unix seconds.
%%
%% Of several versions, in this order: the one on its owner's node, because only the owner writes a stash; the one whose
%% owner is alive; the one whose owner was started last, because a user who moves gets a new process, while the old one
%% may wait a minute for the client that it has lost; the one on the larger side of the split; the one on the node with
%% the lowest name.
%%
%% With Mnesia all copies get that version, written in a transaction under whose locks the versions were read. A
%% stash that a side does not have is missing there, unless it was deleted there after its owner was started. With ETS the
%% other rows are deleted, each only as the very row that was compared and while the better one is there.
-module(livestash_agent_copies).

-export([pass/2, owner/1, time_position/2]).
%% Called by peers.
-export([describe/1, members/2, versions/3, candidates/3, rows/2, drop/3, held/2]).

-export_type([kind/0, result/0]).

-type kind() :: ets | mnesia.
%% Rows repaired, and a sentence when something could not be compared or repaired.
-type result() :: {non_neg_integer(), Trouble :: iodata()}.
%% What a node has under a key. Greater ranks are better.
-type candidate() :: absent | {deleted, Milliseconds :: non_neg_integer()} | {present, version(), rank()}.
-type version() :: non_neg_integer().
-type rank() :: {OnOwnersNode :: boolean(), Alive :: boolean(), Youth :: integer(), Connected :: non_neg_integer()}.

%% Keys that are compared at once, and rows that are repaired at once.
-define(CHUNK, 200).
-define(BATCH, 20).
%% Milliseconds between two chunks, in which others have the processor.
-define(REST, 5).
%% Milliseconds that peers may take for a chunk.
-define(ASK, 5000).
-define(SETTLE, 15000).
-define(RETRIES, 10).
%% Milliseconds since a process was started of which it is only known to be older than others.
-define(OLD, (1 bsl 40)).

%% Compares all stashes of which this node is the first holder, and repairs those that differ. Patient: waits for
%% connected nodes that are just joining.
-spec pass(kind(), Patient :: boolean()) -> result().
pass(Kind, Patient) ->
    process_flag(priority, low),
    try
        restore_and_compare(Kind, holders(Kind, Patient))
    catch
        throw:{trouble, Trouble} -> {0, Trouble}
    end.

%% The nodes that hold stashes and have this module, with this one, sorted; and the table. The others cannot be compared.
holders(Kind, Patient) ->
    Answers = [{node(), {ok, describe(Kind)}} | ask(nodes(), describe, [Kind])],
    Joining = [Node || {Node, {ok, joining}} <- Answers],
    Silent = [Node || {Node, {error, Reason}} <- Answers, not without_agent(Reason)],
    Described = [{Node, Table, Copies} || {Node, {ok, {Table, Copies}}} <- Answers],
    Nodes = lists:sort([Node || {Node, _Table, _Copies} <- Described]),
    Apart = [Node || {Node, _Table, Copies} <- Described, Kind =:= mnesia, Nodes -- Copies =/= []],
    [trouble(["No answer from ", names(Silent), "."]) || Silent =/= []],
    [trouble(["There is no loaded copy on ", names(Joining), "."]) || Patient, Joining =/= []],
    [trouble(["Mnesia's copies are not joined on ", names(Apart), "."]) || Apart =/= []],
    case lists:keyfind(node(), 1, Described) of
        {_Node, Table, _Copies} -> {Table, Nodes};
        false -> none
    end.

without_agent({exception, undef, [{?MODULE, _, _, _} | _]}) -> true;
without_agent(_Reason) -> false.

-spec trouble(iodata()) -> no_return().
trouble(Sentence) ->
    throw({trouble, Sentence}).

%% This node's table, and whom Mnesia writes it to.
-spec describe(kind()) -> {atom(), [node()]} | joining | none.
describe(Kind) ->
    case lists:keyfind(Kind, 1, livestash_agent_store:tables()) of
        {ets, Table} -> {Table, []};
        {mnesia, Table} -> {Table, mnesia:table_info(Table, where_to_write)};
        false when Kind =:= mnesia -> joining(erlang:module_loaded(mnesia) andalso mnesia:system_info(is_running));
        false -> none
    end.

joining(false) -> none;
joining(no) -> none;
joining(_Running) -> joining.

restore_and_compare(Kind, Table) ->
    Restored = restore(Kind, Table),
    {Repaired, Trouble} = compare(Kind, Table),
    {Restored + Repaired, Trouble}.

%% First, because what was lost on all nodes is no difference between them.
restore(mnesia, {Table, _Nodes}) ->
    Restored = livestash_agent_journal:restore(Table),
    livestash_agent_state:count(reunited_rows, Restored),
    Restored;
restore(_Kind, _None) ->
    0.

compare(_Kind, none) ->
    {0, ""};
compare(Kind, {Table, Nodes}) ->
    {Earlier, [_Self | Later]} = lists:splitwith(fun(Node) -> Node =/= node() end, Nodes),
    true = ets:safe_fixtable(Table, true),
    try
        Keys = [{'_', [], [{element, ets:info(Table, keypos), '$_'}]}],
        walk({Kind, Table, Earlier, Later}, ets:select(Table, Keys, ?CHUNK), {0, ""})
    after
        ets:safe_fixtable(Table, false)
    end.

walk(_Of, '$end_of_table', Result) ->
    Result;
walk(Of, {Keys, Continuation}, {Repaired, Trouble}) ->
    {More, Worse} = settle(Of, suspicious(Of, Keys)),
    timer:sleep(?REST),
    walk(Of, ets:select(Continuation), {Repaired + More, worst(Trouble, Worse)}).

worst("", Trouble) -> Trouble;
worst(Trouble, _Later) -> Trouble.

%% The keys that no earlier node has, so that it falls to this one to compare them, and that look different elsewhere.
suspicious({Kind, Table, Earlier, Later}, Keys) ->
    Known = answers(ask(Earlier, members, [Table, Keys])),
    Mine = [Key || {Key, false} <- lists:zip(Keys, any(Keys, [Members || {_Node, Members} <- Known]))],
    suspicious(Kind, Table, Earlier, Later, Mine).

%% With Mnesia the earlier nodes lack a row, with ETS nobody else should have one.
suspicious(mnesia, _Table, [_ | _], _Later, Mine) ->
    Mine;
suspicious(Kind, Table, _Earlier, Later, Mine) ->
    Others = [Versions || {_Node, Versions} <- answers(ask(Later, versions, [Kind, Table, Mine]))],
    Here = versions(Kind, Table, Mine),
    Differ = [[differ(Kind, A, B) || {A, B} <- lists:zip(Here, Versions)] || Versions <- Others],
    [Key || {Key, true} <- lists:zip(Mine, any(Mine, Differ))].

any(Keys, Lists) ->
    lists:foldl(fun(List, Any) -> lists:zipwith(fun(A, B) -> A orelse B end, List, Any) end, [false || _ <- Keys], Lists).

differ(mnesia, Version, Other) -> Version =/= Other;
differ(ets, Version, Other) -> Version =/= absent andalso Other =/= absent.

settle(_Of, []) ->
    {0, ""};
settle({Kind, Table, Earlier, Later} = Of, Keys) ->
    {Batch, Rest} = lists:split(min(?BATCH, length(Keys)), Keys),
    Nodes = Earlier ++ [node() | Later],
    [{settle, Outcome}] = livestash_agent_tasks:run([{settle, fun() -> settle(Kind, Table, Nodes, Batch) end}], ?SETTLE),
    {Repaired, Trouble} =
        case Outcome of
            {ok, Count} -> {Count, ""};
            {error, {trouble, Sentence}} -> {0, Sentence};
            {error, Reason} -> {0, io_lib:format("~tp.", [Reason])}
        end,
    livestash_agent_state:count(reunited_rows, Repaired),
    {More, Worse} = settle(Of, Rest),
    {Repaired + More, worst(Trouble, Worse)}.

%% Locked everywhere, because then whatever was written before has arrived everywhere.
settle(mnesia, Table, Nodes, Keys) ->
    Repair = fun() ->
        [mnesia:lock({record, Table, Key}, write) || Key <- Keys],
        Decided = [{decide(Seen), Key} || {Key, Seen} <- see(mnesia, Table, Nodes, Keys)],
        [mnesia:delete({Table, Key}) || {delete, Key} <- Decided],
        Sources = lists:usort([Node || {{keep, Node}, _Key} <- Decided]),
        [[mnesia:write(Table, Row, write) || Row <- fetch(Table, Node, Decided)] || Node <- Sources],
        length([Key || {Decision, Key} <- Decided, Decision =/= same])
    end,
    case mnesia:transaction(Repair, ?RETRIES) of
        {atomic, Repaired} -> Repaired;
        {aborted, {throw, {trouble, Sentence}}} -> trouble(Sentence);
        {aborted, Reason} -> trouble(io_lib:format("Mnesia did not repair stashes: ~tp.", [Reason]))
    end;
settle(ets, Table, Nodes, Keys) ->
    Losers = [
        {{Node, Best}, {Key, Version}}
     || {Key, Seen} <- see(ets, Table, Nodes, Keys), {Node, Best, Version} <- losers(Seen)
    ],
    Groups = maps:to_list(maps:groups_from_list(fun({Of, _}) -> Of end, fun({_, Row}) -> Row end, Losers)),
    lists:sum([answer(Node, call(Node, drop, [Table, Best, Rows])) || {{Node, Best}, Rows} <- Groups]).

fetch(Table, Node, Decided) ->
    answer(Node, call(Node, rows, [Table, [Key || {{keep, From}, Key} <- Decided, From =:= Node]])).

losers(Seen) ->
    case best(Seen) of
        none -> [];
        {Best, _Rank} -> [{Node, Best, Version} || {Node, {present, Version, _}} <- Seen, Node =/= Best]
    end.

%% What all nodes have under each of the keys.
see(Kind, Table, Nodes, Keys) ->
    Answers = answers([{node(), call(node(), candidates, [Kind, Table, Keys])} | ask(Nodes -- [node()], candidates, [Kind, Table, Keys])]),
    transpose(Keys, [[{Node, Candidate} || Candidate <- Candidates] || {Node, Candidates} <- Answers]).

transpose([], _Lists) -> [];
transpose([Key | Keys], Lists) -> [{Key, [hd(List) || List <- Lists]} | transpose(Keys, [tl(List) || List <- Lists])].

%% What should be done with Mnesia's copies.
decide(Seen) ->
    Deleted = [Age || {_Node, {deleted, Age}} <- Seen],
    Versions = lists:usort([version(Candidate) || {_Node, Candidate} <- Seen]),
    case {Versions, best(Seen)} of
        {[_], _} -> same;
        {_, {Node, Rank}} when Deleted =:= [] -> kept(Node, Rank, ?OLD);
        {_, {Node, Rank}} -> kept(Node, Rank, lists:min(Deleted))
    end.

version({present, Version, _Rank}) -> Version;
version(_Absent) -> absent.

kept(Node, _Rank, ?OLD) -> {keep, Node};
kept(Node, {_, true, Youth, _}, Deleted) when -Youth < Deleted -> {keep, Node};
kept(_Node, _Rank, _Deleted) -> delete.

best(Seen) ->
    Better = fun
        ({Node, {present, _, Rank}}, none) -> {Node, Rank};
        ({Node, {present, _, Rank}}, {Other, Least}) when Rank > Least; Rank =:= Least, Node < Other -> {Node, Rank};
        (_, Best) -> Best
    end,
    lists:foldl(Better, none, Seen).

%% Which of the keys this node has.
-spec members(atom(), [term()]) -> [boolean()].
members(Table, Keys) ->
    [ets:member(Table, Key) || Key <- Keys].

%% A number for what this node has under each of the keys. Two rows with the same number are taken for equal.
-spec versions(kind(), atom(), [term()]) -> [version() | absent].
versions(Kind, Table, Keys) ->
    End = time_position(Kind, Table),
    [number(row(Table, Key, End)) || Key <- Keys].

number([]) -> absent;
number([Row]) -> erlang:phash2(Row, 1 bsl 32).

%% What this node has under each of the keys, and how good it is.
-spec candidates(kind(), atom(), [term()]) -> [candidate()].
candidates(Kind, Table, Keys) ->
    loaded(Kind, Table),
    End = time_position(Kind, Table),
    Standing = livestash_agent_reunion:standing(),
    [candidate(Kind, Key, row(Table, Key, End), Standing) || Key <- Keys].

candidate(mnesia, Key, [], _Standing) ->
    case livestash_agent_journal:deleted(Key) of
        none -> absent;
        Age -> {deleted, Age}
    end;
candidate(ets, _Key, [], _Standing) ->
    absent;
candidate(_Kind, _Key, [Row], Standing) ->
    {present, number([Row]), rank(owner(Row), Standing)}.

%% The process whose stash a row is.
-spec owner(tuple()) -> pid() | none.
owner(Row) ->
    case lists:search(fun is_pid/1, tuple_to_list(Row)) of
        {value, Owner} -> Owner;
        false -> none
    end.

rank(Owner, #{connected := Connected, births := Births}) when node(Owner) =:= node() ->
    case is_process_alive(Owner) of
        true -> {true, true, -age(Owner, Births), Connected};
        false -> {true, false, 0, Connected}
    end;
rank(_Owner, #{connected := Connected}) ->
    {false, false, 0, Connected}.

age(Pid, Births) ->
    case [At || {Other, At} <- Births, Other < Pid] of
        [At | _] -> erlang:monotonic_time(millisecond) - At;
        [] -> ?OLD
    end.

%% A copy that is being loaded looks like one that lacks rows.
loaded(Kind, Table) ->
    lists:member({Kind, Table}, livestash_agent_store:tables()) orelse
        trouble(["There is no loaded copy on ", atom_to_list(node()), "."]).

%% What has expired is not there: the next round of LiveStash's cleaner deletes it.
row(Table, Key, End) ->
    [Row || Row <- ets:lookup(Table, Key), not expired(Row, End)].

expired(Row, End) when tuple_size(Row) >= End, is_integer(element(End, Row)) -> element(End, Row) < os:system_time(second);
expired(_Row, _End) -> false.

%% The field that says until when a row lives, in seconds; none where there is no such field.
-spec time_position(kind(), atom()) -> pos_integer() | none.
time_position(mnesia, Table) -> position(delete_at, mnesia:table_info(Table, attributes), 2);
time_position(ets, _Table) -> none.

position(_Name, [], _Position) -> none;
position(Name, [Name | _], Position) -> Position;
position(Name, [_ | Names], Position) -> position(Name, Names, Position + 1).

%% The rows of this node.
-spec rows(atom(), [term()]) -> [tuple()].
rows(Table, Keys) ->
    [Row || Key <- Keys, Row <- ets:lookup(Table, Key)].

%% Deletes rows of this node that have not changed, whose keys the other one has. A node that drains hands its rows
%% over, and takes those of others into account: between the two of them a stash could be deleted twice.
-spec drop(atom(), node(), [{term(), version()}]) -> non_neg_integer().
drop(Table, Best, Doomed) ->
    Rows = [Row || {Key, Version} <- Doomed, Row <- ets:lookup(Table, Key), number([Row]) =:= Version],
    Position = ets:info(Table, keypos),
    Held = answer(Best, call(Best, held, [Table, [element(Position, Row) || Row <- Rows]])),
    refuse_draining(),
    length([true = ets:delete_object(Table, Row) || {Row, true} <- lists:zip(Rows, Held)]).

%% Which of the keys this node has, and keeps.
-spec held(atom(), [term()]) -> [boolean()].
held(Table, Keys) ->
    refuse_draining(),
    members(Table, Keys).

refuse_draining() ->
    livestash_agent_state:draining() andalso trouble([atom_to_list(node()), " is being drained."]).

ask(Nodes, Function, Arguments) ->
    livestash_agent_tasks:run([{Node, fun() -> at(Node, Function, Arguments) end} || Node <- Nodes], ?ASK).

call(Node, Function, Arguments) ->
    [{Node, Outcome}] = ask([Node], Function, Arguments),
    Outcome.

at(Node, Function, Arguments) when Node =:= node() -> apply(?MODULE, Function, Arguments);
at(Node, Function, Arguments) -> erpc:call(Node, ?MODULE, Function, Arguments).

answers(Outcomes) ->
    [{Node, answer(Node, Outcome)} || {Node, Outcome} <- Outcomes].

answer(_Node, {ok, Answer}) -> Answer;
answer(_Node, {error, {trouble, Sentence}}) -> trouble(Sentence);
answer(Node, {error, Reason}) -> trouble(io_lib:format("~ts did not answer: ~tp.", [Node, Reason])).

names(Nodes) ->
    lists:join(", ", [atom_to_list(Node) || Node <- Nodes]).
