%% Does this node's Mnesia share one table with its peers'? A node that starts LiveStash before it sees its peers makes a table
%% of its own. When it is connected, LiveStash finds two tables of one name, and every node but the one with the lowest
%% name deletes the table that it shares with others: all stashes are gone, whoever the newcomer is.
%%
%% So as soon as a node is connected, Mnesia's schema is held still here, by a lock that LiveStash's join has to wait for, until
%% it is known what the newcomer has. Of two tables the younger one goes: its rows are taken over, and Mnesia and
%% LiveStash's process start anew on its node. They see their peers now, and copy their table. Users' transactions do
%% not need that lock. The newcomer has no agent yet, or is just loading it: it is asked by what OTP has.
%%
%% Connected nodes that share a table may be apart all the same: after a split, or when a peer has restarted over a slow network, LiveStash tries
%% to join them once. What users of the one stash is then missing at the other, for as long as both live, so the agent joins them.
%%
%% What has gone wrong all the same is told, and a node without a copy gets one.
-module(livestash_agent_join).

-behaviour(gen_server).

-export([start_link/0, joined/0, astray/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% Milliseconds.
-define(TICK, 1000).
%% How long the schema is held still at most.
-define(HOLD, 12000).
-define(ASK, 1000).
-define(POLL, 50).
%% How long a newcomer that runs Mnesia may be without the table: it is just making one.
-define(UNDECIDED, 500).
%% How long a newcomer's rows and its restart may take (Mnesia has been seen to take 3 s to stop), and the bytes of the rows.
-define(TAKE, 10000).
-define(MAX_BYTES, 67108864).
-define(RETRIES, 10).
%% LiveStash's supervisor of its joins.
-define(JOINS, 'Elixir.LiveStash.Adapters.Mnesia.TaskSupervisor').
%% After so long LiveStash has joined two nodes that are connected, if it does; the pause after an attempt of the agent that failed, and how long one
%% may take.
-define(REJOIN, 3000).
-define(FAILED, 15000).
-define(LIMIT, 10000).
%% A node that joins is apart for a moment, and without a copy.
-define(APART, 15000).
-define(WITHOUT, 10000).

%% How another node's table compares with this one's. unmade: its Mnesia runs without one; none: one of the two is missing;
%% silent: it has not answered in time, and may have any.
-type other() :: same | older | younger | unmade | none | silent.

-spec start_link() -> {ok, pid()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Whether Mnesia here is that of all connected peers that run it, and if not, a sentence that says so.
-spec joined() -> {boolean(), iodata()}.
joined() ->
    livestash_agent_tasks:ask(?MODULE, joined, {true, ""}).

%% Whether this node has made a table of its own beside an older one, or that is not yet known.
-spec astray() -> boolean().
astray() ->
    livestash_agent_tasks:ask(?MODULE, astray, false).

-spec init([]) -> {ok, map()}.
init([]) ->
    process_flag(max_heap_size, livestash_agent:max_heap_size()),
    %% What LiveStash does at the same moment takes a question to the newcomer: this comes before it.
    process_flag(priority, high),
    ok = net_kernel:monitor_nodes(true),
    self() ! tick,
    {ok, #{
        %% The monitor of a process => what it does: {meet, Node}, look, rejoin or copy.
        running => #{},
        %% Connected nodes that run a Mnesia that is not this one's => {since when, how their table compares}.
        strangers => #{},
        %% Those that Mnesia here did not know, and that were asked.
        asked => [],
        %% Since when this node has no copy of the table.
        without => none
    }}.

-spec handle_call(joined | astray, gen_server:from(), map()) -> {reply, term(), map()}.
handle_call(joined, _From, State) ->
    {reply, joined(State), State};
handle_call(astray, _From, State) ->
    {reply, beside(State) =/= [], State}.

joined(#{strangers := Strangers} = State) ->
    Long = [Node || {Node, {Since, Other}} <- maps:to_list(Strangers), Other =/= silent, passed(Since, ?APART)],
    case {beside(State), Long} of
        {[], []} -> {true, ""};
        {[], _} ->
            {false, ["Mnesia runs apart from that of ", livestash_agent_mesh:names(Long), ", which this node is connected to."]};
        {Nodes, _} ->
            {false, [
                "This node has a Mnesia table of its own, and ", livestash_agent_mesh:names(Nodes), " may have the fleet's."
            ]}
    end.

%% A node that is alone may be the newcomer. A peer that has been silent for long is frozen, and no reason to serve nobody.
beside(#{strangers := Strangers, asked := Asked}) ->
    Older = [Node || {Node, {_Since, older}} <- maps:to_list(Strangers)],
    Silent = [Node || {Node, {Since, silent}} <- maps:to_list(Strangers), not passed(Since, ?APART)],
    case strangers() of
        {alone, Nodes} -> Older ++ Silent ++ (Nodes -- Asked);
        {_, _} -> Older
    end.

passed(Since, Milliseconds) -> livestash_agent_clock:ms() - Since > Milliseconds.

-spec handle_cast(term(), map()) -> {noreply, map()}.
handle_cast(_Message, State) ->
    {noreply, State}.

-spec handle_info(term(), map()) -> {noreply, map()}.
handle_info({nodeup, Node}, State) ->
    {noreply, look(strangers(), meet([Node], forget(Node, State)))};
handle_info(tick, State) ->
    erlang:send_after(?TICK, self(), tick),
    {noreply, look_for_copy(look(strangers(), State))};
handle_info({'DOWN', Monitor, process, _Pid, Result}, #{running := Running} = State) when is_map_key(Monitor, Running) ->
    {What, Rest} = maps:take(Monitor, Running),
    {noreply, finished(What, Result, State#{running := Rest})};
handle_info(_Message, State) ->
    {noreply, State}.

%% The connected nodes that Mnesia here does not know, and whether it knows any. Asks nobody.
strangers() ->
    case erlang:module_loaded(mnesia) andalso mnesia:system_info(is_running) of
        yes -> strangers(mnesia:system_info(running_db_nodes));
        _ -> {stopped, []}
    end.

%% What was known of a node before it was connected anew.
forget(Node, #{strangers := Strangers, asked := Asked} = State) ->
    State#{strangers := maps:remove(Node, Strangers), asked := lists:delete(Node, Asked)}.

strangers([Self]) when Self =:= node() -> {alone, nodes()};
strangers(Known) -> {together, nodes() -- Known}.

look({_, []}, State) ->
    State#{strangers := #{}, asked := []};
look({_, Nodes}, State) ->
    run(look, fun() -> {Nodes, compare(Nodes)} end, [], State).

finished(look, {done, {ok, {Asked, Outcomes}}}, #{strangers := Before} = State) ->
    Compared = [{Node, Other} || {Node, Outcome} <- Outcomes, (Other = answered(Outcome)) =/= none],
    Strangers = maps:from_list([{Node, {since(Node, Other, Before), Other}} || {Node, Other} <- Compared]),
    Apart = [Node || {Node, {Since, same}} <- maps:to_list(Strangers), passed(Since, ?REJOIN)],
    rejoin(Apart, meet([Node || {Node, younger} <- Compared], State#{strangers := Strangers, asked := Asked}));
finished(_What, _Result, State) ->
    State.

answered({ok, Other}) -> Other;
answered({error, _Reason}) -> silent.

%% Who has just got the fleet's table is about to be joined.
since(Node, Other, Strangers) ->
    case maps:get(Node, Strangers, none) of
        {Since, Was} when Other =/= same; Was =:= same -> Since;
        _ -> livestash_agent_clock:ms()
    end.

%% Nodes without the table have nothing that could be deleted. One that is still loading its copy has: it is the fleet's.
meet(Nodes, State) ->
    case here(livestash_agent_store:mnesia_table()) of
        none -> State;
        _Cookie -> lists:foldl(fun meet_one/2, State, Nodes)
    end.

%% In a process of its own, whose end releases the lock.
meet_one(Node, State) ->
    Hold = fun() ->
        mnesia:read_lock_table(schema),
        judge(Node, livestash_agent_clock:ms() + ?HOLD, none)
    end,
    run({meet, Node}, fun() -> told(Node, mnesia:transaction(Hold)) end, [{priority, high}], State).

told(Node, {atomic, {restarted, Rows}}) ->
    logger:warning(
        "livestash agent: ~ts had started Mnesia alone. It starts there again, to join, and ~b stashes were taken over.",
        [Node, Rows]
    );
told(Node, {atomic, {failed, Reason}}) ->
    logger:error("livestash agent: ~ts has a Mnesia table of its own, which may replace this one: ~tp", [Node, Reason]);
told(_Node, _Harmless) ->
    ok.

%% Since: from when on the newcomer has been seen without a table.
judge(Node, Until, Since) ->
    case lists:member(Node, nodes()) andalso compare(Node) of
        younger -> restart(leads(Node), Node, Until);
        unmade when Since =:= none -> wait(Node, Until, livestash_agent_clock:ms());
        unmade -> wait(Node, min(Until, Since + ?UNDECIDED), Since);
        silent -> wait(Node, Until, Since);
        _ -> joined
    end.

wait(Node, Until, Since) ->
    case livestash_agent_clock:ms() < Until of
        true ->
            timer:sleep(?POLL),
            judge(Node, Until, Since);
        false ->
            joined
    end.

%% Of those that share this table, the lowest that the newcomer is connected to sees to it. The others hold still.
leads(Node) ->
    case ask(fun() -> erpc:call(Node, erlang, nodes, []) end) of
        silent -> false;
        Connected -> lists:min([node() | [Other || Other <- mnesia:system_info(running_db_nodes), lists:member(Other, Connected)]]) =:= node()
    end.

restart(true, Node, _Until) ->
    Work = fun() ->
        Rows = take(Node, livestash_agent_store:mnesia_table()),
        restart_mnesia(Node),
        Rows
    end,
    case livestash_agent_tasks:run([{take, Work}], ?TAKE) of
        [{take, {ok, Rows}}] -> {restarted, Rows};
        [{take, {error, Reason}}] -> erpc:cast(Node, mnesia, start, []), {failed, Reason}
    end;
restart(false, Node, Until) ->
    wait(Node, Until, none).

%% What users have stashed there meanwhile. They have not found what is here, so theirs is the younger page.
take(Node, Table) ->
    true = erpc:call(Node, ets, info, [Table, memory]) * erlang:system_info(wordsize) < ?MAX_BYTES,
    Rows = erpc:call(Node, ets, tab2list, [Table]),
    {atomic, ok} = mnesia:transaction(fun() -> [mnesia:write(Table, Row, write) || Row <- Rows], ok end, ?RETRIES),
    length(Rows).

%% Whoever was told of Mnesia's events is no longer: LiveStash's process, which its supervisor starts again. Its joins outlive
%% both. What one of them has decided would be done to the new Mnesia: it deletes the table, by then the fleet's.
restart_mnesia(Node) ->
    Listeners = erpc:call(Node, mnesia, system_info, [subscribers]),
    stopped = erpc:call(Node, mnesia, stop, []),
    [exit(Listener, kill) || Listener <- Listeners],
    [exit(Join, kill) || Join <- joins(Node)],
    ok = erpc:call(Node, mnesia, start, []).

joins(Node) ->
    try
        [Join || {_Id, Join, _Type, _Modules} <- erpc:call(Node, supervisor, which_children, [?JOINS]), is_pid(Join)]
    catch
        exit:{exception, {noproc, _}} -> []
    end.

-spec compare(node()) -> other(); ([node()]) -> [{node(), livestash_agent_tasks:outcome(other())}].
compare(Nodes) when is_list(Nodes) ->
    livestash_agent_tasks:run([{Node, fun() -> compare(Node) end} || Node <- Nodes], 2 * ?ASK);
compare(Node) ->
    Table = livestash_agent_store:mnesia_table(),
    compare(here(Table), ask(fun() -> there(Node, Table) end)).

%% A table's cookie begins with the time at which it was made.
compare(_Here, There) when is_atom(There) -> There;
compare(none, _There) -> none;
compare(Cookie, Cookie) -> same;
compare(Here, There) when Here < There -> younger;
compare(_Here, _There) -> older.

%% Asks nobody, and so needs no limit.
here(Table) ->
    try
        mnesia:table_info(Table, cookie)
    catch
        exit:_ -> none
    end.

%% A Mnesia that has not started yet will know its peers.
there(Node, Table) ->
    try
        erpc:call(Node, mnesia, table_info, [Table, cookie])
    catch
        exit:_ -> unmade(erpc:call(Node, mnesia, system_info, [is_running]));
        error:{erpc, _Unreachable} -> silent;
        error:_ -> none
    end.

unmade(yes) -> unmade;
unmade(_) -> none.

%% What differs by then is compared as after a split.
rejoin(Nodes, State) ->
    case Nodes =:= [] orelse livestash_agent_state:draining() of
        true -> State;
        false -> run(rejoin, fun() -> join(Nodes) end, [], State)
    end.

join(Nodes) ->
    ok = livestash_agent_reunion:apart(),
    Join = fun() -> mnesia:change_config(extra_db_nodes, Nodes) end,
    [{join, Outcome}] = livestash_agent_tasks:run([{join, Join}], ?LIMIT),
    timer:sleep(pause_after(Outcome, Nodes)).

pause_after({ok, {ok, Nodes}}, _Apart) when Nodes =/= [] ->
    logger:notice("livestash agent: Mnesia ran apart from that of ~ts, and is joined again.", [livestash_agent_mesh:names(Nodes)]),
    ?REJOIN;
%% It was turned away, because nodes waited for each other.
pause_after({ok, {ok, []}}, _Apart) ->
    ?REJOIN;
pause_after(Failure, Nodes) ->
    logger:warning("livestash agent: Mnesia runs apart from that of ~ts, and cannot be joined yet: ~tp", [
        livestash_agent_mesh:names(Nodes), Failure
    ]),
    ?FAILED.

%% When nodes that have started alone meet, LiveStash's join may leave one without a copy, and does not try again.
look_for_copy(#{without := Since} = State) ->
    case livestash_agent_store:lacks_copy() of
        false -> State#{without := none};
        true when Since =:= none -> State#{without := livestash_agent_clock:ms()};
        true -> add_copy(livestash_agent_clock:ms() - Since > ?WITHOUT, State)
    end.

add_copy(true, State) -> run(copy, fun livestash_agent_store:add_copy/0, [], State#{without := none});
add_copy(false, State) -> State.

%% In a process of its own, once at a time.
run(What, Fun, Options, #{running := Running} = State) ->
    State#{running := livestash_agent_tasks:start(What, Fun, Options, Running)}.

%% A frozen peer blocks whoever calls it.
ask(Question) ->
    case livestash_agent_tasks:run([{ask, Question}], ?ASK) of
        [{ask, {ok, Answer}}] -> Answer;
        [{ask, {error, _Reason}}] -> silent
    end.
