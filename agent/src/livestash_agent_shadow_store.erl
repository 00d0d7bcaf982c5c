%% What copies of other nodes' stashes does this node hold? They are in a table of the agent's own, so that LiveStash
%% never finds one, as binaries, and go into LiveStash's table when the node that sent them is gone without a word: see
%% livestash_agent_shadow_promotion. Of each stash there is one copy: of one node's versions the last, of several nodes' that which
%% livestash_agent_rank finds newer.
%%
%% One process does all the writing but that of a promotion, so that what a node has sent comes before the word that it
%% is gone.
-module(livestash_agent_shadow_store).

-behaviour(gen_server).

-export([start_link/0, new/0, size/0, await_taken_over/0]).
%% For promotions.
-export([versions_of/1, held/1, find/3, forget/3, cede/3, taken_over/1]).
%% Called by peers.
-export([hello/0, take/3, goodbye/1, overtaken/1, stamps/1, await_here/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-export_type([sender/0]).

%% A node, and one start of the agent there.
-type sender() :: {node(), livestash_agent_shadow_index:token()}.

-record(shadow, {
    key :: term(),
    sender :: sender(),
    version :: livestash_agent_rank:version(),
    until :: integer() | none,
    size :: non_neg_integer(),
    payload :: binary(),
    %% Who else has sent a version of the stash, and believes that there is a copy of it here.
    others :: [sender()]
}).

%% Milliseconds between two looks for copies whose time is over.
-define(SWEEP, 30000).
%% Bytes that a copy takes beside what is stashed, about.
-define(OVERHEAD, 200).
%% Copies that are looked at at once.
-define(CHUNK, 1000).
%% Milliseconds that a question may take.
-define(ASK, 2000).
%% The nodes whose stashes are here as copies alone, as far as there are any, and when a node was lost last.
-define(SENDERS, livestash_agent_shadow_senders).
%% Milliseconds that a page waits at most until what lost nodes had is in LiveStash's tables, between two looks, and for how long after a loss other
%% nodes are asked whether they are done.
-define(AWAIT, 3000).
-define(LOOK, 5).
-define(LATELY, 2000).

-spec start_link() -> {ok, pid()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Makes the tables, which the calling process owns.
-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [named_table, public, {keypos, #shadow.key}, {read_concurrency, true}]),
    ?SENDERS = ets:new(?SENDERS, [named_table, public, {read_concurrency, true}]),
    ok.

%% For a page that is about to look for its stash. A user of a killed pod is back within milliseconds, and LiveStash asks each node only once: without
%% this it would find nothing a moment before the copy is there. Not for longer than a user waits gladly, whatever happens.
-spec await_taken_over() -> ok.
await_taken_over() ->
    Deadline = livestash_agent_clock:ms() + ?AWAIT,
    await_here(Deadline),
    Ask = fun(Node) -> fun() -> livestash_agent_remote:call(Node, ?MODULE, await_here, []) end end,
    _ = lost_lately() andalso livestash_agent_tasks:run([{Node, Ask(Node)} || Node <- nodes()], livestash_agent_clock:left(Deadline)),
    ok.

%% Until what lost nodes had is in LiveStash's table here.
-spec await_here() -> ok.
await_here() ->
    await_here(livestash_agent_clock:ms() + ?AWAIT).

await_here(Deadline) ->
    case is_taking_over() andalso livestash_agent_clock:left(Deadline) > 0 of
        true ->
            timer:sleep(?LOOK),
            await_here(Deadline);
        false ->
            ok
    end.

lost_lately() ->
    try
        livestash_agent_clock:ms() - ets:lookup_element(?SENDERS, lost, 2) < ?LATELY
    catch
        %% None ever was, or the agent has ended.
        error:badarg -> false
    end.

is_taking_over() ->
    Nodes = nodes(),
    try
        lists:any(fun(Node) -> not lists:member(Node, Nodes) end, [Node || {Node} <- ets:tab2list(?SENDERS)])
    catch
        %% The agent has ended.
        error:badarg -> false
    end.

%% What the node had is in LiveStash's table, as far as there were copies of it here.
-spec taken_over(sender()) -> ok.
taken_over({Node, _Token}) ->
    true = ets:delete(?SENDERS, Node),
    ok.

%% How many copies this node holds, and how many bytes they take.
-spec size() -> {Rows :: non_neg_integer(), Bytes :: non_neg_integer()}.
size() ->
    try
        {ets:info(?MODULE, size), gen_server:call(?MODULE, bytes, ?ASK)}
    catch
        exit:_ -> {0, 0}
    end.

%% Whether this node holds copies of others, and as which start of the agent. Not one that drains, or whose agent has given up.
-spec hello() -> {holds | goes, livestash_agent_shadow_index:token()}.
hello() ->
    case livestash_agent_state:draining() orelse has_given_up() of
        true -> {goes, livestash_agent_shadow:token()};
        false -> {holds, livestash_agent_shadow:token()}
    end.

%% The table ends with the agent's supervisor, the modules do not.
has_given_up() ->
    ets:whereis(?MODULE) =:= undefined.

%% Takes what a node has sent to that start of the agent, in this order. gone: this node does not see the sender, or
%% goes itself, or its agent has given up.
-spec take(sender(), livestash_agent_shadow_index:token(), [livestash_agent_shadow_batch:change()]) ->
    {ok, [ok | missing | refused]} | {other, livestash_agent_shadow_index:token()} | gone.
take(Sender, Token, Changes) ->
    case {livestash_agent_shadow:token(), has_given_up()} of
        {_, true} -> gone;
        {Token, false} -> gen_server:call(?MODULE, {take, Sender, Changes}, infinity);
        {Other, false} -> {other, Other}
    end.

%% The sender goes, and all of its stashes are elsewhere.
-spec goodbye(sender()) -> ok.
goodbye(Sender) ->
    gen_server:call(?MODULE, {goodbye, Sender}, infinity).

%% Another node has newer versions of these stashes, or this one: their users have come back there. What is of the same page stays,
%% whatever it ranks by now: its page may have ended since, or a node that stops may have given it to this one.
-spec overtaken([{Key :: term(), livestash_agent_rank:version(), livestash_agent_rank:rank()}]) -> ok.
overtaken(Newer) ->
    ok = gen_server:call(?MODULE, {overtaken, [{Key, Version} || {Key, Version, _Rank} <- Newer]}, infinity),
    Better = fun(Table) -> [{Key, Rank} || {Key, {Page, _, _}, Rank} <- Newer, not has_of(Page, Key, Table)] end,
    lists:foreach(fun(Table) -> livestash_agent_intake:give_way(Table, Better(Table)) end, [Table || {_Kind, Table} <- tables()]).

has_of(Page, Key, Table) ->
    lists:any(fun(Row) -> livestash_agent_row:owner(Row) =:= Page end, ets:lookup(Table, Key)).

%% Which version this node has of each of the keys, be it as a copy or, since a promotion, as its own.
-spec stamps([Key :: term()]) -> [livestash_agent_shadow_index:stamp()].
stamps(Keys) ->
    [max(livestash_agent_shadow_index:stamp(Key), stamp(Key)) || Key <- Keys].

stamp(Key) ->
    case ets:lookup(?MODULE, Key) of
        [#shadow{version = {_Owner, _Birth, Stamp}}] -> Stamp;
        [] -> 0
    end.

%% Keys and versions of what the node has sent, without what is stashed.
-spec versions_of(sender()) -> [{Key :: term(), livestash_agent_rank:version()}].
versions_of(Sender) ->
    ets:select(?MODULE, [{#shadow{key = '$1', sender = Sender, version = '$2', _ = '_'}, [], [{{'$1', '$2'}}]}]).

%% The copy of that stash, and who has sent it, or nothing.
-spec held(Key :: term()) -> [{{Key :: term(), livestash_agent_rank:version()}, sender()}].
held(Key) ->
    [{{Key, Version}, Sender} || #shadow{version = Version, sender = Sender} <- ets:lookup(?MODULE, Key)].

%% The stash as a row, if the copy is still that version.
-spec find(Key :: term(), sender(), livestash_agent_rank:version()) -> tuple() | none.
find(Key, Sender, Version) ->
    case ets:lookup(?MODULE, Key) of
        [#shadow{sender = Sender, version = Version, until = Until, payload = Payload}] ->
            livestash_agent_row:timed(binary_to_term(Payload), Until);
        _ ->
            none
    end.

%% Deletes the copy if it is still that version.
-spec forget(Key :: term(), sender(), livestash_agent_rank:version()) -> ok.
forget(Key, Sender, Version) ->
    case ets:lookup(?MODULE, Key) of
        [#shadow{sender = Sender, version = Version, others = Others}] ->
            Same = #shadow{key = Key, sender = Sender, version = Version, _ = '_'},
            _ = ets:select_delete(?MODULE, [{Same, [], [true]}]),
            tell_others([{Key, Others}]);
        _ ->
            ok
    end.

%% These copies, if they are still the same, are another node's from now on, which takes the stashes over. Returns false
%% when it is gone.
-spec cede([{Key :: term(), livestash_agent_rank:version()}], From :: sender(), To :: sender()) -> boolean().
cede(Copies, From, {Node, _} = To) ->
    Ceded = gen_server:call(?MODULE, {cede, Copies, From, To}, infinity),
    Stamps = [{Key, Stamp} || {Key, {_, _, Stamp}} <- Copies],
    _ = Ceded andalso livestash_agent_remote:tell([Node], livestash_agent_shadow, ceded, [node(), Stamps]),
    Ceded.

%% They send theirs again.
tell_others([{_Key, []}]) ->
    ok;
tell_others(Copies) ->
    Nodes = nodes(),
    Missing = [{Node, Key} || {Key, Others} <- Copies, {Node, _} <- Others, lists:member(Node, Nodes)],
    Groups = maps:groups_from_list(fun({Node, _}) -> Node end, fun({_, Key}) -> Key end, Missing),
    Tell = fun(Node, Keys) -> livestash_agent_remote:tell([Node], livestash_agent_shadow, missing, [node(), Keys]) end,
    maps:foreach(Tell, Groups).

%% State: the bytes of all copies; which start of each sender is known; the promotions that run.
-spec init([]) -> {ok, map()}.
init([]) ->
    process_flag(max_heap_size, livestash_agent:max_heap_size()),
    ok = net_kernel:monitor_nodes(true),
    %% Of those that have no copies here any more nothing will be taken over.
    true = ets:delete_all_objects(?SENDERS),
    Senders = senders(),
    true = ets:insert(?SENDERS, [{Node} || {Node, _Token} <- Senders]),
    self() ! sweep,
    {ok, #{bytes => 0, senders => maps:from_list(Senders), running => #{}}}.

-spec handle_call(term(), gen_server:from(), map()) -> {reply, term(), map()}.
handle_call({take, {Node, _} = Sender, Changes}, _From, State) ->
    case lists:member(Node, nodes()) andalso not livestash_agent_state:draining() of
        true ->
            Change = fun(Each, Acc) -> change(Each, Sender, Acc) end,
            {Answers, Known} = lists:mapfoldl(Change, know(Sender, State), Changes),
            {reply, {ok, Answers}, Known};
        false ->
            {reply, gone, State}
    end;
handle_call({goodbye, {Node, _} = Sender}, _From, #{senders := Senders} = State) ->
    ok = taken_over(Sender),
    {reply, ok, drop_all(Sender, State#{senders := maps:remove(Node, Senders)})};
handle_call({cede, Copies, From, {Node, _} = To}, _From, State) ->
    case lists:member(Node, nodes()) of
        true ->
            Known = know(To, State),
            lists:foreach(fun(Copy) -> change_sender(Copy, From, To) end, Copies),
            {reply, true, Known};
        false ->
            {reply, false, State}
    end;
handle_call({overtaken, Newer}, _From, State) ->
    {reply, ok, lists:foldl(fun overtake/2, State, Newer)};
handle_call(bytes, _From, #{bytes := Bytes} = State) ->
    {reply, Bytes, State}.

-spec handle_cast(term(), map()) -> {noreply, map()}.
handle_cast(_Message, State) ->
    {noreply, State}.

-spec handle_info(term(), map()) -> {noreply, map()}.
handle_info(sweep, State) ->
    erlang:send_after(?SWEEP, self(), sweep),
    Now = os:system_time(second),
    ets:select_delete(?MODULE, [{#shadow{until = '$1', _ = '_'}, [{is_integer, '$1'}, {'<', '$1', Now}], [true]}]),
    {noreply, promote_absent(count(State))};
handle_info({nodedown, Node}, #{senders := Senders} = State) ->
    true = ets:insert(?SENDERS, {lost, livestash_agent_clock:ms()}),
    case maps:take(Node, Senders) of
        {Token, Others} -> {noreply, promote({Node, Token}, State#{senders := Others})};
        error -> {noreply, State}
    end;
handle_info({'DOWN', Monitor, process, _Pid, _Result}, #{running := Running} = State) when is_map_key(Monitor, Running) ->
    {Sender, Others} = maps:take(Monitor, Running),
    %% Also when it has failed: nobody waits for what will not come.
    lists:member(element(1, Sender), nodes()) orelse taken_over(Sender),
    {noreply, count(State#{running := Others})};
handle_info(_Message, State) ->
    {noreply, State}.

change_sender({Key, Version}, From, To) ->
    case ets:lookup(?MODULE, Key) of
        [#shadow{sender = From, version = Version}] -> ets:update_element(?MODULE, Key, {#shadow.sender, To});
        _ -> false
    end.

%% An agent that was started anew sends everything anew.
know({Node, Token}, #{senders := Senders} = State) ->
    true = ets:insert(?SENDERS, {Node}),
    case Senders of
        #{Node := Token} -> State;
        #{Node := Former} -> drop_all({Node, Former}, State#{senders := Senders#{Node := Token}});
        _ -> State#{senders := Senders#{Node => Token}}
    end.

drop_all(Sender, State) ->
    Mine = #shadow{key = '$1', sender = Sender, others = '$2', _ = '_'},
    drop_all(ets:select(?MODULE, [{Mine, [{'=/=', '$2', []}], [{{'$1', '$2'}}]}], ?CHUNK)),
    true = ets:match_delete(?MODULE, #shadow{sender = Sender, _ = '_'}),
    count(State).

drop_all('$end_of_table') ->
    ok;
drop_all({Copies, Continuation}) ->
    tell_others(Copies),
    drop_all(ets:select(Continuation)).

count(State) ->
    State#{bytes := fold(#shadow{size = '$1', _ = '_'}, fun(Size, Bytes) -> Size + Bytes end, 0)}.

%% Over one element of all copies, some at a time.
fold(Pattern, Fun, Acc) ->
    fold_on(ets:select(?MODULE, [{Pattern, [], ['$1']}], ?CHUNK), Fun, Acc).

fold_on('$end_of_table', _Fun, Acc) -> Acc;
fold_on({Found, Continuation}, Fun, Acc) -> fold_on(ets:select(Continuation), Fun, lists:foldl(Fun, Acc, Found)).

change({put, Key, Version, Until, Payload}, Sender, State) ->
    owned(Key, Version),
    Size = byte_size(Payload) + ?OVERHEAD,
    Shadow = #shadow{
        key = Key, sender = Sender, version = Version, until = Until, size = Size, payload = own(Payload), others = []
    },
    put_shadow(ets:lookup(?MODULE, Key), Shadow, State);
change({touch, Key, Until}, Sender, State) ->
    case ets:lookup(?MODULE, Key) of
        [#shadow{sender = Sender}] ->
            true = ets:update_element(?MODULE, Key, {#shadow.until, Until}),
            {ok, State};
        [_Other] ->
            {ok, State};
        [] ->
            {missing, State}
    end;
change({drop, Key}, Sender, State) ->
    case ets:lookup(?MODULE, Key) of
        [#shadow{sender = Sender} = Shadow] -> {ok, drop(Shadow, State)};
        _ -> {ok, State}
    end.

%% What this node has under the key itself is another page's, and older: its user has come back elsewhere. Where this
%% node knows of copies, it looks whether they have to go.
owned(Key, {_Owner, Birth, _Stamp}) ->
    Rank = {Birth, 0, false, false},
    Has = [Table || {ets, Table} <- tables(), ets:member(Table, Key)],
    [livestash_agent_intake:drop_worse(Table, [{Key, Rank}]) || Table <- Has],
    [livestash_agent_shadow_marks:mark(Key) || Has =/= [] orelse livestash_agent_shadow_index:is_known(Key)],
    ok.

tables() ->
    [Table || {ets, _} = Table <- livestash_agent_store:tables()].

%% What came over the network may be a part of something larger.
own(Payload) ->
    case binary:referenced_byte_size(Payload) > byte_size(Payload) of
        true -> binary:copy(Payload);
        false -> Payload
    end.

%% A sender whose version is not the user's has nothing to send again, as long as the other one is here.
put_shadow([Former], #shadow{key = Key, sender = Sender} = Shadow, State) ->
    Senders = lists:usort([Former#shadow.sender | Former#shadow.others]),
    case is_newer(Shadow, Former) of
        true ->
            replace(Former, Shadow#shadow{others = lists:delete(Sender, Senders)}, State);
        false ->
            Others = lists:delete(Former#shadow.sender, lists:usort([Sender | Senders])),
            true = ets:update_element(?MODULE, Key, {#shadow.others, Others}),
            {ok, State}
    end;
put_shadow([], #shadow{size = Size} = Shadow, State) ->
    insert(Shadow, Size, State).

%% A node sends what it has, one batch after the other. So of two pages' versions the one that it has sent last is what it has now, also when its clock
%% was set back between the two pages. Only of one page a late batch can be told from a new one.
is_newer(#shadow{sender = Sender, version = {Page, _, _}}, #shadow{sender = Sender, version = {Former, _, _}}) when Page =/= Former -> true;
is_newer(#shadow{version = New}, #shadow{version = Old}) -> livestash_agent_rank:is_newer(New, Old).

%% An older version would be given to its user as if nothing had been stashed since: better none.
replace(#shadow{size = Former} = Old, #shadow{size = Size, others = Others} = Shadow, State) ->
    case insert(Shadow, Size - Former, State) of
        {refused, _} -> {refused, drop(Old#shadow{others = Others}, State)};
        Inserted -> Inserted
    end.

insert(Shadow, More, #{bytes := Bytes} = State) ->
    case More =< 0 orelse Bytes + More =< livestash_agent_config:get(shadow_max_bytes) of
        true ->
            true = ets:insert(?MODULE, Shadow),
            {ok, State#{bytes := Bytes + More}};
        false ->
            livestash_agent_state:count(shadows_refused, 1),
            {refused, State}
    end.

drop(#shadow{key = Key, others = Others} = Shadow, State) ->
    tell_others([{Key, Others}]),
    delete(Shadow, State).

delete(#shadow{key = Key, size = Size}, #{bytes := Bytes} = State) ->
    true = ets:delete(?MODULE, Key),
    State#{bytes := Bytes - Size}.

overtake({Key, Version}, State) ->
    case ets:lookup(?MODULE, Key) of
        [#shadow{version = Old, sender = Sender, others = Others} = Shadow] ->
            case livestash_agent_rank:is_newer(Version, Old) of
                %% The sender may have the stash as well, for a moment, after nodes have lost each other.
                true -> drop(Shadow#shadow{others = [Sender | Others]}, State);
                false -> State
            end;
        [] ->
            State
    end.

%% Of senders whose going this process has missed, because it was started anew.
promote_absent(#{running := Running} = State) ->
    Absent = [Sender || {Node, _} = Sender <- senders(), not lists:member(Node, nodes())] -- maps:values(Running),
    lists:foldl(fun promote/2, State, Absent).

senders() ->
    maps:keys(fold(#shadow{sender = '$1', _ = '_'}, fun(Sender, Found) -> Found#{Sender => []} end, #{})).

promote(Sender, #{running := Running} = State) ->
    Promote = fun() -> livestash_agent_shadow_promotion:run(Sender) end,
    State#{running := livestash_agent_tasks:start(Sender, Promote, [], Running)}.
