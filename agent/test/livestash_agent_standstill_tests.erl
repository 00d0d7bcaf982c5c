%% Does Mnesia go on when nodes wait for each other?
-module(livestash_agent_standstill_tests).

-include_lib("eunit/include/eunit.hrl").

-import(livestash_agent_fixture, [call/2, call/4, eventually/1]).
-import(livestash_agent_reunion_tests, [with_mnesia/2, split/2, reconnect/2]).

%% Called in other VMs.
-export([ask/1]).

-define(MNESIA, 'Elixir.LiveStash.Adapters.Mnesia.State').

all_test_() ->
    [{timeout, 120, Test} || Test <- [
        fun nodes_that_wait_for_each_other/0, fun nodes_that_wait_in_a_circle/0, fun nobody_else_is_turned_away/0, fun nobody_is_turned_away_for_a_frozen_node/0, fun no_mnesia/0
    ]].

%% A is told that B is gone, and has to ask what became of a transaction. By then B is back, and tries to join A. Only the process that asks is not Mnesia's
%% own: which transactions are going on when a node is lost is a matter of chance.
nodes_that_wait_for_each_other() ->
    with_mnesia(2, fun([A, #{node := Other} = B]) ->
        #{node := Node} = A,
        {Asks, Join} = waits(B, A, Other),
        ask = call(A, erlang, send, [Asks, ask]),
        eventually(fun() -> not call(A, erlang, is_process_alive, [Asks]) end),
        eventually(fun() -> not call(B, erlang, is_process_alive, [Join]) end),
        eventually(fun() ->
            {ok, _} = call(B, mnesia, change_config, [extra_db_nodes, [Node]]),
            lists:sort(call(A, mnesia, system_info, [running_db_nodes])) =:= lists:sort([Node, Other])
        end),
        {atomic, ok} = call(A, mnesia, sync_transaction, [fun mnesia:write/1, [{?MNESIA, 1, self(), 0, here}]])
    end).

%% A asks B, which waits until C lets it in. C asks D, which waits until A lets it in. It takes four: a node that waits to be let in has got over the loss of
%% the other one, while that one has not.
nodes_that_wait_in_a_circle() ->
    with_mnesia(4, fun([A, #{node := NodeB} = B, C, #{node := NodeD} = D] = Vms) ->
        {AsksB, JoinsA} = waits(D, A, NodeB),
        {AsksD, JoinsC} = waits(B, C, NodeD),
        [ask = call(Vm, erlang, send, [Pid, ask]) || {Vm, Pid} <- [{A, AsksB}, {C, AsksD}]],
        eventually(fun() ->
            [Pid || {Vm, Pid} <- [{A, AsksB}, {C, AsksD}, {D, JoinsA}, {B, JoinsC}], call(Vm, erlang, is_process_alive, [Pid])] =:= []
        end),
        Nodes = lists:sort([Node || #{node := Node} <- Vms]),
        eventually(fun() ->
            [{ok, _} = call(Vm, mnesia, change_config, [extra_db_nodes, Nodes]) || Vm <- [B, D]],
            lists:usort([lists:sort(call(Vm, mnesia, system_info, [running_db_nodes])) || Vm <- Vms]) =:= [Nodes]
        end),
        {atomic, ok} = call(A, mnesia, sync_transaction, [fun mnesia:write/1, [{?MNESIA, 1, self(), 0, here}]])
    end).

%% B was lost to A, is back, and waits to be let in, until A has asked a node and got its answer. The processes that ask and join.
waits(B, #{node := Node} = A, Asked) ->
    Asks = call(A, fun() -> take_over(Asked) end),
    split([A], [B]),
    reconnect([A], [B]),
    Join = call(B, erlang, spawn, [mnesia, change_config, [extra_db_nodes, [Node]]]),
    eventually(fun() -> waiting(A) =/= [] end),
    {Asks, Join}.

%% Code of this module must not be loaded again after this: that would end the process. Becomes the process that carries transactions out, until it has its answer.
take_over(Other) ->
    Real = whereis(mnesia_tm),
    true = unregister(mnesia_tm),
    Asks = spawn(?MODULE, ask, [Other]),
    true = register(mnesia_tm, Asks),
    persistent_term:put(?MODULE, Real),
    Asks.

ask(Other) ->
    receive
        ask -> ok
    end,
    _ = mnesia_recover:what_happened({tid, 4711, self()}, sync_sym_trans, [Other]),
    Real = persistent_term:get(?MODULE),
    true = unregister(mnesia_tm),
    true = register(mnesia_tm, Real),
    forward(Real).

forward(Real) ->
    receive
        Message ->
            Real ! Message,
            forward(Real)
    after 0 -> ok
    end.

%% Whoever waits for Mnesia is waited for as long as Mnesia asks nobody.
nobody_else_is_turned_away() ->
    with_mnesia(2, fun([A, #{node := Other} = B]) ->
        {_Asks, Join} = waits(B, A, Other),
        Waiting = waiting(A),
        timer:sleep(6000),
        ?assertEqual(Waiting, waiting(A)),
        ?assert(call(B, erlang, is_process_alive, [Join]))
    end).

%% Who asks a node that is frozen is told by the distribution when that one is given up. Nobody is turned away before.
nobody_is_turned_away_for_a_frozen_node() ->
    with_mnesia(3, fun([A, B, #{node := Frozen} = C]) ->
        {Asks, Join} = waits(B, A, Frozen),
        Waiting = waiting(A),
        Process = call(C, os, getpid, []),
        "" = os:cmd("kill -STOP " ++ Process),
        ask = call(A, erlang, send, [Asks, ask]),
        timer:sleep(8000),
        ?assertEqual(Waiting, waiting(A)),
        ?assert(call(B, erlang, is_process_alive, [Join])),
        "" = os:cmd("kill -CONT " ++ Process),
        eventually(fun() -> not call(A, erlang, is_process_alive, [Asks]) end)
    end).

%% It has not started yet, or has stopped.
no_mnesia() ->
    with_mnesia(1, fun([A]) ->
        stopped = call(A, mnesia, stop, []),
        look = call(A, erlang, send, [livestash_agent_standstill, look]),
        ?assertEqual(ok, call(A, gen_server, call, [livestash_agent_standstill, done]))
    end).

%% The attempts to join that the node has put off.
waiting(Vm) -> element(3, call(Vm, sys, get_state, [mnesia_monitor])).
