%% Are the stashes whole again after a network split? Notices that a split has ended, has livestash_agent_copies compare
%% what the nodes hold until nothing differs, and says so until then.
%%
%% A split has ended when a peer that was gone is back in the same VM: one that has restarted was not cut off, and
%% LiveStash treats it as new. Or when a node of one side goes and has handed its stashes over to nodes that may not know of
%% the split. Every node compares for itself, the keys of which it is the first holder: there is no coordinator that could be
%% lost.
-module(livestash_agent_reunion).

-behaviour(gen_server).

-export([start_link/0, whole/0, may_differ/0, apart/0]).
%% For drains.
-export([leave/0, bequeath/2, handed_over/0]).
%% Called by peers.
-export([adopt/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% Milliseconds.
-define(TICK, 1000).
%% How long no peer may have come or gone before stashes are compared.
-define(QUIET, 1000).
-define(ASK_PEER, 5000).
-define(TELL, 1000).
%% Bytes that another node takes over at once, or one entry.
-define(CHUNK, 262144).
%% A peer that is gone for longer, and that DNS names no more, does not come back: no split goes on any more.
-define(LOST, 600000).

-spec start_link() -> {ok, pid()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Whether this node's stashes are the fleet's, and if not, a sentence that says so.
-spec whole() -> {boolean(), iodata()}.
whole() ->
    case livestash_agent_join:joined() of
        {true, _} -> compared();
        Apart -> Apart
    end.

compared() ->
    livestash_agent_tasks:ask(?MODULE, whole, {true, ""}).

%% Whether a copy may have another version of a stash than this node's, also one on a node that is lost. True when nobody can say.
-spec may_differ() -> boolean().
may_differ() ->
    not element(1, livestash_agent_join:joined()) orelse livestash_agent_tasks:ask(?MODULE, may_differ, true).

%% This node's Mnesia is not that of a connected node: what users stash here is missing there.
-spec apart() -> ok.
apart() ->
    gen_server:cast(?MODULE, parted).

%% This node begins to drain: when it is gone it was not cut off.
-spec leave() -> ok.
leave() ->
    _ = tell({leaves, node()}),
    ok.

%% Before all is whole, only this node knows what its users have written meanwhile. One of the given nodes goes on with that. Returns how many
%% stashes none has taken before the deadline, in monotonic milliseconds.
-spec bequeath([node()], Deadline :: integer()) -> Left :: non_neg_integer().
bequeath(Heirs, Deadline) ->
    %% What is remembered because a peer has gone, and was not cut off, nobody needs.
    [Entries] =
        case may_differ() of
            true -> livestash_agent_tasks:answers([{fun livestash_agent_journal:entries/0, []}], within(Deadline));
            false -> [[]]
        end,
    length([Key || {{Key, written, _Packed, _Owner}, _Birth} <- bequeath(Heirs, Entries, Deadline)]).

bequeath(_Heirs, [], _Deadline) ->
    [];
bequeath([], Entries, _Deadline) ->
    Entries;
bequeath([Heir | Others] = Heirs, Entries, Deadline) ->
    {Chunk, Rest} = chunk(Entries, 0, []),
    Adopt = fun() -> livestash_agent_remote:call(Heir, ?MODULE, adopt, [Chunk]) end,
    case livestash_agent_tasks:run([{adopt, Adopt}], within(Deadline)) of
        [{adopt, {ok, ok}}] ->
            bequeath(Heirs, Rest, Deadline);
        [{adopt, {error, Reason}}] ->
            %% An agent of before does not know the question, and its fleet is no worse off than it was.
            case Others =:= [] andalso is_of_before(Reason) of
                true -> [];
                false -> bequeath(Others, Entries, Deadline)
            end
    end.

chunk([{Entry, _Birth} = First | Rest], Bytes, Chunk) when Bytes < ?CHUNK ->
    chunk(Rest, Bytes + erlang:external_size(Entry), [First | Chunk]);
chunk(Rest, _Bytes, Chunk) ->
    {Chunk, Rest}.

is_of_before({exception, undef, _}) -> true;
is_of_before({exception, {protocol, _}, _}) -> true;
is_of_before(_Reason) -> false.

within(Deadline) -> min(?ASK_PEER, livestash_agent_clock:left(Deadline)).

%% Takes over what a node that goes remembers, and compares again.
-spec adopt([livestash_agent_journal:entry()]) -> ok.
adopt(Entries) ->
    true = livestash_agent_state:takes_stashes(),
    gen_server:call(?MODULE, {adopt, Entries}).

%% Others have this node's stashes now. One that this node has lost sight of may have others of the same users. Returns when they know, because
%% this node is about to end.
-spec handed_over() -> ok.
handed_over() ->
    Tell = fun(Node) -> erpc:call(Node, gen_server, cast, [?MODULE, parted]) end,
    _ = livestash_agent_tasks:ask(?MODULE, has_lost_sight, true) andalso livestash_agent_tasks:run([{Node, fun() -> Tell(Node) end} || Node <- nodes()], ?TELL),
    ok.

-spec init([]) -> {ok, map()}.
init([]) ->
    process_flag(max_heap_size, livestash_agent:max_heap_size()),
    process_flag(priority, high),
    ok = net_kernel:monitor_nodes(true),
    self() ! tick,
    %% What an earlier process of this VM knew is lost with it, so everything is compared once.
    Again = persistent_term:get(?MODULE, false),
    persistent_term:put(?MODULE, true),
    {ok,
        differ(Again, #{
            kind => kind(livestash_agent_config:get(adapter)),
            %% Node => what identifies the VM that was last seen under this name.
            starts => #{},
            %% Peers whose VM is known since they were last connected.
            identified => [],
            %% What runs: the monitor of a process => {identify, Node} or pass.
            running => #{},
            %% Node => since when it is gone.
            lost => #{},
            %% Nodes that have said that they go.
            leaving => [],
            %% Whether the split that may be going on was counted.
            counted => true,
            %% When a peer came or went last.
            changed => livestash_agent_clock:ms(),
            comparison => livestash_agent_comparison:new()
        })}.

kind(ets) -> ets;
kind(mnesia) -> mnesia;
kind(_) -> none.

-spec handle_call(whole | has_lost_sight | may_differ | {adopt, [livestash_agent_journal:entry()]}, gen_server:from(), map()) ->
    {reply, {boolean(), iodata()} | boolean() | ok, map()}.
handle_call(whole, _From, State) ->
    {reply, whole(State), State};
handle_call(has_lost_sight, _From, State) ->
    {reply, has_lost_sight(State), State};
handle_call(may_differ, _From, #{comparison := Comparison} = State) ->
    {reply, has_lost_sight(State) orelse not livestash_agent_comparison:is_over(Comparison), State};
%% Here, where it is also decided that all is forgotten.
handle_call({adopt, Entries}, _From, State) ->
    remember_changes(State),
    {reply, livestash_agent_journal:adopt(Entries), differ(true, State)}.

has_lost_sight(#{lost := Lost, leaving := Leaving}) -> maps:keys(Lost) -- Leaving =/= [].

whole(#{comparison := Comparison, lost := Lost}) ->
    case {livestash_agent_comparison:whole(Comparison), [Node || Node <- nodes(), is_map_key(Node, Lost)]} of
        %% Not yet known whether it was cut off or has restarted.
        {{true, _}, [_ | _] = Back} ->
            {false, ["Back after they were lost: ", livestash_agent_mesh:names(Back), "; comparing stashes."]};
        {Whole, _} ->
            Whole
    end.

%% A peer that saw a split of which this node saw nothing: its copies may differ all the same.
-spec handle_cast(split | parted | {leaves, node()}, map()) -> {noreply, map()}.
handle_cast(split, State) ->
    remember_changes(State),
    {noreply, differ(true, State)};
handle_cast({leaves, Node}, #{leaving := Leaving} = State) ->
    {noreply, State#{leaving := [Node | lists:delete(Node, Leaving)]}};
%% Those whom the node that goes does not see have to know as well.
handle_cast(parted, State) ->
    tell(split),
    handle_cast(split, State);
handle_cast(_Message, State) ->
    {noreply, State}.

-spec handle_info(term(), map()) -> {noreply, map()}.
handle_info(tick, State) ->
    erlang:send_after(?TICK, self(), tick),
    {noreply, compare(identify_all(forget_changes(forget_lost(State))))};
handle_info({nodedown, Node}, State) ->
    {noreply, lost(Node, State)};
handle_info({nodeup, Node}, State) ->
    #{identified := Identified, leaving := Leaving} = State,
    Back = State#{identified := lists:delete(Node, Identified), leaving := lists:delete(Node, Leaving)},
    {noreply, identify_all(Back#{changed := livestash_agent_clock:ms()})};
handle_info({'DOWN', Monitor, process, _Pid, Result}, #{running := Running} = State) when is_map_key(Monitor, Running) ->
    {What, Rest} = maps:take(Monitor, Running),
    {noreply, finished(What, Result, State#{running := Rest})};
handle_info(_Message, State) ->
    {noreply, State}.

lost(Node, #{lost := Lost, leaving := Leaving, identified := Identified, counted := Counted} = State) ->
    %% What one has that goes in good order, the others have, too.
    lists:member(Node, Leaving) orelse livestash_agent_journal:lost(),
    remember_changes(State),
    State#{
        lost := Lost#{Node => livestash_agent_clock:ms()},
        counted := Counted andalso Lost =/= #{},
        identified := lists:delete(Node, Identified),
        changed := livestash_agent_clock:ms()
    }.

remember_changes(#{kind := mnesia}) ->
    [livestash_agent_journal:remember(Table) || {mnesia, Table} <- livestash_agent_store:tables()],
    ok;
remember_changes(_State) ->
    ok.

forget_lost(#{lost := Lost, leaving := Leaving} = State) ->
    Recent = maps:filter(fun(_Node, Since) -> livestash_agent_clock:ms() - Since < ?LOST end, Lost),
    Expected = maps:with(expected(maps:keys(Lost) -- (maps:keys(Recent) ++ Leaving)), Lost),
    There = nodes() ++ maps:keys(Recent),
    State#{lost := maps:merge(Recent, Expected), leaving := [Node || Node <- Leaving, lists:member(Node, There)]}.

%% Those of the nodes that DNS still names: a split may take hours, and users go on on both sides.
expected([]) ->
    [];
expected(Nodes) ->
    #{expected := Expected} = livestash_agent_mesh:peers(),
    [Node || Node <- Nodes, lists:member(Node, Expected)].

forget_changes(#{lost := Lost, comparison := Comparison} = State) ->
    case Lost =:= #{} andalso livestash_agent_comparison:is_over(Comparison) of
        true -> livestash_agent_journal:forget();
        false -> remember_changes(State)
    end,
    State.

identify_all(#{identified := Identified} = State) ->
    lists:foldl(fun identify/2, State, nodes() -- Identified).

identify(Node, State) ->
    %% The creation of a node is a time in seconds.
    Ask = [fun erlang:system_info/1, [creation, start_time]],
    run({identify, Node}, fun() -> erpc:call(Node, lists, map, Ask, ?ASK_PEER) end, State).

finished({identify, Node}, {done, {ok, Start}}, State) ->
    #{identified := Identified, starts := Starts, lost := Lost} = State,
    Back = maps:get(Node, Starts, none) =:= Start,
    Known = State#{
        identified := [Node | Identified],
        starts := Starts#{Node => Start},
        lost := maps:remove(Node, Lost)
    },
    split_ended(Back, Node, Known);
finished(pass, Result, #{comparison := Comparison} = State) ->
    State#{comparison := livestash_agent_comparison:passed(outcome(Result), Comparison)};
finished(_What, _Failure, State) ->
    State.

split_ended(false, _Node, State) ->
    State;
split_ended(true, Node, #{counted := Counted} = State) ->
    [livestash_agent_state:count(splits, 1) || not Counted],
    logger:notice("livestash agent: ~ts is back after a network split.", [Node]),
    tell(split),
    differ(true, State#{counted := true}).

%% In a process of its own: a peer that is frozen holds up whoever speaks to it.
tell(What) ->
    spawn(fun() -> gen_server:abcast(nodes(), ?MODULE, What) end).

outcome({done, {ok, Outcome}}) -> Outcome;
outcome(Failure) -> {0, {0, io_lib:format("~tp.", [Failure])}}.

differ(true, #{kind := Kind, comparison := Comparison} = State) when Kind =/= none ->
    State#{comparison := livestash_agent_comparison:differ(Comparison)};
differ(_, State) ->
    State.

compare(#{kind := Kind, comparison := Comparison, changed := Changed} = State) ->
    Due = livestash_agent_comparison:is_due(Comparison) andalso livestash_agent_clock:left(Changed + ?QUIET) =:= 0,
    case Due andalso has_table(Kind) andalso not livestash_agent_state:draining() of
        true ->
            {Splits, Patient} = livestash_agent_comparison:next_pass(Comparison),
            run(pass, fun() -> {Splits, livestash_agent_copies:pass(Kind, Patient)} end, State);
        false ->
            State
    end.

%% Only this node knows what its users have written, so it does not count as compared before its own copy is there, however long that takes to load.
has_table(mnesia) -> livestash_agent_store:mnesia_loaded();
has_table(_Kind) -> true.

%% In a process of its own, once at a time.
run(What, Fun, #{running := Running} = State) ->
    State#{running := livestash_agent_tasks:start(What, Fun, [], Running)}.
