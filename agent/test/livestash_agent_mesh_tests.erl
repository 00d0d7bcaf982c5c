%% Does a node find its peers, whatever DNS and the peers do?
-module(livestash_agent_mesh_tests).

-include_lib("eunit/include/eunit.hrl").

-import(livestash_agent_fixture, [start/1, stop/1, call/4, eventually/1, request/2, body/1]).
-import(livestash_agent_dns, [with_dns/4]).

mesh_test_() ->
    [{timeout, 90, Test} || Test <- [
        fun connects_to_whom_dns_names/0,
        fun without_a_query_nobody_is_missing/0,
        fun is_not_its_own_peer/0,
        fun several_records_of_one_peer_are_one/0,
        fun bad_dns_keeps_the_peers_that_are_known/0,
        fun dns_that_never_answered/0,
        fun another_cookie/0,
        fun peer_that_is_not_there/0,
        fun answers_do_not_grow_with_the_fleet/0,
        fun frozen_peer_holds_nothing_up/0
    ]].

connects_to_whom_dns_names() ->
    with_peer(fun(Vm, #{node := Peer}, Dns) ->
        eventually(fun() -> peers(Vm) =:= {[Peer], [Peer], []} end),
        eventually(fun() -> status(request(Vm, "/readyz")) =:= <<"200">> end),
        %% After a split it is connected again.
        true = call(Vm, erlang, disconnect_node, [Peer]),
        eventually(fun() -> peers(Vm) =:= {[Peer], [Peer], []} end),
        %% A peer that DNS no longer names is not missed.
        livestash_agent_dns:answer(Dns, []),
        eventually(fun() -> peers(Vm) =:= {[], [], []} end)
    end, #{}).

without_a_query_nobody_is_missing() ->
    Vm = start(#{}),
    eventually(fun() -> status(request(Vm, "/readyz")) =:= <<"200">> end),
    ?assertEqual({[], [], []}, peers(Vm)),
    stop(Vm).

is_not_its_own_peer() ->
    with_dns(["127.0.0.1"], "me", fun(Vm, _Dns) ->
        eventually(fun() -> call(Vm, livestash_agent_mesh, known, []) end),
        ?assertEqual({[], [], []}, peers(Vm))
    end, #{name => "me"}).

several_records_of_one_peer_are_one() ->
    with_dns(["127.0.0.1", "127.0.0.1", "127.0.0.2"], "nobody", fun(Vm, _Dns) ->
        Nodes = ['nobody@127.0.0.1', 'nobody@127.0.0.2'],
        eventually(fun() -> peers(Vm) =:= {Nodes, [], Nodes} end)
    end, #{}).

bad_dns_keeps_the_peers_that_are_known() ->
    with_peer(fun(Vm, #{node := Peer}, Dns) ->
        eventually(fun() -> peers(Vm) =:= {[Peer], [Peer], []} end),
        [
            begin
                livestash_agent_dns:answer(Dns, Answer),
                eventually(fun() -> lookup_failed(Vm) end),
                ?assertEqual({Answer, {[Peer], [Peer], []}}, {Answer, peers(Vm)}),
                livestash_agent_dns:answer(Dns, ["127.0.0.1"]),
                eventually(fun() -> not lookup_failed(Vm) end)
            end
         || Answer <- [nxdomain, garbage, silence]
        ]
    end, #{}).

dns_that_never_answered() ->
    Grace = #{environment => #{"LIVESTASH_READY_GRACE_MS" => "4000"}},
    with_dns(nxdomain, "nobody", fun(Vm, _Dns) ->
        eventually(fun() -> is_binary(request(Vm, "/readyz")) end),
        ?assertEqual(<<"DNS has not yet named the peers.\n">>, body(request(Vm, "/readyz"))),
        eventually(fun() -> status(request(Vm, "/readyz")) =:= <<"200">> end)
    end, Grace).

another_cookie() ->
    with_peer(fun(Vm, #{node := Peer} = PeerVm, _Dns) ->
        eventually(fun() -> peers(Vm) =:= {[Peer], [], [Peer]} end),
        eventually(fun() ->
            body(request(Vm, "/readyz")) =:= iolist_to_binary(["Not connected to ", atom_to_list(Peer), ".\n"])
        end),
        ?assertEqual([], call(PeerVm, erlang, nodes, [])),
        ?assert(is_binary(request(PeerVm, "/healthz")))
    end, #{flags => ["-setcookie", "another"]}).

peer_that_is_not_there() ->
    with_dns(["127.0.0.1"], "nobody", fun(Vm, _Dns) ->
        eventually(fun() -> peers(Vm) =:= {['nobody@127.0.0.1'], [], ['nobody@127.0.0.1']} end),
        ?assertMatch({match, _}, re:run(request(Vm, "/metrics"), "livestash_peers{state=\"missing\"} 1\n"))
    end, #{}).

answers_do_not_grow_with_the_fleet() ->
    Hosts = [lists:concat(["127.0.0.", N]) || N <- lists:seq(10, 39)],
    with_dns(Hosts, "nobody", fun(Vm, _Dns) ->
        Nodes = ["nobody@" ++ Host || Host <- Hosts],
        eventually(fun() -> peers(Vm) =:= {[list_to_atom(Node) || Node <- Nodes], [], [list_to_atom(Node) || Node <- Nodes]} end),
        ?assertMatch({_, _}, binary:match(request(Vm, "/status"), iolist_to_binary([
            "\"peers\":{\"expected\":30,\"connected\":0,\"missing\":30,\"missingNodes\":[\"",
            lists:join("\",\"", lists:sublist(Nodes, 10)),
            "\"]}"
        ]))),
        eventually(fun() ->
            body(request(Vm, "/readyz")) =:=
                iolist_to_binary(["Not connected to ", lists:join(", ", lists:sublist(Nodes, 3)), " and 27 more.\n"])
        end)
    end, #{}).

%% The peer's process is stopped by a signal, as a node without CPU is: its sockets stay open and say nothing.
frozen_peer_holds_nothing_up() ->
    with_peer(fun(Vm, #{node := Peer} = PeerVm, _Dns) ->
        eventually(fun() -> peers(Vm) =:= {[Peer], [Peer], []} end),
        Pid = call(PeerVm, os, getpid, []),
        "" = os:cmd("kill -STOP " ++ Pid),
        try
            true = call(Vm, erlang, disconnect_node, [Peer]),
            eventually(fun() -> connecting(Vm) =:= [Peer] end),
            %% All of this is answered while the connect still waits for the frozen peer.
            ?assertEqual({[Peer], [], [Peer]}, peers(Vm)),
            [?assert(is_binary(request(Vm, Path))) || Path <- ["/status", "/metrics", "/readyz"]],
            ?assertEqual([Peer], connecting(Vm))
        after
            "" = os:cmd("kill -CONT " ++ Pid)
        end,
        eventually(fun() -> peers(Vm) =:= {[Peer], [Peer], []} end)
    end, #{}).

with_peer(Test, PeerOptions) ->
    Peer = #{node := Node} = start(PeerOptions),
    [Name, Host] = string:split(atom_to_list(Node), "@"),
    with_dns([Host], Name, fun(Vm, Dns) -> Test(Vm, Peer, Dns) end, #{}),
    stop(Peer).

peers(Vm) ->
    #{expected := Expected, connected := Connected, missing := Missing} = call(Vm, livestash_agent_mesh, peers, []),
    {Expected, Connected, Missing}.

lookup_failed(Vm) ->
    call(Vm, erlang, send, [livestash_agent_mesh, tick]),
    maps:get(failed, call(Vm, sys, get_state, [livestash_agent_mesh])).

connecting(Vm) ->
    #{running := Running} = call(Vm, sys, get_state, [livestash_agent_mesh]),
    maps:values(Running) -- [lookup].

status(<<"HTTP/1.1 ", Status:3/binary, _/binary>>) -> Status;
status(_) -> none.
