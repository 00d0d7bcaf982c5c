%% Which of two versions of a stash is the user's? Everything that has to choose asks here: the hand-over, copies of lost nodes,
%% and the reunion after a network split.
%%
%% The version of the younger page. A user has one page after the other, each of which takes over what the one before has
%% left; an older one may live on for a minute, because nobody has told it that its client is gone, and writes its stash
%% again, from a timer say. When it wrote last says nothing: LiveStash keeps that time only as the end of the row's time,
%% which a living page moves on without writing. So of several versions that one is right
%% 1. whose page was started last;
%% 2. of one page, or of pages that were started at the same time: which was written last, by the end of its time;
%% 3. whose page is alive; 4. which is on its page's node, because only there it is written.
%%
%% The VM does not say when a process was started, and its processes are numbered in the order of their births only until
%% it has started as many as it may have at once: after that, numbers are used again in any order. So each page says itself
%% when it begins, in LiveView's telemetry, before it looks for its stash. That goes along wherever the page's stash goes.
-module(livestash_agent_rank).

-behaviour(gen_server).

-export([start_link/0, new/0, attach/0, handle/4, rank/1, is_better/2, birth/1, version/2, is_newer/2, learn/1]).
%% Called by peers.
-export([births/1, recent/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-export_type([rank/0, version/0]).

%% Greater ones are better.
-type rank() :: {Birth :: integer(), Until :: integer(), Alive :: boolean(), AtHome :: boolean()}.
%% A version of a stash: its page, when that was started, and when the version was read on the page's node, in unix microseconds.
-type version() :: {pid() | none, Birth :: integer(), Stamp :: integer()}.

-define(EVENTS, [[phoenix, live_view, mount, start]]).
%% Milliseconds between two looks for what is not needed any more, and for how long everything is: a page has begun before it
%% has a stash, also when it waits for that, and a birth is told before the stash is given.
-define(SWEEP, 60000).
-define(YOUNG, 300000).
%% The same while there are no tables, and nobody knows what is needed: a table that is being made is there sooner.
-define(OLD, 3600000).
%% Births that are looked at, or sent, at once.
-define(CHUNK, 2000).

-spec start_link() -> {ok, pid()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Makes the table of births, which the calling process owns: pages say only once when they begin, so it outlives the process that forgets.
-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [named_table, public, {write_concurrency, true}, {read_concurrency, true}]),
    ok.

%% Listens, when telemetry is there. Attaching a second time changes nothing.
-spec attach() -> ok.
attach() ->
    _ = erlang:module_loaded(telemetry) andalso telemetry:attach_many(?MODULE, ?EVENTS, fun ?MODULE:handle/4, []),
    ok.

%% Runs in the LiveView's process. A page that is rendered for a request without a socket has no stash. Nothing makes it fail,
%% neither a table that is gone because the agent has ended.
-spec handle([atom()], map(), map(), []) -> ok.
handle(_Event, _Measurements, #{socket := #{transport_pid := Transport}}, []) when is_pid(Transport) ->
    Birth = os:system_time(millisecond),
    learn([{self(), Birth}]),
    livestash_agent_births:born(self(), Birth);
handle(_Event, _Measurements, _Metadata, []) ->
    ok.

%% How good a row is, as seen on the node that holds it.
-spec rank(tuple()) -> rank().
rank(Row) ->
    Owner = livestash_agent_row:owner(Row),
    Until =
        case livestash_agent_row:until(Row) of
            none -> 0;
            Seconds -> Seconds
        end,
    case is_pid(Owner) of
        true -> {birth(Owner), Until, alive(Owner), node(Owner) =:= node()};
        false -> {0, Until, false, false}
    end.

%% Whether the first of two rows is the user's, as every node says it. Only on its page's node is known whether the page lives, so that decides
%% between pages of one node alone: nodes that each took their own for better, where nobody knows when the pages were started, would write it again for
%% ever. Of equal ones that of the lowest node is.
-spec is_better(tuple(), tuple()) -> boolean().
is_better(Row, Other) ->
    {Birth, Until, Alive, _} = rank(Row),
    {OthersBirth, OthersUntil, OtherAlive, _} = rank(Other),
    case {home(Row), home(Other)} of
        {Node, Node} -> {Birth, Until, Alive} > {OthersBirth, OthersUntil, OtherAlive};
        {Node, OthersNode} when {Birth, Until} =:= {OthersBirth, OthersUntil} -> Node < OthersNode;
        _ -> {Birth, Until} > {OthersBirth, OthersUntil}
    end.

home(Row) ->
    case livestash_agent_row:owner(Row) of
        none -> node();
        Owner -> node(Owner)
    end.

%% Of the row as it is now on this node.
-spec version(tuple(), Stamp :: integer()) -> version().
version(Row, Stamp) ->
    case livestash_agent_row:owner(Row) of
        none -> {none, 0, Stamp};
        Owner -> {Owner, birth(Owner), Stamp}
    end.

%% Whether the first of two versions of a stash is the user's. Of one page, which was read later: a row says only in which
%% second it was written. Else as rank/1 has it.
-spec is_newer(version(), version()) -> boolean().
is_newer({Owner, _, Stamp}, {Owner, _, Other}) -> Stamp >= Other;
is_newer({_, Birth, Stamp}, {_, OtherBirth, OtherStamp}) -> {Birth, Stamp} > {OtherBirth, OtherStamp}.

alive(Owner) ->
    node(Owner) =:= node() andalso is_process_alive(Owner).

%% When a page was started, in unix milliseconds, by the clock of its node. 0 when nobody knows: before the agent began to
%% listen, or where there is no LiveView.
-spec birth(pid()) -> integer().
birth(Page) ->
    try
        ets:lookup_element(?MODULE, Page, 2)
    catch
        %% It is not there, or the table is gone with its process.
        error:badarg -> 0
    end.

%% The same of several.
-spec births([pid()]) -> [integer()].
births(Pages) ->
    [birth(Page) || Page <- Pages].

%% This node's pages that were started a short while ago.
-spec recent() -> [{pid(), Birth :: integer()}].
recent() ->
    IsRecent = {'>', '$2', os:system_time(millisecond) - ?YOUNG},
    IsHere = {'=:=', {node, '$1'}, node()},
    try
        ets:select(?MODULE, [{{'$1', '$2', '_'}, [IsRecent, IsHere], [{{'$1', '$2'}}]}])
    catch
        error:badarg -> []
    end.

%% Takes over what is known of pages.
-spec learn([{pid() | none, Birth :: integer()}]) -> ok.
learn(Births) ->
    Now = livestash_agent_clock:ms(),
    try
        lists:foreach(fun(Page) -> learn(Page, Now) end, Births)
    catch
        error:badarg -> ok
    end.

%% Whoever knew it needs it for longer.
learn({Page, Birth}, Now) when is_pid(Page), Birth > 0 ->
    ets:insert_new(?MODULE, {Page, Birth, Now}) orelse ets:update_element(?MODULE, Page, {3, Now});
learn(_Unknown, _Now) ->
    true.

-spec init([]) -> {ok, undefined}.
init([]) ->
    process_flag(max_heap_size, livestash_agent:max_heap_size()),
    %% It only forgets; whoever asks looks into the table.
    process_flag(priority, low),
    ets:whereis(?MODULE) =/= undefined orelse new(),
    ok = attach(),
    {ok, sweep_later()}.

-spec handle_call(term(), gen_server:from(), undefined) -> {reply, ok, undefined}.
handle_call(_Request, _From, State) ->
    {reply, ok, State}.

-spec handle_cast(term(), undefined) -> {noreply, undefined}.
handle_cast(_Message, State) ->
    {noreply, State}.

-spec handle_info(term(), undefined) -> {noreply, undefined}.
handle_info(sweep, _State) ->
    sweep([Table || {_Kind, Table} <- livestash_agent_store:tables()], livestash_agent_config:get(adapter)),
    {noreply, sweep_later()};
handle_info(_Message, State) ->
    {noreply, State}.

sweep_later() ->
    _ = erlang:send_after(?SWEEP, self(), sweep),
    undefined.

%% Forgets pages that have ended and whose stashes are neither here nor remembered: after a network split, what is remembered is compared. While the
%% tables are being made, nobody knows. Where there will be none, because stashes are elsewhere, only pages that live are known.
sweep([], Adapter) when Adapter =:= ets; Adapter =:= mnesia ->
    forget([], ?OLD);
sweep(Tables, _Adapter) ->
    forget(Tables, ?YOUNG).

forget(Tables, Age) ->
    Ended = ets:new(ended, [private]),
    IsOld = {'<', '$2', livestash_agent_clock:ms() - Age},
    walk(?MODULE, [{{'$1', '_', '$2'}, [IsOld], ['$1']}], fun(Pages) ->
        ets:insert(Ended, [{Page} || Page <- Pages, not alive(Page)])
    end),
    Spare = fun(Owners) -> [ets:delete(Ended, Owner) || Owner <- Owners] end,
    {Journal, Remembered} = livestash_agent_journal:owners(),
    _ = ets:whereis(Journal) =/= undefined andalso walk(Journal, Remembered, Spare),
    [walk(Table, owners(Table), Spare) || Table <- Tables],
    walk(Ended, [{{'$1'}, [], ['$1']}], fun(Pages) ->
        [ets:select_delete(?MODULE, [{{Page, '_', '$2'}, [IsOld], [true]}]) || Page <- Pages]
    end),
    ets:delete(Ended).

owners(Table) ->
    case livestash_agent_row:owner_position_in(Table) of
        none -> [];
        Position -> livestash_agent_row:elements([Position])
    end.

walk(_Table, [], _Fun) ->
    ok;
walk(Table, Specification, Fun) ->
    true = ets:safe_fixtable(Table, true),
    try
        walk_on(ets:select(Table, Specification, ?CHUNK), Fun)
    after
        ets:safe_fixtable(Table, false)
    end.

walk_on('$end_of_table', _Fun) ->
    ok;
walk_on({Found, Continuation}, Fun) ->
    _ = Fun(Found),
    walk_on(ets:select(Continuation), Fun).
