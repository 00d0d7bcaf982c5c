%% Who asks the agent over HTTP, and how is it kept from hurting the application? A small server with hard bounds: a few
%% connections, a small request, little time, and a heap that ends the process instead of the VM. Half of the connections
%% may stay open between two requests; the others are always for those who come and go.
%%
%% An application that is far too busy is when its figures are wanted most, and when a process waits for seconds until it has its turn. So the first
%% questions of each second, if they come in one piece, are answered before the application's work. All others wait for their turn.
%%
%% The probe beside the application has a socket and connections of its own: a Unix domain socket with a name that is no
%% file, which all containers of a pod see and nobody else does. It needs no port, no IP family and no right to write.
-module(livestash_agent_http).

-export([start_link/0, init/0]).

%% How many connections at once, while how many a new one may stay open after its first answer, and the priority of a new one.
-define(PUBLIC, {64, 32, fun priority/0}).
-define(PROBE, {8, 0, fun() -> high end}).
-define(MAX_HEAD, 8192).
%% Milliseconds for the request to arrive, and for the answer to be taken.
-define(TIMEOUT, 5000).
%% For the next request to begin.
-define(IDLE, 15000).
-define(RETRY_LISTEN, 5000).
-define(RETRY_ACCEPT, 250).
%% How many questions a second are answered before the application's work.
-define(URGENT, 20).

-spec start_link() -> {ok, pid()}.
start_link() ->
    {ok, proc_lib:spawn_link(?MODULE, init, [])}.

%% The listening process, and one for the probe.
-spec init() -> no_return().
init() ->
    process_flag(max_heap_size, livestash_agent:max_heap_size()),
    process_flag(priority, high),
    %% The second of the last answer, and how many there were in it.
    _ = persistent_term:get(?MODULE, none) =:= none andalso persistent_term:put(?MODULE, atomics:new(2, [])),
    register(?MODULE, self()),
    Port = livestash_agent_config:get(port),
    Name = <<"livestash-agent-", (integer_to_binary(Port))/binary>>,
    _ = spawn_opt(fun() -> serve_all("the probe's socket", fun() -> open_local(Name) end, ?PROBE) end, [
        link, {priority, high}, {max_heap_size, livestash_agent:max_heap_size()}
    ]),
    serve_all(["port ", integer_to_list(Port)], fun() -> open(Port) end, ?PUBLIC).

serve_all(What, Open, Bounds) ->
    accept(listen(What, Open, true), Bounds, 0).

%% It may be taken, by whatever else runs in the pod. The rest of the agent does not need it.
listen(What, Open, FirstTime) ->
    case Open() of
        {ok, Listener} ->
            Listener;
        {error, Reason} ->
            FirstTime andalso
                logger:warning("livestash agent: ~ts cannot be opened (~p); trying again quietly.", [What, Reason]),
            timer:sleep(?RETRY_LISTEN),
            listen(What, Open, false)
    end.

%% The zero byte before it says that the name is no file.
open_local(Name) ->
    gen_tcp:listen(0, [{ifaddr, {local, <<0, Name/binary>>}} | options()]).

%% Both families, where the machine has both.
open(Port) ->
    case open(Port, [inet6, {ipv6_v6only, false}]) of
        {error, Reason} when Reason =:= eafnosupport; Reason =:= eaddrnotavail -> open(Port, [inet]);
        Result -> Result
    end.

open(Port, Family) ->
    gen_tcp:listen(Port, Family ++ [{reuseaddr, true}, {nodelay, true} | options()]).

options() ->
    [
        binary,
        {active, false},
        {backlog, 1024},
        {buffer, 4096},
        {send_timeout, ?TIMEOUT},
        {send_timeout_close, true}
    ].

%% Whoever comes while all connections are taken waits in the listener's queue.
accept(Listener, {Most, Kept, Priority} = Bounds, Connections) when Connections < Most ->
    case gen_tcp:accept(Listener) of
        {ok, Socket} ->
            Taken = ended(Connections) + 1,
            ok = serve(Socket, Taken =< Kept, Priority()),
            accept(Listener, Bounds, Taken);
        {error, Reason} when Reason =:= closed; Reason =:= einval ->
            exit({listener, Reason});
        {error, _OutOfFiles} ->
            timer:sleep(?RETRY_ACCEPT),
            accept(Listener, Bounds, ended(Connections))
    end;
accept(Listener, Bounds, Connections) ->
    receive
        {'DOWN', _Monitor, process, _Pid, _Reason} -> accept(Listener, Bounds, ended(Connections - 1))
    end.

ended(Connections) ->
    receive
        {'DOWN', _Monitor, process, _Pid, _Reason} -> ended(Connections - 1)
    after 0 ->
        Connections
    end.

%% Anybody may open a connection, and none may fill the log.
serve(Socket, MayStay, Priority) ->
    Silently = (livestash_agent:max_heap_size())#{error_logger := false},
    {Pid, _Monitor} = spawn_opt(fun() -> connection(MayStay) end, [monitor, {priority, Priority}, {max_heap_size, Silently}]),
    case gen_tcp:controlling_process(Socket, Pid) of
        ok -> Pid ! {socket, Socket};
        {error, _Closed} -> exit(Pid, kill)
    end,
    ok.

connection(MayStay) ->
    receive
        {socket, Socket} ->
            requests(Socket, MayStay, <<>>),
            gen_tcp:close(Socket)
    end.

%% Answers one request after the other. Bytes: what has come of the next one.
requests(Socket, MayStay, Bytes) ->
    Request = read(Socket, Bytes, livestash_agent_clock:ms() + ?TIMEOUT),
    Stays = MayStay andalso stays(Request),
    case answer(Socket, Request, Stays) of
        ok when Stays -> next_request(Socket);
        _ -> ok
    end.

%% Waits for the next request with as little memory as can be. A client that sends none is told nothing: it would take that
%% for the answer to a request that it sends at that moment.
next_request(Socket) ->
    erlang:garbage_collect(),
    _ = process_flag(priority, high),
    case gen_tcp:recv(Socket, 0, ?IDLE) of
        {ok, Bytes} ->
            _ = process_flag(priority, priority()),
            requests(Socket, true, Bytes);
        {error, _Reason} -> ok
    end.

%% Whether more requests may come over a connection: one of HTTP/1.1 whose client did not say otherwise, and that has no
%% body, because nobody reads it here.
stays({ok, [<<"GET">>, _Target, <<"HTTP/1.1">>], Headers, <<>>}) ->
    nomatch =:= re:run(Headers, "^(connection:.*close|content-length:|transfer-encoding:)", [caseless, multiline]);
stays(_Other) ->
    false.

%% The words of the first line of a request, its headers, and what has come after them.
read(Socket, Head, Deadline) ->
    case binary:split(Head, <<"\r\n\r\n">>) of
        [Whole, After] ->
            [Line | Headers] = binary:split(Whole, <<"\r\n">>),
            {ok, binary:split(Line, <<" ">>, [global]), Headers, After};
        [_] when byte_size(Head) > ?MAX_HEAD -> {error, too_large};
        [_] -> read_more(Socket, Head, Deadline)
    end.

read_more(Socket, Head, Deadline) ->
    %% Whoever sends it in many pieces would have this process woken for each.
    _ = Head =:= <<>> orelse process_flag(priority, normal),
    case gen_tcp:recv(Socket, 0, livestash_agent_clock:left(Deadline)) of
        {ok, Bytes} -> read(Socket, <<Head/binary, Bytes/binary>>, Deadline);
        {error, Reason} -> {error, Reason}
    end.

answer(Socket, {ok, Line, _Headers, _After}, Stays) ->
    {Status, Type, Body} = route(Line),
    send(Socket, Stays, Status, Type, Body);
answer(Socket, {error, too_large}, Stays) ->
    send(Socket, Stays, "431 Request Header Fields Too Large", text, "The request's head is larger than 8 KiB.\n");
answer(Socket, {error, timeout}, Stays) ->
    send(Socket, Stays, "408 Request Timeout", text, "The request did not arrive within 5 seconds.\n");
answer(_Socket, {error, _Closed}, _Stays) ->
    ok.

%% That of the answer to a question which comes now.
priority() ->
    Asked = persistent_term:get(?MODULE),
    Second = erlang:monotonic_time(second),
    _ = atomics:get(Asked, 1) =:= Second orelse begin
        atomics:put(Asked, 1, Second),
        atomics:put(Asked, 2, 0)
    end,
    case atomics:add_get(Asked, 2, 1) =< ?URGENT of
        true -> high;
        false -> normal
    end.

route([<<"GET">>, Target, <<"HTTP/1.", _>>]) ->
    page(hd(binary:split(Target, <<"?">>)));
route([_Method, _Target, <<"HTTP/1.", _>>]) ->
    {"405 Method Not Allowed", text, "Only GET is answered here.\n"};
route(_Line) ->
    {"400 Bad Request", text, "This is not HTTP/1.\n"}.

page(<<"/healthz">>) ->
    {"200 OK", text, "ok\n"};
page(<<"/readyz">>) ->
    case livestash_agent_ready:check() of
        {true, _} -> {"200 OK", text, "ready\n"};
        {false, Reason} -> {"503 Service Unavailable", text, [Reason, $\n]}
    end;
page(<<"/status">>) ->
    {"200 OK", json, livestash_agent_status:json()};
page(<<"/metrics">>) ->
    {"200 OK", prometheus, livestash_agent_metrics:text()};
page(_Path) ->
    {"404 Not Found", text, "There are /healthz, /readyz, /status and /metrics.\n"}.

send(Socket, Stays, Status, Type, Body) ->
    gen_tcp:send(Socket, [
        ["HTTP/1.1 ", Status, "\r\n"],
        ["content-type: ", content_type(Type), "\r\n"],
        ["content-length: ", integer_to_binary(iolist_size(Body)), "\r\n"],
        ["livestash-agent: ", livestash_agent:version(), "\r\n"],
        ["connection: ", connection_header(Stays), "\r\n\r\n"],
        Body
    ]).

connection_header(true) -> "keep-alive";
connection_header(false) -> "close".

content_type(text) -> "text/plain; charset=utf-8";
content_type(json) -> "application/json";
content_type(prometheus) -> "text/plain; version=0.0.4; charset=utf-8".
