%% What becomes of the stashes of a node that is gone without a word? Their copies here go into LiveStash's table, where
%% their users find them, those that changed last first. Some users may have been quicker, or have had newer stashes
%% elsewhere all along, of which the lost node could no longer tell: what the other nodes have is compared right
%% afterwards, not before, so that nobody waits for it.
-module(livestash_agent_shadow_promotion).

-export([run/1]).

%% Stashes that are taken at once by each of so many processes.
-define(CHUNK, 200).
-define(WORKERS, 4).
%% Milliseconds that other nodes may take to answer.
-define(ASK, 2000).

%% Takes over all that the node has sent, and returns when that is done.
-spec run(livestash_agent_shadow_store:sender()) -> ok.
run({Node, _} = Sender) ->
    Copies = latest_first(livestash_agent_shadow_store:versions_of(Sender)),
    ok = livestash_agent_rank:learn_births([{Owner, Birth} || {_Key, {Owner, Birth, _Stamp}} <- Copies]),
    %% Answered after what was sent before it.
    ok = gen_server:call(livestash_agent_rank, learnt),
    [promote(Table, Sender, Copies) || {ets, Table} <- livestash_agent_store:tables()],
    [
        logger:notice("livestash agent: ~ts is gone without a word; there were copies of ~b of its stashes here.", [
            Node, length(Copies)
        ])
     || Copies =/= []
    ],
    livestash_agent_shadow:complete().

latest_first(Copies) ->
    [Copy || {_Order, Copy} <- lists:keysort(1, [{-Stamp, Copy} || {_Key, {_, _, Stamp}} = Copy <- Copies])].

promote(Table, Sender, Copies) ->
    Known = livestash_agent_shape:known(Table),
    Work = fun(Chunks) -> lists:foldl(fun(Chunk, Mute) -> chunk(Chunk, Table, Sender, Known, Mute) end, [], Chunks) end,
    Shares = deal(chunks(Copies), min(?WORKERS, erlang:system_info(schedulers_online))),
    Processes = [spawn_monitor(fun() -> Work(Share) end) || Share <- Shares, Share =/= []],
    [
        receive
            {'DOWN', Monitor, process, Pid, _Reason} -> ok
        end
     || {Pid, Monitor} <- Processes
    ].

chunks([]) ->
    [];
chunks(Copies) ->
    {Chunk, Rest} = lists:split(min(?CHUNK, length(Copies)), Copies),
    [Chunk | chunks(Rest)].

deal(Chunks, Workers) ->
    Numbered = lists:zip(lists:seq(1, length(Chunks)), Chunks),
    [[Chunk || {Number, Chunk} <- Numbered, Number rem Workers =:= Worker] || Worker <- lists:seq(0, Workers - 1)].

%% Mute: nodes that have not answered. Returns them.
chunk(Copies, Table, Sender, Known, Mute) ->
    Taken = [Key || {Key, _Version} = Copy <- mine(Copies, Sender), take(Copy, Table, Sender, Known)],
    livestash_agent_state:count(shadows_promoted, length(Taken)),
    compare(Taken, Table, (nodes() -- Mute), Mute).

%% Of two holders, the one with the later version takes a stash over, of equal ones that which weighs more.
mine(Copies, Sender) ->
    mine(livestash_agent_config:get(shadow_copies), Copies, Sender).

mine(1, Copies, _Sender) ->
    Copies;
mine(_Two, Copies, Sender) ->
    Keys = [Key || {Key, _Version} <- Copies],
    Questions = [{Node, stamps_at(Node, Keys)} || Node <- maps:keys(livestash_agent_shadow:peers())],
    Elsewhere = [
        {Copy, {Stamp, weight(Key, Node), Node}}
     || {Node, {ok, Stamps}} <- livestash_agent_tasks:run(Questions, ?ASK),
        {{Key, {_, _, Mine}} = Copy, Stamp} <- lists:zip(Copies, Stamps),
        {Stamp, weight(Key, Node)} > {Mine, weight(Key, node())}
    ],
    %% Of several the best: it is the last one here.
    Best = maps:from_list(lists:keysort(2, Elsewhere)),
    Groups = maps:groups_from_list(fun({_, {_, _, Node}}) -> Node end, fun({Copy, _}) -> Copy end, maps:to_list(Best)),
    Copies -- lists:append([Ceded || {Node, Ceded} <- maps:to_list(Groups), cede(Node, Ceded, Sender)]).

weight(Key, Node) ->
    livestash_agent_shadow_holders:weight(Key, Node).

%% What is here is a copy of that node's stash now. Whether it is still there to take it over.
cede(Node, Copies, Sender) ->
    case livestash_agent_shadow:peers() of
        #{Node := {Token, _, _}} -> livestash_agent_shadow_store:cede(Copies, Sender, {Node, Token});
        _ -> false
    end.

stamps_at(Node, Keys) ->
    fun() -> livestash_agent_remote:call(Node, livestash_agent_shadow_store, stamps, [Keys]) end.

%% Whether the stash is in LiveStash's table now.
take({Key, {_, _, Stamp} = Version}, Table, Sender, Known) ->
    case livestash_agent_shadow_store:find(Key, Sender, Version) of
        none ->
            false;
        Row ->
            Took = livestash_agent_intake:took(livestash_agent_intake:adopt(Table, Row, Known)),
            [livestash_agent_shadow_index:promoted(Key, Stamp) || Took],
            livestash_agent_shadow_store:forget(Key, Sender, Version),
            Took
    end.

%% Of stashes that others have as well, the better one stays, of equal ones that on the node with the lower name. Those
%% that do not say may have one: after them all nodes compare all that they have.
compare([], _Table, _Nodes, Mute) ->
    Mute;
compare(Keys, Table, Nodes, Mute) ->
    Ask = fun(Node) -> fun() -> livestash_agent_remote:call(Node, livestash_agent_intake, ranks, [Table, Keys]) end end,
    Answers = livestash_agent_tasks:run([{Node, Ask(Node)} || Node <- Nodes], ?ASK),
    Elsewhere = [{Key, Rank, Node} || {Node, {ok, Ranks}} <- Answers, {Key, Rank} <- lists:zip(Keys, Ranks), Rank =/= absent],
    [settle(Key, Rank, Node, Table) || {Key, Rank, Node} <- Elsewhere],
    Silent = [Node || {Node, {error, _}} <- Answers],
    [gen_server:cast(livestash_agent_reunion, split) || Silent =/= []],
    Silent ++ Mute.

settle(Key, Theirs, Node, Table) ->
    case [{Row, livestash_agent_rank:rank(Row)} || Row <- ets:lookup(Table, Key)] of
        [{Row, Mine}] when Mine < Theirs; Mine =:= Theirs, Node < node() ->
            ets:select_delete(Table, livestash_agent_row:exactly(Row, ets:info(Table, keypos)));
        [{_Row, Mine}] when Mine > Theirs ->
            livestash_agent_remote:tell([Node], livestash_agent_intake, drop_worse, [Table, [{Key, Mine}]]);
        [{Row, _Mine}] ->
            Identity = livestash_agent_row:identity(Row, ets:info(Table, keypos)),
            livestash_agent_remote:tell([Node], livestash_agent_intake, drop, [Table, [Identity]]);
        [] ->
            ok
    end.
