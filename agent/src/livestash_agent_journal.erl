%% What happened to the Mnesia table on this node while a peer was away? After a split LiveStash may take the copy of the
%% node with the lowest name, and what users of the others have stashed meanwhile is gone; and a key that only one side
%% has was either created there or deleted on the other. So each node remembers what it has deleted, and what its own
%% users have written: only the owner of a stash writes it, and the owner is a process of one node. When the node goes, another
%% one remembers that for it.
%%
%% A page moves the time of its stash on without stashing, and writes whatever it finds for that. After LiveStash has replaced the table that may be
%% older than what the page itself has stashed. So what is written is only taken for new when it is another stash than the one it replaces. Just after the
%% table was replaced that was not seen: then it is new when it is none of those that stood there when a peer was lost. (A page that stashes exactly such a
%% one once more cannot be told from one that renews it. Nor is a page's first stash after a loss seen when it was made before the loss was noticed.)
%%
%% The rows themselves have to be kept, because Mnesia drops the table without a word before. They are kept compressed, outside
%% of all heaps.
-module(livestash_agent_journal).

-behaviour(gen_server).

-export([start_link/0, remember/1, lost/0, forget/0, deleted/1, latest/2, restore/2, overlooked/0, entries/0, owners/0, adopt/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-export_type([entry/0]).

%% What has happened to a key last, and when its page was started, 0 when nobody knows.
-type entry() ::
    {{Key :: term(), written, Packed :: binary(), Owner :: pid()} | {Key :: term(), deleted, UnixMilliseconds :: integer()}, Birth :: integer()}.

%% Bytes that may be used in any case, and the part of the table's own memory that may be used when that is more. An
%% own third of a table of rows that cannot be compressed takes an eighth.
-define(LEAST_BYTES, 67108864).
-define(PART, 4).
%% What an entry takes beside its row, in bytes.
-define(ENTRY, 450).
%% For how many losses of peers it is noted what a page's stash was at the time: the first one, and the last ones.
-define(LOSSES, 4).
%% Seconds before a peer is known to be away in which it may already have been: net_ticktime takes its time.
-define(UNNOTICED, 60).
-define(CHUNK, 200).
-define(RETRIES, 10).
%% Milliseconds between two looks for what need not be remembered any more: a peer may be away for hours.
-define(SWEEP, 60000).

%% bytes: of all entries. overlooked: what there was no room for. asked: the pages of other nodes whose births were asked for. losses: how often
%% a peer was lost. replaced: by key, what was replaced first after each loss, as a number; the atom none if nothing was there.
-record(state, {
    table = none :: atom(),
    bytes = 0 :: integer(),
    overlooked = 0 :: non_neg_integer(),
    asked = #{} :: #{pid() => asked},
    losses = 0 :: non_neg_integer(),
    replaced = #{} :: #{Key :: term() => [{Loss :: non_neg_integer(), non_neg_integer() | none}]}
}).

-spec start_link() -> {ok, pid()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Remembers from now on what happens to the Mnesia table on this node, and what has been written just before. To be
%% called again and again, because the table may be replaced by another one.
-spec remember(atom()) -> ok.
remember(Table) ->
    gen_server:cast(?MODULE, {remember, Table}).

%% A peer is lost: it keeps what this node has now.
-spec lost() -> ok.
lost() ->
    gen_server:cast(?MODULE, lost).

%% Forgets everything, and looks no longer.
-spec forget() -> ok.
forget() ->
    gen_server:cast(?MODULE, forget).

%% When the key was deleted, in unix milliseconds; none when it is not known to be. It may have been written again.
-spec deleted(term()) -> integer() | none.
deleted(Key) ->
    try ets:lookup(?MODULE, Key) of
        [{Key, deleted, At}] -> At;
        _ -> none
    catch
        error:badarg -> none
    end.

%% What the page itself has stashed last, if that is remembered, or else the row as it is.
-spec latest(pid(), tuple()) -> tuple().
latest(Page, Row) ->
    try ets:lookup(?MODULE, element(2, Row)) of
        [{_Key, written, Packed, Page}] -> livestash_agent_row:keep(binary_to_term(Packed), livestash_agent_row:until(Row));
        _ -> Row
    catch
        error:badarg -> Row
    end.

is_other_stash(Row, Other) ->
    livestash_agent_row:content(Row) =/= livestash_agent_row:content(Other).

%% How many changes could not be remembered, when all that has happened until now is looked through.
-spec overlooked() -> non_neg_integer().
overlooked() ->
    gen_server:call(?MODULE, overlooked, infinity).

%% Writes those rows of this node's users again of which the table has a worse version, or none. Returns how many. Births: of the
%% given pages of other nodes, by what anybody knows; 0 where nobody does. What it throws is thrown, before anything is written.
-spec restore(atom(), Births :: fun(([pid()]) -> #{pid() => Birth :: integer()})) -> non_neg_integer().
restore(Table, Births) ->
    Strangers = fun
        ({Key, written, _Packed, _Owner}, Pages) -> [Page || Row <- ets:lookup(Table, Key), Page <- stranger(Row)] ++ Pages;
        (_Deleted, Pages) -> Pages
    end,
    Asked = Births(lists:usort(ets:foldl(Strangers, [], ?MODULE))),
    livestash_agent_rank:learn(maps:to_list(Asked)),
    Worse = fun
        ({Key, written, _Packed, _Owner} = Entry, Entries) ->
            Found = ets:lookup(Table, Key),
            [{Entry, numbers(Found)} || gives_way(Found, row(Entry), Asked)] ++ Entries;
        (_Deleted, Entries) ->
            Entries
    end,
    lists:sum([restore(Table, Entry, Numbers) || {Entry, Numbers} <- ets:foldl(Worse, [], ?MODULE)]).

row({_Key, written, Packed, _Owner}) -> binary_to_term(Packed).

%% Instead of the rows, which may be large and many.
numbers(Rows) -> [livestash_agent_row:number(Row) || Row <- Rows].

%% Unless what is remembered or what the table has is another one by now. Then the next pass looks again, and there is one, because this counts as
%% repaired.
restore(Table, {Key, written, _Packed, _Owner} = Entry, Numbers) ->
    Repair = fun() ->
        Unchanged = numbers(mnesia:read(Table, Key, write)) =:= Numbers andalso is_still_known(Entry),
        _ = Unchanged andalso mnesia:write(Table, row(Entry), write),
        ok
    end,
    case mnesia:transaction(Repair, ?RETRIES) of
        {atomic, ok} -> 1;
        {aborted, Reason} -> throw({trouble, io_lib:format("Mnesia did not restore a stash: ~tp.", [Reason])})
    end.

is_still_known(Entry) ->
    _ = overlooked(),
    ets:lookup(?MODULE, element(1, Entry)) =:= [Entry].

%% Whether what the table has under a key is to be overwritten. Whatever else it has of the row's own page is older: the page is of this node, or its node
%% has left behind all that it had written. Not when its page is a stranger for whom nobody was asked: that one has
%% begun since.
gives_way(Found, Row, Asked) ->
    [Page || Current <- Found, Page <- stranger(Current), not is_map_key(Page, Asked)] =:= [] andalso
        (is_same_page(Found, Row) andalso is_other_stash(hd(Found), Row) orelse worse(Found, Row)).

is_same_page([Current], Row) -> livestash_agent_row:owner(Current) =:= livestash_agent_row:owner(Row);
is_same_page([], _Row) -> false.

%% The row's page, when it is one of another node of which nothing is known here.
stranger(Row) ->
    Owner = livestash_agent_row:owner(Row),
    [Owner || is_pid(Owner), node(Owner) =/= node(), livestash_agent_rank:birth(Owner) =:= 0].

%% Whether what the table has under a key is worse than the row that this node's user wrote.
worse([], Row) -> livestash_agent_row:until(Row) >= os:system_time(second);
worse([Row], Row) -> false;
worse([Current], Row) -> livestash_agent_rank:is_better(Row, Current).

%% All that is remembered, when all that has happened until now is looked through.
-spec entries() -> [entry()].
entries() ->
    _ = overlooked(),
    [{Entry, birth_of(Entry)} || Entry <- ets:tab2list(?MODULE)].

%% For ets:select/3: the pages of whose stashes something is remembered.
-spec owners() -> {atom(), ets:match_spec()}.
owners() ->
    {?MODULE, [{{'_', written, '_', '$1'}, [], ['$1']}]}.

birth_of({_Key, written, _Packed, Owner}) -> livestash_agent_rank:birth(Owner);
birth_of({_Key, deleted, _At}) -> 0.

%% Remembers what another node has remembered, unless something better is known. The table must be known already.
-spec adopt([entry()]) -> ok.
adopt(Entries) ->
    gen_server:call(?MODULE, {adopt, Entries}, infinity).

-spec init([]) -> {ok, #state{}}.
init([]) ->
    %% Mnesia links itself to its subscribers, and sends them every row that is written.
    process_flag(trap_exit, true),
    process_flag(message_queue_data, off_heap),
    ?MODULE = ets:new(?MODULE, [named_table, {read_concurrency, true}]),
    ok = sweep_later(),
    {ok, #state{}}.

sweep_later() ->
    _ = erlang:send_after(?SWEEP, self(), sweep),
    ok.

-spec handle_call(overlooked | {adopt, [entry()]}, gen_server:from(), #state{}) -> {reply, non_neg_integer() | ok, #state{}}.
handle_call(overlooked, _From, State) ->
    #state{overlooked = Overlooked} = Listening = listen(State),
    {reply, Overlooked, Listening};
handle_call({adopt, Entries}, _From, State) ->
    livestash_agent_rank:learn([{Owner, Birth} || {{_Key, written, _Packed, Owner}, Birth} <- Entries]),
    {reply, ok, lists:foldl(fun adopt/2, State, Entries)}.

adopt({Entry, Birth}, State) ->
    case is_news(Entry, Birth, ets:lookup(?MODULE, element(1, Entry))) of
        true -> note(Entry, State);
        false -> State
    end.

is_news(_Entry, _Birth, []) -> true;
is_news({_Key, deleted, _At}, _Birth, _Known) -> false;
is_news({_Key, written, _Packed, _Owner}, Birth, [{_, deleted, At}]) -> Birth > At;
is_news({_Key, written, Packed, _Owner}, _Birth, Known) -> not known_better(Known, binary_to_term(Packed)).

-spec handle_cast({remember, atom()} | lost | forget, #state{}) -> {noreply, #state{}}.
handle_cast({remember, Table}, State) ->
    {noreply, listen(State#state{table = Table})};
handle_cast(lost, #state{losses = Losses} = State) ->
    {noreply, State#state{losses = Losses + 1}};
handle_cast(forget, #state{table = none} = State) ->
    {noreply, State};
handle_cast(forget, #state{table = Table}) ->
    _ = mnesia:unsubscribe({table, Table, detailed}),
    true = ets:delete_all_objects(?MODULE),
    {noreply, #state{}}.

%% A subscription ends with the copy of the table. An error means that there is one, or that Mnesia has just stopped.
listen(#state{table = none} = State) ->
    State;
listen(#state{table = Table} = State) ->
    case mnesia:subscribe({table, Table, detailed}) of
        {ok, _Node} -> write_recent(State);
        {error, _Reason} -> State
    end.

%% LiveStash deletes a user's stash by its key, and one that has expired as an object, which Mnesia names whole: that one may well live on at
%% a peer, where its owner is.
-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({mnesia_table_event, {delete, Table, {_Name, Key}, Old, _Activity}}, #state{table = Table} = State) ->
    {noreply, note({Key, deleted, os:system_time(millisecond)}, replaces(Key, Old, State))};
handle_info({mnesia_table_event, {write, Table, Row, Old, _Activity}}, #state{table = Table} = State) ->
    {noreply, write(Row, Old, State)};
handle_info(sweep, State) ->
    ok = sweep_later(),
    {noreply, forget_expired(State)};
handle_info(_Message, State) ->
    {noreply, State}.

%% Whose last stash has expired is not given it again. What the table still has need not be unpacked for that: LiveStash will delete it there. What was
%% deleted is forgotten when nobody can have it any more, also where a drain has kept it. And births that were not told are asked for once more.
forget_expired(#state{table = Table} = State) ->
    Now = os:system_time(second),
    Longest = 1000 * (Now - ttl()) - livestash_agent_config:get(drain_keep_for),
    Expired = fun
        ({Key, written, _Packed, _Owner} = Entry, Keys) ->
            [Key || not has(Table, Key), livestash_agent_row:until(row(Entry)) < Now] ++ Keys;
        ({Key, deleted, At}, Keys) ->
            [Key || At < Longest] ++ Keys
    end,
    lists:foldl(fun drop/2, State#state{asked = #{}}, ets:foldl(Expired, [], ?MODULE)).

has(Table, Key) -> unless_gone(fun() -> ets:member(Table, Key) end, false).

%% The table may be gone with Mnesia, or because LiveStash replaces it.
unless_gone(Fun, Otherwise) ->
    try
        Fun()
    catch
        error:badarg -> Otherwise
    end.

%% A user who has moved to another node is that node's. But a page of before that still lives, here or there, moves the time of what it
%% finds on, and that may be what it had written itself, as long as the copies differ.
write(Row, Old, State) ->
    Owner = livestash_agent_row:owner(Row),
    Known = ets:lookup(?MODULE, element(2, Row)),
    case of_another_page(Known, Owner) andalso known_better(Known, Row) of
        true -> ask(stranger(Row), State);
        false when is_pid(Owner), node(Owner) =:= node() -> written(Known, Row, Old, Owner, State);
        false -> unless_same(Known, Row, Old, State)
    end.

written([{_Key, written, Packed, Owner}], Row, Old, Owner, State) ->
    case is_renewal(Row, Old, State) of
        true -> note_row(livestash_agent_row:keep(binary_to_term(Packed), livestash_agent_row:until(Row)), Owner, State);
        false -> note_row(Row, Owner, replaces(element(2, Row), Old, State))
    end;
written(_Known, Row, Old, Owner, State) ->
    note_row(Row, Owner, replaces(element(2, Row), Old, State)).

is_renewal(Row, [Old], _State) -> not is_other_stash(Old, Row);
is_renewal(_Row, [], _State) -> false;
is_renewal(Row, unseen, #state{replaced = Replaced}) -> lists:keymember(stash(Row), 2, maps:get(element(2, Row), Replaced, [])).

replaces(_Key, unseen, State) ->
    State;
replaces(Key, Old, #state{losses = Losses, replaced = Replaced} = State) ->
    case maps:get(Key, Replaced, []) of
        [{Losses, _First} | _] -> State;
        Before -> State#state{replaced = Replaced#{Key => [{Losses, first(Old)} | fewer(Before)]}}
    end.

fewer(Before) when length(Before) < ?LOSSES -> Before;
fewer(Before) -> lists:sublist(Before, ?LOSSES - 2) ++ [lists:last(Before)].

first([]) -> none;
first([Row]) -> stash(Row).

stash(Row) -> livestash_agent_row:number(livestash_agent_row:content(Row)).

note_row(Row, Owner, State) ->
    note({element(2, Row), written, term_to_binary(Row, [{compressed, 1}]), Owner}, State).

%% What was remembered for a node that has gone is there again, or an older version of it, and LiveStash may still replace the table. Before it goes, that node
%% has its stashes live for longer, and its pages may stash. Once it has gone, and in a table that has just replaced another one, whatever else there is of the
%% same page is older.
unless_same([{_Key, written, Packed, Owner}] = Known, Row, Old, State) ->
    Remembered = binary_to_term(Packed),
    IsOlder = Old =:= unseen orelse not lists:member(node(Owner), nodes()),
    IsKept = livestash_agent_row:owner(Row) =:= Owner andalso (IsOlder orelse not is_other_stash(Remembered, Row)),
    case Remembered =:= Row orelse known_better(Known, Row) of
        true -> State;
        false when IsKept -> note_row(livestash_agent_row:keep(Remembered, livestash_agent_row:until(Row)), Owner, State);
        false -> drop(element(2, Row), State)
    end;
unless_same(_NotWritten, Row, _Old, State) ->
    drop(element(2, Row), State).

of_another_page([{_Key, written, _Packed, Known}], Owner) -> Known =/= Owner;
of_another_page(_NotWritten, _Owner) -> false.

%% It may be the younger page, and its node may be gone when that is to be known. In a process of its own: a node may be frozen.
ask([Page], #state{asked = Asked} = State) when not is_map_key(Page, Asked) ->
    spawn(fun() -> catch livestash_agent_rank:learn([{Page, birth(Page)}]) end),
    State#state{asked = Asked#{Page => asked}};
ask(_Known, State) ->
    State.

birth(Page) ->
    [Birth] = livestash_agent_remote:call(node(Page), livestash_agent_rank, births, [[Page]]),
    Birth.

note(Entry, #state{bytes = Bytes} = State) ->
    More = Bytes + bytes(Entry) - known_bytes(element(1, Entry)),
    case More < ?LEAST_BYTES orelse More < most_bytes(State) of
        true ->
            true = ets:insert(?MODULE, Entry),
            State#state{bytes = More};
        false ->
            overlook(drop(element(1, Entry), State))
    end.

%% What is known of a key is worse than nothing when it is not the last.
drop(Key, #state{bytes = Bytes, replaced = Replaced} = State) ->
    Known = known_bytes(Key),
    true = ets:delete(?MODULE, Key),
    State#state{bytes = Bytes - Known, replaced = maps:remove(Key, Replaced)}.

known_bytes(Key) ->
    lists:sum([bytes(Entry) || Entry <- ets:lookup(?MODULE, Key)]).

bytes({_Key, written, Packed, _Owner}) -> ?ENTRY + byte_size(Packed);
bytes({_Key, deleted, _At}) -> ?ENTRY.

most_bytes(#state{table = Table}) ->
    case ets:info(Table, memory) of
        undefined -> 0;
        Words -> Words * erlang:system_info(wordsize) div ?PART
    end.

overlook(#state{overlooked = Overlooked, bytes = Bytes} = State) ->
    [
        logger:warning(
            "livestash agent: while peers are away, what happens to stashes is remembered. ~b bytes are full; of the rest, older "
            "versions may be what users find after a network split.",
            [Bytes]
        )
     || Overlooked =:= 0
    ],
    State#state{overlooked = Overlooked + 1}.

%% What was written while nobody listened: to a table that has just replaced another one, and while the peer may have been away unnoticed. Later events
%% are in the mailbox by now.
write_recent(State) ->
    #state{table = Table} = Known = write_known(State),
    case recent(Table) of
        none -> Known;
        Recent -> write_all(unless_gone(fun() -> ets:select(Table, Recent, ?CHUNK) end, '$end_of_table'), Known)
    end.

%% A view may have a TTL of its own, so its stash may be new and not look so.
write_known(#state{table = Table} = State) ->
    Keys = ets:select(?MODULE, [{{'$1', written, '_', '_'}, [], ['$1']}]),
    lists:foldl(fun(Key, Before) -> write_unseen(unless_gone(fun() -> ets:lookup(Table, Key) end, []), Before) end, State, Keys).

%% The pattern says where the end of a row's time is, because an element of '$_' would be taken from a copy of each row.
recent(Table) ->
    try
        Attributes = mnesia:table_info(Table, attributes),
        Until = 2 + length(lists:takewhile(fun(Attribute) -> Attribute =/= delete_at end, Attributes)),
        Since = os:system_time(second) + ttl() - ?UNNOTICED,
        [{setelement(Until, erlang:make_tuple(1 + length(Attributes), '_'), '$1'), [{'>=', '$1', Since}], ['$_']}]
    catch
        %% The table is gone with Mnesia, or is none of LiveStash's.
        _:_ -> none
    end.

write_all('$end_of_table', State) ->
    State;
write_all({Rows, Continuation}, State) ->
    write_all(unless_gone(fun() -> ets:select(Continuation) end, '$end_of_table'), write_unseen(Rows, State)).

write_unseen(Rows, State) ->
    Unknown = [Row || Row <- Rows, not known_better(ets:lookup(?MODULE, element(2, Row)), Row)],
    lists:foldl(fun(Row, Before) -> write(Row, unseen, Before) end, State, Unknown).

%% A copy that this node was made to take may be older than what it remembers.
known_better([{_Key, written, Packed, _Owner}], Row) -> worse([Row], binary_to_term(Packed));
known_better(_Other, _Row) -> false.

%% LiveStash's own default where the fleet does not say.
ttl() ->
    case string:to_integer(os:getenv("LIVE_STASH_TTL", "300")) of
        {Seconds, ""} -> Seconds;
        _ -> 300
    end.
