%% What happened to the Mnesia table on this node while a peer was away? After a split LiveStash may take the copy of the
%% node with the lowest name, and what users of the others have stashed meanwhile is gone; and a key that only one side
%% has was either created there or deleted on the other. So each node remembers what it has deleted, and what its own
%% users have written: only the owner of a stash writes it, and the owner is a process of one node.
-module(livestash_agent_journal).

-behaviour(gen_server).

-export([start_link/0, remember/1, forget/0, deleted/1, restore/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% Keys that are remembered, and the bytes that their rows may take.
-define(MAX_KEYS, 100000).
-define(MAX_BYTES, 67108864).
%% Seconds before a peer is known to be away in which it may already have been: net_ticktime takes its time.
-define(UNNOTICED, 60).
-define(CHUNK, 200).
-define(ASK_PEER, 1000).
-define(RETRIES, 10).

-spec start_link() -> {ok, pid()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Remembers from now on what happens to the Mnesia table on this node, and what has been written just before. To be
%% called again and again, because the table may be replaced by another one.
-spec remember(atom()) -> ok.
remember(Table) ->
    gen_server:cast(?MODULE, {remember, Table}).

%% Forgets everything, and looks no longer.
-spec forget() -> ok.
forget() ->
    gen_server:cast(?MODULE, forget).

%% How many milliseconds ago the key was deleted; none when it is not known to be. It may have been written again.
-spec deleted(term()) -> non_neg_integer() | none.
deleted(Key) ->
    try ets:lookup(?MODULE, Key) of
        [{Key, deleted, At}] -> now_ms() - At;
        _ -> none
    catch
        error:badarg -> none
    end.

%% Writes those rows of this node's users again of which the table has an older version, or none. Returns how many.
-spec restore(atom()) -> non_neg_integer().
restore(Table) ->
    End = livestash_agent_copies:time_position(mnesia, Table),
    Older = fun
        ({Key, written, Row}, Rows) -> [{Key, Row} || older(ets:lookup(Table, Key), Row, End)] ++ Rows;
        (_Deleted, Rows) -> Rows
    end,
    lists:sum([restore(Table, Key, Row, End) || {Key, Row} <- ets:foldl(Older, [], ?MODULE)]).

restore(Table, Key, Row, End) ->
    Repair = fun() ->
        Current = mnesia:read(Table, Key, write),
        case older(Current, Row, End) of
            true -> mnesia:write(Table, Row, write);
            false -> none
        end
    end,
    case mnesia:transaction(Repair, ?RETRIES) of
        {atomic, ok} -> 1;
        {atomic, none} -> 0;
        {aborted, Reason} -> throw({trouble, io_lib:format("Mnesia did not restore a stash: ~tp.", [Reason])})
    end.

%% Whether what the table has under a key is older than the row that this node's user wrote. The end of a row's time
%% moves with each write. Of a user who has moved, the version of the process that still lives counts.
older([], Row, End) ->
    element(End, Row) >= os:system_time(second);
older([Row], Row, _End) ->
    false;
older([Current], Row, End) ->
    Owner = livestash_agent_copies:owner(Row),
    later(Row, Current, End) andalso (Owner =:= livestash_agent_copies:owner(Current) orelse is_process_alive(Owner)) orelse
        (Owner =/= livestash_agent_copies:owner(Current) andalso is_process_alive(Owner) andalso not alive(livestash_agent_copies:owner(Current))).

later(Row, Current, End) ->
    element(End, Row) > element(End, Current).

alive(Pid) when is_pid(Pid) ->
    try
        erpc:call(node(Pid), erlang, is_process_alive, [Pid], ?ASK_PEER)
    catch
        _:_ -> true
    end;
alive(none) ->
    false.

-spec init([]) -> {ok, atom()}.
init([]) ->
    %% Mnesia links itself to its subscribers, and sends them every row that is written.
    process_flag(trap_exit, true),
    process_flag(message_queue_data, off_heap),
    ?MODULE = ets:new(?MODULE, [named_table, {read_concurrency, true}]),
    {ok, none}.

-spec handle_call(term(), gen_server:from(), atom()) -> {reply, ok, atom()}.
handle_call(_Request, _From, Table) ->
    {reply, ok, Table}.

-spec handle_cast({remember, atom()} | forget, atom()) -> {noreply, atom()}.
handle_cast({remember, Table}, _Before) ->
    %% An error means that this is known, or that Mnesia has just stopped. A subscription ends with the copy of the table.
    case mnesia:subscribe({table, Table, simple}) of
        {ok, _Node} -> write_recent(Table);
        {error, _Reason} -> ok
    end,
    {noreply, Table};
handle_cast(forget, none) ->
    {noreply, none};
handle_cast(forget, Table) ->
    _ = mnesia:unsubscribe({table, Table, simple}),
    true = ets:delete_all_objects(?MODULE),
    {noreply, none}.

%% LiveStash deletes a user's stash by its key, and one that has expired as an object: that one may well live on at a
%% peer, where its owner is.
-spec handle_info(term(), atom()) -> {noreply, atom()}.
handle_info({mnesia_table_event, {delete, What, _Activity}}, Table) ->
    [ets:insert(?MODULE, {element(2, What), deleted, now_ms()}) || ets:info(?MODULE, size) < ?MAX_KEYS],
    {noreply, Table};
handle_info({mnesia_table_event, {write, Row, _Activity}}, Table) ->
    write(Row),
    {noreply, Table};
handle_info(_Message, Table) ->
    {noreply, Table}.

%% A user who has moved to another node is that node's.
write(Row) ->
    case livestash_agent_copies:owner(Row) of
        Owner when is_pid(Owner), node(Owner) =:= node() -> [ets:insert(?MODULE, {element(2, Row), written, Row}) || room()];
        _ -> ets:delete(?MODULE, element(2, Row))
    end.

room() ->
    ets:info(?MODULE, size) < ?MAX_KEYS andalso
        ets:info(?MODULE, memory) * erlang:system_info(wordsize) < ?MAX_BYTES.

%% What was written while the peer may have been away unnoticed. Later events are in the mailbox by now.
write_recent(Table) ->
    try livestash_agent_copies:time_position(mnesia, Table) of
        End ->
            Since = os:system_time(second) + ttl() - ?UNNOTICED,
            Recent = [{'_', [{'>=', {element, End, '$_'}, Since}], ['$_']}],
            write_all(ets:select(Table, Recent, ?CHUNK), End)
    catch
        %% The table is gone with Mnesia.
        _:_ -> ok
    end.

write_all('$end_of_table', _End) ->
    ok;
write_all({Rows, Continuation}, End) ->
    [write(Row) || Row <- Rows, not known_better(ets:lookup(?MODULE, element(2, Row)), Row, End)],
    write_all(ets:select(Continuation), End).

%% A copy that this node was made to take may be older than what it remembers.
known_better([{_Key, written, Known}], Row, End) -> later(Known, Row, End);
known_better(_Other, _Row, _End) -> false.

%% LiveStash's own default where the fleet does not say.
ttl() ->
    case string:to_integer(os:getenv("LIVE_STASH_TTL", "300")) of
        {Seconds, ""} -> Seconds;
        _ -> 300
    end.

now_ms() ->
    erlang:monotonic_time(millisecond).
