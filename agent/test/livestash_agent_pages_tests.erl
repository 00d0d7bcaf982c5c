%% Does the agent know the keys of pages whose stashes are in Redis, and do those stashes live on after a drain?
-module(livestash_agent_pages_tests).

-include_lib("eunit/include/eunit.hrl").

-import(livestash_agent_fixture, [start/1, stop/1, call/2, call/4, eventually/1, free_port/0, request/2]).
-import(livestash_agent_redis_server, [command/2]).

-define(MOUNT, [phoenix, live_view, mount, stop]).
-define(RENDER, [phoenix, live_view, render, stop]).
-define(SECRET, <<"live_stash">>).
%% Seconds: the TTL of the pages here, and for how long a drain keeps their stashes.
-define(TTL, 20).
-define(KEPT, 3600).
%% What the agent advises to permit.
-define(ADVISED, "--user livestash on >x ~live_stash:* -@all +eval +evalsha +hget +hset +expire +del").

no_shape_fails_test_() ->
    {setup, fun began/0, fun ended/1, [
        ?_assertEqual(ok, livestash_agent_pages:handle(?MOUNT, #{}, Metadata, []))
     || Metadata <- [
            #{},
            #{socket => nil},
            #{socket => #{private => nil}},
            socket(nil),
            socket(#{}),
            socket((context(<<"a">>))#{id := 1}),
            socket((context(<<"a">>))#{id := binary:copy(<<"x">>, 2000)}),
            socket((context(<<"a">>))#{secret := nil}),
            socket((context(<<"a">>))#{ttl := 0})
        ]
    ] ++ [?_assertEqual([], livestash_agent_pages:alive())]}.

%% The agent may have ended.
no_table_fails_test() ->
    ?assertEqual(ok, livestash_agent_pages:handle(?MOUNT, #{}, socket(context(<<"a">>)), [])),
    ?assertEqual([], livestash_agent_pages:alive()).

%% 1,500 stashes of 24 kB are more than a process of the agent may have on its heap, and a pod that stops may be short of memory.
large_stashes_test() ->
    Table = ets:new(stashes, [public, {keypos, 2}]),
    [ets:insert(Table, {state, N, self(), 1000, #{all => lists:seq(1, 1500)}, undefined}) || N <- lists:seq(1, 1500)],
    Look = fun() -> exit({pages, ets:tab2list(livestash_agent_keep:pages([Table]))}) end,
    {Pid, Monitor} = spawn_opt(Look, [monitor, {max_heap_size, livestash_agent:max_heap_size()}]),
    receive
        {'DOWN', Monitor, process, Pid, Found} -> ?assertEqual({pages, [{self()}]}, Found)
    end.

pages_test_() ->
    {foreach, fun began/0, fun ended/1, [
        fun() ->
            Page = page([context(<<"a">>)]),
            ?assertEqual([Page], livestash_agent_pages:alive()),
            close(Page),
            ?assertEqual([], livestash_agent_pages:alive())
        end,
        %% A request without a socket.
        fun() ->
            #{socket := Socket} = socket(context(<<"a">>)),
            ok = livestash_agent_pages:handle(?MOUNT, #{}, #{socket => Socket#{transport_pid := nil}}, []),
            ?assertEqual([], livestash_agent_pages:alive())
        end,
        fun pages_that_are_gone_are_forgotten/0
    ]}.

%% Not during a drain: it needs those that it has ended.
pages_that_are_gone_are_forgotten() ->
    Page = page([context(<<"a">>)]),
    close(Page),
    livestash_agent_state:set_draining(stopping),
    sweep(),
    ?assertMatch([_], ets:lookup(livestash_agent_pages, Page)),
    livestash_agent_state:set_draining(none),
    sweep(),
    ?assertEqual([], ets:lookup(livestash_agent_pages, Page)).

sweep() ->
    livestash_agent_pages ! sweep,
    ok = gen_server:call(livestash_agent_pages, done).

redis_test_() ->
    [{timeout, 120, Test} || Test <- [
        fun stashes_of_closed_sockets_are_kept/0,
        fun new_id/0,
        fun longer_ttl/0,
        fun many/0,
        fun share/0,
        fun redis_that_refuses/0,
        fun redis_that_is_gone/0,
        fun drain/0,
        fun release_without_crypto/0
    ]].

%% With the least rights. Who was gone before the drain, and who has come back, has the TTL.
stashes_of_closed_sockets_are_kept() ->
    with_redis([], fun(Redis) ->
        [Closed, Gone, Back, New] = Pages = [page([context(Id)]) || Id <- [<<"closed">>, <<"gone">>, <<"back">>, <<"new">>]],
        [stash(Redis, Id, Page) || {Id, Page} <- lists:zip([<<"closed">>, <<"gone">>, <<"back">>], [Closed, Gone, Back])],
        close(Gone),
        Keep = livestash_agent_keep:keep(livestash_agent_keep:pages([])),
        [close(Page) || Page <- Pages -- [Gone]],
        stash(Redis, <<"back">>, self()),
        ?assertEqual(1, livestash_agent_pages:raise(Keep, deadline(5000))),
        ?assert(ttl(Redis, <<"closed">>) > ?KEPT - 60),
        ?assert(ttl(Redis, <<"gone">>) =< ?TTL),
        ?assert(ttl(Redis, <<"back">>) =< ?TTL),
        %% No stash, and none is made.
        ?assertEqual(-2, ttl(Redis, <<"new">>)),
        ?assert(is_pid(New))
    end).

new_id() ->
    with_redis([], fun(Redis) ->
        Page = page([context(<<"first">>), context(<<"second">>)]),
        [stash(Redis, Id, Page) || Id <- [<<"first">>, <<"second">>]],
        ?assertEqual(1, raise()),
        ?assert(ttl(Redis, <<"first">>) =< ?TTL),
        ?assert(ttl(Redis, <<"second">>) > ?TTL)
    end).

longer_ttl() ->
    with_redis([], fun(Redis) ->
        Page = page([(context(<<"a">>))#{ttl := 86400}]),
        stash(Redis, <<"a">>, Page),
        ?assertEqual(1, raise()),
        ?assert(ttl(Redis, <<"a">>) > 86000)
    end).

many() ->
    with_redis([], fun(Redis) ->
        Ids = [integer_to_binary(N) || N <- lists:seq(1, 257)],
        [stash(Redis, Id, page([context(Id)])) || Id <- Ids],
        ?assertEqual(257, raise()),
        [?assert(ttl(Redis, Id) > ?TTL) || Id <- Ids],
        %% No time for any.
        Keep = livestash_agent_keep:keep(livestash_agent_keep:pages([])),
        ?assertEqual(0, livestash_agent_pages:raise(Keep, deadline(0)))
    end).

%% Those of a batch too many at most.
share() ->
    with_redis([], fun(Redis) ->
        Ids = [integer_to_binary(N) || N <- lists:seq(1, 150)],
        [stash(Redis, Id, page([context(Id)])) || Id <- Ids],
        os:putenv("LIVESTASH_DRAIN_KEEP_BYTES", "100"),
        ok = livestash_agent_config:load(),
        ?assertEqual(100, raise()),
        os:putenv("LIVESTASH_DRAIN_KEEP_BYTES", "0"),
        ok = livestash_agent_config:load(),
        ?assertEqual(0, raise())
    end).

redis_that_refuses() ->
    with_redis(["--maxmemory", "1"], fun(Redis) ->
        _ = page([context(<<"a">>)]),
        ?assertEqual(0, raise()),
        ?assertEqual(<<"+OK">>, command(Redis, "ACL SETUSER livestash -eval")),
        ?assertEqual(0, raise()),
        ?assertEqual(<<"+OK">>, command(Redis, "ACL SETUSER livestash <x")),
        ?assertEqual(0, raise())
    end).

redis_that_is_gone() ->
    with_redis([], fun(Redis) ->
        _ = page([context(<<"a">>)]),
        livestash_agent_redis_server:stop(Redis),
        ?assertEqual(0, raise())
    end, ok).

%% In a VM as the operator makes it, which ends.
drain() ->
    Port = free_port(),
    Redis = livestash_agent_redis_server:start(Port, []),
    Vm = with_pages("interactive", Port),
    Page = call(Vm, fun() -> page([context(<<"a">>)]) end),
    stash(Redis, <<"a">>, call(Vm, erlang, term_to_binary, [Page])),
    ok = call(Vm, livestash_agent_drain, run, []),
    ?assert(ttl(Redis, <<"a">>) > ?KEPT - 60),
    stop(Vm),
    livestash_agent_redis_server:stop(Redis).

%% Nothing is known then, and no page fails.
release_without_crypto() ->
    Vm = with_pages("embedded", free_port()),
    Page = call(Vm, fun() -> page([context(<<"b">>)]) end),
    ?assert(call(Vm, erlang, is_process_alive, [Page])),
    ?assertEqual([], call(Vm, livestash_agent_pages, alive, [])),
    stop(Vm).

with_pages(Mode, RedisPort) ->
    Vm = start(#{
        mode => Mode,
        environment => #{
            "LIVE_STASH_ADAPTER" => "redis",
            "LIVE_STASH_REDIS_URL" => lists:concat(["redis://127.0.0.1:", RedisPort]),
            "LIVESTASH_DRAIN_ENDPOINT_WAIT_MS" => "0"
        },
        flags => ["-pa", os:getenv("TESTS")]
    }),
    eventually(fun() -> is_binary(request(Vm, "/healthz")) end),
    {module, telemetry} = call(Vm, code, load_file, [telemetry]),
    ok = call(Vm, livestash_agent_pages, attach, []),
    ok = call(Vm, livestash_agent_pages, attach, []),
    ?assertEqual(1, call(Vm, telemetry, handlers, [?MOUNT])),
    Vm.

with_redis(Arguments, Test) ->
    with_redis(Arguments, Test, stop).

%% End: what is left to do with Redis.
with_redis(Arguments, Test, End) ->
    Port = free_port(),
    Redis = livestash_agent_redis_server:start(Port, string:lexemes(?ADVISED, " ") ++ Arguments),
    began(lists:concat(["redis://livestash:x@127.0.0.1:", Port])),
    try
        Test(Redis)
    after
        ended(ok),
        End =:= stop andalso livestash_agent_redis_server:stop(Redis)
    end.

began() ->
    began("redis://nobody.test").

began(Url) ->
    livestash_agent_fixture:environment([{"LIVE_STASH_REDIS_URL", Url}]),
    ok = livestash_agent_config:load(),
    ok = livestash_agent_state:init(),
    {ok, _} = livestash_agent_pages:start_link().

ended(_) ->
    ok = gen_server:stop(livestash_agent_pages),
    livestash_agent_fixture:environment([]),
    livestash_agent_config:load().

%% A process that goes through these contexts, as LiveView does.
page([Mounted | Rendered]) ->
    Test = self(),
    Page = spawn(fun() ->
        ok = livestash_agent_pages:handle(?MOUNT, #{}, socket(Mounted), []),
        [ok = livestash_agent_pages:handle(?RENDER, #{}, socket(Context), []) || Context <- [Mounted | Rendered]],
        Test ! {self(), shown},
        receive
            close -> ok
        end
    end),
    receive
        {Page, shown} -> Page
    end.

close(Page) ->
    Monitor = monitor(process, Page),
    Page ! close,
    receive
        {'DOWN', Monitor, process, Page, _} -> ok
    end.

socket(Context) ->
    #{socket => #{transport_pid => self(), private => #{live_stash_context => Context}}}.

context(Id) ->
    #{id => Id, secret => ?SECRET, ttl => ?TTL}.

raise() ->
    livestash_agent_pages:raise(livestash_agent_keep:keep(livestash_agent_keep:pages([])), deadline(5000)).

deadline(In) ->
    erlang:monotonic_time(millisecond) + In.

%% What LiveStash's script leaves. Owner: a process, or its external form.
stash(Redis, Id, Owner) when is_pid(Owner) ->
    stash(Redis, Id, term_to_binary(Owner));
stash(Redis, Id, Owner) ->
    Quoted = ["\"", [io_lib:format("\\x~2.16.0b", [Byte]) || <<Byte>> <= Owner], "\""],
    ?assertMatch(<<":", _/binary>>, command(Redis, ["HSET ", key(Id), " payload x owner_id ", Quoted])),
    ?assertEqual(<<":1">>, command(Redis, ["EXPIRE ", key(Id), " ", integer_to_list(?TTL)])).

ttl(Redis, Id) ->
    <<":", Seconds/binary>> = command(Redis, ["TTL ", key(Id)]),
    binary_to_integer(Seconds).

key(Id) ->
    ["live_stash:", string:trim(base64:encode(crypto:hash(sha256, <<Id/binary, (?SECRET)/binary>>)), trailing, "=")].
