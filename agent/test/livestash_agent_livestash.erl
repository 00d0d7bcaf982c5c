%% How do LiveStash's nodes come to share a Mnesia table? Step by step what LiveStash 1.1 does at
%% start, when a node appears, and after a split, without its logs.
-module(livestash_agent_livestash).

-behaviour(gen_server).

-export([start/0, start_join/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-define(TABLE, 'Elixir.LiveStash.Adapters.Mnesia.State').
%% Milliseconds.
-define(RETRY, 5000).
-define(JOIN_RETRY, 300).
-define(LOAD, 15000).
-define(JOIN_RETRIES, 5).
-define(REPAIRS, 3).
-define(JOINS, 'Elixir.LiveStash.Adapters.Mnesia.TaskSupervisor').

%% For -s: the VM goes on when the table is there. LATE_PEERS names the nodes that are connected only then, as libcluster
%% does it.
-spec start() -> ok.
start() ->
    Self = self(),
    _ = spawn(fun() ->
        {ok, _} = supervisor:start_link({local, ?JOINS}, ?MODULE, joins),
        supervise(Self)
    end),
    receive started -> ok end,
    Late = string:lexemes(os:getenv("LATE_PEERS", ""), ","),
    _ = spawn(fun() -> [net_kernel:connect_node(list_to_atom(Peer)) || Peer <- Late] end),
    ok.

%% As LiveStash's supervisor does: the agent ends whoever listened to a Mnesia that it restarts.
supervise(Starter) ->
    _ = mnesia:start(),
    {ok, Pid} = gen_server:start({local, ?MODULE}, ?MODULE, [], []),
    Starter ! started,
    Monitor = monitor(process, Pid),
    receive {'DOWN', Monitor, process, Pid, _} -> supervise(Starter) end.

init(joins) ->
    Join = #{id => join, start => {?MODULE, start_join, []}, restart => temporary},
    {ok, {#{strategy => simple_one_for_one}, [Join]}};
init([]) ->
    {ok, _} = mnesia:subscribe(system),
    ok = net_kernel:monitor_nodes(true),
    ensure(nodes()),
    {ok, #{join => none, peers => [], again => false, repairs => none}}.

handle_call(_Request, _From, State) -> {reply, ok, State}.

handle_cast(_Message, State) -> {noreply, State}.

handle_info({mnesia_system_event, {inconsistent_database, _, _}}, #{join := none, repairs := none} = State) ->
    case master(nodes()) of
        Self when Self =:= node() -> {noreply, State};
        Master -> {noreply, repair(Master, State#{repairs := ?REPAIRS})}
    end;
handle_info({repair, Master}, State) ->
    {noreply, repair(Master, State)};
handle_info({nodeup, _}, #{repairs := none, join := none} = State) ->
    {noreply, join(nodes(), State)};
handle_info({nodeup, _}, #{repairs := none} = State) ->
    {noreply, State#{again := true}};
handle_info({'DOWN', Join, process, _, Result}, #{join := {_, Join}, again := Again, peers := Peers} = State) ->
    case {Result, Again} of
        {_, true} -> {noreply, join(nodes(), State)};
        {joined, false} -> {noreply, State#{join := none, peers := []}};
        {_, false} -> erlang:send_after(?RETRY, self(), {join, Peers}), {noreply, State#{join := none}}
    end;
handle_info({join, Peers}, #{join := none} = State) ->
    {noreply, join(Peers, State)};
handle_info(_Other, State) ->
    {noreply, State}.

join(Peers, State) ->
    {ok, Join} = supervisor:start_child(?JOINS, [fun() -> ensure(Peers) end]),
    Monitor = monitor(process, Join),
    Join ! go,
    State#{join := {Join, Monitor}, peers := Peers, again := false}.

%% Not linked to whoever asked for it, as in LiveStash.
-spec start_join(fun(() -> ok)) -> {ok, pid()}.
start_join(Join) ->
    {ok, spawn_link(fun() ->
        receive go -> ok end,
        exit(try Join(), joined catch _:Reason -> Reason end)
    end)}.

repair(Master, #{repairs := Left} = State) ->
    try
        done(mnesia:del_table_copy(?TABLE, node()), no_exists),
        copy_from(Master),
        State#{repairs := none}
    catch
        _:_ when Left =:= 1 -> State#{repairs := none};
        _:_ -> erlang:send_after(?RETRY, self(), {repair, Master}), State#{repairs := Left - 1}
    end.

ensure(Peers) ->
    case merge(Peers, ?JOIN_RETRIES) of
        ok ->
            Options = [{attributes, [id, pid, delete_at, state]}, {ram_copies, [node()]}],
            done(mnesia:create_table(?TABLE, Options), already_exists),
            copy();
        conflict ->
            resolve(master(Peers))
    end.

merge([], _Retries) ->
    ok;
merge(Peers, Retries) ->
    case mnesia:change_config(extra_db_nodes, Peers) of
        {ok, _} -> merge_rest(Peers -- mnesia:system_info(db_nodes), Retries);
        {error, {merge_schema_failed, _}} -> conflict
    end.

merge_rest([], _Retries) -> ok;
merge_rest(_Peers, 0) -> ok;
merge_rest(Peers, Retries) ->
    timer:sleep(?JOIN_RETRY),
    merge(Peers, Retries - 1).

resolve(Master) when Master =:= node() ->
    wait();
resolve(Master) ->
    done(mnesia:delete_table(?TABLE), no_exists),
    ok = merge([Master], ?JOIN_RETRIES),
    copy_from(Master).

copy_from(Master) ->
    ok = mnesia:set_master_nodes(?TABLE, [Master]),
    try copy() after mnesia:set_master_nodes(?TABLE, []) end.

copy() ->
    done(mnesia:add_table_copy(?TABLE, node(), ram_copies), already_exists),
    wait().

wait() ->
    ok = mnesia:wait_for_tables([?TABLE], ?LOAD).

done({atomic, ok}, _Harmless) -> ok;
done({aborted, Reason}, Harmless) when element(1, Reason) =:= Harmless -> ok.

master(Peers) ->
    hd([Node || Node <- lists:sort([node() | Peers]), Node =:= node() orelse runs(Node)]).

runs(Node) -> erpc:call(Node, mnesia, system_info, [is_running], 2000) =:= yes.
