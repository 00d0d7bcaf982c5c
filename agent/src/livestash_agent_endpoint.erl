%% How are this node's web endpoints stopped without a herd of reconnects? Finds them in the supervision trees of all
%% applications, closes their sockets in batches, and then stops the endpoints alone: stashes, PubSub and the
%% cluster go on.
%%
%% An endpoint is a child whose module exports '__sockets__'/0, as Phoenix endpoints do. Below it, a connection is
%% what ThousandIsland (Bandit) or Ranch (Cowboy) supervises, and a socket is a connection that monitors a channel of
%% the same endpoint. Such a process understands `socket_drain`, which Phoenix's own drainer has it sent: it closes
%% with 1012, "service restart", so that clients come back at once. Everything else ends when the endpoint stops.
-module(livestash_agent_endpoint).

-export([find/0, close/2, stop/2, end_sessions/2]).

-export_type([endpoint/0]).

-record(endpoint, {
    module :: module(),
    pid :: pid(),
    parent :: pid(),
    %% By which the parent knows it.
    child :: term()
}).

-opaque endpoint() :: #endpoint{}.

%% Milliseconds.
-define(ASK_SUPERVISOR, 1000).
-define(FIND, 3000).
-define(LEAVE, 500).
-define(POLL, 20).

%% The endpoints of all applications.
-spec find() -> [endpoint()].
find() ->
    Find = fun() -> lists:flatmap(fun application/1, applications()) end,
    case livestash_agent_tasks:run([{find, Find}], ?FIND) of
        [{find, {ok, Endpoints}}] ->
            Endpoints;
        [{find, {error, Reason}}] ->
            logger:warning("livestash agent: the web endpoints were not found: ~tp", [Reason]),
            []
    end.

%% Asks all sockets to close, batch_size of them every batch_interval milliseconds, and more at once where that would
%% take longer than `within` milliseconds. Returns how many were asked.
-spec close([endpoint()], #{
    batch_size := pos_integer() | infinity, batch_interval := non_neg_integer(), within := non_neg_integer()
}) -> non_neg_integer().
close(Endpoints, Options) ->
    First = sockets(Endpoints),
    close_in_batches(First, Options),
    %% Whoever came while the batches were closing. The next ones are turned away with the endpoint.
    Late = sockets(Endpoints) -- First,
    lists:foreach(fun drain/1, Late),
    await_gone(First ++ Late, ?LEAVE),
    length(First) + length(Late).

%% Stops the endpoints and nothing else, all at once. Returns the modules of those that have not stopped in time; they
%% go on stopping.
-spec stop([endpoint()], Milliseconds :: non_neg_integer()) -> [module()].
stop(Endpoints, Within) ->
    Deadline = now_ms() + Within,
    Monitors = [{Module, monitor(process, Pid)} || #endpoint{module = Module, pid = Pid} <- Endpoints],
    lists:foreach(fun(Endpoint) -> spawn(fun() -> terminate(Endpoint) end) end, Endpoints),
    [Module || {Module, Monitor} <- Monitors, not stopped(Monitor, Deadline)].

terminate(#endpoint{parent = Parent, child = Child}) ->
    supervisor:terminate_child(Parent, Child).

stopped(Monitor, Deadline) ->
    receive
        {'DOWN', Monitor, process, _Pid, _Reason} -> true
    after max(0, Deadline - now_ms()) ->
        demonitor(Monitor, [flush]),
        false
    end.

%% Ends pages that are still alive: they are told, and killed when they have not ended within the given milliseconds.
%% Returns how many there were.
-spec end_sessions([pid()], Milliseconds :: non_neg_integer()) -> non_neg_integer().
end_sessions(Pages, Within) ->
    [exit(Page, shutdown) || Page <- Pages],
    await_gone(Pages, Within),
    Monitors = [{Page, monitor(process, Page)} || Page <- Pages],
    [exit(Page, kill) || Page <- Pages],
    [receive {'DOWN', Monitor, process, Page, _} -> ok end || {Page, Monitor} <- Monitors],
    length(Pages).

applications() ->
    [Application || {Application, _, _} <- application:which_applications(?ASK_SUPERVISOR)].

application(Application) ->
    case application_controller:get_master(Application) of
        undefined ->
            [];
        Master ->
            case application_master:get_child(Master) of
                {Supervisor, _Module} when is_pid(Supervisor) -> endpoints(Supervisor);
                _ -> []
            end
    end.

endpoints(Supervisor) ->
    lists:flatmap(fun(Child) -> endpoint(Supervisor, Child) end, children(Supervisor)).

endpoint(Parent, {Id, Pid, supervisor, Modules}) ->
    case [Module || Module <- modules(Modules), erlang:function_exported(Module, '__sockets__', 0)] of
        [Module | _] -> [#endpoint{module = Module, pid = Pid, parent = Parent, child = child(Id, Pid)}];
        [] -> endpoints(Pid)
    end;
endpoint(_Parent, _Worker) ->
    [].

%% Children that were started one by one have no id.
child(undefined, Pid) -> Pid;
child(Id, _Pid) -> Id.

modules(dynamic) -> [];
modules(Modules) -> Modules.

%% Its living children; none of a supervisor that does not answer.
children(Supervisor) ->
    try
        [Child || {_, Pid, _, _} = Child <- gen_server:call(Supervisor, which_children, ?ASK_SUPERVISOR), is_pid(Pid)]
    catch
        exit:_ -> []
    end.

sockets(Endpoints) ->
    lists:flatmap(fun sockets_of/1, Endpoints).

sockets_of(#endpoint{pid = Pid}) ->
    {Connections, Others} = leaves(Pid, other, {[], []}),
    Channels = maps:from_keys(Others, []),
    [Connection || Connection <- Connections, is_socket(Connection, Channels)].

%% All processes below a supervisor that are none themselves, connections apart from others.
leaves(Supervisor, Kind, Found) ->
    lists:foldl(fun(Child, Acc) -> leaf(Child, Kind, Acc) end, Found, children(Supervisor)).

%% Cowboy's connections call themselves supervisors, so nothing is looked for below them.
leaf({_, Pid, _, _}, connection, {Connections, Others}) -> {[Pid | Connections], Others};
leaf({connection_sup, Pid, supervisor, _}, _Kind, Found) -> leaves(Pid, connection, Found);
leaf({_, Pid, supervisor, [ranch_conns_sup]}, _Kind, Found) -> leaves(Pid, connection, Found);
leaf({_, Pid, supervisor, _}, Kind, Found) -> leaves(Pid, Kind, Found);
leaf({_, Pid, worker, _}, _Kind, {Connections, Others}) -> {Connections, [Pid | Others]}.

is_socket(Connection, Channels) ->
    case process_info(Connection, [monitors, dictionary]) of
        [{monitors, Monitors}, {dictionary, Dictionary}] ->
            lists:any(fun(Monitored) -> is_channel(Monitored, Channels) end, Monitors) orelse is_labelled(Dictionary);
        undefined ->
            false
    end.

is_channel({process, Pid}, Channels) -> is_map_key(Pid, Channels);
is_channel(_Other, _Channels) -> false.

%% A Phoenix socket that has joined nothing yet, since Phoenix 1.8.
is_labelled(Dictionary) ->
    case lists:keyfind('$process_label', 1, Dictionary) of
        {_, {'Elixir.Phoenix.Socket', _Handler, _Id}} -> true;
        _ -> false
    end.

close_in_batches([], _Options) ->
    ok;
close_in_batches(Sockets, #{batch_size := infinity}) ->
    lists:foreach(fun drain/1, Sockets);
close_in_batches(Sockets, #{batch_size := Size, batch_interval := Interval, within := Within}) ->
    Batches = max(1, Within div max(1, Interval)),
    close_batch(Sockets, max(Size, (length(Sockets) + Batches - 1) div Batches), Interval).

close_batch(Sockets, Size, _Interval) when length(Sockets) =< Size ->
    lists:foreach(fun drain/1, Sockets);
close_batch(Sockets, Size, Interval) ->
    {Batch, Rest} = lists:split(Size, Sockets),
    lists:foreach(fun drain/1, Batch),
    timer:sleep(Interval),
    close_batch(Rest, Size, Interval).

drain(Socket) ->
    Socket ! socket_drain.

%% A connection that is torn down before its client has answered may lose the close frame.
await_gone(Sockets, Left) ->
    case lists:filter(fun is_process_alive/1, Sockets) of
        [_ | _] = Alive when Left > 0 ->
            timer:sleep(?POLL),
            await_gone(Alive, Left - ?POLL);
        _ ->
            ok
    end.

now_ms() ->
    erlang:monotonic_time(millisecond).
