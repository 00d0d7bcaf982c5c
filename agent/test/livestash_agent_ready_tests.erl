%% When does a pod take traffic?
-module(livestash_agent_ready_tests).

-include_lib("eunit/include/eunit.hrl").

-import(livestash_agent_fixture, [start/1, stop/1, call/2, call/4, eventually/1]).
-import(livestash_agent_fixture, [request/2, body/1, free_port/0, listen/1]).

%% Milliseconds within which the agent answers.
-define(PROMISED, 500).

rules_test_() ->
    Ready = #{
        accepting => {4000, true},
        mesh => {true, ""},
        store => {true, ""},
        store_required => false,
        grace_over => false
    },
    Closed = {4000, false},
    No = {false, "no"},
    [
        {Name, ?_assertEqual(Expected, element(1, livestash_agent_ready:decide(maps:merge(Ready, Facts))))}
     || {Name, Expected, Facts} <- [
            {"all is well", true, #{}},
            {"an application without a port", true, #{accepting => undefined}},
            {"the port is closed", false, #{accepting => Closed}},
            {"the port is closed, whatever the grace", false, #{accepting => Closed, grace_over => true}},
            {"a peer is missing", false, #{mesh => No}},
            {"a peer is missing for too long", true, #{mesh => No, grace_over => true}},
            {"no store", false, #{store => No}},
            {"no store for too long", true, #{store => No, grace_over => true}},
            {"no store that is required, whatever the grace", false, #{
                store => No, store_required => true, grace_over => true
            }},
            {"the store that is required", true, #{store_required => true}}
        ]
    ].

live_test_() ->
    [{timeout, 60, Test} || Test <- [
        fun port_is_asked/0,
        fun table_is_awaited/0,
        fun grace_ends_the_wait/0,
        fun redis_is_awaited_without_limit_and_then_never_again/0,
        fun draining_is_told_at_once/0,
        fun frozen_peer_delays_no_answer/0,
        fun nothing_that_hangs_delays_an_answer/0
    ]].

port_is_asked() ->
    Port = free_port(),
    Vm = start(#{environment => #{"PORT" => integer_to_list(Port)}}),
    Closed = io_lib:format("The application's port ~b accepts no connection.~n", [Port]),
    eventually(fun() -> readiness(Vm) =:= {503, iolist_to_binary(Closed)} end),
    Listener = listen(Port),
    eventually(fun() -> readiness(Vm) =:= {200, <<"ready\n">>} end),
    exit(Listener, kill),
    eventually(fun() -> element(1, readiness(Vm)) =:= 503 end),
    stop(Vm).

table_is_awaited() ->
    Vm = start(#{environment => #{"LIVE_STASH_ADAPTER" => "ets"}}),
    eventually(fun() ->
        readiness(Vm) =:= {503, <<"LiveStash's ETS table live_stash_server_storage does not exist.\n">>}
    end),
    ok = call(Vm, fun make_table/0),
    eventually(fun() -> element(1, readiness(Vm)) =:= 200 end),
    stop(Vm).

grace_ends_the_wait() ->
    Vm = start(#{environment => #{"LIVE_STASH_ADAPTER" => "ets", "LIVESTASH_READY_GRACE_MS" => "0"}}),
    eventually(fun() -> element(1, readiness(Vm)) =:= 200 end),
    stop(Vm).

redis_is_awaited_without_limit_and_then_never_again() ->
    Port = free_port(),
    Url = lists:concat(["redis://127.0.0.1:", Port]),
    Environment = #{
        "LIVE_STASH_ADAPTER" => "redis", "LIVE_STASH_REDIS_URL" => Url, "LIVESTASH_READY_GRACE_MS" => "0"
    },
    Vm = start(#{environment => Environment}),
    Refused = lists:concat(["Redis at 127.0.0.1:", Port, " refuses connections: start it, or correct host and port."]),
    eventually(fun() -> readiness(Vm) =:= {503, iolist_to_binary([Refused, $\n])} end),
    Redis = livestash_agent_redis_server:start(Port, []),
    eventually(fun() -> readiness(Vm) =:= {200, <<"ready\n">>} end),
    ?assertEqual({true, <<>>}, store(Vm)),
    livestash_agent_redis_server:stop(Redis),
    eventually(fun() -> store(Vm) =:= {false, list_to_binary(Refused)} end),
    %% The answer of a second ago is given again.
    timer:sleep(1500),
    ?assertEqual({200, <<"ready\n">>}, readiness(Vm)),
    %% Nor when what checks Redis, and what answers, are new.
    [call(Vm, fun() -> exit(whereis(Name), kill) end) || Name <- [livestash_agent_redis, livestash_agent_ready]],
    eventually(fun() -> store(Vm) =:= {false, list_to_binary(Refused)} end),
    ?assertEqual({200, <<"ready\n">>}, readiness(Vm)),
    stop(Vm).

draining_is_told_at_once() ->
    Vm = start(#{}),
    eventually(fun() -> element(1, readiness(Vm)) =:= 200 end),
    ok = call(Vm, livestash_agent_state, set_draining, [waiting]),
    ?assertEqual({503, <<"This pod is being drained: waiting.\n">>}, readiness(Vm)),
    stop(Vm).

%% A peer without CPU that this node waits for: it may hold what Mnesia here lacks.
frozen_peer_delays_no_answer() ->
    Peer = #{node := Node} = start(#{}),
    [Name, Host] = string:split(atom_to_list(Node), "@"),
    livestash_agent_dns:with_dns([Host], Name, fun(Vm, _Dns) ->
        NotLoaded = {503, <<"This node holds no loaded copy of LiveStash's Mnesia table.\n">>},
        eventually(fun() -> readiness(Vm) =:= NotLoaded end),
        frozen(Peer, fun() ->
            [?assert(quickest(Vm, Path) < ?PROMISED) || Path <- ["/readyz", "/status"]],
            ?assertEqual(NotLoaded, readiness(Vm))
        end)
    end, #{environment => #{"LIVE_STASH_ADAPTER" => "mnesia", "LIVESTASH_READY_GRACE_MS" => "600000"}}),
    stop(Peer).

%% Processes of the agent that answers are put together from.
nothing_that_hangs_delays_an_answer() ->
    Vm = start(#{environment => #{"LIVE_STASH_ADAPTER" => "ets"}}),
    ok = call(Vm, fun make_table/0),
    eventually(fun() -> element(1, readiness(Vm)) =:= 200 end),
    [
        begin
            ok = call(Vm, sys, suspend, [Name]),
            [?assert(quickest(Vm, Path) < ?PROMISED) || Path <- ["/readyz", "/status"]],
            ok = call(Vm, sys, resume, [Name])
        end
     || Name <- [livestash_agent_mesh, livestash_agent_reunion, livestash_agent_ready]
    ],
    eventually(fun() -> element(1, readiness(Vm)) =:= 200 end),
    stop(Vm).

frozen(Vm, Test) ->
    Pid = call(Vm, os, getpid, []),
    "" = os:cmd("kill -STOP " ++ Pid),
    try
        Test()
    after
        "" = os:cmd("kill -CONT " ++ Pid)
    end.

%% Milliseconds of the quickest of a few answers: a busy machine delays some, what waits for a peer delays all. Between two
%% of them what was found is old enough to be looked for again.
quickest(Vm, Path) ->
    lists:min([
        begin
            timer:sleep(1100),
            {Microseconds, Answer} = timer:tc(fun() -> request(Vm, Path) end),
            ?assert(is_binary(Answer)),
            Microseconds div 1000
        end
     || _ <- lists:seq(1, 3)
    ]).

make_table() ->
    Table = ets:new(live_stash_server_storage, [named_table, public, {keypos, 2}]),
    true = ets:give_away(Table, whereis(init), none),
    ok.

store(Vm) ->
    {match, [Ready, Reason]} = re:run(
        request(Vm, "/status"),
        "\"store\":{\"ready\":(true|false),\"reason\":\"([^\"]*)\"}",
        [{capture, all_but_first, binary}]
    ),
    {binary_to_atom(Ready), Reason}.

readiness(Vm) ->
    case request(Vm, "/readyz") of
        <<"HTTP/1.1 ", Status:3/binary, _/binary>> = Answer -> {binary_to_integer(Status), body(Answer)};
        Other -> {0, Other}
    end.
