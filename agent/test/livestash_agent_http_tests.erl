%% Does the server answer what it should, and does nothing that is sent to it hurt it or the VM?
-module(livestash_agent_http_tests).

-include_lib("eunit/include/eunit.hrl").

-import(livestash_agent_fixture, [start/1, stop/1, call/4, eventually/1, request/2, send/2, body/1]).

%% Called in the VM under test.
-export([overloaded/0, busy/1]).

-define(CONNECTIONS, 64).
-define(BUSY, 20000).
%% So many questions a second come before the application's work.
-define(URGENT, 20).

http_test_() ->
    [{timeout, 60, {Name, fun() -> unharmed(Test) end}} || {Name, Test} <- [
        {"answers by path and method", fun answers/1},
        {"five hundred scrapes at once are all answered", fun scrapes/1},
        {"an application that is far too busy", fun overload/1},
        {"garbage", fun garbage/1},
        {"random bytes", fun random_bytes/1},
        {"a header of 1 MB", fun large_header/1},
        {"a header that never ends", fun endless_header/1},
        {"clients that send nothing do not keep others out", fun silence/1},
        {"clients that do not read their answer do not keep others out", fun deafness/1},
        {"clients that go away", fun absence/1},
        {"several requests over one connection", fun kept_connection/1},
        {"when a connection ends with its answer", fun ending_connection/1},
        {"the rest of a request that never comes", fun half_a_request/1},
        {"idle connections end without a word", fun idleness/1},
        {"idle connections do not keep others out", fun hoarding/1},
        {"a crowd on the port does not keep the probe out", fun crowd/1},
        {"a crowd on the probe's socket does not keep others out", fun local_crowd/1}
    ]].

%% After each test the same server answers, with no process left over.
unharmed(Test) ->
    Vm = start(#{}),
    eventually(fun() -> status(request(Vm, "/healthz")) =:= <<"200">> end),
    Server = call(Vm, erlang, whereis, [livestash_agent_http]),
    Processes = call(Vm, erlang, system_info, [process_count]),
    Test(Vm),
    eventually(fun() -> status(request(Vm, "/healthz")) =:= <<"200">> end),
    eventually(fun() -> call(Vm, erlang, system_info, [process_count]) =< Processes end),
    ?assertEqual(Server, call(Vm, erlang, whereis, [livestash_agent_http])),
    stop(Vm).

answers(Vm) ->
    Answers = [
        {<<"200">>, "GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n"},
        {<<"200">>, "GET /healthz HTTP/1.0\r\n\r\n"},
        {<<"200">>, "GET /healthz?why=not HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"},
        {<<"200">>, "GET /readyz HTTP/1.1\r\nconnection: close\r\n\r\n"},
        {<<"200">>, "GET /status HTTP/1.1\r\nconnection: close\r\n\r\n"},
        {<<"200">>, "GET /metrics HTTP/1.1\r\nconnection: close\r\n\r\n"},
        {<<"404">>, "GET / HTTP/1.1\r\nconnection: close\r\n\r\n"},
        {<<"404">>, "GET /metrics/ HTTP/1.1\r\nconnection: close\r\n\r\n"},
        {<<"404">>, "GET /../../etc/passwd HTTP/1.1\r\nconnection: close\r\n\r\n"},
        {<<"405">>, "POST /status HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc"},
        {<<"405">>, "HEAD /healthz HTTP/1.1\r\n\r\n"},
        {<<"400">>, "GET /healthz\r\n\r\n"},
        {<<"400">>, "GET /healthz HTTP/2\r\n\r\n"},
        {<<"400">>, "GET  /healthz HTTP/1.1\r\n\r\n"},
        {<<"400">>, "\r\n\r\n"}
    ],
    [?assertEqual({Request, Status}, {Request, status(send(port(Vm), Request))}) || {Status, Request} <- Answers],
    [
        ?assertMatch({_, _}, binary:match(send(port(Vm), Request), <<"\r\nlivestash-agent: 0.1.0\r\n">>))
     || {_Status, Request} <- Answers
    ].

scrapes(Vm) ->
    Test = self(),
    Paths = ["/metrics", "/status", "/readyz", "/healthz"],
    Scrapers = [
        spawn_monitor(fun() ->
            Answer = request(Vm, lists:nth(1 + N rem 4, Paths)),
            Length = byte_size(body(Answer)),
            {match, [Announced]} = re:run(Answer, "content-length: ([0-9]+)", [{capture, all_but_first, list}]),
            Test ! {self(), {status(Answer), Length =:= list_to_integer(Announced)}}
        end)
     %% The client may have no more than 1,024 file descriptors.
     || N <- lists:seq(1, 500)
    ],
    Results = [
        receive
            {Pid, Result} -> Result;
            {'DOWN', Monitor, process, Pid, Reason} -> Reason
        end
     || {Pid, Monitor} <- Scrapers
    ],
    ?assertEqual([{<<"200">>, true}], lists:usort(Results)).

%% Who waits for its turn among processes that always have something to do has let each of them have its own first. The first to ask in a second do
%% not wait.
overload(Vm) ->
    [
        {module, Module} = call(Vm, code, load_binary, [Module, File, Code])
     || {Module, Code, File} <- [code:get_object_code(Name) || Name <- [?MODULE, livestash_agent_fixture]]
    ],
    {First, Crowd} = call(Vm, ?MODULE, overloaded, []),
    ?assertEqual([<<"200">>], lists:usort([Status || {_Path, Status, _Turns} <- First])),
    %% Those that wait do so again and again, 66 rounds in all. Not all of it is waiting for a turn: a machine may be slow to read a file.
    ?assertMatch(Few when Few < 10 * ?BUSY, lists:sum([Turns || {_Path, _Status, Turns} <- First])),
    %% Of many in a second not all do.
    ?assertEqual([<<"200">>], lists:usort([Status || {_Path, Status, _Turns} <- Crowd])),
    ?assertMatch(Most when Most > ?BUSY div 2, lists:max([Turns || {_Path, _Status, Turns} <- Crowd])).

overloaded() ->
    process_flag(priority, high),
    %% With one scheduler there is one queue.
    Online = erlang:system_flag(schedulers_online, 1),
    Turns = counters:new(1, []),
    Port = livestash_agent_config:get(port),
    %% What the first answer has to find out is known by then.
    <<"200">> = status(request(Port, "/metrics")),
    Busy = [spawn(?MODULE, busy, [Turns]) || _ <- lists:seq(1, ?BUSY)],
    eventually(fun() -> counters:get(Turns, 1) > ?BUSY end),
    Ask = fun(Path) ->
        Before = counters:get(Turns, 1),
        Status = status(request(Port, Path)),
        {Path, Status, counters:get(Turns, 1) - Before}
    end,
    First = [Ask(Path) || Path <- ["/healthz", "/readyz", "/status", "/metrics"]],
    Test = self(),
    Many = [spawn_opt(fun() -> Test ! {self(), Ask("/healthz")} end, [{priority, high}]) || _ <- lists:seq(1, 3 * ?URGENT)],
    Crowd = [receive {Pid, Answer} -> Answer end || Pid <- Many],
    [exit(Pid, kill) || Pid <- Busy],
    _ = erlang:system_flag(schedulers_online, Online),
    {First, Crowd}.

%% A turn is less than the VM would give it, or it would count only every second one.
busy(Turns) ->
    ok = work(3000),
    counters:add(Turns, 1, 1),
    erlang:yield(),
    busy(Turns).

work(0) -> ok;
work(N) -> work(N - 1).

garbage(Vm) ->
    [
        ?assertEqual({Bytes, <<"400">>}, {Bytes, status(send(port(Vm), [Bytes, "\r\n\r\n"]))})
     || Bytes <- [
            <<0>>,
            <<255, 254, 0, 1, 2>>,
            <<22, 3, 1, 2, 0, 1, 0>>,
            <<16#f0, 16#9f>>,
            "GET",
            "GET / ",
            "   ",
            "GET \0 HTTP/9"
        ]
    ].

%% Every seed is another client, and a failure names it.
random_bytes(Vm) ->
    [
        begin
            rand:seed(exsss, Seed),
            Bytes = rand:bytes(rand:uniform(6000)),
            ?assertEqual({Seed, <<"400">>}, {Seed, status(send(port(Vm), [Bytes, "\r\n\r\n"]))})
        end
     || Seed <- lists:seq(1, 200)
    ].

%% The server does not read it to its end, so the answer may be lost on the way.
large_header(Vm) ->
    Answer = send(port(Vm), ["GET /healthz HTTP/1.1\r\nx: ", binary:copy(<<"x">>, 1000000), "\r\n\r\n"]),
    ?assert(lists:member(status(Answer), [<<"431">>, none])),
    ?assertEqual(<<"431">>, status(send(port(Vm), ["GET /healthz HTTP/1.1\r\nx: ", binary:copy(<<"x">>, 8200)]))).

endless_header(Vm) ->
    Socket = connect(Vm),
    ?assertMatch({error, _}, trickle(Socket, "GET /healthz HTTP/1.1\r\n")).

%% One byte at a time, as slowloris does it.
trickle(Socket, Bytes) ->
    case gen_tcp:send(Socket, Bytes) of
        ok ->
            timer:sleep(200),
            trickle(Socket, "x");
        Error ->
            Error
    end.

silence(Vm) ->
    Sockets = [connect(Vm) || _ <- lists:seq(1, 4 * ?CONNECTIONS)],
    eventually(fun() -> status(request(Vm, "/healthz")) =:= <<"200">> end),
    [gen_tcp:close(Socket) || Socket <- Sockets].

deafness(Vm) ->
    Sockets = [connect(Vm) || _ <- lists:seq(1, 2 * ?CONNECTIONS)],
    [gen_tcp:send(Socket, "GET /metrics HTTP/1.1\r\n\r\n") || Socket <- Sockets],
    eventually(fun() -> status(request(Vm, "/healthz")) =:= <<"200">> end),
    [gen_tcp:close(Socket) || Socket <- Sockets].

absence(Vm) ->
    [
        begin
            Socket = connect(Vm),
            ok = inet:setopts(Socket, [{linger, {true, 0}}]),
            _ = gen_tcp:send(Socket, lists:sublist("GET /metrics HTTP/1.1\r\n\r\n", N rem 26)),
            gen_tcp:close(Socket)
        end
     || N <- lists:seq(1, 300)
    ].

kept_connection(Vm) ->
    Socket = connect(Vm),
    [
        begin
            ok = gen_tcp:send(Socket, ["GET ", Path, " HTTP/1.1\r\nhost: x\r\n\r\n"]),
            ?assertMatch({Path, Status, <<"keep-alive">>, _}, list_to_tuple([Path | one_answer(Socket)]))
        end
     || {Status, Path} <- [{<<"200">>, "/status"}, {<<"200">>, "/metrics"}, {<<"404">>, "/"}, {<<"200">>, "/healthz"}]
    ],
    %% In pieces, and the last one.
    [ok = gen_tcp:send(Socket, Piece) || Piece <- ["GET /heal", "thz HTTP/1.1\r\nConn", "ection: Close\r\n\r", "\n"]],
    ?assertEqual([<<"200">>, <<"close">>, <<"ok\n">>], one_answer(Socket)),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, 10000)).

ending_connection(Vm) ->
    [
        begin
            Socket = connect(Vm),
            ok = gen_tcp:send(Socket, Request),
            ?assertMatch({Request, [_, <<"close">>, _]}, {Request, one_answer(Socket)}),
            ?assertMatch({Request, {error, _}}, {Request, gen_tcp:recv(Socket, 0, 10000)})
        end
     || Request <- [
            "GET /healthz HTTP/1.0\r\n\r\n",
            "GET /healthz HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
            "GET /healthz HTTP/1.1\r\nCONNECTION:close\r\n\r\n",
            "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: te, close\r\na: b\r\n\r\n",
            "GET /healthz HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc",
            "GET /healthz HTTP/1.1\r\ncontent-length: 3\r\n\r\n",
            "GET /healthz HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
            "GET /healthz HTTP/1.1\r\n\r\nGET /status HTTP/1.1\r\n\r\n",
            "POST /healthz HTTP/1.1\r\n\r\n",
            "HEAD /healthz HTTP/1.1\r\n\r\n",
            "GET /a b HTTP/1.1\r\n\r\n"
        ]
    ].

half_a_request(Vm) ->
    Socket = connect(Vm),
    ok = gen_tcp:send(Socket, "GET /healthz HTTP/1.1\r\n\r\n"),
    ?assertMatch([<<"200">>, <<"keep-alive">>, _], one_answer(Socket)),
    ok = gen_tcp:send(Socket, "GET /healthz HTTP/1.1\r\n"),
    ?assertMatch([<<"408">>, <<"close">>, _], one_answer(Socket)).

idleness(Vm) ->
    Socket = connect(Vm),
    ok = gen_tcp:send(Socket, "GET /healthz HTTP/1.1\r\n\r\n"),
    ?assertMatch([<<"200">>, <<"keep-alive">>, _], one_answer(Socket)),
    ?assertEqual({error, closed}, gen_tcp:recv(Socket, 0, 30000)).

%% Half of the connections stay at most, whoever asks for it; the others are for all the rest.
hoarding(Vm) ->
    Sockets = [connect(Vm) || _ <- lists:seq(1, ?CONNECTIONS)],
    Kept = [
        begin
            ok = gen_tcp:send(Socket, "GET /healthz HTTP/1.1\r\n\r\n"),
            [<<"200">>, Connection, _] = one_answer(Socket),
            Connection
        end
     || Socket <- Sockets
    ],
    ?assertEqual(?CONNECTIONS div 2, length([Connection || Connection <- Kept, Connection =:= <<"keep-alive">>])),
    [?assertEqual(<<"200">>, status(request(Vm, "/healthz"))) || _ <- lists:seq(1, 2 * ?CONNECTIONS)],
    [gen_tcp:close(Socket) || Socket <- Sockets],
    %% Those that are gone make room.
    eventually(fun() ->
        Socket = connect(Vm),
        ok = gen_tcp:send(Socket, "GET /healthz HTTP/1.1\r\n\r\n"),
        [_, Connection, _] = one_answer(Socket),
        gen_tcp:close(Socket),
        Connection =:= <<"keep-alive">>
    end).

%% They are silent until the server's patience ends, which is longer than the probe's.
crowd(Vm) ->
    Sockets = [connect(Vm) || _ <- lists:seq(1, 80)],
    timer:sleep(100),
    [?assertMatch({Path, [<<"200">>, <<"close">>, _]}, {Path, ask_locally(Vm, Path)}) || Path <- ["/readyz", "/healthz"]],
    [?assertEqual({error, timeout}, gen_tcp:recv(Socket, 0, 0)) || Socket <- Sockets],
    [gen_tcp:close(Socket) || Socket <- Sockets].

local_crowd(Vm) ->
    Sockets = [connect_locally(Vm) || _ <- lists:seq(1, 80)],
    timer:sleep(100),
    ?assertEqual(<<"200">>, status(request(Vm, "/healthz"))),
    [?assertEqual({error, timeout}, gen_tcp:recv(Socket, 0, 0)) || Socket <- Sockets],
    [gen_tcp:close(Socket) || Socket <- Sockets],
    eventually(fun() -> hd(ask_locally(Vm, "/healthz")) =:= <<"200">> end).

ask_locally(Vm, Path) ->
    Socket = connect_locally(Vm),
    ok = gen_tcp:send(Socket, ["GET ", Path, " HTTP/1.1\r\n\r\n"]),
    Answer = one_answer(Socket),
    gen_tcp:close(Socket),
    Answer.

connect_locally(Vm) ->
    Name = iolist_to_binary([0, "livestash-agent-", integer_to_list(port(Vm))]),
    {ok, Socket} = gen_tcp:connect({local, Name}, 0, [binary, {active, false}]),
    Socket.

%% The status, the header connection, and the body, of one answer and no more.
one_answer(Socket) ->
    one_answer(Socket, <<>>).

one_answer(Socket, Bytes) ->
    {ok, More} = gen_tcp:recv(Socket, 0, 20000),
    Answer = <<Bytes/binary, More/binary>>,
    case re:run(Answer, "content-length: ([0-9]+)\r.*connection: ([a-z-]+)\r\n\r\n(.*)$", [dotall, {capture, all_but_first, binary}]) of
        {match, [Length, Connection, Body]} ->
            case byte_size(Body) - binary_to_integer(Length) of
                0 -> [status(Answer), Connection, Body];
                Less when Less < 0 -> one_answer(Socket, Answer)
            end;
        nomatch ->
            one_answer(Socket, Answer)
    end.

connect(Vm) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, port(Vm), [binary, {active, false}, {recbuf, 1024}]),
    Socket.

port(#{port := Port}) ->
    Port.

status(<<"HTTP/1.1 ", Status:3/binary, _/binary>>) -> Status;
status(_) -> none.
