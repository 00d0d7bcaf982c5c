-module(livestash_agent_endpoint_tests).

-include_lib("eunit/include/eunit.hrl").

-export([start/2, stop/1, init/1, '__sockets__'/0]).
-export([tree/3, child/2, deaf/0]).
-export([handle_call/3, handle_cast/2, handle_info/2]).
-export([serve/1]).

%% Seconds for a test: EUnit's five are not enough for a busy machine.
-define(PATIENCE, 60).
-define(BANDIT, 'Elixir.Bandit.DelegatingHandler').
%% What Phoenix.LiveView.Channel says of itself.
-define(LIVE_VIEW, {'Elixir.Shop.Live', mount, 3}).
-define(SESSIONS, 'Elixir.Phoenix.Transports.LongPoll.Supervisor').

%% A tree as an application has it: an endpoint is a supervisor that is registered by the name of a module, such as this
%% one, that exports '__sockets__'/0.

'__sockets__'() -> [].

start(_Type, Tree) ->
    supervisor:start_link(?MODULE, Tree).

stop(_State) ->
    ok.

init({Strategy, Children}) ->
    {ok, {#{strategy => Strategy}, Children}};
init({Module, Strategy, Children}) ->
    put('$initial_call', {supervisor, Module, 1}),
    init({Strategy, Children}).

tree(nameless, Strategy, Children) ->
    supervisor:start_link(?MODULE, {Strategy, Children});
tree({of_module, Module}, Strategy, Children) ->
    supervisor:start_link(?MODULE, {Module, Strategy, Children});
tree(Name, Strategy, Children) ->
    supervisor:start_link({local, Name}, ?MODULE, {Strategy, Children}).

supervisor(Id, Children) ->
    supervisor(Id, nameless, one_for_one, Children).

supervisor(Id, Name, Strategy, Children) ->
    #{id => Id, start => {?MODULE, tree, [Name, Strategy, Children]}, type => supervisor, modules => [supervisor]}.

endpoint(Module, Children) ->
    endpoint(Module, Module, Children).

endpoint(Id, Module, Children) ->
    (supervisor(Id, Module, one_for_one, Children))#{modules => [Module]}.

%% Another module of an endpoint.
module(Module) ->
    Code = "'__sockets__'() -> [].",
    load(Module, [{'__sockets__', 0}], Code).

load(Module, Exports, Code) ->
    {ok, Tokens, _} = erl_scan:string(Code),
    {ok, Function} = erl_parse:parse_form(Tokens),
    {ok, Module, Beam} = compile:forms([{attribute, 1, module, Module}, {attribute, 1, export, Exports}, Function]),
    {module, Module} = code:load_binary(Module, "", Beam),
    Module.

worker(Id, Role) ->
    #{id => Id, start => {?MODULE, child, [self(), Role]}, shutdown => infinity}.

%% A process that says who it is, and from then on does as its role is.
child(Test, Role) ->
    {ok, proc_lib:spawn_link(fun() -> role(Test, Role) end)}.

role(Test, channel) ->
    Test ! {channel, self()},
    idle(Test);
role(Test, {socket, Module, Channel}) ->
    connection(Module),
    monitor(process, Channel),
    Test ! ready,
    idle(Test);
role(Test, {labelled_socket, Module}) ->
    labelled(Module),
    Test ! ready,
    idle(Test);
role(Test, {lingering_socket, Module}) ->
    labelled(Module),
    Test ! ready,
    receive socket_drain -> Test ! {asked, self()} end,
    receive go -> ok end;
%% Serves requests or, when Handler says so, something else.
role(Test, {bandit, Handler}) ->
    process_flag(trap_exit, true),
    connection(?BANDIT),
    Test ! ready,
    gen_server:enter_loop(?MODULE, [], {socket, #{handler_module => Handler}});
role(Test, {session, Poll}) ->
    put('$initial_call', {'Elixir.Phoenix.Transports.LongPoll.Server', init, 1}),
    Test ! ready,
    gen_server:enter_loop(?MODULE, [], #{client_ref => Poll, test => Test});
role(Test, {server, InitialCall}) ->
    put('$initial_call', InitialCall),
    Test ! {channel, self()},
    gen_server:enter_loop(?MODULE, [], #{});
role(Test, page) ->
    Test ! {channel, self()},
    page();
role(Test, {watcher, Page}) ->
    monitor(process, Page),
    Test ! ready,
    idle(Test);
role(Test, slow) ->
    process_flag(trap_exit, true),
    Test ! {slow, self()},
    receive
        finish -> ok
    end;
role(Test, {config, Module}) ->
    Module = ets:new(Module, [named_table]),
    true = ets:insert(Module, {pubsub_server, name}),
    role(Test, plain);
role(Test, plain) ->
    Test ! ready,
    idle(Test).

connection(Module) ->
    put('$initial_call', {Module, init, 1}).

labelled(Module) ->
    connection(Module),
    put('$process_label', {'Elixir.Phoenix.Socket', handler, nil}).

idle(Test) ->
    receive
        socket_drain -> Test ! {drained, self()}
    end.

page() ->
    receive
        {monitor, Pid} -> monitor(process, Pid)
    end,
    page().

handle_call(_Question, _From, State) ->
    {reply, ok, State}.

handle_cast({poll, Poll}, State) ->
    {noreply, State#{client_ref => Poll}};
handle_cast({work, Work}, State) ->
    Work(),
    {noreply, State}.

handle_info(socket_drain, #{test := Test} = State) ->
    Test ! {drained, self()},
    {stop, {shutdown, restart}, State};
handle_info({monitor, Page}, State) ->
    monitor(process, Page),
    {noreply, State};
handle_info(_Message, State) ->
    {noreply, State}.

%% Says that it is a supervisor, and answers no question.
deaf() ->
    {ok, proc_lib:spawn_link(fun() -> timer:sleep(infinity) end)}.

deaf(Id) ->
    #{id => Id, start => {?MODULE, deaf, []}, type => supervisor, shutdown => brutal_kill, modules => [supervisor]}.

with_application(Children, Test) ->
    with_application(fake, Children, Test).

with_application(Name, Children, Test) ->
    Keys = [{vsn, "1"}, {modules, []}, {applications, [kernel, stdlib]}, {mod, {?MODULE, {one_for_one, Children}}}],
    ok = application:load({application, Name, Keys}),
    ok = application:start(Name),
    try
        Test()
    after
        application:stop(Name),
        application:unload(Name)
    end.

top(Application) ->
    {Top, _} = application_master:get_child(application_controller:get_master(Application)),
    Top.

all_test_() ->
    [
        {timeout, ?PATIENCE, Test}
     || Test <- [
            fun no_endpoint/0,
            fun all_endpoints_are_found_and_only_they_stop/0,
            fun configuration_stays/0,
            fun busy_supervisors_hide_nothing/0,
            fun endpoint_that_does_not_stop_in_time_is_ended_by_force/0,
            fun endpoint_of_a_busy_supervisor_is_not_started_again/0,
            fun idle_connections_are_closed/0,
            fun nobody_is_let_in/0,
            fun latecomers_are_closed_too/0,
            fun pages_that_never_answer_are_closed/0,
            fun end_sessions/0
        ]
    ].

no_endpoint() ->
    with_application([supervisor(a, []), worker(b, plain)], fun() ->
        ?assertEqual([], livestash_agent_endpoint:find()),
        ?assertEqual(0, close([], 1)),
        ?assertEqual([], livestash_agent_endpoint:stop([], 0))
    end).

all_endpoints_are_found_and_only_they_stop() ->
    Modules = [Two, Three, Four, Five] = [module(M) || M <- [endpoint_two, endpoint_three, endpoint_four, endpoint_five]],
    Serving = [worker(server, plain)],
    Dynamic = supervisor(dynamic, nameless, simple_one_for_one, [endpoint(none, Three, Serving)]),
    %% As SiteEncrypt's: it has the endpoint's name in its own place, and a supervisor of its own.
    Wrapped = supervisor(Four, site_encrypt, one_for_all, [endpoint(Four, Serving), worker(certifier, plain)]),
    Tree = [
        endpoint(?MODULE, Serving),
        supervisor(a, [supervisor(b, [endpoint(another_id, Two, Serving), worker(w, plain)])]),
        Dynamic,
        Wrapped
    ],
    with_application(Tree, fun() ->
        with_application(umbrella, [endpoint(Five, Serving)], fun() ->
            {ok, _} = supervisor:start_child(pid(dynamic, top(fake)), []),
            Certifier = pid(certifier, whereis(site_encrypt)),
            Endpoints = livestash_agent_endpoint:find(),
            ?assertEqual(5, length(Endpoints)),
            ?assertEqual([], livestash_agent_endpoint:stop(Endpoints, 10000)),
            ?assertEqual([undefined || _ <- Endpoints], [pid(server, whereis(Module)) || Module <- [?MODULE | Modules]]),
            ?assert(is_process_alive(Certifier)),
            ?assertEqual(4, length([Pid || {_, Pid, _, _} <- supervisor:which_children(top(fake)), is_pid(Pid)])),
            ?assertEqual([], livestash_agent_endpoint:stop(Endpoints, 10000))
        end)
    end).

%% Whoever broadcasts reads it, in a table of the endpoint's name.
configuration_stays() ->
    with_application([endpoint(?MODULE, [worker(config, {config, ?MODULE}), worker(server, plain)])], fun() ->
        ?assertEqual([], livestash_agent_endpoint:stop(livestash_agent_endpoint:find(), 10000)),
        ?assertEqual([{pubsub_server, name}], ets:lookup(?MODULE, pubsub_server)),
        ?assertEqual(undefined, pid(server, whereis(?MODULE)))
    end).

%% Each would be asked for a second by whoever goes down from the top.
busy_supervisors_hide_nothing() ->
    Deaf = [deaf(N) || N <- lists:seq(1, 4)],
    with_application(busy, Deaf, fun() ->
        with_application(Deaf ++ [endpoint(?MODULE, [worker(w, plain), deaf(inside)])], fun() ->
            Endpoints = livestash_agent_endpoint:find(),
            ?assertEqual(1, length(Endpoints)),
            ?assertEqual([], livestash_agent_endpoint:stop(Endpoints, 10000))
        end)
    end).

endpoint_that_does_not_stop_in_time_is_ended_by_force() ->
    Stuck = supervisor(stuck, [worker(w, slow), worker(x, slow)]),
    with_application([endpoint(?MODULE, [Stuck])], fun() ->
        Slow = [receive {slow, Pid} -> Pid end || _ <- [1, 2]],
        Endpoint = whereis(?MODULE),
        ?assertEqual([?MODULE], livestash_agent_endpoint:stop(livestash_agent_endpoint:find(), 50)),
        ?assertEqual([], lists:filter(fun is_process_alive/1, [Endpoint | Slow])),
        ?assertMatch([{?MODULE, undefined, _, _}], supervisor:which_children(top(fake)))
    end).

%% Its parent starts again whatever ends without its doing.
endpoint_of_a_busy_supervisor_is_not_started_again() ->
    with_application([supervisor(parent, [endpoint(?MODULE, [])])], fun() ->
        Parent = pid(parent, top(fake)),
        [ok = sys:suspend(Supervisor) || Supervisor <- [Parent, whereis(?MODULE)]],
        ?assertEqual([?MODULE], livestash_agent_endpoint:stop(livestash_agent_endpoint:find(), 50)),
        ?assertEqual([], livestash_agent_endpoint:find()),
        ok = sys:resume(Parent),
        ?assertMatch([{?MODULE, undefined, _, _}], supervisor:which_children(Parent)),
        ?assertEqual([], livestash_agent_endpoint:find())
    end).

%% On Bandit, and on Cowboy, whose connections call themselves supervisors.
sockets_test_() ->
    [
        {"of " ++ atom_to_list(Module), {timeout, ?PATIENCE, fun() ->
            with_endpoint(fun(Endpoints) ->
                Channel = add(channels, channel),
                Other = add(channels, channel),
                Sockets = [add(connections, {socket, Module, Channel}) || _ <- lists:seq(1, 5)],
                Labelled = add(connections, {labelled_socket, Module}),
                Plain = add(connections, plain),
                ?assertEqual(6, close(Endpoints, 2)),
                ?assertEqual(lists:sort([Labelled | Sockets]), drained()),
                ?assert(lists:all(fun is_process_alive/1, [Channel, Other, Plain]))
            end)
        end}}
     || Module <- [?BANDIT, cowboy_clear, cowboy_tls]
    ].

%% A connection that is kept alive would bring its client back.
idle_connections_are_closed() ->
    with_endpoint(fun(Endpoints) ->
        Idle = add(connections, {bandit, 'Elixir.Bandit.HTTP1.Handler'}),
        WebSocket = add(connections, {bandit, 'Elixir.Bandit.WebSocket.Handler'}),
        Monitor = monitor(process, Idle),
        ?assertEqual(0, close(Endpoints, 1)),
        ?assertEqual(shutdown, receive {'DOWN', Monitor, process, Idle, Reason} -> Reason end),
        ?assert(is_process_alive(WebSocket))
    end).

nobody_is_let_in() ->
    load('Elixir.ThousandIsland', [{suspend, 1}], "suspend(Server) -> supervisor:terminate_child(Server, listener)."),
    Bandit = supervisor(bandit, {of_module, 'Elixir.ThousandIsland.Server'}, one_for_one, [worker(listener, plain)]),
    Acceptors = supervisor(ranch_acceptors_sup, []),
    Cowboy = supervisor(cowboy, {of_module, ranch_listener_sup}, one_for_one, [Acceptors]),
    Slow = supervisor(slow, {of_module, ranch_listener_sup}, one_for_one, []),
    with_application([endpoint(?MODULE, [Bandit, Cowboy, Slow])], fun() ->
        ok = sys:suspend(pid(slow, whereis(?MODULE))),
        ?assertEqual(0, close(livestash_agent_endpoint:find(), 1)),
        Left = [pid(Id, pid(Server, whereis(?MODULE))) || {Id, Server} <- [{listener, bandit}, {ranch_acceptors_sup, cowboy}]],
        ?assertEqual([undefined, undefined], Left),
        ok = sys:resume(pid(slow, whereis(?MODULE)))
    end).

%% Before the socket closes, another one is there.
latecomers_are_closed_too() ->
    with_endpoint(fun(Endpoints) ->
        Test = self(),
        Channel = add(channels, channel),
        spawn_link(fun() ->
            First = add(connections, {lingering_socket, ?BANDIT}),
            Test ! ready,
            receive {asked, First} -> ok end,
            Late = add(connections, {socket, ?BANDIT, Channel}),
            First ! go,
            receive {drained, Late} -> Test ! closed end
        end),
        receive ready -> ok end,
        ?assertEqual(2, close(Endpoints, 1)),
        receive closed -> ok end
    end).

%% One that is at work on an event, and another, which does not wait for it.
event_test_() ->
    [
        {"in the middle of which is " ++ Name, {timeout, ?PATIENCE, fun() -> answers_first(InitialCall) end}}
     || {Name, InitialCall} <- [{"a LiveView", ?LIVE_VIEW}, {"a channel", {'Elixir.Phoenix.Channel.Server', init, 1}}]
    ].

answers_first(InitialCall) ->
    with_endpoint(fun(Endpoints) ->
        [Busy, Idle] = Channels = [add(channels, {server, InitialCall}) || _ <- [busy, idle]],
        [AtWork, Other] = [add(connections, {socket, ?BANDIT, Channel}) || Channel <- Channels],
        Test = self(),
        gen_server:cast(Busy, {work, fun() -> receive finish -> Test ! answered end end}),
        spawn_link(fun() -> Test ! {closed, close(Endpoints, 10)} end),
        receive {drained, First} -> ?assertEqual(Other, First) end,
        ?assertEqual(nothing, receive {drained, Early} -> Early after 500 -> nothing end),
        Busy ! finish,
        receive Event when Event =:= answered; element(1, Event) =:= drained -> ?assertEqual(answered, Event) end,
        receive {drained, Second} -> ?assertEqual(AtWork, Second) end,
        receive {closed, Closed} -> ?assertEqual(2, Closed) end,
        ?assert(is_process_alive(Idle))
    end).

pages_that_never_answer_are_closed() ->
    with_endpoint(fun(Endpoints) ->
        Stuck = add(channels, {server, ?LIVE_VIEW}),
        Socket = add(connections, {socket, ?BANDIT, Stuck}),
        gen_server:cast(Stuck, {work, fun() -> receive finish -> ok end end}),
        Options = #{batch_size => 10, batch_interval => 0, within => 300},
        ?assertEqual(1, livestash_agent_endpoint:close(Endpoints, Options)),
        ?assertEqual([Socket], drained())
    end).

%% Sessions of long polling, which live outside of the endpoint.

long_polling_test_() ->
    {setup, fun() -> ok end, fun(ok) -> application:unset_env(phoenix, json_library) end, [
        {"whose client is waiting", {timeout, ?PATIENCE, fun() ->
            with_sessions(fun(Endpoints) ->
                {Poll, Answered} = poll(),
                Session = add(sessions, {session, {Poll, ref}}),
                ?assertEqual(1, close_soon(Endpoints)),
                ?assertEqual([Session], drained()),
                #{'__struct__' := 'Elixir.Jason.Fragment', encode := Encode} = Answered(),
                %% Jason calls it with two functions. What it writes is no JSON.
                ?assertMatch("{fun" ++ _, lists:flatten(Encode({fun lists:reverse/1, fun lists:sort/1})))
            end)
        end}},
        {"whose client may have an event on its way", {timeout, ?PATIENCE, fun() ->
            with_sessions(fun(Endpoints) ->
                {First, _} = poll(),
                {Second, Answered} = poll(),
                Session = add(sessions, {session, {First, ref}}),
                Test = self(),
                spawn_link(fun() -> Test ! {closed, close(Endpoints, 1)} end),
                ?assertEqual(nothing, receive {drained, Early} -> Early after 500 -> nothing end),
                %% It has had an answer, and polls again.
                gen_server:cast(Session, {poll, {Second, ref}}),
                ?assertMatch(#{'__struct__' := 'Elixir.Jason.Fragment'}, Answered()),
                receive {drained, Drained} -> ?assertEqual(Session, Drained) end,
                receive {closed, Closed} -> ?assertEqual(1, Closed) end,
                ?assert(is_process_alive(First))
            end)
        end}},
        {"whose client polls a moment later", {timeout, ?PATIENCE, fun() ->
            with_sessions(fun(Endpoints) ->
                Session = add(sessions, {session, nil}),
                {Poll, Answered} = poll(),
                spawn(fun() -> timer:sleep(100), gen_server:cast(Session, {poll, {Poll, ref}}) end),
                ?assertEqual(1, close_soon(Endpoints)),
                ?assertEqual([Session], drained()),
                ?assertMatch(#{}, Answered())
            end)
        end}},
        {"whose client has gone", {timeout, ?PATIENCE, fun() ->
            with_sessions(fun(Endpoints) ->
                Session = add(sessions, {session, nil}),
                ?assertEqual(1, close_soon(Endpoints)),
                ?assertEqual([Session], drained())
            end)
        end}},
        {"of an application that writes JSON in another way", {timeout, ?PATIENCE, fun() ->
            application:set_env(phoenix, json_library, 'Elixir.JSON'),
            with_sessions(fun(Endpoints) ->
                {Poll, _} = poll(),
                Monitor = monitor(process, Poll),
                add(sessions, {session, {Poll, ref}}),
                ?assertEqual(1, close_soon(Endpoints)),
                [_] = drained(),
                ?assertEqual(killed, receive {'DOWN', Monitor, process, Poll, Reason} -> Reason end)
            end)
        end}},
        {"that does not end", {timeout, ?PATIENCE, fun() ->
            with_sessions(fun(Endpoints) ->
                Session = add(sessions, {session, nil}),
                ok = sys:suspend(Session),
                ?assertEqual(1, close_soon(Endpoints)),
                ?assertEqual([], livestash_agent_endpoint:stop(Endpoints, 10000)),
                Monitor = monitor(process, Session),
                receive {'DOWN', Monitor, process, Session, _} -> ok end
            end)
        end}}
    ]}.

%% A request that waits for messages, and what it is answered.
poll() ->
    Test = self(),
    Poll = spawn(fun() ->
        receive
            {messages, Messages, ref} -> Test ! {answer, Messages}
        end
    end),
    {Poll, fun() -> receive {answer, Messages} -> Messages end end}.

%% Pages that go on: one with a socket, one with a session, one that does not shut down, and one that is gone.
end_sessions() ->
    with_sessions(fun(_Endpoints) ->
        {Page, Socket} = start_page(connections, fun(Pid) -> {socket, ?BANDIT, Pid} end),
        {Polling, Session} = start_page(sessions, fun(_Pid) -> {session, nil} end),
        Stranger = add(channels, {watcher, Page}),
        Page ! {monitor, Stranger},
        Deaf = spawn(fun() -> process_flag(trap_exit, true), receive finish -> ok end end),
        Pids = [Page, Polling, Deaf, spawn(fun() -> ok end)],
        ?assertEqual(4, livestash_agent_endpoint:end_sessions(Pids, 1000)),
        ?assertEqual([], lists:filter(fun is_process_alive/1, Pids)),
        %% They are told, and not waited for.
        [receive {drained, Transport} -> ok end || Transport <- [Socket, Session]],
        ?assert(is_process_alive(Stranger))
    end).

%% A page and its client's connection, or session, monitor each other.
start_page(Supervisor, Role) ->
    Page = add(channels, page),
    Transport = add(Supervisor, Role(Page)),
    Page ! {monitor, Transport},
    Transport ! {monitor, Page},
    {Page, Transport}.

batches_test_() ->
    [
        {Name, {timeout, ?PATIENCE, Test}}
     || {Name, Test} <- [
            {"of the size that is asked for", fun() -> ?assert(close_ten(4, 200, 10000) >= 400) end},
            {"larger when there is no time for so many", fun() ->
                Took = close_ten(1, 3000, 6000),
                ?assert(Took >= 3000),
                ?assert(Took < 27000)
            end},
            {"all at once", fun() -> ?assert(close_ten(infinity, 30000, 600000) < 30000) end},
            {"no time at all", fun() -> ?assert(close_ten(1, 30000, 0) < 30000) end}
        ]
    ].

%% How many milliseconds it takes.
close_ten(Size, Interval, Within) ->
    Options = #{batch_size => Size, batch_interval => Interval, within => Within},
    with_endpoint(fun(Endpoints) ->
        Channel = add(channels, channel),
        [add(connections, {socket, ?BANDIT, Channel}) || _ <- lists:seq(1, 10)],
        Began = erlang:monotonic_time(millisecond),
        ?assertEqual(10, livestash_agent_endpoint:close(Endpoints, Options)),
        Took = erlang:monotonic_time(millisecond) - Began,
        ?assertEqual(10, length(drained())),
        Took
    end).

close(Endpoints, Size) ->
    livestash_agent_endpoint:close(Endpoints, #{batch_size => Size, batch_interval => 1, within => 10000}).

%% Nobody has an answer in that time.
close_soon(Endpoints) ->
    livestash_agent_endpoint:close(Endpoints, #{batch_size => 1, batch_interval => 1, within => 400}).

%% Runs the test with an endpoint that has a supervisor of channels and one of connections.
with_endpoint(Test) ->
    Connections = supervisor(connections, connections, one_for_one, []),
    Tree = [supervisor(channels, channels, one_for_one, []), supervisor(server, [supervisor(pool, [Connections])])],
    with_application([endpoint(?MODULE, Tree)], fun() -> Test(livestash_agent_endpoint:find()) end).

with_sessions(Test) ->
    Sessions = supervisor(sessions, ?SESSIONS, one_for_one, []),
    with_application(phoenix_fake, [Sessions], fun() -> with_endpoint(Test) end).

%% Starts such an application in the VM where it is called, with a number of open sockets and one child of the endpoint
%% that has the given role.
serve({Sockets, Role}) ->
    Self = self(),
    spawn(fun() ->
        with_endpoint(fun(_Endpoints) ->
            Channel = add(channels, channel),
            [add(connections, {socket, ?BANDIT, Channel}) || _ <- lists:seq(1, Sockets)],
            {ok, _} = supervisor:start_child(channels, worker(role, Role)),
            Self ! serving,
            timer:sleep(infinity)
        end)
    end),
    receive
        serving -> ok
    end.

pid(Id, Supervisor) ->
    {Id, Pid, _, _} = lists:keyfind(Id, 1, supervisor:which_children(Supervisor)),
    Pid.

add(sessions, Role) ->
    add(?SESSIONS, Role);
add(Supervisor, Role) ->
    Spec = (worker(make_ref(), Role))#{restart => temporary, shutdown => brutal_kill},
    {ok, Pid} = supervisor:start_child(Supervisor, Spec),
    receive
        ready -> Pid;
        {channel, Pid} -> Pid
    end.

drained() ->
    receive
        {drained, Pid} -> lists:sort([Pid | drained()])
    after 0 -> []
    end.
