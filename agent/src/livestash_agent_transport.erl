%% What hangs on a web endpoint, and how is each connection told to go so that its client comes back at once, and
%% elsewhere? Knows Phoenix's sockets and long polling, on Bandit (ThousandIsland) and on Cowboy (Ranch).
%%
%% The tree below a process is read from links and '$ancestors', which the VM itself tells: nobody is asked who may be
%% busy, so a supervisor that starts a slow child, or waits for one to stop, hides nothing.
%%
%% - A socket is a connection that monitors a channel of its endpoint, or says by its label that it is one (since
%%   Phoenix 1.8). It understands `socket_drain`, which Phoenix's own drainer has it sent, and closes with 1012, "service
%%   restart". It must not be ended otherwise: Bandit would close with 1000, upon which LiveView reloads the page.
%% - A long-polling session is a process below a supervisor of the application phoenix. Its client's polls may come
%%   through any node. It understands `socket_drain` too, but lets its client wait: end_session/1 does better.
%% - Any other connection carries requests, and would carry its client's next ones to this node for as long as it lives.
-module(livestash_agent_transport).

-export([tree/1, parent/1, by_worth/1, sockets/1, sessions/0, transports/1]).
-export([refuse/1, dismiss/1, cut_polls/1, answers/1, drain/1, drain_calmly/2]).

-export_type([process/0, transport/0]).

-record(process, {
    pid :: pid(),
    name :: atom() | [],
    %% Of a supervisor its callback module, of others the one that they were started in.
    module :: module() | undefined,
    type :: supervisor | worker,
    %% By pid or name.
    parent :: pid() | atom(),
    linked :: [pid()],
    monitors :: [pid()],
    labelled :: boolean(),
    %% The function that it is in.
    at :: {module(), atom(), arity()} | undefined
}).

-opaque process() :: #process{}.
-type transport() :: {socket | session, pid()}.

-define(BANDIT, 'Elixir.Bandit.DelegatingHandler').
-define(BANDIT_HTTP_1, 'Elixir.Bandit.HTTP1.Handler').
-define(THOUSAND_ISLAND, 'Elixir.ThousandIsland').
-define(THOUSAND_ISLAND_SERVER, 'Elixir.ThousandIsland.Server').
-define(LONG_POLL, 'Elixir.Phoenix.Transports.LongPoll').
-define(SESSION, 'Elixir.Phoenix.Transports.LongPoll.Server').
-define(SESSIONS, 'Elixir.Phoenix.Transports.LongPoll.Supervisor').
-define(JASON, 'Elixir.Jason').
-define(FRAGMENT, 'Elixir.Jason.Fragment').

%% Milliseconds.
-define(REFUSE, 1000).
-define(ASK, 300).
-define(NEXT_POLL, 500).
-define(LOOK_AGAIN, 20).
-define(LOOK_FOR_ANSWER, 50).

%% This process and all below it, parents before their children.
-spec tree(pid()) -> [process()].
tree(Root) ->
    case look(Root) of
        none -> [];
        Process -> tree_of(Process)
    end.

tree_of(#process{linked = Linked} = Process) ->
    [Process | [Below || Pid <- Linked, Child <- child(Pid, Process), Below <- tree_of(Child)]].

child(Pid, #process{pid = Parent, name = Name}) ->
    case look(Pid) of
        %% Its parent is not looked at again: that may have thousands of links.
        #process{parent = Ancestor, linked = Linked} = Child when Ancestor =:= Parent; Ancestor =:= Name ->
            [Child#process{linked = lists:delete(Parent, Linked)}];
        _ ->
            []
    end.

%% By which process, or name, it was started.
-spec parent(pid()) -> pid() | atom().
parent(Pid) ->
    #process{parent = Parent} = look(Pid),
    Parent.

%% Their pids: workers, and then supervisors.
-spec by_worth([process()]) -> [pid()].
by_worth(Processes) ->
    {Supervisors, Workers} = lists:partition(fun(#process{type = Type}) -> Type =:= supervisor end, Processes),
    pids(Workers ++ Supervisors).

look(Pid) ->
    case process_info(Pid, [registered_name, dictionary, links, monitors, current_function]) of
        [{_, Name}, {_, Dictionary}, {_, Links}, {_, Monitors}, {_, At}] ->
            {Type, Module} = started_in(lists:keyfind('$initial_call', 1, Dictionary)),
            #process{
                pid = Pid,
                name = Name,
                type = Type,
                module = Module,
                parent = ancestor(lists:keyfind('$ancestors', 1, Dictionary)),
                linked = [Linked || Linked <- Links, is_pid(Linked), node(Linked) =:= node()],
                monitors = [Monitored || {process, Monitored} <- Monitors, is_pid(Monitored)],
                labelled = is_labelled(lists:keyfind('$process_label', 1, Dictionary)),
                at = At
            };
        undefined ->
            none
    end.

started_in({_, {supervisor, Module, _}}) -> {supervisor, Module};
started_in({_, {Module, _, _}}) -> {worker, Module};
started_in(false) -> {worker, undefined}.

ancestor({_, [Parent | _]}) -> Parent;
ancestor(_) -> undefined.

is_labelled({_, {'Elixir.Phoenix.Socket', _Handler, _Id}}) -> true;
is_labelled(_) -> false.

pids(Processes) ->
    [Pid || #process{pid = Pid} <- Processes].

%% The Phoenix sockets among the processes below an endpoint.
-spec sockets([process()]) -> [transport()].
sockets(Processes) ->
    {Connections, Others} = lists:partition(fun is_connection/1, Processes),
    Channels = maps:from_keys([Pid || #process{pid = Pid, type = worker} <- Others], []),
    [{socket, Pid} || #process{pid = Pid} = Connection <- Connections, is_socket(Connection, Channels)].

is_connection(#process{module = Module}) ->
    lists:member(Module, [?BANDIT, cowboy_clear, cowboy_tls]).

is_socket(#process{labelled = Labelled, monitors = Monitors}, Channels) ->
    Labelled orelse lists:any(fun(Pid) -> is_map_key(Pid, Channels) end, Monitors).

%% The long-polling sessions of this node, those of all its endpoints.
-spec sessions() -> [transport()].
sessions() ->
    case whereis(?SESSIONS) of
        undefined -> [];
        Supervisor -> [{session, Pid} || #process{pid = Pid, module = ?SESSION} <- tree(Supervisor)]
    end.

%% What a channel, such as a LiveView, talks to its client through: each monitors the other.
-spec transports(pid()) -> [transport()].
transports(Channel) ->
    case process_info(Channel, [monitors, monitored_by]) of
        [{monitors, Monitors}, {monitored_by, MonitoredBy}] ->
            Mutual = [Pid || {process, Pid} <- Monitors, lists:member(Pid, MonitoredBy), node(Pid) =:= node()],
            [transport(Process) || #process{} = Process <- lists:map(fun look/1, Mutual), is_transport(Process)];
        undefined ->
            []
    end.

is_transport(#process{module = Module, labelled = Labelled} = Process) ->
    Module =:= ?SESSION orelse Labelled orelse is_connection(Process).

transport(#process{pid = Pid, module = ?SESSION}) -> {session, Pid};
transport(#process{pid = Pid}) -> {socket, Pid}.

%% Accepts no connection from now on; those that there are go on. Whoever still comes is refused by the kernel, upon
%% which proxies go to another pod at once, and phoenix.js tries again within 10 ms. Accepted, he would join here only to
%% be cut off once more.
-spec refuse([process()]) -> ok.
refuse(Processes) ->
    _ = livestash_agent_tasks:run([{refuse, Refuse} || Process <- Processes, Refuse <- refusal(Process)], ?REFUSE),
    ok.

refusal(#process{pid = Pid, type = supervisor, module = ?THOUSAND_ISLAND_SERVER}) ->
    [fun() -> ?THOUSAND_ISLAND:suspend(Pid) end];
%% As ranch:suspend_listener/1 does.
refusal(#process{pid = Pid, type = supervisor, module = ranch_listener_sup}) ->
    [fun() -> supervisor:terminate_child(Pid, ranch_acceptors_sup) end];
refusal(_Process) ->
    [].

%% Closes the connections, sockets apart, that nothing is asked on, and has those that wait for a long poll's answer
%% close after it. One that is in the middle of another request stays, because it may be becoming a socket.
-spec dismiss([process()]) -> ok.
dismiss(Processes) ->
    Sockets = maps:from_keys([Pid || {socket, Pid} <- sockets(Processes)], []),
    Connections = lists:filter(fun is_connection/1, Processes),
    Others = [Connection || #process{pid = Pid} = Connection <- Connections, not is_map_key(Pid, Sockets)],
    Idle = livestash_agent_tasks:run([{Process, fun() -> carries_requests(Process) end} || Process <- Others], ?ASK),
    [leave(Process) || {Process, {ok, true}} <- Idle],
    ok.

carries_requests(#process{at = {?LONG_POLL, listen, _}}) ->
    true;
carries_requests(#process{at = {cowboy_http, loop, _}}) ->
    true;
%% The same process serves requests and, later, a socket.
carries_requests(#process{pid = Pid, module = ?BANDIT, at = {gen_server, _, _}}) ->
    case sys:get_state(Pid, ?ASK) of
        {_Socket, #{handler_module := Handler}} -> Handler =:= ?BANDIT_HTTP_1;
        _ -> false
    end;
carries_requests(_Process) ->
    false.

%% As when its supervisor ends it: after the request that it is in, if it is in one.
leave(#process{pid = Pid, parent = Parent}) ->
    Pid ! {'EXIT', pid_of(Parent), shutdown}.

pid_of(Parent) when is_pid(Parent) -> Parent;
pid_of(Parent) -> whereis(Parent).

%% Ends the requests of long polls that are waiting, some of them for sessions of other nodes: they would keep the
%% endpoint from stopping for up to 10 s. Their clients ask again, elsewhere.
-spec cut_polls([process()]) -> ok.
cut_polls(Processes) ->
    [exit(Pid, kill) || #process{pid = Pid, at = {?LONG_POLL, listen, _}} <- Processes],
    ok.

%% Whether its client waits for an answer: something has come that was not looked at yet, or a page is at work on it. Only what is on
%% its way to this node cannot be seen.
-spec answers(transport()) -> boolean().
answers({_Kind, Pid}) ->
    case process_info(Pid, [message_queue_len, monitors]) of
        [{message_queue_len, 0}, {monitors, Monitors}] ->
            lists:any(fun is_at_work/1, [Channel || {process, Channel} <- Monitors, is_pid(Channel), node(Channel) =:= node()]);
        [_Waiting, _Monitors] ->
            true;
        undefined ->
            false
    end.

%% Channels, LiveViews among them, are GenServers, though a LiveView says that it was started in its view. One that waits for
%% its next message is in the loop of gen_server, or hibernates; it is elsewhere while it does something, and while it waits
%% for an answer itself.
is_at_work(Channel) ->
    case process_info(Channel, [message_queue_len, current_function, dictionary]) of
        [{message_queue_len, Waiting}, {current_function, At}, {dictionary, Dictionary}] ->
            is_server(lists:keyfind('$initial_call', 1, Dictionary)) andalso (Waiting > 0 orelse not is_waiting(At));
        undefined ->
            false
    end.

is_server({_, {_Module, init, 1}}) -> true;
is_server({_, {_View, mount, 3}}) -> true;
is_server(_) -> false.

is_waiting({gen_server, Function, _}) -> lists:prefix("loop", atom_to_list(Function));
is_waiting({erlang, hibernate, _}) -> true;
is_waiting(_) -> false.

%% Asks it to close. Does not wait.
-spec drain(transport()) -> ok.
drain({socket, Pid}) ->
    Pid ! socket_drain,
    ok;
drain({session, Pid}) ->
    spawn(fun() -> end_session(Pid) end),
    ok.

%% The same for a session, as soon as its client has had an answer, and at the latest after so many milliseconds. A browser runs the timers
%% of a tab that nobody looks at once a second, and phoenix.js sends what it has for a session from a timer. If the session ends while
%% an event waits there, it is never sent, and LiveView loads the page anew, without its state, 30 s later. Right after an
%% answer nothing waits.
-spec drain_calmly(Session :: pid(), Within :: non_neg_integer()) -> ok.
drain_calmly(Session, Within) ->
    Deadline = livestash_agent_clock:ms() + Within,
    spawn(fun() ->
        await_answer(Session, poll(Session), Deadline),
        end_session(Session)
    end),
    ok.

%% Its client polls again when it has had an answer. The session is asked only when it has done something.
await_answer(_Session, unknown, _Deadline) ->
    ok;
await_answer(Session, Poll, Deadline) ->
    await_activity(Session, process_info(Session, reductions), Deadline),
    case livestash_agent_clock:left(Deadline) > 0 andalso poll(Session) of
        Poll -> await_answer(Session, Poll, Deadline);
        _ -> ok
    end.

await_activity(Session, Reductions, Deadline) ->
    timer:sleep(min(?LOOK_FOR_ANSWER, livestash_agent_clock:left(Deadline))),
    case livestash_agent_clock:left(Deadline) > 0 andalso process_info(Session, reductions) of
        Reductions -> await_activity(Session, Reductions, Deadline);
        _ -> ok
    end.

%% A session that just ends leaves its client's poll waiting for 10 s. A poll with its token takes Phoenix 2 s to answer,
%% on any node, because nobody does. A connection that is cut makes browsers, and proxies, send the same poll once more.
%% Fastest is an answer that phoenix.js cannot read: it connects anew after 10 ms, without the token.
end_session(Session) ->
    answer(await_poll(Session, ?NEXT_POLL)),
    Session ! socket_drain.

%% Its client polls again as soon as it has an answer.
await_poll(Session, Left) ->
    case poll(Session) of
        none when Left > 0 ->
            timer:sleep(?LOOK_AGAIN),
            await_poll(Session, Left - ?LOOK_AGAIN);
        Poll ->
            Poll
    end.

%% The request that waits for the session's messages, on whatever node.
poll(Session) ->
    try sys:get_state(Session, ?ASK) of
        #{client_ref := {Request, Ref}} when is_pid(Request) -> {Request, Ref};
        #{client_ref := nil} -> none;
        _ -> unknown
    catch
        exit:_ -> unknown
    end.

answer({Request, Ref}) ->
    case application:get_env(phoenix, json_library, ?JASON) of
        ?JASON ->
            Request ! {messages, unreadable(), Ref},
            dismiss_request(Request);
        _ ->
            exit(Request, kill)
    end;
answer(_None) ->
    ok.

%% What Jason takes as JSON already. A function that any version of OTP and of the agent has, because the request may be
%% on another node: it writes Jason's options, which are none.
unreadable() ->
    #{'__struct__' => ?FRAGMENT, encode => fun io_lib:write/1}.

%% The client's next request must not come on the connection of this one.
dismiss_request(Request) when node(Request) =/= node() ->
    ok;
dismiss_request(Request) ->
    case look(Request) of
        #process{module = ?BANDIT} = Connection ->
            leave(Connection);
        %% Cowboy's requests are children of their connections.
        #process{module = cowboy_stream_h, parent = Parent} ->
            [leave(Connection) || #process{at = {cowboy_http, loop, _}} = Connection <- [look(pid_of(Parent))]];
        _ ->
            ok
    end.
