%% Are the metrics what Prometheus reads, do they count what they say, and do they cost the same in a VM that is full?
-module(livestash_agent_metrics_tests).

-include_lib("eunit/include/eunit.hrl").

-import(livestash_agent_fixture, [start/1, stop/1, call/2, call/4, eventually/1, request/2, body/1, free_port/0]).
-import(livestash_agent_dns, [with_dns/4]).

render_test() ->
    Families = [
        {"a_total", counter, "Help.", 7},
        {["b", "_c"], gauge, "Help.", [{[{kind, x}, {text, "1\\2\"3\n4"}], 1}, {[{kind, y}], 0.25}]},
        {"left_out", gauge, "Help.", []}
    ],
    ?assertEqual(
        <<
            "# TYPE a_total counter\n# HELP a_total Help.\na_total 7\n"
            "# TYPE b_c gauge\n# HELP b_c Help.\nb_c{kind=\"x\",text=\"1\\\\2\\\"3\\n4\"} 1\nb_c{kind=\"y\"} 0.25\n"
        >>,
        iolist_to_binary(livestash_agent_metrics:render(Families))
    ).

live_test_() ->
    [{timeout, 90, Test} || Test <- [
        fun text_is_well_formed/0,
        fun names_are_those_of_dashboards/0,
        fun cpu_time_is_that_of_the_process/0,
        fun sockets_are_counted/0,
        fun distribution_bytes_are_apart/0,
        fun distribution_bytes_are_apart_over_tls/0,
        fun redis_bytes_are_apart/0,
        fun store_is_told/0,
        fun check_of_redis_is_no_client/0,
        fun full_vm_costs_no_more/0
    ]].

text_is_well_formed() ->
    Vm = vm(#{}),
    Lines = binary:split(body(request(Vm, "/metrics")), <<"\n">>, [global, trim]),
    Comment = "^# (TYPE [a-z0-9_]+ (counter|gauge)|HELP [a-z0-9_]+ .+)$",
    Sample = "^[a-z0-9_]+(\\{[a-z]+=\"[^\"]*\"(,[a-z]+=\"[^\"]*\")*\\})? -?[0-9]+(\\.[0-9]+)?(e-?[0-9]+)?$",
    [?assertMatch({match, _}, re:run(Line, [Comment, "|", Sample])) || Line <- Lines],
    Types = [Name || <<"# TYPE ", Rest/binary>> <- Lines, [Name, _Type] <- [binary:split(Rest, <<" ">>)]],
    ?assertEqual(lists:sort(Types), lists:usort(Types)),
    stop(Vm).

names_are_those_of_dashboards() ->
    with_peer(fun(Vm, #{node := Peer}) ->
        Text = body(request(Vm, "/metrics")),
        Has = fun(Series) -> binary:match(Text, iolist_to_binary(["\n", Series, " "])) =/= nomatch end,
        ?assertEqual([], [Series || Series <- series(atom_to_list(Peer)), not Has(Series)])
    end, #{}, #{}).

series(Peer) ->
    [
        "livestash_stashes",
        "livestash_stash_bytes",
        "livestash_largest_stash_bytes",
        "livestash_handoffs_total{result=\"sent\"}",
        "livestash_drains_total",
        "livestash_draining",
        "livestash_sockets",
        "livestash_peers{state=\"connected\"}",
        "livestash_network_bytes_total{kind=\"redis\",direction=\"out\"}",
        "livestash_cpu_seconds_total",
        "livestash_agent_info{version=\"0.1.0\",otp=\"" ++ erlang:system_info(otp_release) ++ "\",adapter=\"none\"}",
        "erlang_vm_memory_bytes_total{kind=\"processes\"}",
        "erlang_vm_memory_system_bytes_total{usage=\"ets\"}",
        "erlang_vm_memory_ets_tables",
        "erlang_vm_process_count",
        "erlang_vm_port_count",
        "erlang_vm_atom_limit",
        "erlang_vm_statistics_run_queues_length",
        "erlang_vm_statistics_reductions_total",
        "erlang_vm_dist_node_queue_size_bytes{peer=\"" ++ Peer ++ "\"}",
        "erlang_vm_dist_recv_bytes{peer=\"" ++ Peer ++ "\"}",
        "erlang_vm_dist_send_bytes{peer=\"" ++ Peer ++ "\"}",
        "erlang_vm_dist_proc_message_queue_len{peer=\"" ++ Peer ++ "\",type=\"dist\"}"
    ].

cpu_time_is_that_of_the_process() ->
    Vm = vm(#{}),
    Before = number(Vm, "livestash_cpu_seconds_total"),
    ok = call(Vm, fun() -> burn(erlang:statistics(runtime)) end),
    ?assert(number(Vm, "livestash_cpu_seconds_total") >= Before + 0.4),
    stop(Vm).

%% Half a second of the VM's CPU time, however long that takes.
burn({Start, _}) ->
    _ = [math:sqrt(N) || N <- lists:seq(1, 100000)],
    case erlang:statistics(runtime) of
        {Now, _} when Now >= Start + 500 -> ok;
        _ -> burn({Start, 0})
    end.

sockets_are_counted() ->
    Port = free_port(),
    Vm = vm(#{environment => #{"PORT" => integer_to_list(Port)}}),
    _ = call(Vm, fun() -> livestash_agent_fixture:listen(Port) end),
    %% The listener came after the first count.
    eventually(fun() -> recounted(Vm) =:= 0 end),
    Clients = [connect(Port) || _ <- lists:seq(1, 20)],
    eventually(fun() -> number(Vm, "livestash_sockets") =:= 20 end),
    [gen_tcp:close(Client) || Client <- lists:sublist(Clients, 5)],
    eventually(fun() -> number(Vm, "livestash_sockets") =:= 15 end),
    eventually(fun() -> re:run(request(Vm, "/status"), "\"sockets\":15,", [{capture, none}]) =:= match end),
    %% Other ports are told apart at the next count.
    call(Vm, fun open_others/0),
    eventually(fun() -> number(Vm, "livestash_sockets") =:= 22 end),
    eventually(fun() -> recounted(Vm) =:= 15 end),
    stop(Vm).

recounted(Vm) ->
    call(Vm, erlang, send, [livestash_agent_network, recount]),
    number(Vm, "livestash_sockets").

open_others() ->
    spawn(fun() ->
        [{ok, _} = gen_udp:open(0) || _ <- lists:seq(1, 7)],
        receive after infinity -> ok end
    end).

distribution_bytes_are_apart() ->
    distribution_bytes_are_apart(#{}).

%% Over TLS, the VM knows of a process in place of the socket.
distribution_bytes_are_apart_over_tls() ->
    Flags = ["-proto_dist", "inet_tls", "-ssl_dist_optfile", tls_options()],
    distribution_bytes_are_apart(#{mode => "interactive", flags => Flags}).

distribution_bytes_are_apart(Options) ->
    with_peer(fun(Vm, #{node := Peer}) ->
        Http = bytes(Vm, http, out),
        Out = bytes(Vm, distribution, out),
        In = bytes(Vm, distribution, in),
        ok = call(Vm, fun() -> exchange(Peer, binary:copy(<<"x">>, 1000000)) end),
        ?assert(bytes(Vm, distribution, out) >= Out + 1000000),
        ?assert(bytes(Vm, distribution, in) >= In + 1000000),
        ?assert(bytes(Vm, http, out) < Http + 500000),
        %% What an ended connection has moved stays counted.
        true = call(Vm, erlang, disconnect_node, [Peer]),
        ?assert(bytes(Vm, distribution, out) >= Out + 1000000)
    end, Options, Options).

exchange(Peer, Data) ->
    Data = erpc:call(Peer, binary, copy, [Data, 1]),
    ok.

tls_options() ->
    Certificate = [{digest, sha256}, {key, {namedCurve, secp256r1}}],
    Chain = #{root => Certificate, intermediates => [], peer => Certificate},
    #{server_config := Server} = public_key:pkix_test_data(#{server_chain => Chain, client_chain => Chain}),
    {Type, Key} = proplists:get_value(key, Server),
    Pem = public_key:pem_encode([
        {'Certificate', proplists:get_value(cert, Server), not_encrypted},
        {Type, Key, not_encrypted}
    ]),
    PemFile = filename:join(os:getenv("TESTS"), "dist.pem"),
    ok = file:write_file(PemFile, Pem),
    Options = [{server, [{certfile, PemFile}]}, {client, [{verify, verify_none}]}],
    File = filename:join(os:getenv("TESTS"), "dist.options"),
    ok = file:write_file(File, io_lib:format("~p.~n", [Options])),
    File.

%% A process under the name of LiveStash's connection, linked to the owner of a socket, as Redix has them.
redis_bytes_are_apart() ->
    Port = free_port(),
    _ = livestash_agent_fixture:listen(Port),
    Vm = vm(#{}),
    Redix = call(Vm, fun() -> redix(Port) end),
    eventually(fun() -> bytes(Vm, redis, out) =:= 4 end),
    Http = bytes(Vm, http, out),
    call(Vm, erlang, send, [Redix, {send, 1000000}]),
    eventually(fun() -> bytes(Vm, redis, out) >= 1000000 end),
    ?assert(bytes(Vm, http, out) < Http + 500000),
    stop(Vm).

redix(Port) ->
    Owner = spawn(fun() ->
        {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary]),
        ok = gen_tcp:send(Socket, "PING"),
        receive
            {send, Bytes} -> ok = gen_tcp:send(Socket, binary:copy(<<"x">>, Bytes))
        end,
        receive after infinity -> ok end
    end),
    spawn(fun() ->
        register('Elixir.LiveStash.Adapters.Redis.Conn', self()),
        link(Owner),
        receive after infinity -> ok end
    end),
    Owner.

store_is_told() ->
    [
        begin
            Vm = vm(#{environment => #{"LIVE_STASH_ADAPTER" => Adapter}}),
            Text = body(request(Vm, "/metrics")),
            Lines = [Line || <<"livestash_store_", Line/binary>> <- binary:split(Text, <<"\n">>, [global])],
            ?assertEqual({Adapter, Expected}, {Adapter, Lines}),
            stop(Vm)
        end
     || {Adapter, Expected} <- [{"none", []}, {"browser_memory", []}, {"ets", [<<"up 0">>]}, {"redis", [<<"up 0">>]}]
    ].

check_of_redis_is_no_client() ->
    [Port, AppPort] = [free_port(), free_port()],
    Vm = vm(#{environment => #{
        "LIVE_STASH_ADAPTER" => "redis",
        "LIVE_STASH_REDIS_URL" => lists:concat(["redis://127.0.0.1:", Port]),
        "PORT" => integer_to_list(AppPort)
    }}),
    eventually(fun() -> recounted(Vm) =:= 0 end),
    %% The connection is made after all others were told apart, and again before the next time.
    Redis = livestash_agent_redis_server:start(Port, []),
    eventually(fun() -> number(Vm, "livestash_store_up") =:= 1 end),
    ?assertEqual(0, number(Vm, "livestash_sockets")),
    ?assert(number(Vm, "livestash_store_check_seconds") > 0),
    ?assertEqual(0, bytes(Vm, redis, out)),
    eventually(fun() -> recounted(Vm) =:= 0 end),
    ?assert(is_port(call(Vm, livestash_agent_redis, port, []))),
    Client = connect(Port),
    ?assertEqual(0, number(Vm, "livestash_sockets")),
    gen_tcp:close(Client),
    livestash_agent_redis_server:stop(Redis),
    eventually(fun() -> number(Vm, "livestash_store_up") =:= 0 end),
    ?assertEqual(nomatch, binary:match(request(Vm, "/metrics"), <<"\nlivestash_store_check_seconds ">>)),
    stop(Vm).

%% Reductions are the VM's own measure of work, whatever else the machine does.
full_vm_costs_no_more() ->
    Vm = vm(#{environment => #{"LIVE_STASH_ADAPTER" => "ets"}}),
    Empty = call(Vm, fun cost/0),
    call(Vm, fun() -> fill(20000, 10000) end),
    eventually(fun() -> number(Vm, "livestash_stashes") =:= 10000 end),
    eventually(fun() -> number(Vm, "erlang_vm_process_count") > 20000 end),
    Full = call(Vm, fun cost/0),
    ?assertMatch({true, _, _}, {Full < 2 * Empty, Full, Empty}),
    stop(Vm).

%% The median of several scrapes.
cost() ->
    Costs = [
        begin
            {reductions, Before} = process_info(self(), reductions),
            _ = iolist_size(livestash_agent_metrics:text()),
            {reductions, After} = process_info(self(), reductions),
            After - Before
        end
     || _ <- lists:seq(1, 11)
    ],
    lists:nth(6, lists:sort(Costs)).

fill(Processes, Rows) ->
    spawn(fun() ->
        ets:new(live_stash_server_storage, [named_table, public, {keypos, 2}]),
        [ets:insert(live_stash_server_storage, {state, N, self(), 0, #{}, nil}) || N <- lists:seq(1, Rows)],
        [spawn_link(fun() -> receive after infinity -> ok end end) || _ <- lists:seq(1, Processes)],
        receive after infinity -> ok end
    end).

vm(Options) ->
    Vm = start(Options),
    eventually(fun() -> is_binary(request(Vm, "/healthz")) end),
    Vm.

%% A VM connected to the peer that DNS names.
with_peer(Test, Options, PeerOptions) ->
    Peer = #{node := Node} = start(PeerOptions),
    [Name, Host] = string:split(atom_to_list(Node), "@"),
    with_dns([Host], Name, fun(Vm, _Dns) ->
        eventually(fun() -> is_binary(request(Vm, "/healthz")) end),
        eventually(fun() -> call(Vm, erlang, nodes, []) =:= [Node] end),
        Test(Vm, Peer)
    end, Options),
    stop(Peer).

bytes(Vm, Kind, Direction) ->
    number(Vm, lists:concat(["livestash_network_bytes_total{kind=\"", Kind, "\",direction=\"", Direction, "\"}"])).

number(Vm, Series) ->
    Text = body(request(Vm, "/metrics")),
    [_, Rest] = binary:split(Text, iolist_to_binary(["\n", Series, " "])),
    Number = binary_to_list(hd(binary:split(Rest, <<"\n">>))),
    try list_to_float(Number) catch error:badarg -> list_to_integer(Number) end.

connect(Port) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, []),
    Socket.
