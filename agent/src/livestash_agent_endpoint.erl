%% How are this node's web endpoints stopped without a herd of reconnects? Finds them, closes their sockets and
%% long-polling sessions in batches, and then stops what serves in them, and nothing else: stashes, PubSub and the cluster go on,
%% and so does the endpoint's configuration. Processes of the application that broadcast through an endpoint need it, would crash
%% without it again and again, and take the application and its stashes with them.
%%
%% An endpoint is a process that is registered by the name of a module that exports '__sockets__'/0, as all of Phoenix's
%% are, whatever application, supervisor or wrapper they are in.
-module(livestash_agent_endpoint).

-export([find/0, close/2, stop/2, end_sessions/2]).

-export_type([endpoint/0]).

-record(endpoint, {
    module :: module(),
    pid :: pid()
}).

-opaque endpoint() :: #endpoint{}.

%% Milliseconds.
-define(LOOK, 3000).
%% A connection that is torn down before its client has answered may lose the close frame.
-define(LEAVE, 1000).
%% How long a page may take for an event that it is in the middle of.
-define(ANSWER, 5000).
-define(LOOK_AGAIN, 20).
%% phoenix.js comes back after 10 ms, and then 50.
-define(COME_BACK, 100).
-define(KILL, 1000).
%% How often is looked for those who came late. Nothing is accepted any more, so they are few.
-define(SWEEPS, 5).

%% The endpoints of all applications.
-spec find() -> [endpoint()].
find() ->
    [#endpoint{module = Name, pid = Pid} || Name <- registered(), is_endpoint(Name), Pid <- [whereis(Name)], is_pid(Pid)].

is_endpoint(Name) ->
    erlang:function_exported(Name, '__sockets__', 0).

%% Lets nobody in any more, and asks all sockets and long-polling sessions to close, batch_size of them every
%% batch_interval milliseconds, and more at once where that would take longer than `within` milliseconds. Whose page is in
%% the middle of an event is asked after the answer, or when `within` is over, at the latest 5 s after the others. So is every
%% session, whose next event may be on its way. Returns how many were asked.
-spec close([endpoint()], #{
    batch_size := pos_integer() | infinity, batch_interval := non_neg_integer(), within := non_neg_integer()
}) -> non_neg_integer().
close([], _Options) ->
    0;
close(Endpoints, Options) ->
    Processes = processes(Endpoints),
    livestash_agent_transport:refuse(Processes),
    livestash_agent_transport:dismiss(Processes),
    Transports = transports(Processes),
    Deadline = livestash_agent_clock:ms() + maps:get(within, Options),
    Size = batch_size(length(Transports), Options),
    Sessions = [Session || {session, Session} <- Transports],
    leave_calmly(Sessions, Size, Deadline, Options),
    close_in_batches([Socket || {socket, _} = Socket <- Transports], Size, Deadline, Options),
    _ = await_ended(Sessions, Deadline),
    Late = sweep(Endpoints, Transports, ?SWEEPS),
    length(Transports) + length(Late).

%% Stops the endpoints' children and nothing else, of all endpoints at once. Returns the modules of the endpoints that have not
%% stopped in time: they were ended by force, as a whole. Either way none that could write a stash lives below one when this returns.
-spec stop([endpoint()], Milliseconds :: non_neg_integer()) -> [module()].
stop([], _Within) ->
    [];
stop(Endpoints, Within) ->
    Deadline = livestash_agent_clock:ms() + Within,
    Before = processes(Endpoints),
    livestash_agent_transport:cut_polls(Before),
    [exit(Session, shutdown) || {session, Session} <- livestash_agent_transport:sessions()],
    Stops = [{Endpoint, fun() -> stop_children(Endpoint) end} || Endpoint <- Endpoints],
    Stopped = [Endpoint || {Endpoint, {ok, _}} <- livestash_agent_tasks:run(Stops, Within - Within div 4)],
    Busy = Endpoints -- Stopped,
    [spawn(fun() -> terminate(Endpoint) end) || Endpoint <- Busy],
    Left = await_ended([Pid || #endpoint{pid = Pid} <- Busy], Deadline),
    Late = [Endpoint || #endpoint{pid = Pid} = Endpoint <- Busy, lists:member(Pid, Left)],
    Kept = lists:flatmap(fun kept/1, Stopped),
    kill(livestash_agent_transport:by_worth(Before ++ processes(Late)) -- Kept),
    [Module || #endpoint{module = Module} <- Late].

stop_children(#endpoint{pid = Pid} = Endpoint) ->
    Kept = kept(Endpoint),
    [ok = supervisor:terminate_child(Pid, Id) || {Id, Child, _, _} <- supervisor:which_children(Pid), not lists:member(Child, Kept)].

%% The supervisor, and who owns the table of the configuration, which has the endpoint's name.
kept(#endpoint{module = Module, pid = Pid}) ->
    [Pid, ets:info(Module, owner)].

%% A child of the endpoint, or its parent, may be busy for long. The parent then comes to this before it hears of the endpoint's end
%% by force, and does not start it again.
terminate(#endpoint{module = Module, pid = Pid}) ->
    try
        Parent = livestash_agent_transport:parent(Pid),
        %% By its name, unless the application gave it another id; by its pid, where children were started one by one.
        terminate_child(Parent, Module) orelse terminate_child(Parent, Pid) orelse
            [terminate_child(Parent, Id) || {Id, Child, _, _} <- supervisor:which_children(Parent), Child =:= Pid]
    catch
        %% The endpoint, or its parent, has stopped by itself.
        _:_ -> true
    end.

terminate_child(Parent, Id) ->
    supervisor:terminate_child(Parent, Id) =:= ok.

%% At once: who could write first, then supervisors, each before those below it, so that it starts none of them again.
kill(Pids) ->
    case lists:filter(fun is_process_alive/1, lists:uniq(Pids)) of
        [] ->
            ok;
        Alive ->
            lists:foreach(fun(Pid) -> exit(Pid, kill) end, Alive),
            _ = await_ended(Alive, livestash_agent_clock:ms() + ?KILL),
            logger:warning("livestash agent: ended ~b processes of web endpoints by force.", [length(Alive)])
    end.

%% Ends these processes, such as pages that go on although their endpoint has stopped: each is asked to shut down and,
%% when the time is over, killed. Its client's connection is closed before, so that it comes back elsewhere at once.
%% Returns how many of them have ended.
-spec end_sessions([pid()], Milliseconds :: non_neg_integer()) -> non_neg_integer().
end_sessions(Pids, Within) ->
    Deadline = livestash_agent_clock:ms() + Within,
    Transports = lists:usort(lists:flatmap(fun livestash_agent_transport:transports/1, Pids)),
    lists:foreach(fun livestash_agent_transport:drain/1, Transports),
    lists:foreach(fun(Pid) -> exit(Pid, shutdown) end, Pids),
    Left = await_ended(Pids, Deadline),
    lists:foreach(fun(Pid) -> exit(Pid, kill) end, Left),
    length(Pids) - length(await_ended(Left, livestash_agent_clock:ms() + ?KILL)).

%% The endpoints' processes; none of an endpoint where that takes too long.
processes(Endpoints) ->
    Looks = [{Pid, fun() -> livestash_agent_transport:tree(Pid) end} || #endpoint{pid = Pid} <- Endpoints],
    lists:append([Processes || {_Pid, {ok, Processes}} <- livestash_agent_tasks:run(Looks, ?LOOK)]).

transports(Processes) ->
    livestash_agent_transport:sessions() ++ livestash_agent_transport:sockets(Processes).

%% Whoever came while the others were closed: through a connection that had just been accepted, or that was in the middle
%% of a request.
sweep(_Endpoints, _Known, 0) ->
    [];
sweep(Endpoints, Known, Sweeps) ->
    _ = await_ended([Pid || {_Kind, Pid} <- Known], livestash_agent_clock:ms() + ?LEAVE),
    timer:sleep(?COME_BACK),
    Processes = processes(Endpoints),
    livestash_agent_transport:dismiss(Processes),
    case transports(Processes) -- Known of
        [] ->
            [];
        New ->
            lists:foreach(fun livestash_agent_transport:drain/1, New),
            New ++ sweep(Endpoints, New ++ Known, Sweeps - 1)
    end.

%% Those that have no answer in that time are not all ended at once either.
leave_calmly(Sessions, Size, Deadline, #{batch_interval := Interval}) ->
    Leave = fun({Number, Session}) ->
        Latest = ?ANSWER + (Number div max(1, Size)) * Interval,
        livestash_agent_transport:drain_calmly(Session, min(Latest, livestash_agent_clock:left(Deadline)))
    end,
    lists:foreach(Leave, lists:enumerate(0, Sessions)).

close_in_batches(Sockets, Size, Deadline, #{batch_interval := Interval}) ->
    Busy = close_batches(Sockets, Size, Interval),
    close_answered(Busy, min(Deadline, livestash_agent_clock:ms() + ?ANSWER)).

batch_size(Count, #{batch_size := infinity}) ->
    Count;
batch_size(Count, #{batch_size := Size, batch_interval := Interval, within := Within}) ->
    Batches = max(1, Within div max(1, Interval)),
    max(Size, (Count + Batches - 1) div Batches).

close_batches(Transports, Size, _Interval) when length(Transports) =< Size ->
    close_batch(Transports);
close_batches(Transports, Size, Interval) ->
    {Batch, Rest} = lists:split(Size, Transports),
    Busy = close_batch(Batch),
    timer:sleep(Interval),
    Busy ++ close_batches(Rest, Size, Interval).

%% Returns those whose clients wait for an answer: they are not asked yet. A visible tab would come back at once without it. A hidden
%% one does not come back before it is shown, and LiveView loads a page anew, without its state, that has waited for 30 s.
%% Each is asked as soon as it has been looked at: what comes in between is lost.
close_batch(Transports) ->
    [Transport || Transport <- Transports, not close_idle(Transport)].

%% Whether it was asked.
close_idle(Transport) ->
    case livestash_agent_transport:answers(Transport) of
        true ->
            false;
        false ->
            ok = livestash_agent_transport:drain(Transport),
            true
    end.

close_answered([], _Deadline) ->
    ok;
close_answered(Busy, Deadline) ->
    case livestash_agent_clock:left(Deadline) of
        0 ->
            lists:foreach(fun livestash_agent_transport:drain/1, Busy);
        Left ->
            timer:sleep(min(?LOOK_AGAIN, Left)),
            close_answered(close_batch(Busy), Deadline)
    end.

%% Those that live on at the deadline.
await_ended(Pids, Deadline) ->
    Monitors = [{Pid, monitor(process, Pid)} || Pid <- Pids],
    [Pid || {Pid, Monitor} <- Monitors, not ended(Monitor, Deadline)].

ended(Monitor, Deadline) ->
    receive
        {'DOWN', Monitor, process, _Pid, _Reason} -> true
    after livestash_agent_clock:left(Deadline) ->
        demonitor(Monitor, [flush]),
        false
    end.
