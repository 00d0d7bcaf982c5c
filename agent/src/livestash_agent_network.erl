%% Who moved the bytes: web clients, distribution or Redis? And how many clients are connected? The VM counts bytes in
%% one sum and connections not at all, so one process keeps what is needed to tell them apart.
-module(livestash_agent_network).

-behaviour(gen_server).

-export([start_link/0, counts/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-export_type([bytes/0]).

-type bytes() :: {In :: non_neg_integer(), Out :: non_neg_integer()}.

%% Milliseconds between samples: what a connection moves between its last sample and its end is taken for http.
-define(SAMPLE, 5000).
%% Milliseconds between two counts of all connections.
-define(RECOUNT, 60000).
%% LiveStash's connection to Redis.
-define(REDIS, 'Elixir.LiveStash.Adapters.Redis.Conn').

-spec start_link() -> {ok, pid()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Bytes since the VM started, by kind. http is what is neither distribution nor Redis; the agent's own check of Redis is
%% neither. sockets: the TCP connections that clients have to the application's port, open WebSockets and idle HTTP
%% connections alike; it is exact once a minute, and in between follows the number of the VM's ports. An application
%% without a port has the growth of that number.
-spec counts() -> #{http := bytes(), distribution := bytes(), redis := bytes(), sockets := non_neg_integer()}.
counts() ->
    gen_server:call(?MODULE, counts).

-spec init([]) -> {ok, map()}.
init([]) ->
    process_flag(max_heap_size, livestash_agent:max_heap_size()),
    process_flag(priority, high),
    self() ! recount,
    self() ! sample,
    {ok, #{
        http => {0, 0},
        distribution => {0, 0},
        redis => {0, 0},
        check => {0, 0},
        %% What each connection had moved when it was last looked at.
        seen => #{},
        %% Ports that are connections neither of clients nor to the agent nor to Redis.
        others => erlang:system_info(port_count) - length(store_ports())
    }}.

-spec handle_call(counts, gen_server:from(), map()) -> {reply, map(), map()}.
handle_call(counts, _From, #{others := Others} = State) ->
    New = sample(State),
    Counts = maps:with([http, distribution, redis], New),
    %% One more of the ports is the connection over which the agent is being asked.
    Sockets = erlang:system_info(port_count) - Others - 1 - length(store_ports()),
    {reply, Counts#{sockets => max(0, Sockets)}, New}.

-spec handle_cast(term(), map()) -> {noreply, map()}.
handle_cast(_Message, State) ->
    {noreply, State}.

-spec handle_info(term(), map()) -> {noreply, map()}.
handle_info(sample, State) ->
    erlang:send_after(?SAMPLE, self(), sample),
    {noreply, sample(State)};
handle_info(recount, State) ->
    erlang:send_after(?RECOUNT, self(), recount),
    ok = recount(livestash_agent_config:get(app_port)),
    {noreply, State};
handle_info({others, Others}, State) ->
    {noreply, State#{others := Others}};
handle_info(_Message, State) ->
    {noreply, State}.

%% Adds what each connection has moved since it was last seen. The VM's sum is read first: what moves meanwhile is missing
%% from http until the next sample, and never counted twice.
sample(#{seen := Seen, distribution := Distribution, redis := Redis, check := Check, http := Http} = State) ->
    {{input, In}, {output, Out}} = erlang:statistics(io),
    Distributed = [Port || #{port := Port} <- livestash_agent_dist:connections(), is_port(Port)],
    ForRedis = redis_ports(),
    ForCheck = check_ports(),
    Now = maps:from_list([{Port, bytes(Port)} || Port <- Distributed ++ ForRedis ++ ForCheck]),
    NewDistribution = add_moved(Distributed, Now, Seen, Distribution),
    NewRedis = add_moved(ForRedis, Now, Seen, Redis),
    NewCheck = add_moved(ForCheck, Now, Seen, Check),
    State#{
        seen := Now,
        distribution := NewDistribution,
        redis := NewRedis,
        check := NewCheck,
        http := at_least(Http, subtract({In, Out}, add(NewDistribution, add(NewRedis, NewCheck))))
    }.

add_moved(Ports, Now, Seen, Sum) ->
    Moved = [subtract(maps:get(Port, Now), maps:get(Port, Seen, {0, 0})) || Port <- Ports],
    lists:foldl(fun add/2, Sum, Moved).

add({In1, Out1}, {In2, Out2}) -> {In1 + In2, Out1 + Out2}.
subtract({In1, Out1}, {In2, Out2}) -> {In1 - In2, Out1 - Out2}.
at_least({In1, Out1}, {In2, Out2}) -> {max(In1, In2), max(Out1, Out2)}.

bytes(Port) ->
    case inet:getstat(Port, [recv_oct, send_oct]) of
        {ok, Stat} -> {proplists:get_value(recv_oct, Stat, 0), proplists:get_value(send_oct, Stat, 0)};
        {error, _Closed} -> {0, 0}
    end.

%% Redix's connection is linked to the process that owns the socket; in older versions it owns the socket itself. Over
%% TLS the socket belongs to neither, and its bytes count as http.
redis_ports() ->
    Connection = links(whereis(?REDIS)),
    Owned = lists:append([links(Pid) || Pid <- Connection, is_pid(Pid)]),
    [Port || Port <- lists:usort(Connection ++ Owned), is_port(Port)].

%% These come and go with Redis: between two counts, the new ones would be taken for clients.
store_ports() ->
    redis_ports() ++ check_ports().

check_ports() ->
    [Port || Port <- [livestash_agent_redis:port()], is_port(Port)].

links(undefined) ->
    [];
links(Pid) ->
    case process_info(Pid, links) of
        {links, Links} -> Links;
        undefined -> []
    end.

%% Looks at every port, which takes microseconds for each: in a process that gives way to all others.
recount(undefined) ->
    ok;
recount(AppPort) ->
    Network = self(),
    Served = [AppPort, livestash_agent_config:get(port)],
    Count = fun() ->
        Others = [Port || Port <- erlang:ports() -- store_ports(), not is_accepted(Port, Served)],
        Network ! {others, length(Others)}
    end,
    _ = spawn_opt(Count, [{priority, low}]),
    ok.

is_accepted(Port, Served) ->
    case erlang:port_info(Port, name) of
        {name, "tcp_inet"} -> lists:member(local_port(Port), Served) andalso element(1, inet:peername(Port)) =:= ok;
        _ -> false
    end.

local_port(Port) ->
    case inet:sockname(Port) of
        {ok, {_Address, Local}} -> Local;
        {error, _Closed} -> undefined
    end.
