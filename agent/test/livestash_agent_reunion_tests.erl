%% Are stashes whole again after a split, and are they left alone when there was none? The splits are made of cookies:
%% no node of one side can connect to one of the other.
-module(livestash_agent_reunion_tests).

-include_lib("eunit/include/eunit.hrl").

-import(livestash_agent_fixture, [start/1, stop/1, call/2, call/4, eventually/1, request/2, body/1]).

%% For other tests.
-export([with_ets/2, with_mnesia/2, split/2, heal/2, reconnect/2, whole/1, tab/2]).
%% Called in other VMs.
-export([make_table/0, count_up/2]).

-define(ETS, live_stash_server_storage).
-define(MNESIA, 'Elixir.LiveStash.Adapters.Mnesia.State').
-define(FAR, 4000000000).

all_test_() ->
    [{timeout, 120, Test} || Test <- [
        fun ets_user_who_moved_is_where_the_process_is_younger/0,
        fun ets_lingering_page_loses_to_the_last_one/0,
        fun ets_rows_without_owner/0,
        fun ets_rows_of_one_node_stay/0,
        fun ets_user_who_was_back_before_a_node_that_was_cut_off_went/0,
        fun ets_nodes_that_went_leave_nothing_to_compare/0,
        fun ets_split_that_was_forgotten/0,
        fun restarted_node_was_not_cut_off/0,
        fun row_is_dropped_only_as_it_was_compared/0,
        fun draining_node_neither_drops_nor_keeps/0,
        fun crashed_server_compares_again/0,
        fun mnesia_lingering_page_loses_to_the_last_one/0,
        fun mnesia_lingering_page_moves_its_time_on_before_all_is_whole/0,
        fun mnesia_user_who_moved_to_a_node_that_is_gone/0,
        fun mnesia_copies_become_one/0,
        fun mnesia_deleted_stash_stays_deleted/0,
        fun mnesia_deletion_is_older_than_the_owner/0,
        fun mnesia_unknown_page_is_not_overwritten/0,
        fun mnesia_unknown_page_makes_nothing_forgotten/0,
        fun mnesia_page_of_which_nobody_knows_is_overwritten/0,
        fun mnesia_pages_of_which_nobody_knows_become_one/0,
        fun mnesia_restores_nothing_before_all_have_answered/0,
        fun mnesia_expired_stash_is_not_brought_back/0,
        fun mnesia_users_go_on/0,
        fun mnesia_user_who_writes_meanwhile_wins/0,
        fun mnesia_many_rows/0,
        fun mnesia_what_an_old_table_has_replaced_comes_back/0,
        fun mnesia_page_that_has_ended_is_younger_for_as_long_as_its_stash_is_remembered/0,
        fun mnesia_split_of_more_than_ten_minutes/0,
        fun mnesia_page_moves_on_the_time_of_what_has_replaced_its_stash/0,
        fun mnesia_what_a_page_does_before_the_agent_listens_to_the_table_of_the_other_side/0,
        fun mnesia_table_of_the_other_side_takes_long_to_load/0,
        fun mnesia_what_a_node_has_written_that_goes_before_all_is_whole/0,
        fun mnesia_what_two_nodes_have_written_that_go_one_after_the_other/0,
        fun mnesia_node_without_copy_gets_one/0,
        fun mnesia_nodes_that_are_apart_are_joined/0,
        fun mnesia_apart/0
    ]].

ets_user_who_moved_is_where_the_process_is_younger() ->
    with_ets(2, fun([A, B]) ->
        Old = row(1, owner(A), first),
        put_ets(A, [Old]),
        split([A], [B]),
        New = row(1, owner(B), second),
        put_ets(B, [New]),
        heal([A], [B]),
        eventually(fun() -> {tab(A, ?ETS), tab(B, ?ETS)} =:= {[], [New]} end),
        eventually(fun() -> whole(A) andalso whole(B) end),
        ?assertMatch(#{splits := 1}, call(A, livestash_agent_state, counters, [])),
        ?assertEqual(1, reunited([A, B])),
        ?assertMatch({match, _}, re:run(request(A, "/metrics"), "\nlivestash_splits_total 1\n"))
    end).

%% The old page still lives, and has written last.
ets_lingering_page_loses_to_the_last_one() ->
    with_ets(2, fun([A, B]) ->
        split([A], [B]),
        Old = owner(A),
        Last = row(1, dead(B), last),
        put_ets(B, [Last]),
        put_ets(A, [setelement(4, row(1, Old, first), ?FAR + 60)]),
        heal([A], [B]),
        eventually(fun() -> {tab(A, ?ETS), tab(B, ?ETS)} =:= {[], [Last]} end)
    end).

mnesia_lingering_page_loses_to_the_last_one() ->
    with_mnesia(3, fun([A, B, C] = Vms) ->
        Old = owner(A),
        write(A, stash(1, Old, first)),
        split([A], [B, C]),
        Last = stash(1, dead(B), last),
        write(B, Last),
        write(A, setelement(4, stash(1, Old, again), ?FAR + 60)),
        heal([A], [B, C]),
        eventually(fun() -> [tab(Vm, ?MNESIA) || Vm <- Vms] =:= [[Last], [Last], [Last]] end)
    end).

%% The old page still lives, sees what it wrote itself, and writes that with a new time to all nodes. It may be on the user's node, too, when
%% LiveStash has replaced the table by an older one.
mnesia_lingering_page_moves_its_time_on_before_all_is_whole() ->
    [
        with_mnesia(3, fun([A, B, C] = Vms) ->
            Where = lists:nth(Number, Vms),
            Old = owner(Where),
            write(A, stash(1, Old, first)),
            split([A], [B, C]),
            Last = stash(1, owner(B), last),
            write(B, Last),
            heal([A], [B, C]),
            write(Where, setelement(4, stash(1, Old, first), ?FAR + 60)),
            eventually(fun() -> [tab(Vm, ?MNESIA) || Vm <- Vms] =:= [[Last], [Last], [Last]] end),
            eventually(fun() -> lists:all(fun whole/1, Vms) end)
        end)
     || Number <- [1, 2]
    ].

%% The user moves on to a third node, which goes before the split is over: nobody is left who could be asked for the last page.
mnesia_user_who_moved_to_a_node_that_is_gone() ->
    with_mnesia(3, fun([A, B, C]) ->
        write(A, stash(1, owner(A), first)),
        split([A], [B]),
        Last = stash(1, owner(C), last),
        write(C, Last),
        eventually(fun() -> {tab(A, ?MNESIA), tab(B, ?MNESIA)} =:= {[Last], [Last]} end),
        eventually(fun() -> call(A, livestash_agent_rank, birth, [element(3, Last)]) > 0 end),
        stop(C),
        heal([A], [B]),
        eventually(fun() -> whole(A) andalso whole(B) end),
        ?assertEqual({[Last], [Last]}, {tab(A, ?MNESIA), tab(B, ?MNESIA)})
    end).

ets_rows_without_owner() ->
    with_ets(2, fun([A, B]) ->
        First = {entry, 1, first},
        put_ets(A, [First]),
        put_ets(B, [{entry, 1, second, third}]),
        split([A], [B]),
        heal([A], [B]),
        eventually(fun() -> {tab(A, ?ETS), tab(B, ?ETS)} =:= {[First], []} end)
    end).

ets_rows_of_one_node_stay() ->
    with_ets(3, fun([A, B, C] = Vms) ->
        split([A], [B, C]),
        Rows = [[row({Vm, N}, dead(Vm), N) || N <- lists:seq(1, 500)] || #{node := _} = Vm <- Vms],
        [put_ets(Vm, Own) || {Vm, Own} <- lists:zip(Vms, Rows)],
        [put_ets(Vm, [row(both, owner(Vm), Vm)]) || Vm <- [A, C]],
        heal([A], [B, C]),
        eventually(fun() -> lists:all(fun whole/1, Vms) end),
        ?assertEqual([[], [], []], [Own -- tab(Vm, ?ETS) || {Vm, Own} <- lists:zip(Vms, Rows)]),
        ?assertEqual(1501, length(lists:append([tab(Vm, ?ETS) || Vm <- Vms])))
    end).

%% Two nodes do not see each other, and the user of the one comes back at the other, which cannot ask for the stash. Then
%% either hands over to a third one, and is not there when the split ends.
ets_user_who_was_back_before_a_node_that_was_cut_off_went() ->
    [
        with_ets(3, fun([A, B, C]) ->
            Old = row(1, dead(A), old),
            put_ets(A, [Old]),
            split([A], [B]),
            New = row(1, dead(B), new),
            put_ets(B, [New]),
            [Going, Staying] = Order([A, B]),
            terminate(Going),
            eventually(fun() -> lists:sort(tab(Staying, ?ETS) ++ tab(C, ?ETS)) =:= [New] end),
            eventually(fun() -> whole(Staying) andalso whole(C) end)
        end)
     || Order <- [fun(Vms) -> Vms end, fun lists:reverse/1]
    ].

%% Who has seen all others hands over as before: stashes are not compared in each rollout.
ets_nodes_that_went_leave_nothing_to_compare() ->
    with_ets(3, fun([A, B, C]) ->
        [put_ets(Vm, [row(Vm, dead(Vm), own)]) || Vm <- [A, B]],
        terminate(A),
        terminate(B),
        ?assertEqual(2, length(tab(C, ?ETS))),
        ?assertMatch(#{comparison := #{splits := 0}}, call(C, sys, get_state, [livestash_agent_reunion]))
    end).

%% Where DNS does not name the other side, it is still the same VM.
ets_split_that_was_forgotten() ->
    with_ets(2, fun([A, B] = Vms) ->
        put_ets(A, [row(1, dead(A), old)]),
        split([A], [B]),
        New = row(1, dead(B), new),
        put_ets(B, [New]),
        [lasts(Vm) || Vm <- Vms],
        ?assertEqual([#{}, #{}], [state(Vm, lost) || Vm <- Vms]),
        heal([A], [B]),
        eventually(fun() -> {tab(A, ?ETS), tab(B, ?ETS)} =:= {[], [New]} end)
    end).

restarted_node_was_not_cut_off() ->
    with_ets(2, fun([A, B]) ->
        stop(B),
        eventually(fun() -> call(A, erlang, nodes, []) =:= [] end),
        Again = vm(B, "ets"),
        call(Again, ?MODULE, make_table, []),
        [put_ets(Vm, [row(1, owner(Vm), Vm)]) || Vm <- [A, Again]],
        join([A, Again]),
        eventually(fun() -> knows(A, Again) end),
        ?assertMatch(#{splits := 0}, call(A, livestash_agent_state, counters, [])),
        ?assert(whole(A)),
        stop(Again)
    end).

row_is_dropped_only_as_it_was_compared() ->
    with_ets(2, fun([A, #{node := Best} = B]) ->
        Row = row(1, owner(A), 1),
        put_ets(A, [Row]),
        [Version] = ask(A, versions, [ets, ?ETS, [1]]),
        Drop = fun(Expected) -> ask(A, drop, [?ETS, Best, [{1, Expected}]]) end,
        %% The better one is not there (any more).
        ?assertEqual(0, Drop(Version)),
        put_ets(B, [row(1, owner(B), 2)]),
        ?assertEqual(0, Drop(Version + 1)),
        ?assertEqual([Row], tab(A, ?ETS)),
        ?assertEqual(1, Drop(Version)),
        ?assertEqual([], tab(A, ?ETS))
    end).

draining_node_neither_drops_nor_keeps() ->
    with_ets(2, fun([A, #{node := Best} = B] = Vms) ->
        [put_ets(Vm, [row(1, owner(Vm), same)]) || Vm <- Vms],
        [Version] = ask(A, versions, [ets, ?ETS, [1]]),
        [
            begin
                call(Draining, livestash_agent_state, set_draining, [closing]),
                ?assertException(throw, {trouble, _}, ask(A, drop, [?ETS, Best, [{1, Version}]])),
                ?assertMatch([_], tab(A, ?ETS)),
                call(Draining, livestash_agent_state, set_draining, [none])
            end
         || Draining <- [A, B]
        ]
    end).

crashed_server_compares_again() ->
    with_ets(2, fun([A, B] = Vms) ->
        [put_ets(Vm, [row(1, dead(Vm), Vm)]) || Vm <- Vms],
        true = call(A, erlang, exit, [call(A, erlang, whereis, [livestash_agent_reunion]), kill]),
        eventually(fun() -> length(tab(A, ?ETS) ++ tab(B, ?ETS)) =:= 1 end),
        eventually(fun() -> whole(A) end)
    end).

%% What LiveStash leaves after a split: one cluster, one table, three copies that differ.
mnesia_copies_become_one() ->
    with_mnesia(3, fun([A, B, C] = Vms) ->
        Kept = stash(kept, owner(A), old),
        Mine = stash(moved, owner(A), old),
        Later = stash(later, owner(C), old),
        [write(A, Row) || Row <- [Kept, Mine, Later]],
        split([A], [B, C]),
        Active = setelement(5, Kept, new),
        write(A, Active),
        Created = stash(created, dead(A), new),
        write(A, Created),
        Moved = stash(moved, owner(B), new),
        write(B, Moved),
        Written = setelement(5, Later, new),
        write(B, Written),
        Other = stash(other, dead(C), new),
        write(C, Other),
        [ok = call(Vm, sys, suspend, [livestash_agent_reunion]) || Vm <- Vms],
        heal([A], [B, C]),
        ?assertEqual(lists:sort([Active, Mine, Later, Created]), tab(A, ?MNESIA)),
        ?assertEqual(lists:sort([Kept, Moved, Written, Other]), tab(B, ?MNESIA)),
        [ok = call(Vm, sys, resume, [livestash_agent_reunion]) || Vm <- Vms],
        eventually(fun() -> not whole(A) end),
        <<"HTTP/1.1 200", _/binary>> = request(A, "/readyz"),
        ?assertNotEqual(nomatch, binary:match(request(A, "/status"), <<"\"store\":{\"ready\":false,\"reason\":\"Copies of stashes ">>)),
        Whole = lists:sort([Active, Moved, Written, Created, Other]),
        eventually(fun() -> [tab(Vm, ?MNESIA) || Vm <- Vms] =:= [Whole, Whole, Whole] end),
        eventually(fun() -> lists:all(fun whole/1, Vms) end),
        ?assertEqual(5, reunited(Vms)),
        ?assertNotEqual(nomatch, binary:match(request(A, "/status"), <<"\"store\":{\"ready\":true,\"reason\":\"\"}">>)),
        %% Deletions are watched while a peer is away, and not longer.
        eventually(fun() -> call(A, mnesia, table_info, [?MNESIA, subscribers]) =:= [] end)
    end).

mnesia_deleted_stash_stays_deleted() ->
    with_mnesia(3, fun([A, B, C] = Vms) ->
        Again = stash(again, dead(B), old),
        [write(A, Row) || Row <- [stash(gone, dead(A), old), stash(waiting, owner(A), old), Again]],
        split([A], [B, C]),
        [delete(C, Key) || Key <- [gone, waiting, again]],
        write(C, Again),
        heal([A], [B, C]),
        eventually(fun() -> [tab(Vm, ?MNESIA) || Vm <- Vms] =:= [[Again], [Again], [Again]] end)
    end).

mnesia_deletion_is_older_than_the_owner() ->
    with_mnesia(2, fun([A, B] = Vms) ->
        write(A, stash(1, dead(A), old)),
        split([A], [B]),
        delete(B, 1),
        eventually(fun() -> is_integer(call(B, livestash_agent_journal, deleted, [1])) end),
        timer:sleep(2),
        New = stash(1, owner(A), new),
        write(A, New),
        heal([A], [B]),
        eventually(fun() -> [tab(Vm, ?MNESIA) || Vm <- Vms] =:= [[New], [New]] end)
    end).

%% What comes from another node while stashes are restored is of a page that has just begun, and that this node knows nothing of yet.
mnesia_unknown_page_is_not_overwritten() ->
    with_mnesia(2, fun([A, B]) ->
        Old = stash(1, owner(A), old),
        remembers(A),
        write(A, Old),
        eventually(fun() -> call(A, ets, info, [livestash_agent_journal, size]) =:= 1 end),
        New = stash(1, stranger(B), new),
        %% It comes after all were asked.
        Asked = call(A, fun() ->
            livestash_agent_journal:restore(?MNESIA, fun(Pages) ->
                true = ets:insert(?MNESIA, New),
                self() ! {asked, Pages},
                #{}
            end),
            receive
                {asked, Pages} -> Pages
            end
        end),
        ?assertEqual({[], [New]}, {Asked, tab(A, ?MNESIA)})
    end).

%% Whoever has a page that no node knows, has it from before its agent began to listen.
mnesia_page_of_which_nobody_knows_is_overwritten() ->
    with_mnesia(2, fun([A, B]) ->
        New = stash(1, owner(A), new),
        remembers(A),
        write(A, New),
        eventually(fun() -> call(A, ets, info, [livestash_agent_journal, size]) =:= 1 end),
        true = call(A, ets, insert, [?MNESIA, stash(1, stranger(B), old)]),
        ?assertEqual({1, ""}, call(A, livestash_agent_copies, pass, [mnesia, true])),
        ?assertEqual([New], tab(A, ?MNESIA))
    end).

%% Neither node may take its own page for better: they would write it again and again.
mnesia_pages_of_which_nobody_knows_become_one() ->
    with_mnesia(2, fun([A, B] = Vms) ->
        [remembers(Vm) || Vm <- Vms],
        Here = stash(1, stranger(A), here),
        [write(Vm, Row) || {Vm, Row} <- [{A, Here}, {B, stash(1, stranger(B), there)}]],
        eventually(fun() -> call(B, ets, info, [livestash_agent_journal, size]) =:= 1 end),
        Pass = fun(Vm) -> call(Vm, livestash_agent_copies, pass, [mnesia, true]) end,
        [Pass(Vm) || Vm <- Vms],
        ?assertEqual([{0, ""}, {0, ""}], [Pass(Vm) || Vm <- Vms]),
        ?assertEqual([[Here], [Here]], [tab(Vm, ?MNESIA) || Vm <- Vms])
    end).

%% The page that the table has may be the younger one, as its node will say. Until then nothing is restored, and that is told.
mnesia_restores_nothing_before_all_have_answered() ->
    with_mnesia(2, fun([A, B]) ->
        Old = stash(1, owner(A), old),
        remembers(A),
        write(A, Old),
        eventually(fun() -> call(A, ets, info, [livestash_agent_journal, size]) =:= 1 end),
        New = stash(1, owner(B), new),
        true = call(A, ets, insert, [?MNESIA, New]),
        Silent = fun(Pages) -> livestash_agent_copies:births([node(hd(Pages)), 'nobody@127.0.0.1'], Pages) end,
        Restore = fun() -> try livestash_agent_journal:restore(?MNESIA, Silent) catch throw:Trouble -> Trouble end end,
        ?assertMatch({trouble, _}, call(A, Restore)),
        ?assertEqual([New], tab(A, ?MNESIA)),
        ?assertEqual({1, ""}, call(A, livestash_agent_copies, pass, [mnesia, true])),
        ?assertEqual([New], tab(A, ?MNESIA))
    end).

%% What happens on a node is remembered, though no peer was away: the server that would have it forgotten within a second stands still.
remembers(Vm) ->
    ok = call(Vm, sys, suspend, [livestash_agent_reunion]),
    ok = call(Vm, livestash_agent_journal, remember, [?MNESIA]).

%% A page that says nothing of itself.
stranger(Vm) -> call(Vm, erlang, spawn, [timer, sleep, [infinity]]).

%% LiveStash has replaced the table by an older one: what this node remembers is not forgotten for a page of which it knows nothing yet.
mnesia_unknown_page_makes_nothing_forgotten() ->
    with_mnesia(2, fun([A, B]) ->
        Old = stash(1, owner(B), old),
        timer:sleep(2),
        New = stash(1, owner(A), new),
        remembers(A),
        write(A, New),
        eventually(fun() -> call(A, ets, info, [livestash_agent_journal, size]) =:= 1 end),
        deaf(A),
        true = call(A, ets, insert, [?MNESIA, Old]),
        ok = call(A, livestash_agent_journal, remember, [?MNESIA]),
        0 = call(A, livestash_agent_journal, overlooked, []),
        ?assertEqual(1, call(A, ets, info, [livestash_agent_journal, size])),
        ?assertEqual({1, ""}, call(A, livestash_agent_copies, pass, [mnesia, true])),
        ?assertEqual([New], tab(A, ?MNESIA))
    end).

mnesia_expired_stash_is_not_brought_back() ->
    with_mnesia(2, fun([A, B] = Vms) ->
        split([A], [B]),
        Expired = setelement(4, stash(1, dead(A), old), 1),
        Other = stash(2, dead(A), new),
        [write(A, Row) || Row <- [Expired, Other]],
        heal([A], [B]),
        eventually(fun() -> [tab(Vm, ?MNESIA) || Vm <- Vms] =:= [[Expired, Other], [Other]] end),
        eventually(fun() -> whole(A) andalso whole(B) end),
        ?assertEqual([Other], tab(B, ?MNESIA))
    end).

%% Nothing that is written while copies are being repaired is lost.
mnesia_users_go_on() ->
    with_mnesia(2, fun([A, B] = Vms) ->
        split([A], [B]),
        [write(Vm, stash({Node, N}, dead(Vm), 0)) || #{node := Node} = Vm <- Vms, N <- lists:seq(1, 300)],
        %% 100 users on both sides, each with a process of its own, and a version of the other side's in its way.
        [write(Vm, stash(N, dead(Vm), old)) || Vm <- Vms, N <- lists:seq(1, 100)],
        Counters = [call(Vm, erlang, spawn, [?MODULE, count_up, [?MNESIA, lists:seq(First, 100, 2)]]) || {Vm, First} <- [{A, 1}, {B, 2}]],
        heal([A], [B]),
        eventually(fun() -> length(tab(A, ?MNESIA)) =:= 700 end),
        Last = [stop_counting(Vm, Counter) || {Vm, Counter} <- lists:zip(Vms, Counters)],
        eventually(fun() -> tab(A, ?MNESIA) =:= tab(B, ?MNESIA) end),
        eventually(fun() -> whole(A) andalso whole(B) end),
        Found = maps:from_list([{Key, Value} || {_, Key, _, _, Value} <- tab(A, ?MNESIA), is_integer(Key)]),
        ?assertEqual(maps:from_list(lists:append(Last)), Found)
    end).

%% A write waits for the decision that it could contradict, and comes after it.
mnesia_user_who_writes_meanwhile_wins() ->
    with_mnesia(2, fun([A, B] = Vms) ->
        Old = stash(1, owner(A), old),
        write(A, Old),
        true = call(B, ets, insert, [?MNESIA, setelement(5, Old, other)]),
        %% The decision needs its answer.
        Gate = close_gate(B),
        Pass = call(A, erlang, spawn, [livestash_agent_copies, pass, [mnesia, true]]),
        eventually(fun() -> call(A, mnesia, system_info, [held_locks]) =/= [] end),
        New = setelement(5, Old, new),
        User = call(B, erlang, spawn, [mnesia, sync_transaction, [fun mnesia:write/1, [New]]]),
        true = call(B, erlang, exit, [Gate, kill]),
        eventually(fun() -> not (call(A, erlang, is_process_alive, [Pass]) orelse call(B, erlang, is_process_alive, [User])) end),
        ?assertEqual(1, reunited(Vms)),
        ?assertEqual([[New], [New]], [tab(Vm, ?MNESIA) || Vm <- Vms])
    end).

%% Whoever asks for the owner of a row there waits until the returned process ends.
close_gate(Vm) ->
    Forms = [
        begin
            {ok, Tokens, _} = erl_scan:string(Text),
            {ok, Form} = erl_parse:parse_form(Tokens),
            Form
        end
     || Text <- [
            "-module(livestash_agent_row).",
            "-export([owner/1, until/1, number/1]).",
            "owner(Row) -> M = monitor(process, gate), receive {'DOWN', M, process, _, _} -> element(3, Row) end.",
            "until(Row) -> element(4, Row).",
            "number(Row) -> erlang:phash2(Row, 1 bsl 32)."
        ]
    ],
    {ok, Module, Code} = compile:forms(Forms),
    Gate = call(Vm, erlang, spawn, [timer, sleep, [infinity]]),
    true = call(Vm, erlang, register, [gate, Gate]),
    {module, Module} = call(Vm, code, load_binary, [Module, "gate", Code]),
    Gate.

mnesia_many_rows() ->
    with_mnesia(3, fun([A, B, C] = Vms) ->
        Owners = [{Vm, owner(Vm)} || Vm <- Vms],
        Rows = fun(Value) -> [stash({Node, N}, Owner, {Value, N}) || {#{node := Node}, Owner} <- Owners, N <- lists:seq(1, 700)] end,
        write_all(A, Rows(old)),
        split([A], [B, C]),
        %% Each side has what its own users wrote.
        Own = fun(Side) -> [Row || {_, {Node, _}, _, _, _} = Row <- Rows(new), #{node := N} <- Side, N =:= Node] end,
        write_all(A, Own([A])),
        write_all(B, Own([B, C])),
        heal([A], [B, C]),
        Whole = lists:sort(Rows(new)),
        eventually(fun() -> lists:all(fun(Vm) -> tab(Vm, ?MNESIA) =:= Whole end, Vms) end),
        ?assertEqual(2100, reunited(Vms))
    end).

%% LiveStash may have all nodes take the table of the one with the lowest name, though that one was cut off.
mnesia_what_an_old_table_has_replaced_comes_back() ->
    with_mnesia(3, fun([A, B, C] = Vms) ->
        Write = fun(Vm, Key, Owner, Value, Time) -> write(Vm, setelement(4, stash(Key, Owner, Value), ?FAR + Time)) end,
        OfA = owner(A),
        [OfB, OfC] = [owner(B), owner(C)],
        Write(A, written, OfB, old, 0),
        Write(A, moved, OfA, old, 0),
        Old = tab(A, ?MNESIA),
        split([A], [B, C]),
        Write(B, written, OfB, new, 1),
        Write(B, moved, OfC, new, 1),
        Write(B, created, OfB, new, 1),
        New = tab(B, ?MNESIA),
        replaced_by(Old, [B, C]),
        heal([A], [B, C]),
        eventually(fun() -> [tab(Vm, ?MNESIA) || Vm <- Vms] =:= [New, New, New] end),
        eventually(fun() -> lists:all(fun whole/1, Vms) end)
    end).

%% The table has nothing of the page any more, and the minute is over for which every page is known.
mnesia_page_that_has_ended_is_younger_for_as_long_as_its_stash_is_remembered() ->
    with_mnesia(2, fun([A, B] = Vms) ->
        write(A, stash(1, owner(A), old)),
        Old = tab(A, ?MNESIA),
        split([A], [B]),
        Last = dead(B),
        New = stash(1, Last, new),
        write(B, New),
        eventually(fun() -> call(B, ets, info, [livestash_agent_journal, size]) =:= 1 end),
        replaced_by(Old, [B]),
        true = call(B, ets, update_element, [livestash_agent_rank, Last, {3, call(B, livestash_agent_clock, ms, []) - 61000}]),
        sweep = call(B, erlang, send, [livestash_agent_rank, sweep]),
        _ = call(B, sys, get_state, [livestash_agent_rank]),
        heal([A], [B]),
        eventually(fun() -> [tab(Vm, ?MNESIA) || Vm <- Vms] =:= [[New], [New]] end)
    end).

%% DNS still names the other side, and users go on on both.
mnesia_split_of_more_than_ten_minutes() ->
    with_mnesia(2, fun([A, B] = Vms) ->
        Page = owner(B),
        write(A, stash(1, Page, old)),
        Old = tab(A, ?MNESIA),
        [named(Vm, Other) || {Vm, #{node := Other}} <- [{A, B}, {B, A}]],
        split([A], [B]),
        New = setelement(4, stash(1, Page, new), ?FAR + 1),
        write(B, New),
        [lasts(Vm) || Vm <- Vms],
        replaced_by(Old, [B]),
        heal([A], [B]),
        eventually(fun() -> [tab(Vm, ?MNESIA) || Vm <- Vms] =:= [[New], [New]] end),
        eventually(fun() -> whole(A) andalso whole(B) end)
    end).

%% As if DNS had said so.
named(Vm, Node) ->
    _ = call(Vm, fun() -> sys:replace_state(livestash_agent_mesh, fun(State) -> State#{expected := [Node]} end) end).

%% As if the split had begun ten minutes ago. Returns when the agent has looked at that.
lasts(Vm) ->
    _ = call(Vm, fun() ->
        sys:replace_state(livestash_agent_reunion, fun(#{lost := Lost} = State) ->
            State#{lost := maps:map(fun(_Node, Since) -> Since - 600001 end, Lost)}
        end)
    end),
    timer:sleep(2000).

%% The page lives, and LiveStash renews the time of what it finds: that is older than what the page had stashed. When it stashes again, that is newer.
mnesia_page_moves_on_the_time_of_what_has_replaced_its_stash() ->
    with_mnesia(2, fun([A, B]) ->
        [Renewed, Stashed] = [owner(B), owner(B)],
        Old = [stash(renewed, Renewed, old), stash(stashed, Stashed, old)],
        write_all(B, Old),
        split([A], [B]),
        write_all(B, [setelement(4, stash(Key, Page, new), ?FAR + 1) || {Key, Page} <- [{renewed, Renewed}, {stashed, Stashed}]]),
        replaced_by(Old, [B]),
        write_all(B, [setelement(4, stash(Key, Page, old), ?FAR + 30) || {Key, Page} <- [{renewed, Renewed}, {stashed, Stashed}]]),
        write(B, setelement(4, stash(stashed, Stashed, newest), ?FAR + 30)),
        heal([A], [B]),
        Best = [setelement(4, stash(renewed, Renewed, new), ?FAR + 30), setelement(4, stash(stashed, Stashed, newest), ?FAR + 30)],
        eventually(fun() -> {tab(A, ?MNESIA), tab(B, ?MNESIA)} =:= {Best, Best} end),
        eventually(fun() -> whole(A) andalso whole(B) end)
    end).

%% Whoever listened to the old table does not hear what is done to the new one, and nothing says that there is a new one. Of the pages one does nothing,
%% three renew the time of what they find, and three stash. Two have stashes that live for less time than the others'.
mnesia_what_a_page_does_before_the_agent_listens_to_the_table_of_the_other_side() ->
    with_mnesia(2, fun([A, B] = Vms) ->
        Pages = maps:from_list([{Key, {owner(B), Ttl}} || {Key, Ttl} <- [{reset, 100}, {short, 100} | [{Key, 300} || Key <- [created, idle, later, renews, stashes]]]]),
        Now = os:system_time(second),
        Row = fun(Key, Value, At) -> {Page, Ttl} = maps:get(Key, Pages), setelement(4, stash(Key, Page, Value), Now + At + Ttl) end,
        Rows = fun(Keys, Value, At) -> [Row(Key, Value, At) || Key <- Keys] end,
        There = maps:keys(Pages) -- [created],
        write_all(B, Rows(There, old, 0)),
        split([A], [B]),
        write(B, Row(created, first, 1)),
        delete(B, reset),
        write_all(B, Rows(maps:keys(Pages), new, 1)),
        %% Another peer.
        ok = call(B, livestash_agent_journal, lost, []),
        write_all(B, Rows(maps:keys(Pages), newer, 1)),
        0 = call(B, livestash_agent_journal, overlooked, []),
        ok = call(B, sys, suspend, [livestash_agent_reunion]),
        deaf(B),
        replaced_by([Row(later, new, 1) | Rows(There -- [later], old, 0)], [B]),
        Stashed = [Row(created, first, 30) | Rows([short, stashes], newest, 30)],
        write_all(B, [Row(later, new, 30) | Rows([renews, reset], old, 30)] ++ Stashed),
        ok = call(B, livestash_agent_journal, remember, [?MNESIA]),
        0 = call(B, livestash_agent_journal, overlooked, []),
        ok = call(B, sys, resume, [livestash_agent_reunion]),
        heal([A], [B]),
        Best = lists:sort([Row(idle, newer, 1) | Rows([later, renews, reset], newer, 30)] ++ Stashed),
        eventually(fun() -> [tab(Vm, ?MNESIA) || Vm <- Vms] =:= [Best, Best] end),
        eventually(fun() -> whole(A) andalso whole(B) end)
    end).

%% As when the table that it listens to is gone.
deaf(Vm) ->
    _ = call(Vm, fun() ->
        sys:replace_state(livestash_agent_journal, fun(State) -> mnesia:unsubscribe({table, ?MNESIA, detailed}), State end)
    end).

%% A node whose own copy is not there has compared nothing, and forgets nothing, though it has waited for long.
mnesia_table_of_the_other_side_takes_long_to_load() ->
    with_mnesia(2, fun([A, #{node := Node} = B] = Vms) ->
        Page = owner(B),
        Old = stash(1, Page, old),
        write(A, Old),
        split([A], [B]),
        New = setelement(4, stash(1, Page, new), ?FAR + 1),
        write(B, New),
        [ok = call(B, sys, suspend, [Server]) || Server <- [livestash_agent_reunion, livestash_agent_join]],
        replaced_by([Old], [B]),
        heal([A], [B]),
        {atomic, ok} = call(A, mnesia, del_table_copy, [?MNESIA, Node]),
        Own = lists:concat(["There is no loaded copy on ", Node, "."]),
        Pass = fun(Patient) -> {0, Trouble} = call(B, livestash_agent_copies, pass, [mnesia, Patient]), lists:flatten(Trouble) end,
        ?assertEqual([Own, Own], [Pass(Patient) || Patient <- [true, false]]),
        ok = call(B, sys, resume, [livestash_agent_reunion]),
        eventually(fun() -> not call(B, livestash_agent_comparison, is_over, [state(B, comparison)]) end),
        timer:sleep(5000),
        #{passes := Passes} = state(B, comparison),
        ?assertEqual(0, Passes),
        ok = call(B, sys, resume, [livestash_agent_join]),
        {atomic, ok} = call(B, mnesia, add_table_copy, [?MNESIA, Node, ram_copies]),
        eventually(fun() -> [tab(Vm, ?MNESIA) || Vm <- Vms] =:= [[New], [New]] end),
        eventually(fun() -> whole(A) andalso whole(B) end)
    end).

%% LiveStash has replaced the table of the node by an older one, and only the node itself knows what its users have written.
mnesia_what_a_node_has_written_that_goes_before_all_is_whole() ->
    with_mnesia(3, fun([A, B, C] = Vms) ->
        OfC = owner(C),
        write(A, brief(written, OfC, old)),
        Old = tab(A, ?MNESIA),
        split([A], [B, C]),
        write(C, brief(written, OfC, new)),
        write(C, brief(created, OfC, new)),
        replaced_by(Old, [B, C]),
        terminate(C),
        %% LiveStash does it once more, with what C has written to A's copy, too.
        Kept = [setelement(4, Row, element(4, Row) + 3600) || Row <- Old],
        ok = call(B, sys, suspend, [livestash_agent_reunion]),
        deaf(B),
        replaced_by(Kept, [B]),
        ok = call(B, livestash_agent_journal, remember, [?MNESIA]),
        ok = call(B, sys, resume, [livestash_agent_reunion]),
        heal([A], [B]),
        eventually(fun() -> [values(Vm) || Vm <- Vms -- [C]] =:= [[{created, new}, {written, new}] || _ <- [A, B]] end),
        eventually(fun() -> whole(A) andalso whole(B) end)
    end).

%% Who has taken over what another one remembered hands that on as well.
mnesia_what_two_nodes_have_written_that_go_one_after_the_other() ->
    with_mnesia(4, fun([A, B, C, D]) ->
        Old = tab(A, ?MNESIA),
        split([A], [B, C, D]),
        write(B, brief(b, owner(B), new)),
        write(C, brief(c, owner(C), new)),
        [
            begin
                terminate(Vm),
                replaced_by(Old, Others)
            end
         || {Vm, Others} <- [{C, [B, D]}, {B, [D]}]
        ],
        heal([A], [D]),
        eventually(fun() -> [values(Vm) || Vm <- [A, D]] =:= [[{b, new}, {c, new}] || _ <- [A, D]] end)
    end).

%% One that lives as long as stashes do: a node that goes has it kept for longer.
brief(Key, Owner, Value) -> setelement(4, stash(Key, Owner, Value), os:system_time(second) + 300).

values(Vm) -> [{Key, Value} || {_, Key, _, _, Value} <- tab(Vm, ?MNESIA)].

%% As LiveStash does after a split, with the table of the other side.
replaced_by(Rows, Vms) ->
    [true = call(Vm, ets, delete_all_objects, [?MNESIA]) || Vm <- Vms],
    [true = call(Vm, ets, insert, [?MNESIA, Rows]) || Vm <- Vms].

mnesia_node_without_copy_gets_one() ->
    with_mnesia(2, fun([A, #{node := Node} = B] = Vms) ->
        Row = stash(1, owner(A), here),
        write(A, Row),
        {atomic, ok} = call(A, mnesia, del_table_copy, [?MNESIA, Node]),
        eventually(fun() -> call(B, livestash_agent_store, lacks_copy, []) end),
        eventually(fun() -> not call(B, livestash_agent_store, lacks_copy, []) end),
        eventually(fun() -> [tab(Vm, ?MNESIA) || Vm <- Vms] =:= [[Row], [Row]] end)
    end).

%% They are connected again, and nobody joins them: LiveStash has tried once.
mnesia_nodes_that_are_apart_are_joined() ->
    with_mnesia(3, fun([A, B, C] = Vms) ->
        Old = stash(1, owner(A), old),
        write(A, Old),
        split([A], [B, C]),
        reconnect([A], [B, C]),
        New = [setelement(4, stash(1, owner(B), new), ?FAR + 1), stash(2, owner(C), new), stash(3, owner(A), new)],
        [write(Vm, Row) || {Vm, Row} <- lists:zip([B, C, A], New)],
        eventually(fun() -> [tab(Vm, ?MNESIA) || Vm <- Vms] =:= [New, New, New] end),
        eventually(fun() -> lists:all(fun whole/1, Vms) end)
    end).

mnesia_apart() ->
    Vms = [A, #{node := Peer} = B] = lists:sort(fun by_name/2, [vm(#{}, "mnesia") || _ <- [1, 2]]),
    make_mnesia(A, [A]),
    ok = call(B, mnesia, start, []),
    join(Vms),
    Sentence = lists:concat(["Mnesia runs apart from that of ", Peer, ", which this node is connected to."]),
    eventually(fun() ->
        {_, Reason} = call(A, livestash_agent_reunion, whole, []),
        unicode:characters_to_list(Reason) =:= Sentence
    end),
    <<"HTTP/1.1 200", _/binary>> = request(A, "/readyz"),
    [stop(Vm) || Vm <- Vms].

with_ets(Count, Test) ->
    with(Count, "ets", fun(Vms) -> [call(Vm, ?MODULE, make_table, []) || Vm <- Vms] end, Test).

with_mnesia(Count, Test) ->
    with(Count, "mnesia", fun([A | _] = Vms) -> make_mnesia(A, Vms) end, Test).

%% Nodes sorted by name that know each other.
with(Count, Adapter, Make, Test) ->
    Vms = lists:sort(fun by_name/2, [vm(#{}, Adapter) || _ <- lists:seq(1, Count)]),
    join(Vms),
    Make(Vms),
    eventually(fun() -> lists:all(fun(Vm) -> lists:all(fun(Other) -> knows(Vm, Other) end, Vms -- [Vm]) end, Vms) end),
    Test(Vms),
    %% A test may have stopped one itself.
    [stop(Vm) || #{peer := Peer} = Vm <- Vms, is_process_alive(Peer)].

by_name(#{node := A}, #{node := B}) -> A =< B.

vm(Like, Adapter) ->
    Name = [#{name => hd(string:split(atom_to_list(Node), "@"))} || #{node := Node} <- [Like]],
    Environment = #{"LIVE_STASH_ADAPTER" => Adapter, "LIVESTASH_READY_GRACE_MS" => "0", "LIVESTASH_DRAIN_ENDPOINT_WAIT_MS" => "0"},
    Options = #{mode => "interactive", environment => Environment},
    Vm = start(lists:foldl(fun maps:merge/2, Options, Name)),
    eventually(fun() -> is_binary(request(Vm, "/healthz")) end),
    ok = call(Vm, fun() -> ok end),
    Vm.

join(Vms) ->
    [true = call(A, net_kernel, connect_node, [Node]) || A <- Vms, #{node := Node} = B <- Vms, A =/= B],
    ok.

%% Whether a node would notice that the other one was cut off.
knows(Vm, #{node := Node}) ->
    #{identified := Identified} = call(Vm, sys, get_state, [livestash_agent_reunion]),
    lists:member(Node, Identified).

%% Different cookies on both sides: what one sends the other would have them meet again.
split(Side, Other) ->
    cookies(Side, Other, one),
    cookies(Other, Side, another),
    [call(A, erlang, disconnect_node, [Node]) || A <- Side, #{node := Node} <- Other],
    eventually(fun() ->
        [Node || {Vms, Gone} <- [{Side, Other}, {Other, Side}], A <- Vms, #{node := Node} <- Gone,
            lists:member(Node, call(A, erlang, nodes, []))] =:= []
    end),
    %% Until the agents have noticed.
    eventually(fun() -> lists:all(fun(Vm) -> map_size(state(Vm, lost)) > 0 end, Side ++ Other) end).

%% As the kubelet does.
terminate(#{peer := Peer} = Vm) ->
    "" = os:cmd("kill -TERM " ++ call(Vm, os, getpid, [])),
    eventually(fun() -> not is_process_alive(Peer) end).

state(Vm, Key) ->
    maps:get(Key, call(Vm, sys, get_state, [livestash_agent_reunion])).

%% Connected again, and with Mnesia joined as LiveStash does it.
heal(Side, Other) ->
    reconnect(Side, Other),
    [
        {ok, _} = call(Vm, mnesia, change_config, [extra_db_nodes, [Node || #{node := Node} <- Side ++ Other]])
     || Vm <- Side ++ Other, call(Vm, erlang, module_loaded, [mnesia]), call(Vm, mnesia, system_info, [is_running]) =:= yes
    ],
    ok.

reconnect(Side, Other) ->
    cookies(Side, Other, tests),
    cookies(Other, Side, tests),
    join(Side ++ Other).

%% Of the peers, as the nodes see them.
cookies(Vms, Peers, Cookie) ->
    [true = call(Vm, erlang, set_cookie, [Node, Cookie]) || Vm <- Vms, #{node := Node} <- Peers].

%% What a peer asks for.
ask(Vm, Question, Arguments) -> call(Vm, livestash_agent_copies, Question, Arguments).

make_table() ->
    Owner = spawn(timer, sleep, [infinity]),
    Options = [set, public, named_table, {keypos, 2}, {write_concurrency, true}, {decentralized_counters, true}],
    true = ets:give_away(ets:new(?ETS, Options), Owner, given).

make_mnesia(First = #{node := Node}, Vms) ->
    [ok = call(Vm, mnesia, start, []) || Vm <- Vms],
    {ok, _} = call(First, mnesia, change_config, [extra_db_nodes, [Other || #{node := Other} <- Vms, Other =/= Node]]),
    Options = [{attributes, [id, pid, delete_at, state]}, {ram_copies, [Other || #{node := Other} <- Vms]}],
    {atomic, ok} = call(First, mnesia, create_table, [?MNESIA, Options]).

row(Key, Owner, Value) -> {state, Key, Owner, ?FAR, Value, nil}.

stash(Key, Owner, Value) -> {?MNESIA, Key, Owner, ?FAR, Value}.

owner(Vm) -> livestash_agent_fixture:page(Vm).

dead(Vm) -> livestash_agent_fixture:ended_page(Vm).

put_ets(Vm, Rows) -> true = call(Vm, ets, insert, [?ETS, Rows]).

write(Vm, Row) -> write_all(Vm, [Row]).

write_all(Vm, Rows) ->
    {atomic, ok} = call(Vm, mnesia, sync_transaction, [fun lists:foreach/2, [fun mnesia:write/1, Rows]]).

delete(Vm, Key) ->
    {atomic, ok} = call(Vm, mnesia, sync_transaction, [fun mnesia:delete/1, [{?MNESIA, Key}]]).

tab(Vm, Table) -> lists:sort(call(Vm, ets, tab2list, [Table])).

whole(Vm) -> element(1, call(Vm, livestash_agent_reunion, whole, [])).

reunited(Vms) -> lists:sum([maps:get(reunited_rows, call(Vm, livestash_agent_state, counters, [])) || Vm <- Vms]).

%% Users who stash: only the owner writes, and what they have written last is what they must find.
count_up(Table, Keys) ->
    livestash_agent_fixture:begins(self()),
    [{atomic, ok} = mnesia:transaction(fun() -> mnesia:write({Table, Key, self(), ?FAR, 0}) end) || Key <- Keys],
    count_up(Table, Keys, 1).

count_up(Table, Keys, Value) ->
    [{atomic, ok} = mnesia:transaction(fun() -> mnesia:write({Table, Key, self(), ?FAR, Value}) end) || Key <- Keys],
    receive
        {stop, From} ->
            From ! {self(), [{Key, Value} || Key <- Keys]},
            timer:sleep(infinity)
    after 1 -> count_up(Table, Keys, Value + 1)
    end.

stop_counting(Vm, Counter) ->
    call(Vm, fun() ->
        Counter ! {stop, self()},
        receive
            {Counter, Last} -> Last
        end
    end).
