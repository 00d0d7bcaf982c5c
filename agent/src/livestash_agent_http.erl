%% Who asks the agent over HTTP, and how is it kept from hurting the application? A small server with hard bounds: a few
%% connections, a small request, little time, and a heap that ends the process instead of the VM.
-module(livestash_agent_http).

-export([start_link/0, init/0]).

-define(MAX_CONNECTIONS, 64).
-define(MAX_HEAD, 8192).
%% Milliseconds for the request to arrive, and for the answer to be taken.
-define(TIMEOUT, 5000).
-define(RETRY_LISTEN, 5000).
-define(RETRY_ACCEPT, 250).

-spec start_link() -> {ok, pid()}.
start_link() ->
    {ok, proc_lib:spawn_link(?MODULE, init, [])}.

%% The listening process.
-spec init() -> no_return().
init() ->
    process_flag(max_heap_size, livestash_agent:max_heap_size()),
    register(?MODULE, self()),
    accept(listen(livestash_agent_config:get(port), true), 0).

%% The port may be taken, by whatever else runs in the pod. The rest of the agent does not need it.
listen(Port, FirstTime) ->
    case open(Port) of
        {ok, Listener} ->
            Listener;
        {error, Reason} ->
            FirstTime andalso
                logger:warning("livestash agent: port ~b cannot be opened (~p); trying again quietly.", [Port, Reason]),
            timer:sleep(?RETRY_LISTEN),
            listen(Port, false)
    end.

%% Both families, where the machine has both.
open(Port) ->
    case open(Port, [inet6, {ipv6_v6only, false}]) of
        {error, Reason} when Reason =:= eafnosupport; Reason =:= eaddrnotavail -> open(Port, [inet]);
        Result -> Result
    end.

open(Port, Family) ->
    gen_tcp:listen(Port, Family ++ [
        binary,
        {active, false},
        {reuseaddr, true},
        {nodelay, true},
        {backlog, 1024},
        {buffer, 4096},
        {send_timeout, ?TIMEOUT},
        {send_timeout_close, true}
    ]).

%% Whoever comes while all connections are taken waits in the listener's queue.
accept(Listener, Connections) when Connections < ?MAX_CONNECTIONS ->
    case gen_tcp:accept(Listener) of
        {ok, Socket} ->
            ok = serve(Socket),
            accept(Listener, ended(Connections + 1));
        {error, Reason} when Reason =:= closed; Reason =:= einval ->
            exit({listener, Reason});
        {error, _OutOfFiles} ->
            timer:sleep(?RETRY_ACCEPT),
            accept(Listener, ended(Connections))
    end;
accept(Listener, Connections) ->
    receive
        {'DOWN', _Monitor, process, _Pid, _Reason} -> accept(Listener, ended(Connections - 1))
    end.

ended(Connections) ->
    receive
        {'DOWN', _Monitor, process, _Pid, _Reason} -> ended(Connections - 1)
    after 0 ->
        Connections
    end.

serve(Socket) ->
    {Pid, _Monitor} = spawn_opt(fun() -> connection() end, [
        monitor, {max_heap_size, livestash_agent:max_heap_size()}
    ]),
    case gen_tcp:controlling_process(Socket, Pid) of
        ok -> Pid ! {socket, Socket};
        {error, _Closed} -> exit(Pid, kill)
    end,
    ok.

connection() ->
    receive
        {socket, Socket} ->
            answer(Socket, read(Socket, <<>>, erlang:monotonic_time(millisecond) + ?TIMEOUT)),
            gen_tcp:close(Socket)
    end.

%% The first line of a request whose head is complete.
read(Socket, Head, Deadline) ->
    case binary:split(Head, <<"\r\n\r\n">>) of
        [_Head, _Body] -> {ok, hd(binary:split(Head, <<"\r\n">>))};
        [_] when byte_size(Head) > ?MAX_HEAD -> {error, too_large};
        [_] -> read_more(Socket, Head, Deadline)
    end.

read_more(Socket, Head, Deadline) ->
    case gen_tcp:recv(Socket, 0, max(0, Deadline - erlang:monotonic_time(millisecond))) of
        {ok, Bytes} -> read(Socket, <<Head/binary, Bytes/binary>>, Deadline);
        {error, Reason} -> {error, Reason}
    end.

answer(Socket, {ok, Line}) ->
    {Status, Type, Body} = route(binary:split(Line, <<" ">>, [global])),
    send(Socket, Status, Type, Body);
answer(Socket, {error, too_large}) ->
    send(Socket, "431 Request Header Fields Too Large", text, "The request's head is larger than 8 KiB.\n");
answer(Socket, {error, timeout}) ->
    send(Socket, "408 Request Timeout", text, "The request did not arrive within 5 seconds.\n");
answer(_Socket, {error, _Closed}) ->
    ok.

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

send(Socket, Status, Type, Body) ->
    gen_tcp:send(Socket, [
        ["HTTP/1.1 ", Status, "\r\n"],
        ["content-type: ", content_type(Type), "\r\n"],
        ["content-length: ", integer_to_binary(iolist_size(Body)), "\r\n"],
        ["livestash-agent: ", livestash_agent:version(), "\r\n"],
        "connection: close\r\n\r\n",
        Body
    ]).

content_type(text) -> "text/plain; charset=utf-8";
content_type(json) -> "application/json";
content_type(prometheus) -> "text/plain; version=0.0.4; charset=utf-8".
