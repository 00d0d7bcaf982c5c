%% Which stashes were deleted here while a peer was away? After a split, a key that only one side has was either created
%% there or deleted on the other; without this it would be brought back to users who had deleted it.
-module(livestash_agent_deletions).

-behaviour(gen_server).

-export([start_link/0, remember/1, forget/0, since/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% Keys that are remembered: some 20 MiB.
-define(MAX_KEYS, 100000).

-spec start_link() -> {ok, pid()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Remembers from now on what is deleted from the Mnesia table on this node.
-spec remember(atom()) -> ok.
remember(Table) ->
    gen_server:cast(?MODULE, {remember, Table}).

%% Forgets everything, and looks no longer.
-spec forget() -> ok.
forget() ->
    gen_server:cast(?MODULE, forget).

%% How many milliseconds ago the key was deleted; none when it is not known to be. It may have been written again.
-spec since(term()) -> non_neg_integer() | none.
since(Key) ->
    try ets:lookup(?MODULE, Key) of
        [{Key, At}] -> now_ms() - At;
        [] -> none
    catch
        error:badarg -> none
    end.

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
    %% An error means that this is known, or that Mnesia has just stopped.
    _ = mnesia:subscribe({table, Table, simple}),
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
    [ets:insert(?MODULE, {element(2, What), now_ms()}) || ets:info(?MODULE, size) < ?MAX_KEYS],
    {noreply, Table};
handle_info(_Message, Table) ->
    {noreply, Table}.

now_ms() ->
    erlang:monotonic_time(millisecond).
