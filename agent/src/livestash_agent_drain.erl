%% How does a node leave the fleet without losing a session? In this order, and each step for a limited time: it says
%% that it is not ready, waits until nobody is sent here any more, closes its sockets in batches, stops its web
%% endpoints, hands its stashes over to peers, reports, and stops.
-module(livestash_agent_drain).

-export([start/0]).

%% Milliseconds.
-define(ASK_PEER, 500).
-define(POLL, 200).
-define(RETRY, 1000).
%% How much longer than its parts a drain may take before the node stops anyway.
-define(SLACK, 5000).
%% The least that is kept of the time for closing for the endpoint's own stop.
-define(STOP, 2000).

-record(drain, {
    began :: integer(),
    %% Peers that were connected when the drain began: one that is gone since then has stopped.
    known :: [node()],
    sessions :: non_neg_integer()
}).

%% Starts the drain in a process that is independent of the agent, and stops the node after it, whatever becomes of it.
-spec start() -> pid().
start() ->
    spawn(fun guard/0).

guard() ->
    try
        watch(spawn_monitor(fun drain/0))
    after
        init:stop()
    end.

watch({Pid, Monitor}) ->
    receive
        {'DOWN', Monitor, process, Pid, normal} ->
            ok;
        {'DOWN', Monitor, process, Pid, Reason} ->
            logger:error("livestash agent: the drain failed, this node stops without the rest of it: ~tp", [Reason])
    after limit() ->
        logger:error("livestash agent: the drain took too long, this node stops without the rest of it.")
    end.

limit() ->
    Parts = [drain_endpoint_wait, drain_close_timeout, drain_handoff_timeout],
    lists:sum([livestash_agent_config:get(Part) || Part <- Parts]) + ?SLACK.

drain() ->
    Drain = begin_drain(),
    Alone = attempt(fun() -> await_endpoints(Drain) end, false),
    Closed = attempt(fun() -> close(Alone) end, 0),
    Result = attempt(fun() -> hand_over(Drain) end, nothing_known(Drain)),
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
    #{handed_over => 0, left => Sessions, reason => "The hand-over failed; the log says why."}.

begin_drain() ->
    livestash_agent_state:set_draining(waiting),
    livestash_agent_state:count(drains, 1),
    {Sessions, _Bytes} = attempt(fun livestash_agent_store:size/0, {0, 0}),
    Known = nodes(),
    logger:notice("livestash agent: SIGTERM, draining: ~b stashes on this node, ~b peers connected.", [
        Sessions, length(Known)
    ]),
    #drain{began = now_ms(), known = Known, sessions = Sessions}.

%% Waits until the pod is sent no new connections. Returns whether this node is alone: there is no peer that would take
%% its clients, so there is nothing to wait for.
await_endpoints(#drain{began = Began} = Drain) ->
    Alone = await_endpoints(Drain, Began + livestash_agent_config:get(drain_endpoint_wait)),
    logger:notice("livestash agent: waited ~b ms for this pod to be sent no new connections~ts.", [
        now_ms() - Began,
        case Alone of
            true -> ", and no longer, because no peer stays";
            false -> ""
        end
    ]),
    Alone.

await_endpoints(Drain, Deadline) ->
    Alone = is_alone(Drain),
    Left = Deadline - now_ms(),
    case Alone orelse Left =< 0 of
        true ->
            Alone;
        false ->
            timer:sleep(min(?POLL, Left)),
            await_endpoints(Drain, Deadline)
    end.

%% A peer that DNS names and that was not connected may well be serving: clients can go there.
is_alone(#drain{known = Known}) ->
    #{missing := Missing} = livestash_agent_mesh:peers(),
    Missing -- Known =:= [] andalso staying_peers() =:= [].

%% The connected nodes that are not draining. One without the agent, or that does not answer, is taken for one.
staying_peers() ->
    Questions = [{Peer, fun() -> erpc:call(Peer, livestash_agent_state, draining, []) end} || Peer <- nodes()],
    [Peer || {Peer, Answer} <- livestash_agent_tasks:run(Questions, ?ASK_PEER), Answer =/= {ok, true}].

close(Alone) ->
    livestash_agent_state:set_draining(closing),
    Began = now_ms(),
    Endpoints = livestash_agent_endpoint:find(),
    Timeout = livestash_agent_config:get(drain_close_timeout),
    Closed = livestash_agent_endpoint:close(Endpoints, #{
        batch_size => batch_size(Alone),
        batch_interval => livestash_agent_config:get(drain_batch_interval),
        within => max(0, Timeout - max(?STOP, Timeout div 4))
    }),
    livestash_agent_state:count(sockets_closed, Closed),
    logger:notice("livestash agent: closed ~b sockets in ~b ms.", [Closed, now_ms() - Began]),
    livestash_agent_state:set_draining(stopping),
    stop(Endpoints, max(0, Began + Timeout - now_ms())),
    Closed.

%% Batches protect those that take the clients.
batch_size(true) -> infinity;
batch_size(false) -> livestash_agent_config:get(drain_batch_size).

stop([], _Within) ->
    logger:notice("livestash agent: there is no web endpoint to stop.");
stop(Endpoints, Within) ->
    Began = now_ms(),
    case livestash_agent_endpoint:stop(Endpoints, Within) of
        [] ->
            logger:notice("livestash agent: stopped ~b web endpoints in ~b ms.", [length(Endpoints), now_ms() - Began]);
        Modules ->
            logger:warning("livestash agent: web endpoints that have not stopped in ~b ms: ~tp.", [Within, Modules])
    end.

hand_over(Drain) ->
    livestash_agent_state:set_draining(handing_over),
    Began = now_ms(),
    Adapter = livestash_agent_config:get(adapter),
    Tables = [Table || {Kind, Table} <- livestash_agent_store:tables(), Kind =:= Adapter],
    Within = livestash_agent_config:get(drain_handoff_timeout),
    #{handed_over := HandedOver, left := Left, reason := Reason} = Result = hand_over(Adapter, Tables, Within, Drain),
    livestash_agent_state:count(handoffs_failed, Left),
    logger:notice("livestash agent: handed ~b stashes over in ~b ms, ~b are lost with this node.~ts", [
        HandedOver, now_ms() - Began, Left, [[" ", Reason] || Reason =/= ""]
    ]),
    Result.

hand_over(ets, [], _Within, #drain{sessions = Sessions}) ->
    {_, Reason} = livestash_agent_store:ready(),
    #{handed_over => 0, left => Sessions, reason => Reason};
hand_over(ets, Tables, Within, Drain) ->
    hand_over_ets(Tables, now_ms() + Within, Drain, 0);
hand_over(mnesia, Tables, Within, _Drain) ->
    Left = await_copies(Tables, staying_peers(), now_ms() + Within),
    Reason =
        case Left of
            0 -> "";
            _ -> "No node that stays holds a loaded copy of the Mnesia table."
        end,
    #{handed_over => 0, left => Left, reason => Reason};
hand_over(_Adapter, _Tables, _Within, _Drain) ->
    #{handed_over => 0, left => 0, reason => ""}.

%% Peers that could not take rows may soon be able to: one that starts, or one that DNS names and that is not connected.
hand_over_ets(Tables, Deadline, Drain, Before) ->
    #{handed_over := HandedOver, left := Left} =
        Result = livestash_agent_handoff:hand_over(Tables, staying_peers(), max(0, Deadline - now_ms())),
    Total = Before + HandedOver,
    case Left > 0 andalso now_ms() < Deadline andalso not is_alone(Drain) of
        true ->
            timer:sleep(?RETRY),
            hand_over_ets(Tables, Deadline, Drain, Total);
        false ->
            Result#{handed_over := Total}
    end.

%% With Mnesia every node has every stash, unless this one has the only loaded copy: then whoever is loading one has to
%% be waited for. Returns how many stashes stop with this node.
await_copies(Tables, Peers, Deadline) ->
    Alone = [Table || Table <- Tables, livestash_agent_store:copies(Peers) =:= []],
    Loading = common(mnesia:system_info(running_db_nodes), Peers) =/= [],
    case Alone =/= [] andalso Loading andalso now_ms() < Deadline of
        true ->
            timer:sleep(?POLL),
            await_copies(Tables, Peers, Deadline);
        false ->
            lists:sum([mnesia:table_info(Table, size) || Table <- Alone])
    end.

common(Nodes, Others) ->
    [Node || Node <- Nodes, lists:member(Node, Others)].

finish(#drain{began = Began, sessions = Sessions}, Closed, Result) ->
    #{handed_over := HandedOver, left := Left, reason := Reason} = Result,
    Milliseconds = now_ms() - Began,
    livestash_agent_report:write(#{
        sessions_before => Sessions,
        sockets_closed => Closed,
        handed_off => HandedOver,
        not_handed_off => Left,
        reason => Reason,
        milliseconds => Milliseconds
    }),
    livestash_agent_state:set_draining(done),
    logger:notice("livestash agent: the drain took ~b ms; this node stops.", [Milliseconds]).

now_ms() ->
    erlang:monotonic_time(millisecond).
