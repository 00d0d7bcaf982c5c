%% May this pod take traffic? One process answers, so that a thousand askers cost the application's port one connect a
%% second.
-module(livestash_agent_ready).

-behaviour(gen_server).

-export([start_link/0, check/0, decide/1]).
-export([init/1, handle_call/3, handle_cast/2]).

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

%% Milliseconds for which an answer is given again.
-define(FRESH, 1000).
%% Milliseconds that the application's port, and a peer, may take.
-define(PATIENCE, 1000).
%% How many of the missing peers are named.
-define(NAMED, 3).

-spec start_link() -> {ok, pid()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Whether the pod is ready, and if not, a sentence that says why.
-spec check() -> {boolean(), iodata()}.
check() ->
    case livestash_agent_state:phase() of
        none -> gen_server:call(?MODULE, check);
        Phase -> {false, ["This pod is being drained: ", atom_to_list(Phase), "."]}
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

-spec init([]) -> {ok, map()}.
init([]) ->
    process_flag(max_heap_size, livestash_agent:max_heap_size()),
    {ok, #{asked => undefined, answer => undefined, whole => false}}.

-spec handle_call(check, gen_server:from(), map()) -> {reply, {boolean(), iodata()}, map()}.
handle_call(check, _From, #{asked := Asked, answer := Answer, whole := Whole} = State) ->
    Now = erlang:monotonic_time(millisecond),
    case is_integer(Asked) andalso Now - Asked < ?FRESH of
        true ->
            {reply, Answer, State};
        false ->
            Facts = #{mesh := {Mesh, _}} = facts(Whole),
            New = decide(Facts),
            {reply, New, State#{asked := erlang:monotonic_time(millisecond), answer := New, whole := Mesh}}
    end.

-spec handle_cast(term(), map()) -> {noreply, map()}.
handle_cast(_Message, State) ->
    {noreply, State}.

facts(Whole) ->
    Adapter = livestash_agent_config:get(adapter),
    Store = store(Adapter),
    Peers = #{connected := Connected} = livestash_agent_mesh:peers(),
    #{
        accepting => accepting(livestash_agent_config:get(app_port)),
        mesh => mesh(Whole, livestash_agent_mesh:known(), Peers),
        store => Store,
        store_required => store_required(Adapter, Store, Connected),
        grace_over => livestash_agent_state:uptime() >= livestash_agent_config:get(ready_grace)
    }.

%% A pod that has once seen all of its peers stays ready when one of them restarts.
mesh(true, _Known, _Peers) ->
    {true, ""};
mesh(false, false, _Peers) ->
    {false, "DNS has not yet named the peers."};
mesh(false, true, #{missing := []}) ->
    {true, ""};
mesh(false, true, #{missing := Missing}) ->
    {Named, Others} = lists:split(min(?NAMED, length(Missing)), Missing),
    {false, ["Not connected to ", lists:join(", ", [atom_to_list(Node) || Node <- Named]), more(length(Others)), "."]}.

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

accepting(undefined) ->
    undefined;
accepting(Port) ->
    {Port, connects({127, 0, 0, 1}, Port) orelse connects({0, 0, 0, 0, 0, 0, 0, 1}, Port)}.

connects(Address, Port) ->
    case gen_tcp:connect(Address, Port, [], ?PATIENCE) of
        {ok, Socket} -> gen_tcp:close(Socket) =:= ok;
        {error, _Reason} -> false
    end.

%% Mnesia's while a connected peer holds a loaded copy of the table, and Redis.
store_required(mnesia, {false, _Reason}, Peers) ->
    Answers = erpc:multicall(Peers, livestash_agent_store, tables, [], ?PATIENCE),
    lists:any(fun
        ({ok, Tables}) -> lists:keymember(mnesia, 1, Tables);
        (_Failure) -> false
    end, Answers);
store_required(Adapter, _Store, _Peers) ->
    Adapter =:= redis.
