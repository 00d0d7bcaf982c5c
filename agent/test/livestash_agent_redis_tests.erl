%% Does the agent find out what is wrong with Redis, in words, whatever the server does? The servers here are scripted;
%% livestash_agent_redis_real_tests has real ones.
-module(livestash_agent_redis_tests).

-include_lib("eunit/include/eunit.hrl").

-import(livestash_agent_fixture, [start/1, stop/1, call/2, call/4, eventually/1, request/2, free_port/0]).
-import(livestash_agent_redis_check, [with_check/2, with_check/3, says/1, connection/0]).

-define(GOOD, "+OK\r\n:1\r\n:1\r\n").

%% What the server sends when it was asked, and what the agent then says.
answers_test_() ->
    [
        {timeout, 60, {Name, fun() -> with_server(Answer, fun(Port) -> says(Port, Expected) end) end}}
     || {Name, Answer, Expected} <- [
            {"all is well", ?GOOD, ready},
            {"in pieces", {pieces, ?GOOD}, ready},
            {"user", "-WRONGPASS invalid username-password pair or user is disabled.\r\n", "refuses the user or the password"},
            {"password", "-ERR invalid password\r\n", "refuses the user or the password"},
            {"needless password",
                "-ERR AUTH <password> called without any password configured for the default user.\r\n", "has no password"},
            {"no users", "-ERR wrong number of arguments for 'auth' command\r\n", "knows no users"},
            {"missing password", "-NOAUTH Authentication required.\r\n", "asks for a password"},
            {"key", "+OK\r\n-NOPERM No permissions to access a key\r\n", "does not permit this user"},
            {"command in a script",
                "+OK\r\n-ERR ACL failure in script: User x has no permissions to run the 'hset' command script: 1\r\n",
                "does not permit this user"},
            {"replica", "+OK\r\n-READONLY You can't write against a read only replica. script: 1\r\n", "read-only replica"},
            {"replica before 7",
                "+OK\r\n-ERR Error running script (call to f_1): @user_script:1: @user_script: 1: "
                "-READONLY You can't write against a read only replica.\r\n",
                "read-only replica"},
            {"replica without master",
                "+OK\r\n-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
                "read-only replica"},
            {"memory", "+OK\r\n-OOM command not allowed when used memory > 'maxmemory'.\r\n", "is out of memory"},
            {"loading", "+OK\r\n-LOADING Redis is loading the dataset in memory\r\n", "is still loading"},
            {"disk", "+OK\r\n-MISCONF Redis is configured to save RDB snapshots\r\n", "cannot write to its disk"},
            {"replicas", "+OK\r\n-NOREPLICAS Not enough good replicas to write.\r\n", "too few replicas"},
            {"cluster", "+OK\r\n:1\r\n-MOVED 14820 10.0.0.2:6379\r\n", "cluster mode"},
            {"cluster that is down", "+OK\r\n-CLUSTERDOWN Hash slot not served\r\n", "cluster mode"},
            {"clients", {close, "-ERR max number of clients reached\r\n"}, "takes no more clients"},
            {"protected", {close, "-DENIED Redis is running in protected mode\r\n"}, "protected mode"},
            {"unknown to the agent", "+OK\r\n-ERR this is new\r\n", "refuses what LiveStash does, .*\"ERR this is new\""},
            {"not printable", "+OK\r\n-ERR \"\e[31m\0\n\r\n", "does not answer|refuses what LiveStash does"},
            {"closes", {close, ""}, "closes the connection without an answer: if this is its TLS port"},
            {"closes in the middle", {close, "+OK\r\n:1\r\n:1"}, "closes the connection"},
            {"is silent", "", "does not answer within 2 seconds"},
            {"is silent in the middle", "+OK\r\n:1\r\n", "does not answer within 2 seconds"},
            {"alert of TLS", <<21, 3, 1, 0, 2, 2, 70>>, "speaks TLS"},
            {"web server", "HTTP/1.1 400 Bad Request\r\n", "does not answer like Redis"},
            {"mail server", "+OK POP3 ready\r\n", "does not answer like Redis"},
            {"noise", <<0, 1, 2, 255>>, "does not answer like Redis"},
            {"another answer", "+OK\r\n$1\r\n1\r\n", "does not answer like Redis"},
            {"too many answers", ?GOOD ":1\r\n", "does not answer like Redis"},
            {"a number that is another one", "+OK\r\n:0\r\n:1\r\n", "does not answer like Redis"},
            {"a line without end", {repeat, lists:duplicate(65536, $+)}, "does not answer like Redis"},
            {"an error without end", ["-OOM " | lists:duplicate(65536, $x)], "does not answer like Redis"}
        ]
    ].

secrets_test_() ->
    [
        {timeout, 60, {Name, fun() -> with_server(Answer, fun keeps_secret/1) end}}
     || {Name, Answer} <- [
            {"in the answer to the login", "-ERR unknown command 'AUTH', with args beginning with: 'open sesame' \r\n"},
            {"cut off", "-ERR unknown command 'AUTH', with args beginning with: 'open ses"  "\r\n"},
            {"in another answer", "+OK\r\n-ERR open sesame\r\n"},
            {"as the code", "-open sesame\r\n"}
        ]
    ].

keeps_secret(Port) ->
    says(Port, "refuses"),
    {false, Sentence} = livestash_agent_redis:ready(),
    ?assertEqual(nomatch, re:run(Sentence, "open|esame")).

behaviour_test_() ->
    [{timeout, 120, Test} || Test <- [
        fun new_connection_follows_one_that_was_closed/0,
        fun never_two_connections/0,
        fun check_that_hangs_is_given_up/0,
        fun ended_connection_is_replaced/0,
        fun host_that_nobody_knows/0,
        fun port_that_nobody_listens_on/0,
        fun ipv6/0,
        fun bad_url_costs_nothing/0,
        fun nothing_is_checked_for_other_adapters/0
    ]].

%% A failover, a proxy's idle limit or a quick restart: no failure as long as a new connection is answered.
new_connection_follows_one_that_was_closed() ->
    with_server({close, ?GOOD}, fun(Port) ->
        says(Port, ready),
        eventually(fun() ->
            ?assertEqual({true, ""}, livestash_agent_redis:ready()),
            connections(Port) >= 3
        end)
    end).

never_two_connections() ->
    with_server({repeat, "x"}, fun(Port) ->
        eventually(fun() -> connections(Port) >= 3 end),
        ?assertEqual(1, most_connections(Port))
    end).

check_that_hangs_is_given_up() ->
    with_server(?GOOD, fun(Port) ->
        says(Port, ready),
        erlang:suspend_process(connection()),
        says("was given up"),
        says(Port, ready)
    end).

ended_connection_is_replaced() ->
    with_server(?GOOD, fun(Port) ->
        says(Port, ready),
        Before = connection(),
        exit(Before, kill),
        says("was given up"),
        says(Port, ready),
        ?assertNotEqual(Before, connection())
    end).

%% Two dots: no resolver needs the network to know that there is no such host.
host_that_nobody_knows() ->
    with_check("redis://nobody..knows", fun() -> says("^Redis at nobody..knows:6379 .* DNS does not know the host") end).

port_that_nobody_listens_on() ->
    Port = free_port(),
    with_check(url(Port), fun() -> says(Port, "refuses connections") end).

ipv6() ->
    with_check(lists:concat(["redis://[::1]:", free_port()]), fun() ->
        says("^Redis at \\[::1\\]:[0-9]+ (refuses connections|cannot be connected)")
    end).

%% In a VM as the operator makes it.
bad_url_costs_nothing() ->
    [
        begin
            Vm = start(#{environment => #{"LIVE_STASH_ADAPTER" => "redis", "LIVE_STASH_REDIS_URL" => Url}}),
            eventually(fun() ->
                Answer = request(Vm, "/status"),
                is_binary(Answer) andalso re:run(Answer, ["\"reason\":\"[^\"]*", Expected]) =/= nomatch
            end),
            ?assertEqual(nomatch, re:run(request(Vm, "/status"), "secret")),
            ?assert(lists:keymember(livestash_agent, 1, call(Vm, application, which_applications, []))),
            stop(Vm)
        end
     || {Url, Expected} <- [
            {"redis://:secret@ho st", "LIVE_STASH_REDIS_URL cannot be read"},
            {"", "LIVE_STASH_REDIS_URL is not set"},
            %% Nothing has started Erlang's ssl there.
            {lists:concat(["rediss://:secret@127.0.0.1:", listening()]), "without Erlang's ssl"}
        ]
    ].

nothing_is_checked_for_other_adapters() ->
    with_server(?GOOD, fun(Port) ->
        says(Port, ready),
        Vm = start(#{environment => #{"LIVE_STASH_ADAPTER" => "ets", "LIVE_STASH_REDIS_URL" => url(Port)}}),
        eventually(fun() -> is_binary(request(Vm, "/healthz")) end),
        ?assertEqual(undefined, call(Vm, erlang, whereis, [livestash_agent_redis])),
        stop(Vm),
        ?assertEqual(1, most_connections(Port))
    end).

%% TLS.

tls_test_() ->
    Local = {dNSName, "localhost"},
    Names = [Local, {iPAddress, <<127, 0, 0, 1>>}],
    {setup, fun() -> {ok, Started} = application:ensure_all_started(ssl), Started end,
        fun(Started) -> [application:stop(Application) || Application <- lists:reverse(Started)] end,
        [
            {timeout, 60, {Name, fun() -> tls(Host, Peer, Server, Authorities, Expected) end}}
         || {Name, Host, Peer, Server, Authorities, Expected} <- [
                {"all is well", "localhost", [san(Names)], [], own, ready},
                {"by address", "127.0.0.1", [san(Names)], [], own, ready},
                {"TLS 1.2", "localhost", [san(Names)], [{versions, ['tlsv1.2']}], own, ready},
                {"known to the system", "localhost", [san(Names)], [], system, ready},
                {"unknown to the system", "localhost", [san(Names)], [], none, without_authorities()},
                {"another authority", "localhost", [san(Names)], [], other, "no known CA has signed: give the CA"},
                {"no such file", "localhost", [san(Names)], [], missing, "LIVE_STASH_REDIS_CACERTFILE cannot be read"},
                {"file without certificates", "localhost", [san(Names)], [], empty, "CA"},
                {"another name", "localhost", [san([{dNSName, "other.test"}])], [], own, "for other names than localhost"},
                {"another address", "127.0.0.1", [san([Local])], [], own, "for other names than 127.0.0.1"},
                {"wildcard", "localhost", [san([{dNSName, "*.localhost"}])], [], own, "for other names than localhost"},
                {"expired", "localhost", [san(Names), {validity, {{2001, 1, 1}, {2002, 1, 1}}}], [], own, "expired"},
                {"wants a certificate", "localhost", [san(Names)],
                    [{verify, verify_peer}, {fail_if_no_peer_cert, true}], own, "asks for a client certificate"},
                {"wants one, TLS 1.2", "localhost", [san(Names)],
                    [{verify, verify_peer}, {fail_if_no_peer_cert, true}, {versions, ['tlsv1.2']}], own, "cannot agree on TLS"}
            ]
        ] ++ [
            {timeout, 60, {"plain server, " ++ Name, fun() -> plain(Answer) end}}
         || {Name, Answer} <- [{"answers", "-ERR unknown command\r\n"}, {"closes", {close, ""}}, {"is silent", ""}]
        ] ++ [{timeout, 60, {"plain URL", fun plain_url/0}}]
    }.

tls(Host, Peer, ServerOptions, Authorities, Expected) ->
    {Server, Own} = certificates(Peer),
    with_tls_server(Server ++ ServerOptions, fun(Port) ->
        Url = lists:concat(["rediss://:open%20sesame@", Host, ":", Port]),
        with_check(Url, authorities(Authorities, Own), fun() -> says(Host, Port, Expected) end)
    end),
    public_key:cacerts_clear().

%% A server that speaks no TLS.
plain(Answer) ->
    {_Server, Own} = certificates([]),
    with_listener(Answer, fun(Port) ->
        with_check(lists:concat(["rediss://127.0.0.1:", Port]), authorities(own, Own), fun() ->
            says(Port, "does not answer in TLS: if this is its port without TLS, write redis://")
        end)
    end).

plain_url() ->
    {Server, _Own} = certificates([]),
    with_tls_server(Server, fun(Port) -> with_check(url(Port), fun() -> says(Port, "TLS.*rediss://") end) end).

%% Slim images have no certificates at all.
without_authorities() ->
    try public_key:cacerts_get() of
        _ -> "no known CA has signed"
    catch
        error:_ -> "this image has no CA certificates"
    end.

%% The file that the agent is given; with none of its own, the system's are what it is told here.
authorities(own, Own) ->
    [{"LIVE_STASH_REDIS_CACERTFILE", file("own.pem", Own)}];
authorities(system, Own) ->
    ok = public_key:cacerts_load(file("system.pem", Own)),
    [];
authorities(none, _Own) ->
    [];
authorities(other, _Own) ->
    {_Server, Other} = certificates([]),
    [{"LIVE_STASH_REDIS_CACERTFILE", file("other.pem", Other)}];
authorities(missing, _Own) ->
    [{"LIVE_STASH_REDIS_CACERTFILE", "/nowhere/ca.crt"}];
authorities(empty, _Own) ->
    [{"LIVE_STASH_REDIS_CACERTFILE", file("empty.pem", [])}].

file(Name, Certificates) ->
    File = filename:join(os:getenv("TESTS"), lists:concat([erlang:unique_integer([positive]), Name])),
    Pem = public_key:pem_encode([{'Certificate', Certificate, not_encrypted} || Certificate <- Certificates]),
    ok = file:write_file(File, Pem),
    File.

%% A server's options, and the authorities that know it. Peer: options of its certificate.
certificates(Peer) ->
    Key = [{digest, sha256}, {key, {namedCurve, secp256r1}}],
    Chain = #{root => Key, intermediates => [], peer => Key ++ Peer},
    #{server_config := Server, client_config := Client} =
        public_key:pkix_test_data(#{server_chain => Chain, client_chain => Chain#{peer := Key}}),
    {Server, proplists:get_value(cacerts, Client)}.

san(Names) ->
    {extensions, [{'Extension', {2, 5, 29, 17}, false, Names}]}.

with_tls_server(Options, Test) ->
    {ok, Listener} = ssl:listen(0, [binary, {active, false}, {reuseaddr, true}, {log_level, none} | Options]),
    {ok, {_Address, Port}} = ssl:sockname(Listener),
    Server = spawn(fun() -> tls_accept(Listener) end),
    Test(Port),
    exit(Server, kill),
    ok = ssl:close(Listener).

tls_accept(Listener) ->
    {ok, Connecting} = ssl:transport_accept(Listener),
    case ssl:handshake(Connecting, 20000) of
        {ok, Socket} ->
            {ok, _Request} = ssl:recv(Socket, 0),
            ok = ssl:send(Socket, ?GOOD);
        {error, _Failed} ->
            ok
    end,
    tls_accept(Listener).

says(Port, Expected) ->
    says("127.0.0.1", Port, Expected).

%% Also that the sentence names the server.
says(_Host, _Port, ready) ->
    says(ready),
    ?assert(livestash_agent_redis:round_trip() > 0);
says(Host, Port, Expected) ->
    says(lists:concat(["^Redis at ", Host, ":", Port, " .*(", Expected, ").*\\.$"])),
    ?assertEqual(undefined, livestash_agent_redis:round_trip()).

url(Port) ->
    lists:concat(["redis://:open%20sesame@127.0.0.1:", Port]).

with_server(Answer, Test) ->
    with_listener(Answer, fun(Port) -> with_check(url(Port), fun() -> Test(Port) end) end).

%% A server that sends its answer to whatever comes. {close, Answer}: and closes; {pieces, Answer}: byte by byte;
%% {repeat, Answer}: without end.
with_listener(Answer, Test) ->
    {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}, {reuseaddr, true}, {nodelay, true}]),
    {ok, Port} = inet:port(Listener),
    Counters = counters:new(3, []),
    persistent_term:put({?MODULE, Port}, Counters),
    Server = spawn_link(fun() -> accept(Listener, Answer, Counters) end),
    try
        Test(Port)
    after
        unlink(Server),
        exit(Server, kill),
        gen_tcp:close(Listener),
        persistent_term:erase({?MODULE, Port})
    end.

accept(Listener, Answer, Counters) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    ok = counters:add(Counters, 1, 1),
    ok = counters:add(Counters, 2, 1),
    Most = max(counters:get(Counters, 3), counters:get(Counters, 2)),
    ok = counters:put(Counters, 3, Most),
    Server = self(),
    Pid = spawn_link(fun() -> receive go -> answer(Socket, Answer), counters:sub(Counters, 2, 1), unlink(Server) end end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Listener, Answer, Counters).

answer(Socket, Answer) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, _Request} -> respond(Socket, Answer);
        {error, _Closed} -> ok
    end.

respond(Socket, {close, Answer}) ->
    ok = gen_tcp:send(Socket, Answer);
respond(Socket, {pieces, Answer}) ->
    [ok = gen_tcp:send(Socket, [Byte]) || Byte <- Answer],
    answer(Socket, {pieces, Answer});
respond(Socket, {repeat, Answer}) ->
    case gen_tcp:send(Socket, Answer) of
        ok -> respond(Socket, {repeat, Answer});
        {error, _Closed} -> ok
    end;
respond(Socket, Answer) ->
    _ = gen_tcp:send(Socket, Answer),
    answer(Socket, Answer).

connections(Port) ->
    counters:get(persistent_term:get({?MODULE, Port}), 1).

most_connections(Port) ->
    counters:get(persistent_term:get({?MODULE, Port}), 3).

%% A port that accepts, until the tests end.
listening() ->
    Port = free_port(),
    _ = livestash_agent_fixture:listen(Port),
    Port.
