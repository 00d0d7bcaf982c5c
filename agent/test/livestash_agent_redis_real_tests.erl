%% Does the agent tell what is wrong with a real Redis, and does it leave nothing in it?
-module(livestash_agent_redis_real_tests).

-include_lib("eunit/include/eunit.hrl").

-import(livestash_agent_fixture, [free_port/0]).
-import(livestash_agent_redis_server, [command/2]).
-import(livestash_agent_redis_check, [with_check/2, says/1]).

redis_test_() ->
    [{timeout, 120, Test} || Test <- [
        fun leaves_nothing/0,
        fun least_permissions/0,
        fun advised_permissions/0,
        fun password/0,
        fun changed_password/0,
        fun missing_permission/0,
        fun unknown_database/0,
        fun replica_and_its_promotion/0,
        fun memory/0,
        fun disk/0,
        fun loading/0,
        fun clients/0,
        fun cluster_mode/0,
        fun restart/0
    ]].

leaves_nothing() ->
    with_redis([], "", "/3", fun(Redis) ->
        says(ready),
        ?assertEqual(<<":0">>, command(Redis, "EVAL \"redis.call('SELECT', 3) return redis.call('DBSIZE')\" 0"))
    end).

%% What the managed Redis permits the fleet.
least_permissions() ->
    User = words("--user livestash on >open~sesame ~live_stash:* +@all -@admin -@dangerous +info +role"),
    with_redis(User, "livestash:open~sesame@", "", fun(_Redis) -> says(ready) end).

%% The agent's own advice, word for word. Whoever follows it may not choose a database.
advised_permissions() ->
    User = words("--user livestash on >x ~live_stash:* -@all +eval +evalsha +hget +hset +expire +del"),
    with_redis(User, "livestash:x@", "", fun(_Redis) -> says(ready) end),
    with_redis(User, "livestash:x@", "/0", fun(_Redis) -> says("choose a database: leave the database out of the URL") end).

password() ->
    with_redis(["--requirepass", "open/sesame"], ":open%2Fsesame@", "", fun(_Redis) -> says(ready) end),
    with_redis(["--requirepass", "open/sesame"], ":sesame@", "", fun(_Redis) -> says("refuses the user or the password") end),
    with_redis(["--requirepass", "sesame"], "nobody:sesame@", "", fun(_Redis) -> says("refuses the user or the password") end),
    with_redis(["--requirepass", "sesame"], "", "", fun(_Redis) -> says("asks for a password") end),
    with_redis([], ":sesame@", "", fun(_Redis) -> says("has no password") end).

%% What is open stays open in Redis, but the next connection would be refused.
changed_password() ->
    with_redis(words("--user livestash on >old ~* +@all"), "livestash:old@", "", fun(Redis) ->
        says(ready),
        ?assertEqual(<<"+OK">>, command(Redis, "ACL SETUSER livestash <old >new")),
        says("refuses the user or the password")
    end).

missing_permission() ->
    [
        with_redis(words("--user livestash on >x " ++ Rules), "livestash:x@", "", fun(_Redis) ->
            says("does not permit this user what LiveStash does")
        end)
     || Rules <- ["~other:* +@all", "~* +@all -eval", "~* +@all -hset", "~* +@all -del"]
    ].

unknown_database() ->
    with_redis([], "", "/99", fun(_Redis) -> says("has no database 99") end).

replica_and_its_promotion() ->
    Master = livestash_agent_redis_server:start(free_port(), []),
    #{port := Port} = Master,
    with_redis(["--replicaof", "127.0.0.1", integer_to_list(Port)], "", "", fun(Redis) ->
        says("is a read-only replica"),
        ?assertMatch(<<"+OK", _/binary>>, command(Redis, "REPLICAOF NO ONE")),
        says(ready),
        %% And back: a failover that leaves the connection open.
        ?assertMatch(<<"+OK", _/binary>>, command(Redis, ["REPLICAOF 127.0.0.1 ", integer_to_list(Port)])),
        says("is a read-only replica")
    end),
    livestash_agent_redis_server:stop(Master).

memory() ->
    with_redis(["--maxmemory", "1", "--maxmemory-policy", "noeviction"], "", "", fun(Redis) ->
        says("is out of memory"),
        ?assertEqual(<<"+OK">>, command(Redis, "CONFIG SET maxmemory 0")),
        says(ready)
    end).

%% A snapshot into a folder that is not there.
disk() ->
    with_redis(["--save", "3600 1"], "", "", fun(Redis) ->
        says(ready),
        Folder = filename:join(os:getenv("TESTS"), "redis." ++ integer_to_list(maps:get(port, Redis))),
        ok = file:del_dir_r(Folder),
        ?assertMatch(<<"+", _/binary>>, command(Redis, "BGSAVE")),
        says("cannot write to its disk")
    end).

%% A thousand keys, each of which would take 0.1 seconds, and is large enough for Redis to answer after it.
loading() ->
    Port = free_port(),
    Filled = livestash_agent_redis_server:start(Port, ["--rdbcompression", "no"]),
    Fill = "EVAL \"for i = 1, 1000 do redis.call('SET', i, string.rep('x', 2048)) end return 1\" 0",
    ?assertEqual(<<":1">>, command(Filled, Fill)),
    ?assertEqual(<<"+OK">>, command(Filled, "SAVE")),
    livestash_agent_redis_server:stop(Filled),
    Slow = ["--key-load-delay", "100000", "--loading-process-events-interval-bytes", "1024"],
    with_redis(Port, Slow, "", "", fun(Redis) ->
        says("is still loading its data"),
        ?assertEqual(<<"+OK">>, command(Redis, "CONFIG SET key-load-delay 0")),
        says(ready)
    end).

clients() ->
    #{port := Port} = Redis = livestash_agent_redis_server:start(free_port(), ["--maxclients", "1"]),
    Socket = only_client(Port),
    with_check(url("", Port, ""), fun() ->
        says("takes no more clients"),
        ok = gen_tcp:close(Socket),
        says(ready)
    end),
    livestash_agent_redis_server:stop(Redis).

%% Redis may not yet have noticed that the one before is gone.
only_client(Port) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    _ = gen_tcp:send(Socket, "PING\r\n"),
    case gen_tcp:recv(Socket, 0, 20000) of
        {ok, <<"+PONG", _/binary>>} -> Socket;
        _ -> only_client(Port)
    end.

cluster_mode() ->
    with_redis(["--cluster-enabled", "yes"], "", "", fun(_Redis) -> says("runs in cluster mode") end).

restart() ->
    Port = free_port(),
    with_check(url("", Port, ""), fun() ->
        [
            begin
                Redis = livestash_agent_redis_server:start(Port, []),
                says(ready),
                livestash_agent_redis_server:stop(Redis),
                says("refuses connections")
            end
         || _ <- [1, 2]
        ]
    end).

with_redis(Arguments, Login, Database, Test) ->
    with_redis(free_port(), Arguments, Login, Database, Test).

with_redis(Port, Arguments, Login, Database, Test) ->
    Redis = livestash_agent_redis_server:start(Port, Arguments),
    try
        with_check(url(Login, Port, Database), fun() -> Test(Redis) end)
    after
        livestash_agent_redis_server:stop(Redis)
    end.

words(Text) ->
    string:lexemes(Text, " ").

url(Login, Port, Database) ->
    lists:concat(["redis://", Login, "127.0.0.1:", Port, Database]).
