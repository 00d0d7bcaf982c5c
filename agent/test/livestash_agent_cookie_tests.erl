%% Does nobody get lost while a fleet changes its cookie pod by pod, whoever restarts meanwhile, and does the old cookie open nothing?
-module(livestash_agent_cookie_tests).

-include_lib("eunit/include/eunit.hrl").

-import(livestash_agent_fixture, [start/1, stop/1, call/2, call/4, eventually/1, request/2]).
-import(livestash_agent_dns, [with_dns/4]).

cookie_test_() ->
    [{timeout, 90, Test} || Test <- [
        fun a_new_node_meets_old_ones_and_new_ones/0,
        fun whoever_comes_back_is_found/0,
        fun a_booting_node_parts_nobody/0,
        fun who_boots_is_left_alone_at_first/0,
        fun pods_to_come_are_expected/0,
        fun the_previous_cookie_is_shown_to_no_stranger/0,
        fun the_previous_cookie_is_forgotten/0
    ]].

%% As in pods: nodes that lose one another make everybody else part from them, too.
-define(WHOLE, ["-kernel", "prevent_overlapping_partitions", "true"]).

old(Options) ->
    started(Options#{cookie => "old", flags => ?WHOLE}).

new(Options) ->
    started(Options#{cookie => "new", flags => ?WHOLE, environment => #{"LIVESTASH_PREVIOUS_COOKIE" => "old"}}).

started(Options) ->
    Vm = start(Options),
    eventually(fun() -> is_binary(request(Vm, "/healthz")) end),
    Vm.

a_new_node_meets_old_ones_and_new_ones() ->
    Old = [old(#{}), old(#{})],
    New = [new(#{}), new(#{})],
    Vms = Old ++ New,
    true = connect(hd(Old), lists:last(Old)),
    Nodes = [Node || #{node := Node} <- Vms],
    [ok = call(Vm, livestash_agent_cookie, expect, [Nodes -- [Node]]) || #{node := Node} = Vm <- New],
    [?assert(connect(Vm, Peer)) || Vm <- New, Peer <- Vms, Peer =/= Vm],
    [eventually(fun() -> seen(Vm) =:= lists:sort([Node || #{node := Node} = Peer <- Vms, Peer =/= Vm]) end) || Vm <- Vms],
    %% For longer than it takes nodes to tell each other of a connection that is missing.
    timer:sleep(2000),
    [?assertEqual(3, length(seen(Vm))) || Vm <- Vms],
    [stop(Vm) || Vm <- Vms].

%% A pod of the old template, the same again, and the one that replaces it. Meanwhile the node that looks for it boots, too.
whoever_comes_back_is_found() ->
    Name = "peer" ++ os:getpid(),
    First = #{node := Peer} = old(#{name => Name}),
    Options = #{
        cookie => "new",
        environment => #{"LIVESTASH_PREVIOUS_COOKIE" => "old"},
        flags => ?WHOLE ++ ["-kernel", "sync_nodes_optional", "['" ++ atom_to_list(Peer) ++ "']", "-kernel", "sync_nodes_timeout", "1000"]
    },
    with_dns(["127.0.0.1"], Name, fun(Vm, _Dns) ->
        finds(Vm, Peer),
        eventually(fun() -> is_ready(request(Vm, "/readyz")) end),
        stop(First),
        eventually(fun() -> seen(Vm) =:= [] end),
        Second = old(#{name => Name}),
        finds(Vm, Peer),
        stop(Second),
        eventually(fun() -> seen(Vm) =:= [] end),
        Third = new(#{name => Name}),
        ok = expects(Third, Vm),
        finds(Vm, Peer),
        stop(Third)
    end, Options).

%% What pods do: one of the new template boots, and connects its peers of both kinds before it has an agent.
a_booting_node_parts_nobody() ->
    Old = [#{node := One}, #{node := Two}] = [old(#{}), old(#{})],
    true = connect(hd(Old), lists:last(Old)),
    Name = "booting" ++ os:getpid(),
    Booting = list_to_atom(Name ++ "@127.0.0.1"),
    New = #{node := Three} = new(#{}),
    %% As its agent does for all that DNS names.
    ok = call(New, livestash_agent_cookie, expect, [[One, Two, Booting]]),
    [?assert(connect(New, Peer)) || Peer <- Old],
    ok = watch(New),
    Sync = ["-kernel", "sync_nodes_optional", lists:flatten(io_lib:format("~0p", [[One, Two, Three]])), "-kernel", "sync_nodes_timeout", "1000"],
    Fourth = started(#{name => Name, cookie => "new", flags => ?WHOLE ++ Sync, environment => #{"LIVESTASH_PREVIOUS_COOKIE" => "old"}}),
    ok = call(Fourth, livestash_agent_cookie, expect, [[One, Two, Three]]),
    [?assert(connect(Fourth, Peer)) || Peer <- [New | Old]],
    timer:sleep(2000),
    ?assertEqual([], parted(New)),
    [?assertEqual(3, length(seen(Vm))) || Vm <- [New, Fourth | Old]],
    [stop(Vm) || Vm <- [New, Fourth | Old]].

%% Keeps the names of nodes that are lost from here on.
watch(Vm) ->
    Parts = fun(Parts, Lost) ->
        receive
            {nodedown, Node} -> Parts(Parts, [Node | Lost]);
            {parted, From} -> From ! {parted, Lost}, Parts(Parts, Lost);
            _Other -> Parts(Parts, Lost)
        end
    end,
    call(Vm, fun() ->
        register(watcher, spawn(fun() -> ok = net_kernel:monitor_nodes(true), Parts(Parts, []) end)),
        ok
    end).

parted(Vm) ->
    call(Vm, fun() ->
        watcher ! {parted, self()},
        receive
            {parted, Lost} -> Lost
        end
    end).

the_previous_cookie_is_shown_to_no_stranger() ->
    Old = old(#{}),
    New = #{node := NewNode} = new(#{}),
    ?assertNot(call(Old, net_kernel, connect_node, [NewNode])),
    [stop(Vm) || Vm <- [Old, New]].

the_previous_cookie_is_forgotten() ->
    Name = "peer" ++ os:getpid(),
    Third = #{node := Peer} = new(#{name => Name}),
    Old = #{node := OldNode} = old(#{}),
    Options = #{cookie => "new", environment => #{"LIVESTASH_PREVIOUS_COOKIE" => "old"}, flags => ?WHOLE},
    with_dns(["127.0.0.1"], Name, fun(Vm, _Dns) ->
        ?assert(connect(Vm, Old)),
        ?assertNot(call(Vm, livestash_agent_cookie, all_have_mine, [[Peer, OldNode]])),
        stop(Old),
        ok = expects(Third, Vm),
        finds(Vm, Peer),
        ?assert(call(Vm, livestash_agent_cookie, all_have_mine, [[Peer]])),
        eventually(fun() -> is_integer(forgets(Vm)) end),
        ?assert(call(Vm, livestash_agent_cookie, is_previous_known, [])),
        %% Its time is over.
        _ = call(Vm, fun() -> sys:replace_state(livestash_agent_mesh, fun(State) -> State#{forget := -1 bsl 59} end) end),
        eventually(fun() -> forgets(Vm), not call(Vm, livestash_agent_cookie, is_previous_known, []) end)
    end, Options),
    stop(Third).

forgets(Vm) ->
    _ = call(Vm, erlang, send, [livestash_agent_mesh, tick]),
    maps:get(forget, call(Vm, sys, get_state, [livestash_agent_mesh])).

%% As an agent does with all that DNS names.
expects(Vm, #{node := Peer}) ->
    call(Vm, livestash_agent_cookie, expect, [[Peer]]).

connect(Vm, #{node := Peer} = PeerVm) ->
    ok = expects(Vm, PeerVm),
    call(Vm, net_kernel, connect_node, [Peer]).

%% DNS names a new pod some seconds after it boots.
pods_to_come_are_expected() ->
    Pod = #{"POD_NAME" => "shop-2", "LIBCLUSTER_APP" => "shop", "LIVESTASH_PEERS_QUERY" => "shop-nodes.web.", "LIVESTASH_PREVIOUS_COOKIE" => "old"},
    Vm = started(#{cookie => "new", environment => Pod}),
    Cookie = fun(Name) -> call(Vm, erlang, get_cookie, [Name]) end,
    ok = call(Vm, livestash_agent_cookie, expect, [[]]),
    ?assertEqual([old, old, new], [Cookie('shop@shop-0.shop-nodes.web'), Cookie('shop@shop-30.shop-nodes.web'), Cookie('rem-1@shop-2')]),
    ok = call(Vm, livestash_agent_cookie, settle, [[]]),
    ?assertEqual(new, Cookie('shop@shop-30.shop-nodes.web')),
    stop(Vm).

who_boots_is_left_alone_at_first() ->
    New = #{node := NewNode} = new(#{}),
    %% It boots, and has no agent yet.
    Booting = #{node := Node} = start(#{cookie => "new", environment => #{"ERL_AFLAGS" => ""}}),
    ?assertNot(connect(New, Booting)),
    ?assertNot(call(Booting, net_kernel, connect_node, [NewNode])),
    ?assert(call(New, livestash_agent_cookie, connect_otherwise, [Node])),
    [stop(Vm) || Vm <- [New, Booting]].

seen(Vm) ->
    lists:sort(call(Vm, erlang, nodes, [])).

finds(Vm, Peer) ->
    eventually(fun() -> seen(Vm) =:= [Peer] end).

is_ready(<<"HTTP/1.1 200", _/binary>>) -> true;
is_ready(_) -> false.
