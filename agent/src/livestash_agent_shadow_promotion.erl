%% What becomes of the stashes of a node that is gone without a word? Their copies here go into LiveStash's table, where
%% their users find them, those that changed last first. Some users may have been quicker, or have had newer stashes
%% elsewhere all along, of which the lost node could no longer tell: what the other nodes have is compared right
%% afterwards, not before, so that nobody waits for it.
-module(livestash_agent_shadow_promotion).

-export([run/1, give_back/1]).

%% Stashes that are taken at once by each of so many processes: more than cores, so that one works while another waits for
%% the table.
-define(CHUNK, 200).
-define(WORKERS, 4).
%% Milliseconds that other nodes may take to answer.
-define(ASK, 2000).
%% Milliseconds that a page may take to say that it has looked and found nothing.
-define(SAYS, 1000).

%% Takes over all that the node has sent, and returns when that is done.
-spec run(livestash_agent_shadow_store:sender()) -> ok.
run({Node, _} = Sender) ->
    Copies = latest_first(livestash_agent_shadow_store:versions_of(Sender)),
    ok = livestash_agent_rank:learn([{Owner, Birth} || {_Key, {Owner, Birth, _Stamp}} <- Copies]),
    Taken = [{Table, promote(Table, Sender, Copies)} || {ets, Table} <- livestash_agent_store:tables()],
    ok = livestash_agent_shadow_store:taken_over(Sender),
    [
        logger:notice("livestash agent: ~ts is gone without a word; there were copies of ~b of its stashes here.", [
            Node, length(Copies)
        ])
     || Copies =/= []
    ],
    ok = livestash_agent_shadow:complete(),
    timer:sleep(?SAYS),
    [settle_anew(Copy, Table, Sender) || {Table, Rows} <- Taken, Copy <- Rows],
    ok.

%% Under the key of a page of this node that has looked and found nothing, the copy becomes one again if it was taken over since.
-spec give_back(Key :: term()) -> ok.
give_back(Key) ->
    Tables = [Table || {ets, Table} <- livestash_agent_store:tables()],
    [settle_anew(Copy, Table, Sender) || {Copy, Sender} <- livestash_agent_shadow_store:held(Key), Table <- Tables],
    ok.

latest_first(Copies) ->
    [Copy || {_Order, Copy} <- lists:keysort(1, [{-Stamp, Copy} || {_Key, {_, _, Stamp}} = Copy <- Copies])].

%% Returns what was taken over.
promote(Table, Sender, Copies) ->
    Known = livestash_agent_shape:known(Table),
    Take = fun(Chunk, {Taken, Mute}) ->
        {More, Silent} = chunk(Chunk, Table, Sender, Known, Mute),
        {[More | Taken], Silent}
    end,
    Work = fun(Chunks) -> exit({taken, lists:append(element(1, lists:foldl(Take, {[], []}, Chunks)))}) end,
    Shares = deal(chunks(Copies), ?WORKERS),
    Processes = [spawn_monitor(fun() -> Work(Share) end) || Share <- Shares, Share =/= []],
    lists:append([
        receive
            {'DOWN', Monitor, process, Pid, {taken, Taken}} -> Taken;
            {'DOWN', Monitor, process, Pid, _Failed} -> []
        end
     || {Pid, Monitor} <- Processes
    ]).

chunks([]) ->
    [];
chunks(Copies) ->
    {Chunk, Rest} = lists:split(min(?CHUNK, length(Copies)), Copies),
    [Chunk | chunks(Rest)].

deal(Chunks, Workers) ->
    Numbered = lists:zip(lists:seq(1, length(Chunks)), Chunks),
    [[Chunk || {Number, Chunk} <- Numbered, Number rem Workers =:= Worker] || Worker <- lists:seq(0, Workers - 1)].

%% Mute: nodes that have not answered. Returns what was taken over, and them.
chunk(Copies, Table, Sender, Known, Mute) ->
    Taken = [Copy || Copy <- mine(Copies, Sender, Mute), take(Copy, Table, Sender, Known)],
    livestash_agent_state:count(shadows_promoted, length(Taken)),
    {Taken, compare([Key || {Key, _Version} <- Taken], Table, (nodes() -- Mute), Mute)}.

%% Of two holders, the one with the later version takes a stash over, of equal ones that which weighs more. Users wait: nobody is asked again
%% who has not answered.
mine(Copies, Sender, Mute) ->
    mine(livestash_agent_config:get(shadow_copies), Copies, Sender, Mute).

mine(1, Copies, _Sender, _Mute) ->
    Copies;
mine(_Two, Copies, Sender, Mute) ->
    Keys = [Key || {Key, _Version} <- Copies],
    Questions = [{Node, stamps_at(Node, Keys)} || Node <- maps:keys(livestash_agent_shadow:peers()) -- Mute],
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

%% Whether the stash is in LiveStash's table now. Under the key of a page of this node that has found nothing and begins anew, the copy
%% stays what it is: when that page stashes, it is overtaken, and when it ends without, livestash_agent_shadow_store comes back to it.
take({Key, {_, _, Stamp} = Version}, Table, Sender, Known) ->
    case not livestash_agent_shadow_marks:begins_anew(Key) andalso livestash_agent_shadow_store:find(Key, Sender, Version) of
        NoCopy when NoCopy =:= false; NoCopy =:= none ->
            false;
        Row ->
            Took = livestash_agent_intake:took(livestash_agent_intake:adopt(Table, Row, Known)),
            [livestash_agent_shadow_index:promoted(Key, Stamp) || Took],
            [livestash_agent_shadow_store:forget(Key, Sender, Version) || not Took],
            %% The page may have said so between the question and the row.
            _ = Took andalso livestash_agent_shadow_marks:begins_anew(Key) andalso give_back(Key),
            Took
    end.

%% By now a page that had looked just before has said so. LiveStash would refuse what it stashes.
settle_anew({Key, Version}, Table, Sender) ->
    case livestash_agent_shadow_marks:begins_anew(Key) andalso livestash_agent_shadow_store:find(Key, Sender, Version) of
        NoCopy when NoCopy =:= false; NoCopy =:= none ->
            livestash_agent_shadow_store:forget(Key, Sender, Version);
        Row ->
            ets:select_delete(Table, livestash_agent_row:exactly(Row, ets:info(Table, keypos))),
            livestash_agent_shadow_marks:mark(Key)
    end.

%% Of stashes that others have as well, the better one stays, of equal ones that on the node with the lower name. Those
%% that do not say may have one: after them all nodes compare all that they have.
compare([], _Table, _Nodes, Mute) ->
    Mute;
compare(Keys, Table, Nodes, Mute) ->
    Ask = fun(Node) -> fun() -> livestash_agent_remote:call(Node, livestash_agent_intake, kept_ranks, [Table, Keys]) end end,
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
            livestash_agent_remote:tell([Node], livestash_agent_intake, give_way, [Table, [{Key, Mine}]]);
        [{Row, _Mine}] ->
            Identity = livestash_agent_row:identity(Row, ets:info(Table, keypos)),
            livestash_agent_remote:tell([Node], livestash_agent_intake, drop, [Table, [Identity]]);
        [] ->
            ok
    end.
