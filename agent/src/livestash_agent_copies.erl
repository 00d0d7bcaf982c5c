%% Where do the nodes hold different versions of a stash? Compares what they hold, key by key, and repairs what differs: of
%% several versions the one that livestash_agent_rank finds best stays, of equally good ones that on the node with the lowest
%% name. What repairing means depends on the adapter: livestash_agent_copies_ets, livestash_agent_copies_mnesia.
%%
%% Every node compares the keys of which it is the first holder.
-module(livestash_agent_copies).

-export([pass/2]).
%% For the adapters, and tests.
-export([see/3, best/1, births/2, call/3, trouble/1, refuse_draining/0]).
%% Called by peers.
-export([describe/1, members/2, versions/3, candidates/3, rows/2, drop/3, held/2]).

-export_type([kind/0, result/0, candidate/0, version/0]).

-type kind() :: ets | mnesia.
%% Rows repaired, and a sentence when something could not be compared or repaired.
-type result() :: {non_neg_integer(), Trouble :: iodata()}.
%% What a node has under a key, or when it was deleted there.
-type candidate() ::
    absent
    | {deleted, UnixMilliseconds :: integer()}
    | {present, version(), livestash_agent_rank:rank(), Owner :: pid() | none}.
-type version() :: non_neg_integer().

%% Keys that are compared at once, and rows that are repaired at once.
-define(CHUNK, 200).
-define(BATCH, 20).
%% Milliseconds between two chunks, in which others have the processor.
-define(REST, 5).
%% Milliseconds that peers may take for a chunk.
-define(ASK, 5000).
-define(SETTLE, 15000).

%% Compares all stashes of which this node is the first holder, and repairs those that differ. Patient: waits also for
%% other nodes that are just joining.
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
    [trouble(["No answer from ", livestash_agent_mesh:names(Silent), "."]) || Silent =/= []],
    [trouble(["There is no loaded copy on ", livestash_agent_mesh:names(Joining), "."]) || Joining =/= [], Patient orelse lists:member(node(), Joining)],
    [trouble(["Mnesia's copies are not joined on ", livestash_agent_mesh:names(Apart), "."]) || Apart =/= []],
    case lists:keyfind(node(), 1, Described) of
        {_Node, Table, _Copies} -> {Table, Nodes};
        false -> none
    end.

%% One that speaks another protocol is left alone as well.
without_agent({exception, {protocol, _}, _}) -> true;
without_agent(Reason) -> livestash_agent_remote:without_agent(Reason).

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
restore(mnesia, {Table, Nodes}) ->
    Overlooked = livestash_agent_journal:overlooked(),
    [
        logger:warning("livestash agent: ~b changes were not remembered; older versions may be back.", [Overlooked])
     || Overlooked > 0
    ],
    Restored = livestash_agent_journal:restore(Table, fun(Pages) -> births(Nodes, Pages) end),
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
        Keys = livestash_agent_row:elements([ets:info(Table, keypos)]),
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

settle(mnesia, Table, Nodes, Keys) -> livestash_agent_copies_mnesia:settle(Table, Nodes, Keys);
settle(ets, Table, Nodes, Keys) -> livestash_agent_copies_ets:settle(Table, Nodes, Keys).

%% What all nodes have under each of the keys.
-spec see({kind(), atom()}, [node()], [term()]) -> [{term(), [{node(), candidate()}]}].
see({Kind, Table}, Nodes, Keys) ->
    Answers = answers(ask(Nodes, candidates, [Kind, Table, Keys])),
    Owners = lists:usort([Owner || {_Node, Candidates} <- Answers, {present, _, _, Owner} <- Candidates, is_pid(Owner)]),
    Births = births(Nodes, Owners),
    transpose(Keys, [[{Node, aged(Candidate, Births)} || Candidate <- Candidates] || {Node, Candidates} <- Answers]).

%% The one that holds the row may not know how old its page is.
aged({present, Version, Rank, Owner}, Births) when is_map_key(Owner, Births) ->
    {present, Version, setelement(1, Rank, max(element(1, Rank), maps:get(Owner, Births))), Owner};
aged(Candidate, _Births) ->
    Candidate.

%% When the pages were started, by what any of the nodes knows. An agent of before does not know the question, and nothing of them.
-spec births([node()], [pid()]) -> #{pid() => integer()}.
births(_Nodes, []) ->
    #{};
births(Nodes, Owners) ->
    Answers = [Answer || {_Node, Outcome} = Answer <- ask(Nodes, livestash_agent_rank, births, [Owners]), not of_before(Outcome)],
    Known = [lists:zip(Owners, Births) || {_Node, Births} <- answers(Answers)],
    Latest = fun({Owner, Birth}, Acc) -> maps:update_with(Owner, fun(Other) -> max(Birth, Other) end, Birth, Acc) end,
    lists:foldl(Latest, #{}, lists:append(Known)).

of_before({error, {exception, undef, [{livestash_agent_rank, births, _, _} | _]}}) -> true;
of_before(_Outcome) -> false.

transpose([], _Lists) -> [];
transpose([Key | Keys], Lists) -> [{Key, [hd(List) || List <- Lists]} | transpose(Keys, [tl(List) || List <- Lists])].

%% The best of the versions, and the node that has it.
-spec best([{node(), candidate()}]) -> {node(), livestash_agent_rank:rank()} | none.
best(Seen) ->
    Better = fun
        ({Node, {present, _, Rank, _}}, none) -> {Node, Rank};
        ({Node, {present, _, Rank, _}}, {Other, Least}) when Rank > Least; Rank =:= Least, Node < Other -> {Node, Rank};
        (_, Best) -> Best
    end,
    lists:foldl(Better, none, Seen).

%% Which of the keys this node has.
-spec members(atom(), [term()]) -> [boolean()].
members(Table, Keys) ->
    [ets:member(Table, Key) || Key <- Keys].

%% A number for what this node has under each of the keys.
-spec versions(kind(), atom(), [term()]) -> [version() | absent].
versions(Kind, Table, Keys) ->
    [number(row(Kind, Table, Key)) || Key <- Keys].

number([]) -> absent;
number([Row]) -> livestash_agent_row:number(Row).

%% What this node has under each of the keys, and how good it is.
-spec candidates(kind(), atom(), [term()]) -> [candidate()].
candidates(Kind, Table, Keys) ->
    loaded(Kind, Table),
    [candidate(Kind, Key, row(Kind, Table, Key)) || Key <- Keys].

candidate(mnesia, Key, []) ->
    case livestash_agent_journal:deleted(Key) of
        none -> absent;
        At -> {deleted, At}
    end;
candidate(ets, _Key, []) ->
    absent;
candidate(_Kind, _Key, [Row]) ->
    {present, number([Row]), livestash_agent_rank:rank(Row), livestash_agent_row:owner(Row)}.

%% A copy that is being loaded looks like one that lacks rows.
loaded(Kind, Table) ->
    lists:member({Kind, Table}, livestash_agent_store:tables()) orelse
        trouble(["There is no loaded copy on ", atom_to_list(node()), "."]).

%% The rows of this node.
-spec rows(atom(), [term()]) -> [tuple()].
rows(Table, Keys) ->
    [Row || Key <- Keys, Row <- ets:lookup(Table, Key)].

-spec drop(atom(), node(), [{term(), version()}]) -> non_neg_integer().
drop(Table, Best, Doomed) ->
    livestash_agent_copies_ets:drop(Table, Best, Doomed).

%% Which of the keys this node has, and keeps.
-spec held(atom(), [term()]) -> [boolean()].
held(Table, Keys) ->
    refuse_draining(),
    members(Table, Keys).

%% What has expired is not there with Mnesia: on some nodes LiveStash's cleaner has deleted it already.
row(ets, Table, Key) ->
    ets:lookup(Table, Key);
row(mnesia, Table, Key) ->
    [Row || Row <- ets:lookup(Table, Key), not expired(livestash_agent_row:until(Row))].

expired(none) -> false;
expired(Until) -> Until < os:system_time(second).

%% A node that drains hands its rows over, and takes those of others into account: between it and a repair a stash could
%% be deleted twice.
-spec refuse_draining() -> false.
refuse_draining() ->
    livestash_agent_state:draining() andalso trouble([atom_to_list(node()), " is being drained."]).

ask(Nodes, Question, Arguments) ->
    ask(Nodes, ?MODULE, Question, Arguments).

ask(Nodes, Module, Question, Arguments) ->
    livestash_agent_remote:ask(Nodes, Module, Question, Arguments, ?ASK).

%% Asks one node, and throws what hinders it.
-spec call(node(), atom(), [term()]) -> term().
call(Node, Question, Arguments) ->
    [Outcome] = ask([Node], Question, Arguments),
    [{Node, Answer}] = answers([Outcome]),
    Answer.

answers(Outcomes) ->
    [{Node, result(Node, Outcome)} || {Node, Outcome} <- Outcomes].

result(_Node, {ok, Answer}) -> Answer;
result(_Node, {error, {trouble, Sentence}}) -> trouble(Sentence);
result(Node, {error, Reason}) -> trouble(io_lib:format("~ts did not answer: ~tp.", [Node, Reason])).
