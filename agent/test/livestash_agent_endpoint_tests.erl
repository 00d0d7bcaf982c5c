-module(livestash_agent_endpoint_tests).

-include_lib("eunit/include/eunit.hrl").

-export([start/2, stop/1, init/1, '__sockets__'/0]).
-export([tree/2, child/2, deaf/0]).
-export([serve/1]).

%% A tree as an application has it: an endpoint is a supervisor whose module, here this one, exports '__sockets__'/0.

'__sockets__'() -> [].

start(_Type, Tree) ->
    supervisor:start_link(?MODULE, Tree).

stop(_State) ->
    ok.

init({Strategy, Children}) ->
    {ok, {#{strategy => Strategy}, Children}}.

tree(Strategy, Children) ->
    supervisor:start_link(?MODULE, {Strategy, Children}).

supervisor(Id, Children) ->
    #{id => Id, start => {?MODULE, tree, [one_for_one, Children]}, type => supervisor, modules => [supervisor]}.

endpoint(Id, Children) ->
    (supervisor(Id, Children))#{modules => [?MODULE]}.

worker(Id, Role) ->
    #{id => Id, start => {?MODULE, child, [self(), Role]}, shutdown => infinity}.

%% A process that says who it is, and from then on does as its role is.
child(Test, Role) ->
    {ok, proc_lib:spawn_link(fun() -> role(Test, Role) end)}.

role(Test, channel) ->
    Test ! {channel, self()},
    idle(Test);
role(Test, {socket, Channel}) ->
    monitor(process, Channel),
    Test ! ready,
    idle(Test);
role(Test, labelled_socket) ->
    put('$process_label', {'Elixir.Phoenix.Socket', handler, nil}),
    Test ! ready,
    idle(Test);
role(Test, slow) ->
    process_flag(trap_exit, true),
    Test ! {slow, self()},
    receive
        finish -> ok
    end;
role(Test, plain) ->
    Test ! ready,
    idle(Test).

idle(Test) ->
    receive
        socket_drain -> Test ! {drained, self()}
    end.

%% Says that it is a supervisor, and answers no question.
deaf() ->
    {ok, proc_lib:spawn_link(fun() -> timer:sleep(infinity) end)}.

with_application(Children, Test) ->
    Keys = [{vsn, "1"}, {modules, []}, {applications, [kernel, stdlib]}, {mod, {?MODULE, {one_for_one, Children}}}],
    ok = application:load({application, fake, Keys}),
    ok = application:start(fake),
    try
        Test()
    after
        application:stop(fake),
        application:unload(fake)
    end.

no_endpoint_test() ->
    with_application([supervisor(a, []), worker(b, plain)], fun() ->
        ?assertEqual([], livestash_agent_endpoint:find()),
        ?assertEqual(0, close([], 1)),
        ?assertEqual([], livestash_agent_endpoint:stop([], 0))
    end).

all_endpoints_are_found_and_only_they_stop_test() ->
    Deaf = (supervisor(deaf, []))#{start => {?MODULE, deaf, []}, shutdown => brutal_kill},
    Dynamic = #{
        id => dynamic,
        start => {?MODULE, tree, [simple_one_for_one, [endpoint(none, [])]]},
        type => supervisor,
        modules => [supervisor]
    },
    Tree = [endpoint(one, []), Deaf, supervisor(a, [supervisor(b, [endpoint(two, []), worker(w, plain)])]), Dynamic],
    with_application(Tree, fun() ->
        {Top, _} = application_master:get_child(application_controller:get_master(fake)),
        {dynamic, Parent, _, _} = lists:keyfind(dynamic, 1, supervisor:which_children(Top)),
        {ok, Third} = supervisor:start_child(Parent, []),
        Endpoints = livestash_agent_endpoint:find(),
        ?assertEqual(3, length(Endpoints)),
        ?assertEqual([], livestash_agent_endpoint:stop(Endpoints, 10000)),
        ?assertEqual([], livestash_agent_endpoint:find()),
        ?assertNot(is_process_alive(Third)),
        ?assertMatch({one, undefined, _, _}, lists:keyfind(one, 1, supervisor:which_children(Top))),
        ?assertEqual(3, length([Pid || {_, Pid, _, _} <- supervisor:which_children(Top), is_pid(Pid)]))
    end).

endpoint_that_does_not_stop_in_time_test() ->
    with_application([endpoint(one, [worker(w, slow)])], fun() ->
        Slow = receive {slow, Pid} -> Pid end,
        Endpoints = livestash_agent_endpoint:find(),
        ?assertEqual([?MODULE], livestash_agent_endpoint:stop(Endpoints, 50)),
        Slow ! finish,
        ?assertEqual([], livestash_agent_endpoint:stop(Endpoints, 10000))
    end).

%% The way of ThousandIsland, and that of Ranch, whose connections call themselves supervisors.
sockets_test_() ->
    [
        {"below " ++ Name, fun() ->
            with_endpoint(Supervisor, fun(Endpoints, Connections) ->
                Channel = start(Connections, channels, channel),
                Other = start(Connections, channels, channel),
                Sockets = [start(Connections, Supervisor, {socket, Channel}) || _ <- lists:seq(1, 5)],
                Labelled = start(Connections, Supervisor, labelled_socket),
                Plain = start(Connections, Supervisor, plain),
                ?assertEqual(6, close(Endpoints, 2)),
                ?assertEqual(lists:sort([Labelled | Sockets]), drained()),
                ?assert(lists:all(fun is_process_alive/1, [Channel, Other, Plain]))
            end)
        end}
     || {Name, Supervisor} <- [{"ThousandIsland", connection_sup}, {"Ranch", ranch_conns_sup}]
    ].

batches_test_() ->
    [
        {"of the size that is asked for", fun() -> ?assert(close_ten(4, 200, 10000) >= 400) end},
        {"larger when there is no time for so many", fun() ->
            Took = close_ten(1, 1000, 2000),
            ?assert(Took >= 1000),
            ?assert(Took < 9000)
        end},
        {"all at once", fun() -> ?assert(close_ten(infinity, 5000, 100000) < 5000) end},
        {"no time at all", fun() -> ?assert(close_ten(1, 5000, 0) < 5000) end}
    ].

%% How many milliseconds it takes.
close_ten(Size, Interval, Within) ->
    Options = #{batch_size => Size, batch_interval => Interval, within => Within},
    with_endpoint(connection_sup, fun(Endpoints, Connections) ->
        Channel = start(Connections, channels, channel),
        [start(Connections, connection_sup, {socket, Channel}) || _ <- lists:seq(1, 10)],
        Began = erlang:monotonic_time(millisecond),
        ?assertEqual(10, livestash_agent_endpoint:close(Endpoints, Options)),
        Took = erlang:monotonic_time(millisecond) - Began,
        ?assertEqual(10, length(drained())),
        Took
    end).

close(Endpoints, Size) ->
    livestash_agent_endpoint:close(Endpoints, #{batch_size => Size, batch_interval => 1, within => 10000}).

%% Runs the test with the endpoints, and a map of the supervisors of connections and channels.
with_endpoint(Kind, Test) ->
    Tree = [supervisor(channels, []), supervisor(server, [supervisor(pool, [connections(Kind)])])],
    with_application([endpoint(one, Tree)], fun() ->
        Endpoints = livestash_agent_endpoint:find(),
        {Top, _} = application_master:get_child(application_controller:get_master(fake)),
        Endpoint = pid(one, Top),
        Connections = pid(Kind, pid(pool, pid(server, Endpoint))),
        Test(Endpoints, #{channels => pid(channels, Endpoint), Kind => Connections})
    end).

%% Starts such an application in the VM where it is called, with a number of open sockets and one child of the endpoint
%% that has the given role.
serve({Sockets, Role}) ->
    Self = self(),
    spawn(fun() ->
        with_endpoint(connection_sup, fun(_Endpoints, Supervisors) ->
            Channel = start(Supervisors, channels, channel),
            [start(Supervisors, connection_sup, {socket, Channel}) || _ <- lists:seq(1, Sockets)],
            {ok, _} = supervisor:start_child(maps:get(channels, Supervisors), worker(role, Role)),
            Self ! serving,
            timer:sleep(infinity)
        end)
    end),
    receive
        serving -> ok
    end.

connections(connection_sup) -> supervisor(connection_sup, []);
connections(ranch_conns_sup) -> (supervisor(ranch_conns_sup, []))#{modules => [ranch_conns_sup]}.

pid(Id, Supervisor) ->
    {Id, Pid, _, _} = lists:keyfind(Id, 1, supervisor:which_children(Supervisor)),
    Pid.

start(Supervisors, Kind, Role) ->
    Type = case Kind of ranch_conns_sup -> supervisor; _ -> worker end,
    Spec = (worker(make_ref(), Role))#{type => Type, restart => temporary, shutdown => brutal_kill},
    {ok, Pid} = supervisor:start_child(maps:get(Kind, Supervisors), Spec),
    receive
        ready -> Pid;
        {channel, Pid} -> Pid
    end.

drained() ->
    receive
        {drained, Pid} -> lists:sort([Pid | drained()])
    after 0 -> []
    end.
