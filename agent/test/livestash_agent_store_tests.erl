%% Does the agent find LiveStash's tables, and know when there are none?
-module(livestash_agent_store_tests).

-include_lib("eunit/include/eunit.hrl").

-import(livestash_agent_fixture, [start/1, stop/1, call/2, call/4, eventually/1, request/2, body/1]).

-define(MNESIA, 'Elixir.LiveStash.Adapters.Mnesia.State').

store_test_() ->
    [{timeout, 60, Test} || Test <- [
        fun ets_table/0,
        fun configured_table/0,
        fun tables_that_are_not_livestashs/0,
        fun mnesia_copy_is_awaited_while_a_peer_has_one/0,
        fun peer_without_agent_has_no_copy/0
    ]].

ets_table() ->
    Vm = vm("ets"),
    ?assertEqual({[], {0, 0}}, look(Vm)),
    Options = [public, {write_concurrency, true}, {decentralized_counters, true}],
    ok = call(Vm, fun() -> make(live_stash_server_storage, Options, 10) end),
    {[{ets, live_stash_server_storage}], {10, Bytes}} = look(Vm),
    ok = call(Vm, fun() -> fill(live_stash_server_storage, 1000) end),
    {_, {1000, More}} = look(Vm),
    ?assert(More > Bytes),
    ?assertMatch({match, _}, re:run(request(Vm, "/metrics"), "\nlivestash_stashes 1000\n")),
    ?assertMatch({match, _}, re:run(request(Vm, "/status"), "\"stashes\":1000,\"stashBytes\":[0-9]+,")),
    stop(Vm).

configured_table() ->
    Vm = vm("ets"),
    ok = call(Vm, application, set_env, [live_stash, ets_table_name, my_stashes]),
    ok = call(Vm, fun() -> make(my_stashes, [public], 3) end),
    ?assertMatch({[{ets, my_stashes}], {3, _}}, look(Vm)),
    [
        begin
            ok = call(Vm, application, set_env, [live_stash, ets_table_name, Nonsense]),
            ?assertEqual({[], {0, 0}}, look(Vm))
        end
     || Nonsense <- ["my_stashes", 7, make_ref(), undefined, nowhere]
    ],
    stop(Vm).

tables_that_are_not_livestashs() ->
    Vm = vm("ets"),
    ok = call(Vm, fun() -> make(live_stash_server_storage, [protected], 3) end),
    ?assertEqual({[], {0, 0}}, look(Vm)),
    ?assertNotEqual(nomatch, binary:match(request(Vm, "/status"), <<"\"store\":{\"ready\":false,">>)),
    stop(Vm).

%% A pod that comes back joins the schema at once but needs time for the copy.
mnesia_copy_is_awaited_while_a_peer_has_one() ->
    with_peer(fun(Vm = #{node := Node}, Peer = #{node := PeerNode}) ->
        %% Nobody has a copy: waiting would help nobody.
        eventually(fun() -> readiness(Vm) =:= <<"200">> end),
        ok = call(Peer, mnesia, start, []),
        {atomic, ok} = call(Peer, mnesia, create_table, [?MNESIA, [{ram_copies, [PeerNode]}]]),
        ok = call(Peer, mnesia, dirty_write, [{?MNESIA, key, value}]),
        ?assertMatch({[{mnesia, ?MNESIA}], {1, _}}, look(Peer)),
        eventually(fun() -> readiness(Vm) =:= <<"503">> end),
        ?assertEqual(<<"This node holds no loaded copy of LiveStash's Mnesia table.\n">>, body(request(Vm, "/readyz"))),
        %% Knowing the table is not having it.
        ok = call(Vm, mnesia, start, []),
        {ok, [PeerNode]} = call(Vm, mnesia, change_config, [extra_db_nodes, [PeerNode]]),
        ?assertEqual({[], {0, 0}}, look(Vm)),
        {atomic, ok} = call(Vm, mnesia, add_table_copy, [?MNESIA, Node, ram_copies]),
        ?assertMatch({[{mnesia, ?MNESIA}], {1, _}}, look(Vm)),
        eventually(fun() -> readiness(Vm) =:= <<"200">> end)
    end, #{environment => #{"LIVE_STASH_ADAPTER" => "mnesia"}}).

peer_without_agent_has_no_copy() ->
    with_peer(fun(Vm, Peer) ->
        ?assertEqual(non_existing, call(Peer, code, which, [livestash_agent])),
        eventually(fun() -> readiness(Vm) =:= <<"200">> end)
    end, #{environment => #{"ERL_AFLAGS" => ""}}).

%% A node with a peer that DNS names; both can load Mnesia on demand, and the node's grace is over.
with_peer(Test, PeerOptions) ->
    Peer = #{node := Node} = start(PeerOptions#{mode => "interactive"}),
    [Name, Host] = string:split(atom_to_list(Node), "@"),
    Environment = #{"LIVE_STASH_ADAPTER" => "mnesia", "LIVESTASH_READY_GRACE_MS" => "0"},
    livestash_agent_dns:with_dns([Host], Name, fun(Vm, _Dns) ->
        eventually(fun() -> maps:get(connected, call(Vm, livestash_agent_mesh, peers, [])) =:= [Node] end),
        Test(Vm, Peer)
    end, #{environment => Environment, mode => "interactive"}),
    stop(Peer).

vm(Adapter) ->
    Vm = start(#{environment => #{"LIVE_STASH_ADAPTER" => Adapter}}),
    eventually(fun() -> is_binary(request(Vm, "/healthz")) end),
    Vm.

look(Vm) ->
    {call(Vm, livestash_agent_store, tables, []), call(Vm, livestash_agent_store, size, [])}.

make(Table, Options, Rows) ->
    Table = ets:new(Table, [named_table, {keypos, 2} | Options]),
    ok = fill(Table, Rows),
    true = ets:give_away(Table, whereis(init), none),
    ok.

fill(Table, Rows) ->
    true = ets:insert(Table, [{state, Id, self(), 0, #{count => Id}, nil} || Id <- lists:seq(1, Rows)]),
    ok.

readiness(Vm) ->
    <<"HTTP/1.1 ", Status:3/binary, _/binary>> = request(Vm, "/readyz"),
    Status.
