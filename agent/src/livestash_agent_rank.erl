%% Which of two versions of a stash is the user's? Everything that has to choose asks here: the hand-over, and the reunion
%% after a network split.
%%
%% The version of the younger page. A user has one page after the other, each of which takes over what the one before has
%% left; an older one may live on for a minute, because nobody has told it that its client is gone, and writes its stash
%% again, from a timer say. When it wrote last says nothing: LiveStash keeps that time only as the end of the row's time,
%% which a living page moves on without writing. So of several versions that one is right
%% 1. whose page was started last;
%% 2. of one page, or of pages that were started at the same time: which was written last, by the end of its time;
%% 3. whose page is alive; 4. which is on its page's node, because only there it is written.
%%
%% The VM does not say when a process was started. But its processes are numbered, so this module starts one now and
%% then and remembers its number and the time. A node that goes away leaves that to its peers, to whom its rows go.
-module(livestash_agent_rank).

-behaviour(gen_server).

-export([start_link/0, rank/1, birth/1, births/0, learn/1]).
-export([version/2, is_newer/2, learn_births/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-export_type([rank/0, births/0, version/0]).

%% Greater ones are better.
-type rank() :: {Birth :: integer(), Until :: integer(), Alive :: boolean(), AtHome :: boolean()}.
%% A version of a stash: its page, when that was started, and when the version was read on the page's node, in unix microseconds.
-type version() :: {pid() | none, Birth :: integer(), Stamp :: integer()}.
-type id() :: {node(), Creation :: integer(), Serial :: integer(), Number :: integer()}.
-type births() :: [{id(), UnixMilliseconds :: integer(), level()}].
-type level() :: boot | second | minute | hour.

%% Milliseconds between two births that are remembered, and for how long they are: the younger, the closer. Two pages of one
%% user may follow each other within a second, and the older one has a minute to write again: ten are enough.
-define(TICK, 250).
-define(LEVELS, [{hour, 600000, 86400000}, {minute, 10000, 3600000}, {second, ?TICK, 600000}]).
%% Births that are taken over from other nodes: many more than those of all nodes of a large fleet that restarts.
-define(MAX_LEARNT, 200000).

-spec start_link() -> {ok, pid()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

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

%% Takes over what the versions of stashes of a node say that is gone without a word. Processes are numbered in the order of their
%% births, so the first of each birth is enough.
-spec learn_births([{pid(), Birth :: integer()}]) -> ok.
learn_births(Pages) ->
    First = fun({Page, Birth}, Firsts) -> maps:update_with(Birth, fun(Id) -> min(Id, id(Page)) end, id(Page), Firsts) end,
    Firsts = lists:foldl(First, #{}, [Known || {Page, Birth} = Known <- Pages, is_pid(Page), Birth > 0]),
    learn([{Id, Birth, hour} || {Birth, Id} <- maps:to_list(Firsts)]).

alive(Owner) ->
    node(Owner) =:= node() andalso is_process_alive(Owner).

%% When a process was started, in unix milliseconds: not before this, and little later. 0 when nobody knows.
-spec birth(pid()) -> integer().
birth(Pid) ->
    {Node, Creation, Serial, Number} = id(Pid),
    try ets:prev(?MODULE, {Node, Creation, Serial, Number + 1}) of
        {Node, Creation, _, _} = Earlier -> ets:lookup_element(?MODULE, Earlier, 2);
        _ -> 0
    catch
        %% The table is gone with its process, or the entry was just forgotten.
        error:badarg -> 0
    end.

%% What is known of processes, of this node and of those whose rows have come here.
-spec births() -> births().
births() ->
    try
        ets:tab2list(?MODULE)
    catch
        error:badarg -> []
    end.

%% Takes over what another node knows of processes.
-spec learn(births()) -> ok.
learn(Births) ->
    gen_server:cast(?MODULE, {learn, Births}).

-spec init([]) -> {ok, map()}.
init([]) ->
    process_flag(max_heap_size, livestash_agent:max_heap_size()),
    ?MODULE = ets:new(?MODULE, [ordered_set, named_table, {read_concurrency, true}]),
    {Node, Creation, _, _} = id(self()),
    %% Whoever was started before this process is at least as old as the VM.
    Boot = erlang:convert_time_unit(erlang:system_info(start_time) + erlang:time_offset(), native, millisecond),
    true = ets:insert(?MODULE, {{Node, Creation, 0, 0}, Boot, boot}),
    self() ! tick,
    {ok, #{}}.

-spec handle_call(term(), gen_server:from(), map()) -> {reply, ok, map()}.
handle_call(_Request, _From, State) ->
    {reply, ok, State}.

-spec handle_cast({learn, births()}, map()) -> {noreply, map()}.
handle_cast({learn, Births}, State) ->
    [ets:insert(?MODULE, Births) || ets:info(?MODULE, size) < ?MAX_LEARNT],
    {noreply, State};
handle_cast(_Message, State) ->
    {noreply, State}.

%% State: when the last birth of each level was remembered.
-spec handle_info(term(), map()) -> {noreply, map()}.
handle_info(tick, State) ->
    erlang:send_after(?TICK, self(), tick),
    Now = os:system_time(millisecond),
    Due = [Level || {Level, Interval, _Keep} <- ?LEVELS, Now - maps:get(Level, State, 0) >= Interval],
    {noreply, remember(Due, Now, State)};
handle_info(_Message, State) ->
    {noreply, State}.

remember([], _Now, State) ->
    State;
remember([Level | _], Now, State) ->
    true = ets:insert(?MODULE, {id(spawn(fun() -> ok end)), Now, Level}),
    forget(Level, Now),
    State#{Level => Now}.

%% What is remembered for longer makes room for its like.
forget(Level, Now) ->
    {Level, _Interval, Keep} = lists:keyfind(Level, 1, ?LEVELS),
    ets:select_delete(?MODULE, [{{'_', '$1', Level}, [{'<', '$1', Now - Keep}], [true]}]).

%% What tells processes of one VM apart, in the order in which they were started. The external format has it, and the
%% creation of the node, which a restart changes.
id(Pid) ->
    Format = term_to_binary(Pid),
    <<Number:32, Serial:32, Creation:32>> = binary:part(Format, byte_size(Format), -12),
    {node(Pid), Creation, Serial, Number}.
