%% Does a page get its stash back that an abandoned one has taken over late, and does no other page lose anything by that?
-module(livestash_agent_owners_tests).

-include_lib("eunit/include/eunit.hrl").

-import(livestash_agent_fixture, [stop/1, call/2, call/4, eventually/1, request/2]).
-import(livestash_agent_reunion_tests, [tab/2]).

%% Called in other VMs.
-export([show/1]).

-define(MNESIA, 'Elixir.LiveStash.Adapters.Mnesia.State').
-define(MOUNT, [phoenix, live_view, mount, stop]).
-define(RENDER, [phoenix, live_view, render, stop]).
-define(FAR, 4000000000).
-define(ID, <<"9b6a">>).
-define(SECRET, <<"live_stash">>).

all_test_() ->
    [{timeout, 120, Test} || Test <- [
        fun late_page_of_another_node/0,
        fun late_page_of_this_node/0,
        fun late_page_of_a_node_that_is_gone/0,
        fun late_page_of_a_node_that_is_gone_before_anybody_looked/0,
        fun late_page_that_was_started_while_its_node_was_cut_off/0,
        fun late_page_that_began_before_this_node/0,
        fun late_page_that_began_before_this_agent/0,
        fun abandoned_page_of_another_node/0,
        fun nothing_while_a_node_may_have_a_younger_page/0,
        fun page_that_lives_keeps_its_stash/0,
        fun younger_page_keeps_its_stash/0,
        fun page_of_which_nobody_knows_keeps_its_stash/0,
        fun page_that_never_had_the_stash/0,
        fun page_that_has_reset_its_stash/0,
        fun late_page_of_an_earlier_vm/0,
        fun of_two_pages_the_younger/0,
        fun page_that_has_ended_meanwhile/0,
        fun newer_stash_that_only_the_journal_has/0,
        fun while_copies_may_differ/0,
        fun what_another_copy_has_is_not_overwritten/0,
        fun owner_that_is_asked_about_in_vain/0,
        fun draining_node_gives_nothing_back/0,
        fun without_anybody_asking/0,
        fun no_table/0
    ]].

late_page_of_another_node() ->
    with_late_page(fun(A, B, Late, Page) ->
        close(B, Late),
        ?assertEqual(1, look(A)),
        ?assertEqual([row(Page)], tab(A, ?MNESIA)),
        arrives(B, row(Page)),
        ?assertEqual(0, look(A)),
        ?assertEqual(0, look(B)),
        ?assertMatch({match, _}, re:run(request(A, "/metrics"), "\nlivestash_owners_restored_total 1\n"))
    end).

late_page_of_this_node() ->
    with_mnesia(2, fun([A, B]) ->
        Late = begins(A),
        Page = shown(A),
        taken_over(Late, Page, A),
        close(A, Late),
        ?assertEqual(1, look(A)),
        arrives(B, row(Page))
    end).

%% Whose birth is known here because it was asked for in time.
late_page_of_a_node_that_is_gone() ->
    with_late_page(fun(A, B, _Late, Page) ->
        ?assertEqual(0, look(A)),
        stop(B),
        eventually(fun() -> call(A, erlang, nodes, []) =:= [] end),
        ?assertEqual(1, look(A)),
        ?assertEqual([row(Page)], tab(A, ?MNESIA))
    end).

%% It goes as soon as its page has the stash, and another VM has its name when this node looks.
late_page_of_a_node_that_is_gone_before_anybody_looked() ->
    with_mnesia(2, fun([A, B]) ->
        Late = mounts(B),
        eventually(fun() -> knows(A, Late) end),
        Page = shown(A),
        write(A, row(Late)),
        stop(B),
        again(A, B, fun(_Again) ->
            eventually(fun() -> element(1, call(A, livestash_agent_reunion, whole, [])) end),
            ?assertEqual(1, look(A)),
            ?assertEqual([row(Page)], tab(A, ?MNESIA))
        end)
    end).

late_page_that_was_started_while_its_node_was_cut_off() ->
    with_mnesia(2, fun([A, B] = Vms) ->
        livestash_agent_reunion_tests:split([A], [B]),
        Late = mounts(B),
        timer:sleep(700),
        ?assertNot(knows(A, Late)),
        livestash_agent_reunion_tests:heal([A], [B]),
        eventually(fun() -> knows(A, Late) end),
        eventually(fun() -> lists:all(fun livestash_agent_reunion_tests:whole/1, Vms) end)
    end).

%% Another node was told.
late_page_that_began_before_this_node() ->
    with_mnesia(3, fun([A, B, C]) ->
        Late = mounts(B),
        [eventually(fun() -> knows(Vm, Late) end) || Vm <- [A, C]],
        Page = shown(A),
        write(A, row(Late)),
        stop(B),
        eventually(fun() -> call(A, erlang, nodes, []) =:= [maps:get(node, C)] end),
        true = call(A, ets, delete, [livestash_agent_rank, Late]),
        ?assertEqual(1, look(A)),
        arrives(C, row(Page))
    end).

%% A node that starts is connected before its agent listens, and there is no other to ask.
late_page_that_began_before_this_agent() ->
    with_mnesia(2, fun([A, B]) ->
        ok = call(A, supervisor, terminate_child, [livestash_agent, livestash_agent_births]),
        Late = mounts(B),
        eventually(fun() -> knows(A, Late) end),
        true = call(A, ets, delete, [livestash_agent_rank, Late]),
        {ok, _} = call(A, supervisor, restart_child, [livestash_agent, livestash_agent_births]),
        eventually(fun() -> knows(A, Late) end)
    end).

%% Of two that live, on two nodes: the user sees the younger one, whichever node looks first.
abandoned_page_of_another_node() ->
    with_mnesia(3, fun([A, B, C]) ->
        Late = begins(B),
        _Abandoned = shown(A),
        Page = shown(C),
        write(A, row(Late)),
        close(B, Late),
        ?assertEqual(0, look(A)),
        ?assertEqual(1, look(C)),
        arrives(A, row(Page)),
        ?assertEqual(0, look(A))
    end).

nothing_while_a_node_may_have_a_younger_page() ->
    with_mnesia(3, fun([A, B, C]) ->
        Late = begins(B),
        Page = shown(A),
        write(A, row(Late)),
        close(B, Late),
        Code = call(C, code, get_object_code, [livestash_agent_owners]),
        Silent = "-module(livestash_agent_owners). -export([claims/1]). claims(_) -> timer:sleep(infinity).",
        load(C, Silent),
        ?assertEqual(0, look(A)),
        ?assertEqual([row(Late)], tab(A, ?MNESIA)),
        {Module, Binary, File} = Code,
        {module, Module} = call(C, code, load_binary, [Module, File, Binary]),
        ?assertEqual(1, look(A)),
        ?assertEqual([row(Page)], tab(A, ?MNESIA))
    end).

load(Vm, Text) ->
    {ok, Tokens, _} = erl_scan:string(Text),
    {Forms, []} = lists:foldl(
        fun
            ({dot, _} = Dot, {Done, Some}) ->
                {ok, Form} = erl_parse:parse_form(lists:reverse([Dot | Some])),
                {Done ++ [Form], []};
            (Token, {Done, Some}) ->
                {Done, [Token | Some]}
        end,
        {[], []},
        Tokens
    ),
    {ok, Module, Code} = compile:forms(Forms),
    {module, Module} = call(Vm, code, load_binary, [Module, "", Code]).

%% It may be the user's.
page_that_lives_keeps_its_stash() ->
    with_late_page(fun(A, _B, Other, _Page) ->
        ?assertEqual(0, look(A)),
        ?assertEqual([row(Other)], tab(A, ?MNESIA))
    end).

younger_page_keeps_its_stash() ->
    with_mnesia(2, fun([A, B]) ->
        Page = shown(A),
        Last = begins(B),
        taken_over(Last, Page, A),
        close(B, Last),
        ?assertEqual(0, look(A)),
        ?assertEqual([row(Last)], tab(A, ?MNESIA))
    end).

page_of_which_nobody_knows_keeps_its_stash() ->
    with_mnesia(2, fun([A, B]) ->
        Late = call(B, erlang, spawn, [timer, sleep, [infinity]]),
        Page = shown(A),
        taken_over(Late, Page, A),
        close(B, Late),
        ?assertEqual(0, look(A)),
        ?assertEqual([row(Late)], tab(A, ?MNESIA))
    end).

%% An application may show a page and recover later, or never: what it finds is not the page's.
page_that_never_had_the_stash() ->
    with_mnesia(2, fun([A, B]) ->
        Before = begins(B),
        _Page = shown(A, [context(nil)]),
        write(A, row(Before)),
        close(B, Before),
        ?assertEqual(0, look(A)),
        arrives(B, row(Before))
    end).

%% What stands there now was stashed by an older page that still lived then.
page_that_has_reset_its_stash() ->
    with_mnesia(2, fun([A, B]) ->
        Late = begins(B),
        Page = shown(A, [context(<<"hash">>), context(nil)]),
        taken_over(Late, Page, A),
        close(B, Late),
        ?assertEqual(1, look(A)),
        arrives(B, row(Page))
    end).

%% Nobody knows any more when the owner was started, but it was before its node was started again.
late_page_of_an_earlier_vm() ->
    with_mnesia(2, fun([A, B]) ->
        Late = call(B, erlang, spawn, [timer, sleep, [infinity]]),
        write(A, row(Late)),
        stop(B),
        again(A, B, fun(Again) ->
            Page = shown(A),
            eventually(fun() -> element(1, call(A, livestash_agent_reunion, whole, [])) end),
            ?assertEqual([{false, 0}], [{Alive, Birth} || {Alive, Birth, _} <- call(Again, livestash_agent_owners, describe, [[Late]])]),
            ?assertEqual(1, look(A)),
            ?assertEqual([row(Page)], tab(A, ?MNESIA))
        end),
        %% Not to a page that may have been there before.
        Older = shown(A, [(context(<<"hash">>))#{id := <<"other">>}]),
        true = call(A, ets, insert, [livestash_agent_rank, {Older, 1, 0}]),
        write(A, row(key(<<"other">>), Late)),
        again(A, B, fun(_Again) ->
            eventually(fun() -> element(1, call(A, livestash_agent_reunion, whole, [])) end),
            ?assertEqual(0, look(A))
        end)
    end).

%% In a new VM of the same name as one that has ended, connected to the first node.
again(First, #{node := Node}, Test) ->
    [Name, _Host] = string:split(atom_to_list(Node), "@"),
    Again = livestash_agent_fixture:start(#{name => Name, mode => "interactive", environment => #{"LIVE_STASH_ADAPTER" => "mnesia"}}),
    eventually(fun() -> is_binary(request(Again, "/healthz")) end),
    true = call(First, net_kernel, connect_node, [Node]),
    Test(Again),
    stop(Again).

%% An abandoned page whose connection is not known to be gone, and the one that the user sees.
of_two_pages_the_younger() ->
    with_mnesia(2, fun([A, B]) ->
        Late = begins(B),
        [_Abandoned, Page] = [shown(A), shown(A)],
        taken_over(Late, Page, A),
        close(B, Late),
        ?assertEqual(1, look(A)),
        ?assertEqual([row(Page)], tab(A, ?MNESIA))
    end).

page_that_has_ended_meanwhile() ->
    with_late_page(fun(A, B, Late, Page) ->
        [close(Vm, Each) || {Vm, Each} <- [{A, Page}, {B, Late}]],
        ?assertEqual(0, look(A)),
        ?assertEqual([row(Late)], tab(A, ?MNESIA))
    end).

%% LiveStash has replaced the table by one from before the user moved here.
newer_stash_that_only_the_journal_has() ->
    with_mnesia(2, fun([A, B]) ->
        Before = begins(B),
        write(A, row(Before)),
        Page = shown(A),
        %% No peer was away: the server that would have it forgotten within a second stands still.
        ok = call(A, sys, suspend, [livestash_agent_reunion]),
        ok = call(A, livestash_agent_journal, remember, [?MNESIA]),
        Newer = setelement(5, row(Page), #{count => 2}),
        write(A, Newer),
        eventually(fun() -> call(A, ets, info, [livestash_agent_journal, size]) =:= 1 end),
        close(B, Before),
        [true = call(Vm, ets, insert, [?MNESIA, row(Before)]) || Vm <- [A, B]],
        ?assertEqual(1, look(A)),
        ?assertEqual([Newer], tab(A, ?MNESIA)),
        arrives(B, Newer)
    end).

%% Comparing them may take half a minute, and what the user stashes meanwhile would be refused.
while_copies_may_differ() ->
    with_late_page(fun(A, B, Late, Page) ->
        close(B, Late),
        #{node := Other} = B,
        lost(A, #{Other => 0}),
        ?assertMatch({false, _}, call(A, livestash_agent_reunion, whole, [])),
        ?assertEqual(1, look(A)),
        arrives(B, row(Page))
    end).

%% The user has stashed it on a node that has gone since, beyond a split.
what_another_copy_has_is_not_overwritten() ->
    with_late_page(fun(A, B, Late, _Page) ->
        Last = row(begins(B)),
        [close(B, Each) || Each <- [Late, element(3, Last)]],
        true = call(B, ets, insert, [?MNESIA, Last]),
        #{node := Other} = B,
        lost(A, #{Other => 0}),
        ?assertEqual(0, look(A)),
        ?assertEqual({[row(Late)], [Last]}, {tab(A, ?MNESIA), tab(B, ?MNESIA)})
    end).

%% Its agent is of before.
owner_that_is_asked_about_in_vain() ->
    with_late_page(fun(A, B, Late, _Page) ->
        %% Whose birth is known, so that only that is missing.
        ?assertEqual(0, look(A)),
        {ok, Before, Code} = compile:forms([{attribute, 1, module, livestash_agent_owners}]),
        {module, Before} = call(B, code, load_binary, [Before, "", Code]),
        close(B, Late),
        ?assertEqual(0, look(A)),
        ?assertEqual([row(Late)], tab(A, ?MNESIA))
    end).

draining_node_gives_nothing_back() ->
    with_late_page(fun(A, B, Late, Page) ->
        close(B, Late),
        ok = call(A, livestash_agent_state, set_draining, [stopping]),
        ok = call(A, sys, resume, [livestash_agent_owners]),
        looks_by_itself(A),
        ?assertEqual([row(Late)], tab(A, ?MNESIA)),
        ok = call(A, livestash_agent_state, set_draining, [none]),
        looks_by_itself(A),
        ?assertEqual([row(Page)], tab(A, ?MNESIA))
    end).

looks_by_itself(Vm) ->
    look = call(Vm, erlang, send, [livestash_agent_owners, look]),
    eventually(fun() -> #{} =:= call(Vm, sys, get_state, [livestash_agent_owners]) end).

%% Every page that it should is found, whatever how many there are.
without_anybody_asking() ->
    with_mnesia(2, fun([A, B]) ->
        Late = begins(B),
        Contexts = [(context(<<"hash">>))#{id := integer_to_binary(N)} || N <- lists:seq(1, 1200)],
        [ok = call(Vm, sys, resume, [livestash_agent_owners]) || Vm <- [A, B]],
        Pages = [{key(Id), shown(A, [Context])} || #{id := Id} = Context <- Contexts],
        {atomic, ok} = call(A, mnesia, sync_transaction, [fun lists:foreach/2, [fun mnesia:write/1, [row(Key, Late) || {Key, _Page} <- Pages]]]),
        close(B, Late),
        Back = lists:sort([row(Key, Page) || {Key, Page} <- Pages]),
        eventually(fun() -> tab(B, ?MNESIA) =:= Back end)
    end).

%% The application has not made it yet, or its Mnesia has stopped.
no_table() ->
    with_mnesia(1, fun([A]) ->
        _ = shown(A),
        ?assertEqual(0, look(A)),
        stopped = call(A, mnesia, stop, []),
        ?assertEqual(0, look(A))
    end).

%% Nodes that are back, and of which is not known yet whether they were cut off.
lost(Vm, Nodes) ->
    call(Vm, fun() -> sys:replace_state(livestash_agent_reunion, fun(State) -> State#{lost := maps:map(fun(_, _) -> livestash_agent_clock:ms() end, Nodes)} end) end).

%% The agents look when they are told to.
with_mnesia(Count, Test) ->
    livestash_agent_reunion_tests:with_mnesia(Count, fun(Vms) ->
        [ok = call(Vm, sys, suspend, [livestash_agent_owners]) || Vm <- Vms],
        Test(Vms)
    end).

%% Two nodes: the second one's page has taken over the stash of the first one's, which is younger.
with_late_page(Test) ->
    with_mnesia(2, fun([A, B]) ->
        Late = begins(B),
        Page = shown(A),
        taken_over(Late, Page, A),
        Test(A, B, Late, Page)
    end).

%% The page has stashed, and the other one takes that over. None of what a page does is still to be looked for.
taken_over(Other, Page, A) ->
    write(A, row(Page)),
    ?assertEqual(0, look(A)),
    write(A, row(Other)).

%% Who writes in a transaction does not wait for other nodes' copies.
arrives(Vm, Row) -> eventually(fun() -> tab(Vm, ?MNESIA) =:= [Row] end).

write(Vm, Row) ->
    {atomic, ok} = call(Vm, mnesia, sync_transaction, [fun mnesia:write/1, [Row]]).

look(Vm) -> call(Vm, livestash_agent_owners, look, []).

begins(Vm) -> livestash_agent_fixture:page(Vm).

%% A page that says itself when it begins, before it has asked for its stash.
mounts(Vm) ->
    timer:sleep(2),
    call(Vm, fun() -> mount() end).

mount() ->
    page(fun() -> ok = livestash_agent_rank:handle([phoenix, live_view, mount, start], #{}, socket(context(nil)), []) end).

knows(Vm, Page) -> call(Vm, livestash_agent_rank, birth, [Page]) > 0.

%% A page that has been shown to its user, having recovered or stashed something.
shown(Vm) -> shown(Vm, [context(<<"hash">>)]).

shown(Vm, Contexts) -> livestash_agent_fixture:begins(Vm, call(Vm, fun() -> show(Contexts) end)).

show(Contexts) ->
    page(fun() -> [ok = livestash_agent_pages:handle(Event, #{}, socket(Context), []) || Context <- Contexts, Event <- [?MOUNT, ?RENDER]] end).

%% A process that has said what a page says, and lives.
page(Say) ->
    Caller = self(),
    Page = spawn(fun() ->
        Say(),
        Caller ! {self(), said},
        timer:sleep(infinity)
    end),
    receive
        {Page, said} -> Page
    end.

close(Vm, Page) ->
    true = call(Vm, erlang, exit, [Page, kill]),
    eventually(fun() -> not call(Vm, erlang, is_process_alive, [Page]) end).

socket(Context) ->
    #{socket => #{transport_pid => self(), private => #{live_stash_context => Context}}}.

context(Fingerprint) ->
    #{id => ?ID, secret => ?SECRET, ttl => 300, stash_fingerprint => Fingerprint}.

row(Owner) -> row(key(?ID), Owner).

row(Key, Owner) -> {?MNESIA, Key, Owner, ?FAR, #{count => 1}}.

%% As LiveStash makes it.
key(Id) -> string:trim(base64:encode(crypto:hash(sha256, <<Id/binary, (?SECRET)/binary>>)), trailing, "=").
