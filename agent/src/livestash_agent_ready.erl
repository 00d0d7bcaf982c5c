%% May this pod take traffic? One process answers from memory and never waits, whoever is frozen: every second another one
%% looks, at its peers too, within limits. So a thousand askers cost the application's port one connect a second, and an
%% answer tells of a moment at most three seconds ago.
-module(livestash_agent_ready).

-behaviour(gen_server).

-export([start_link/0, check/0, decide/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-export_type([facts/0]).

%% accepting: the application's port, or `undefined` when it has none. mesh: whether DNS has answered and all peers
%% that it names are connected, or were once. store: whether it is there, or was once where that is enough.
%% store_required: whether it is waited for without limit.
-type facts() :: #{
    accepting := {Port :: inet:port_number(), boolean()} | undefined,
    mesh := {boolean(), Reason :: string()},
    store := {boolean(), Reason :: string()},
    store_required := boolean(),
    grace_over := boolean()
}.

%% Milliseconds between two looks.
-define(INTERVAL, 1000).
%% Milliseconds for what this node knows and its application's port, and again for its peers.
-define(PATIENCE, 1000).
%% Milliseconds that the first asker waits for the first look. Later ones are answered at once.
-define(ANSWER, 200).
%% How many of the missing peers are named.
-define(NAMED, 3).

-spec start_link() -> {ok, pid()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Whether the pod is ready, and if not, a sentence that says why. A pod that stops and keeps its users until another one is
%% there says the truth too: where no pod stays, Kubernetes sends clients to those that stop and are ready.
-spec check() -> {boolean(), iodata()}.
check() ->
    case livestash_agent_state:phase() of
        none -> verdict();
        keeping -> verdict();
        Phase -> {false, ["This pod is being drained: ", atom_to_list(Phase), "."]}
    end.

verdict() ->
    try
        gen_server:call(?MODULE, check, ?ANSWER)
    catch
        exit:_ -> {false, "The agent has not found out yet whether this pod is ready."}
    end.

%% The rules, in the order in which they are told. The peers and the store are waited for until the grace is over, a
%% store that is required without limit: whoever serves without it serves an empty one.
-spec decide(facts()) -> {boolean(), iodata()}.
decide(#{accepting := {Port, false}}) ->
    {false, io_lib:format("The application's port ~b accepts no connection.", [Port])};
decide(#{store := {false, Reason}, store_required := true}) ->
    {false, Reason};
decide(#{grace_over := true}) ->
    {true, ""};
decide(#{mesh := {false, Reason}}) ->
    {false, Reason};
decide(#{store := {false, Reason}}) ->
    {false, Reason};
decide(_Facts) ->
    {true, ""}.

%% verdict: of the last look; looking: the monitor of the process that looks; whole: whether all peers were seen once.
-spec init([]) -> {ok, map()}.
init([]) ->
    process_flag(max_heap_size, livestash_agent:max_heap_size()),
    process_flag(priority, high),
    self() ! look,
    {ok, #{verdict => undefined, looking => undefined, whole => false, waiting => []}}.

-spec handle_call(check, gen_server:from(), map()) -> {reply, {boolean(), iodata()}, map()} | {noreply, map()}.
handle_call(check, From, #{verdict := undefined, waiting := Waiting} = State) ->
    {noreply, State#{waiting := [From | Waiting]}};
handle_call(check, _From, #{verdict := Verdict} = State) ->
    {reply, Verdict, State}.

-spec handle_cast(term(), map()) -> {noreply, map()}.
handle_cast(_Message, State) ->
    {noreply, State}.

-spec handle_info(term(), map()) -> {noreply, map()}.
handle_info(look, #{whole := Whole} = State) ->
    Look = fun() -> exit({facts, facts(Whole)}) end,
    {_Pid, Monitor} = spawn_opt(Look, [monitor, {priority, high}, {max_heap_size, livestash_agent:max_heap_size()}]),
    {noreply, State#{looking := Monitor}};
handle_info({'DOWN', Monitor, process, _Pid, Result}, #{looking := Monitor} = State) ->
    erlang:send_after(?INTERVAL, self(), look),
    {noreply, looked(Result, State)};
handle_info(_Message, State) ->
    {noreply, State}.

looked({facts, #{mesh := {Whole, _}} = Facts}, #{waiting := Waiting} = State) ->
    Verdict = decide(Facts),
    [gen_server:reply(From, Verdict) || From <- Waiting],
    State#{verdict := Verdict, whole := Whole, waiting := []};
looked(_Failure, State) ->
    State.

facts(Whole) ->
    Adapter = livestash_agent_config:get(adapter),
    Port = livestash_agent_config:get(app_port),
    Unknown = "This node is too busy to find out whether it is ready.",
    [Accepts, {Mesh, Connected}, Store] = livestash_agent_tasks:answers([
        {fun() -> accepts(Port) end, false},
        {fun() -> mesh(Whole) end, {{Whole, Unknown}, nodes()}},
        {fun() -> store(Adapter) end, {false, Unknown}}
    ], ?PATIENCE),
    #{
        accepting => accepting(Port, Accepts),
        mesh => Mesh,
        store => Store,
        store_required => store_required(Adapter, Store, Connected),
        grace_over => livestash_agent_state:uptime() >= livestash_agent_config:get(ready_grace)
    }.

%% The fact, and the peers that are connected. Asked in this order: DNS may answer between the two questions.
mesh(Whole) ->
    Known = livestash_agent_mesh:known(),
    Peers = #{connected := Connected} = livestash_agent_mesh:peers(),
    {mesh(Whole, Known, Peers), Connected}.

%% A pod that has once seen all of its peers stays ready when one of them restarts.
mesh(true, _Known, _Peers) ->
    {true, ""};
mesh(false, false, _Peers) ->
    {false, "DNS has not yet named the peers."};
mesh(false, true, #{missing := []}) ->
    {true, ""};
mesh(false, true, #{missing := Missing}) ->
    {Named, Others} = lists:split(min(?NAMED, length(Missing)), Missing),
    {false, ["Not connected to ", livestash_agent_mesh:names(Named), more(length(Others)), "."]}.

more(0) -> "";
more(Others) -> io_lib:format(" and ~b more", [Others]).

%% A pod whose Redis has answered once stays ready without it: it is the same one for all pods, and none would be left.
store(redis) ->
    case livestash_agent_redis:has_answered() of
        true -> {true, ""};
        false -> livestash_agent_redis:ready()
    end;
store(_Adapter) ->
    livestash_agent_store:ready().

accepting(undefined, _Accepts) -> undefined;
accepting(Port, Accepts) -> {Port, Accepts}.

accepts(undefined) -> false;
accepts(Port) -> connects({127, 0, 0, 1}, Port) orelse connects({0, 0, 0, 0, 0, 0, 0, 1}, Port).

connects(Address, Port) ->
    case gen_tcp:connect(Address, Port, [], ?PATIENCE) of
        {ok, Socket} -> gen_tcp:close(Socket) =:= ok;
        {error, _Reason} -> false
    end.

%% Mnesia's while a connected peer holds a loaded copy of the table, and Redis. A peer that does not answer holds none: it
%% could not give it either.
store_required(mnesia, {false, _Reason}, Connected) ->
    Ask = fun(Peer) -> fun() -> erpc:call(Peer, livestash_agent_store, tables, [], ?PATIENCE) end end,
    Tables = livestash_agent_tasks:answers([{Ask(Peer), []} || Peer <- Connected], ?PATIENCE),
    lists:any(fun(Held) -> lists:keymember(mnesia, 1, Held) end, Tables);
store_required(Adapter, _Store, _Connected) ->
    Adapter =:= redis.
