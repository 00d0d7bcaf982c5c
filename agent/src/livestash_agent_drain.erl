%% How does a node leave the fleet without losing a session? In this order, and each step for a limited time: it says
%% that it is not ready, waits until nobody is sent here any more, closes its sockets in batches, stops its web
%% endpoints, hands its stashes over to peers, reports, and stops. When all others stop as well, one of them stays for
%% a while: see livestash_agent_succession.
-module(livestash_agent_drain).

-export([start/0, run/0]).

%% Milliseconds.
-define(POLL, 200).
-define(RETRY, 1000).
-define(WAIT_FOR_POD, 500).
%% How much longer than its parts a drain may take before the node stops anyway.
-define(SLACK, 5000).
%% The least that is kept of the time for closing for the endpoint's own stop.
-define(STOP, 2000).
%% What is kept of a drain's time for what comes after waiting for a pod: this, and a millisecond for so many stashes.
-define(RESERVE, 5000).
-define(STASHES_PER_MS, 4).
%% The last moment: what is kept of a drain's time, with a millisecond for so many stashes, for handing over to nodes that are no good choice.
-define(LAST, 2000).
%% For the clients to find the pod that has come back.
-define(FOUND, 1000).

-record(drain, {
    began :: integer(),
    %% Nodes that were connected when the drain began.
    known :: [node()],
    sessions :: non_neg_integer()
}).

%% Starts the drain in a process that is independent of the agent, and stops the node after it, whatever becomes of it.
-spec start() -> pid().
start() ->
    spawn(fun() ->
        try
            run()
        after
            init:stop()
        end
    end).

%% Drains, once in the life of this node, and returns when that is over. Whoever comes second waits for the first.
-spec run() -> ok.
run() ->
    {Pid, Monitor} = spawn_monitor(fun guard/0),
    receive
        {'DOWN', Monitor, process, Pid, _Reason} -> ok
    end.

%% A name is taken by one process at a time.
guard() ->
    try register(?MODULE, self()) of
        true -> livestash_agent_state:phase() =:= done orelse watch(spawn_monitor(fun drain/0))
    catch
        error:badarg -> await(monitor(process, ?MODULE))
    end.

await(Monitor) ->
    receive
        {'DOWN', Monitor, process, _First, _Reason} -> ok
    end.

watch({Pid, Monitor}) ->
    receive
        {'DOWN', Monitor, process, Pid, normal} ->
            ok;
        {'DOWN', Monitor, process, Pid, Reason} ->
            logger:error("livestash agent: the drain failed, this node stops without the rest of it: ~tp", [Reason])
    after limit() + ?SLACK ->
        logger:error("livestash agent: the drain took too long, this node stops without the rest of it.")
    end,
    livestash_agent_state:set_draining(done).

limit() ->
    Parts = [drain_endpoint_wait, drain_close_timeout, drain_handoff_timeout],
    lists:sum([livestash_agent_config:get(Part) || Part <- Parts]).

drain() ->
    Drain = begin_drain(),
    Alone = attempt(fun() -> await_endpoints(Drain) end, false),
    {Closed, Keep} = attempt(fun() -> close(Alone, Drain) end, {0, none}),
    Result = attempt(fun() -> hand_over(Keep, Drain) end, nothing_known(Drain)),
    finish(Drain, Closed, Result).

%% A step that fails must not keep the next ones from being done.
attempt(Step, Otherwise) ->
    try
        Step()
    catch
        Class:Reason:Stack ->
            logger:error("livestash agent: a step of the drain failed: ~tp", [{Class, Reason, Stack}]),
            Otherwise
    end.

nothing_known(#drain{sessions = Sessions}) ->
    result(Sessions, "The hand-over failed; the log says why.").

result(Left, Reason) ->
    livestash_agent_handoff:nothing_moved(Left, Reason).

begin_drain() ->
    livestash_agent_state:set_draining(waiting),
    livestash_agent_state:count(drains, 1),
    {Sessions, _Bytes} = attempt(fun livestash_agent_store:size/0, {0, 0}),
    Known = nodes(),
    ok = livestash_agent_shadow:leave(),
    ok = livestash_agent_reunion:leave(),
    logger:notice("livestash agent: draining: ~b stashes on this node, ~b peers connected.", [Sessions, length(Known)]),
    #drain{began = livestash_agent_clock:ms(), known = Known, sessions = Sessions}.

%% Waits until the pod is sent no new connections. Returns whether nobody is there who would take its clients, so that
%% there is nothing to wait for.
await_endpoints(#drain{began = Began} = Drain) ->
    Alone = await_endpoints(role(users), Began + livestash_agent_config:get(drain_endpoint_wait), Drain),
    livestash_agent_state:set_draining(waiting),
    logger:notice("livestash agent: waited ~b ms for this pod to be sent no new connections~ts.", [
        livestash_agent_clock:ms() - Began,
        case Alone of
            true -> ", and no longer, because no peer stays";
            false -> ""
        end
    ]),
    Alone.

await_endpoints({_, _}, Deadline, Drain) ->
    await_deadline(Deadline, Drain);
await_endpoints(Role, Deadline, Drain) ->
    case {may_wait_for_pod(Drain), Role} of
        {true, _} -> keep(Drain);
        {false, wait} -> await_deadline(Deadline, Drain);
        {false, _} -> true
    end.

await_deadline(Deadline, Drain) ->
    case livestash_agent_clock:left(Deadline) of
        0 ->
            false;
        Left ->
            timer:sleep(min(?POLL, Left)),
            await_endpoints(role(users), Deadline, Drain)
    end.

role(What) ->
    livestash_agent_succession:role(What).

%% Keeps its users, and the stashes of the others, until a pod is there that stays. This one is ready again meanwhile: where
%% no pod stays, Kubernetes sends clients to those that stop and are ready.
keep(Drain) ->
    livestash_agent_state:set_draining(keeping),
    timer:sleep(?WAIT_FOR_POD),
    await_endpoints(role(users), livestash_agent_clock:ms() + ?FOUND, Drain).

may_wait_for_pod(#drain{known = Known} = Drain) ->
    livestash_agent_clock:ms() < keep_deadline(Drain) andalso livestash_agent_succession:may_come_back(Known).

keep_deadline(#drain{began = Began}) ->
    {Stashes, _Bytes} = livestash_agent_store:size(),
    Began + limit() - ?RESERVE - ?LAST - Stashes div ?STASHES_PER_MS.

close(Alone, Drain) ->
    livestash_agent_state:set_draining(closing),
    Began = livestash_agent_clock:ms(),
    Endpoints = livestash_agent_endpoint:find(),
    Pages = livestash_agent_keep:pages([Table || {_Kind, Table} <- livestash_agent_store:tables()]),
    Timeout = max(2 * ?STOP, min(livestash_agent_config:get(drain_close_timeout), time_left(Drain) - ?RESERVE)),
    Closed = livestash_agent_endpoint:close(Endpoints, #{
        batch_size => batch_size(Alone),
        batch_interval => livestash_agent_config:get(drain_batch_interval),
        within => max(0, Timeout - max(?STOP, Timeout div 4))
    }),
    livestash_agent_state:count(sockets_closed, Closed),
    logger:notice("livestash agent: closed ~b sockets in ~b ms.", [Closed, livestash_agent_clock:ms() - Began]),
    livestash_agent_state:set_draining(stopping),
    stop(Endpoints, livestash_agent_clock:left(Began + Timeout)),
    {Closed, livestash_agent_keep:keep(Pages)}.

time_left(#drain{began = Began}) ->
    Began + limit() - livestash_agent_clock:ms().

%% Batches protect those that take the clients.
batch_size(true) -> infinity;
batch_size(false) -> livestash_agent_config:get(drain_batch_size).

stop([], _Within) ->
    logger:notice("livestash agent: there is no web endpoint to stop.");
stop(Endpoints, Within) ->
    Began = livestash_agent_clock:ms(),
    case livestash_agent_endpoint:stop(Endpoints, Within) of
        [] ->
            logger:notice("livestash agent: stopped ~b web endpoints in ~b ms.", [
                length(Endpoints), livestash_agent_clock:ms() - Began
            ]);
        Modules ->
            logger:warning("livestash agent: web endpoints that have not stopped in ~b ms: ~tp.", [Within, Modules])
    end.

%% Whatever the adapter is called: an application may have several.
hand_over(Keep, Drain) ->
    livestash_agent_state:set_draining(handing_over),
    Began = livestash_agent_clock:ms(),
    Deadline = Began + max(0, min(livestash_agent_config:get(drain_handoff_timeout), time_left(Drain))),
    _ = livestash_agent_config:get(adapter) =:= redis andalso livestash_agent_pages:raise(Keep, Deadline),
    Results = [hand_over(Kind, Table, Keep, Deadline, Drain) || {Kind, Table} <- livestash_agent_store:tables()],
    ok = livestash_agent_reunion:handed_over(),
    #{handed_over := HandedOver, left := Left, reason := Reason} = Result = sum(Results, missing(Drain)),
    livestash_agent_state:count(handoffs_failed, Left),
    logger:notice("livestash agent: handed ~b stashes over in ~b ms, ~b are lost with this node.~ts", [
        HandedOver, livestash_agent_clock:ms() - Began, Left, [[" ", Reason] || Reason =/= ""]
    ]),
    Result.

%% What there is to say when the store that the fleet uses is not there.
missing(#drain{sessions = Sessions}) ->
    case livestash_agent_store:ready() of
        {true, _} -> result(0, "");
        {false, Reason} -> result(Sessions, lists:flatten(Reason))
    end.

sum([], Missing) -> Missing;
sum(Results, _Missing) -> lists:foldl(fun livestash_agent_handoff:add/2, result(0, ""), Results).

hand_over(ets, Table, Keep, Deadline, Drain) ->
    hand_over_ets(role(ets), Table, Keep, Deadline, Drain, result(0, ""));
hand_over(mnesia, Table, Keep, Deadline, Drain) ->
    case await_copy(role(mnesia), Table, Deadline, Drain) of
        [] ->
            result(mnesia:table_info(Table, size), "No node that stays holds a loaded copy of the Mnesia table.");
        Copies ->
            %% First what only this node knows: more time for the rest may take all that is left.
            Bequeathed = bequeathed(livestash_agent_reunion:bequeath(Copies, Deadline)),
            Raised = livestash_agent_keep:raise(Table, Keep, Deadline),
            logger:notice("livestash agent: ~b stashes of sockets that were closed are kept for longer.", [Raised]),
            Bequeathed
    end.

bequeathed(0) -> result(0, "");
bequeathed(Left) -> result(Left, "No node has taken over what was stashed here during a network split.").

%% Peers that could not take rows may soon be able to: one that starts, or one that DNS names and that is not connected.
hand_over_ets({stay, Peers}, Table, Keep, Deadline, Drain, Before) ->
    hand_over_to(Peers, Table, Keep, Deadline, Drain, Before);
hand_over_ets({follow, Keeper}, Table, Keep, Deadline, Drain, Before) ->
    hand_over_to([Keeper], Table, Keep, Deadline, Drain, Before);
hand_over_ets(wait, Table, Keep, Deadline, Drain, Before) ->
    case last_takers(Table, Deadline) of
        [] -> await_takers(wait, Table, Keep, Deadline, Drain, Before);
        Peers -> hand_over_to(Peers, Table, Keep, Deadline, Drain, Before)
    end;
hand_over_ets(Role, Table, Keep, Deadline, Drain, Before) ->
    await_takers(Role, Table, Keep, Deadline, Drain, Before).

last_takers(Table, Deadline) ->
    Stashes = ets:info(Table, size),
    case is_integer(Stashes) andalso livestash_agent_clock:left(Deadline) =< ?LAST + Stashes div ?STASHES_PER_MS of
        true -> livestash_agent_succession:last_resort(ets);
        false -> []
    end.

await_takers(Role, Table, Keep, Deadline, Drain, Before) ->
    case waits(Role, Table, Deadline, Drain) of
        true ->
            hand_over_ets(role(ets), Table, Keep, Deadline, Drain, Before);
        false ->
            livestash_agent_handoff:add(Before, nobody(ets:info(Table, size)))
    end.

nobody(Size) when is_integer(Size), Size > 0 ->
    result(Size, "There was no other node that takes stashes.");
nobody(_Size) ->
    result(0, "").

hand_over_to(Peers, Table, Keep, Deadline, Drain, Before) ->
    livestash_agent_state:set_draining(handing_over),
    #{left := Left} = Result = livestash_agent_handoff:hand_over(Table, Peers, livestash_agent_clock:left(Deadline), Keep),
    case Left > 0 andalso livestash_agent_clock:left(Deadline) > 0 of
        true ->
            timer:sleep(?RETRY),
            %% What is left now is counted when it is tried again.
            Moved = livestash_agent_handoff:add(Before, Result#{left := 0, reason := ""}),
            hand_over_ets(role(ets), Table, Keep, Deadline, Drain, Moved);
        false ->
            livestash_agent_handoff:add(Before, Result)
    end.

%% Whether there is something to wait for, after a moment of waiting. A node that waits for a pod takes what others have.
waits(Role, Table, Deadline, #drain{known = Known}) ->
    Waits =
        ets:info(Table, size) > 0 andalso livestash_agent_clock:left(Deadline) > 0 andalso
            (Role =:= wait orelse livestash_agent_succession:may_come_back(Known)),
    [livestash_agent_state:set_draining(keeping) || Waits, Role =/= wait],
    [timer:sleep(?WAIT_FOR_POD) || Waits],
    Waits.

%% With Mnesia every node has every stash, unless this one has the only loaded copy: then whoever is loading one has to
%% be waited for. Returns the others that have one.
await_copy(Role, Table, Deadline, Drain) ->
    Copies =
        case Role of
            {stay, Peers} -> livestash_agent_store:copies(Peers);
            {follow, Keeper} -> livestash_agent_store:copies([Keeper]);
            _ -> []
        end,
    case Copies =/= [] orelse not waits(Role, Table, Deadline, Drain) of
        true -> Copies;
        false -> await_copy(role(mnesia), Table, Deadline, Drain)
    end.

finish(#drain{began = Began, sessions = Sessions}, Closed, Result) ->
    #{handed_over := HandedOver, other_version := OtherVersion, left := Left, reason := Reason} = Result,
    _ = Left =:= 0 andalso attempt(fun livestash_agent_shadow:goodbye/0, ok),
    Milliseconds = livestash_agent_clock:ms() - Began,
    livestash_agent_report:write(#{
        sessions_before => Sessions,
        sockets_closed => Closed,
        handed_off => HandedOver,
        other_version => OtherVersion,
        not_handed_off => Left,
        reason => Reason,
        milliseconds => Milliseconds
    }),
    livestash_agent_state:set_draining(done),
    logger:notice("livestash agent: the drain took ~b ms; this node stops.", [Milliseconds]).
