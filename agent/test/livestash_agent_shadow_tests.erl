%% Do stashes outlive a node that is killed? On real nodes, each of which is ended as the kernel does it.
-module(livestash_agent_shadow_tests).

-include_lib("eunit/include/eunit.hrl").

-import(livestash_agent_fixture, [call/2, call/4, eventually/1]).

%% For other tests.
-export([start/1, start_all/2, join/1, kill/1, shut/1, covered/1]).
%% Called in the VMs.
-export([fill/2, write/2, write_again/2, look/1, tell_page/2, writer/2, rows/0, copies/0, page/1, put_row/3, arrive/1, reset/1, ahead/1, noise/1, mounts/1]).
-export([count_questions/1, questions/0]).

-define(F, livestash_agent_fixture).
-define(TABLE, live_stash_server_storage).
-define(STORE, livestash_agent_shadow_store).
%% Milliseconds.
-define(INTERVAL, 300).
%% Seconds.
-define(TTL, 300).

all_test_() ->
    {inparallel, 3, [
        {Name, {timeout, 120, Test}}
     || {Name, Test} <- [
            {"nothing is there when nobody asked for it", fun off/0},
            {"the stashes of a killed node are at its peers, once", fun killed/0},
            {"who is back before a copy is taken over finds it", fun back_at_once/0},
            {"and when another node has the copy", fun back_elsewhere_at_once/0},
            {"who waits for what does not come waits no longer", fun waits_in_vain/0},
            {"what was lost twice is there", fun killed_twice/0},
            {"two holders are killed at once", fun two_copies/0},
            {"two holders, one owner", fun two_copies_one_owner/0},
            {"two holders, one of which freezes", fun two_copies_one_frozen/0},
            {"a writer loses an interval and a second", fun writer_loses_little/0},
            {"who moved is not brought back", fun moved/0},
            {"who moved long ago is not brought back", fun moved_unnoticed/0},
            {"who was quicker is not overtaken", fun quicker/0},
            {"who leaves as soon as they are back has a stash", fun leaves_at_once/0},
            {"who found nothing can stash, when a copy comes later", fun() -> anew(before) end},
            {"and when it comes in the same moment", fun() -> anew(later) end},
            {"and when the page stashes at once, and never again", fun() -> anew(once) end},
            {"who found nothing and leaves finds the copy later", fun() -> anew(ends) end},
            {"what was deleted stays deleted", fun deleted/0},
            {"a page that lives on costs no payload", fun lives_on/0},
            {"a node that has handed over leaves no copies", fun goodbye/0},
            {"a node hands over right after another was lost", fun goodbye_after_a_loss/0},
            {"copies on a node that goes are elsewhere before", fun leaves/0},
            {"a new node gets its share, once", fun joins/0},
            {"a full holder refuses", fun full/0},
            {"a restarted agent is copied anew", fun agent_restarts/0},
            {"an agent that has given up holds no copies", fun gives_up/0},
            {"and what changes goes elsewhere at once", fun gives_up_and_is_sent_something/0},
            {"after a split each stash has one owner", fun split/0},
            {"after a split idle stashes have copies", fun split_idle/0},
            {"what a frozen node takes over is as old as it was", fun frozen_holder/0},
            {"and so is what a node takes over that sees nobody", fun lonely_holder/0},
            {"a lonely node meets the user's next page", fun meets_the_younger/0},
            {"the user's next page is on a node that drains", fun younger_one_drains/0},
            {"a holder that was cut off for a moment has copies", fun cut_off/0},
            {"what a machine takes with it is on another one", fun machines/0},
            {"what was reset after a move is not brought back", fun moved_and_reset/0},
            {"what was handed over by a node with a fast clock has copies", fun fast_clock/0},
            {"who is refused has no older version there", fun refused_later/0},
            {"the next page's stash is copied though the clock was set back", fun clock_set_back/0}
        ]
    ]}.

off() ->
    Vm = ?F:start(#{environment => #{"LIVE_STASH_ADAPTER" => "ets"}}),
    eventually(fun() -> is_pid(call(Vm, erlang, whereis, [livestash_agent])) end),
    ?assertEqual(undefined, call(Vm, erlang, whereis, [livestash_agent_shadow])),
    ?assertEqual(undefined, call(Vm, ets, whereis, [?STORE])),
    ?F:stop(Vm).

killed() ->
    [A, B, C] = Vms = start_all(3, #{}),
    Keys = call(A, ?MODULE, fill, [a, 300]),
    Others = call(B, ?MODULE, fill, [b, 30]),
    covered(Vms),
    ?assertEqual(330, length(copies_of(Vms))),
    kill(A),
    eventually(fun() -> lists:sort(keys(B) ++ keys(C)) =:= lists:sort(Keys ++ Others) end),
    ?assertEqual([], [Value || {_Key, Value} <- values_of([B, C]), Value =/= 1]),
    ?assert(promoted(B) > 50),
    ?assertEqual(300, promoted(B) + promoted(C)),
    shut([B, C]).

%% LiveStash asks once, and the kernel of a killed node tells users and peers at the same time. Here the peer hears of it later.
back_at_once() ->
    [A, B] = Vms = start_all(2, #{}),
    [Key | _] = call(A, ?MODULE, fill, [a, 100]),
    covered(Vms),
    ok = call(B, sys, suspend, [?STORE]),
    kill(A),
    eventually(fun() -> call(B, erlang, nodes, []) =:= [] end),
    {ok, _} = call(B, timer, apply_after, [500, sys, resume, [?STORE]]),
    ?assertEqual(1, call(B, ?MODULE, mounts, [Key])),
    shut([B]).

back_elsewhere_at_once() ->
    [A, B, C] = Vms = start_all(3, #{}),
    call(A, ?MODULE, fill, [a, 100]),
    covered(Vms),
    [{Key, _, _} | _] = call(B, ?MODULE, copies, []),
    ok = call(B, sys, suspend, [?STORE]),
    kill(A),
    eventually(fun() -> {call(B, erlang, nodes, []), call(C, erlang, nodes, [])} =:= {[node_of(C)], [node_of(B)]} end),
    {ok, _} = call(B, timer, apply_after, [500, sys, resume, [?STORE]]),
    ?assertEqual(1, call(C, ?MODULE, mounts, [Key])),
    %% B would not be done for long, but is not asked when no node was lost lately.
    true = call(B, ets, insert, [livestash_agent_shadow_senders, {nobody}]),
    timer:sleep(2000),
    {Took, none} = timer:tc(fun() -> call(C, ?MODULE, mounts, [nobody]) end),
    ?assert(Took < 1000000),
    shut([B, C]).

%% The agent's process that takes copies over stands still, and ends. One that begins anew has nothing to wait for but copies.
waits_in_vain() ->
    [A, B, C] = Vms = start_all(3, #{}),
    call(A, ?MODULE, fill, [a, 100]),
    covered(Vms),
    Taking = fun() -> call(B, ?MODULE, mounts, [nobody]) end,
    ?assertEqual(none, Taking()),
    ok = call(B, sys, suspend, [?STORE]),
    kill(A),
    eventually(fun() -> call(B, erlang, nodes, []) =:= [node_of(C)] end),
    {Waited, none} = timer:tc(Taking),
    ?assert(Waited >= 3000000),
    true = call(B, erlang, exit, [call(B, erlang, whereis, [?STORE]), kill]),
    eventually(fun() -> length(keys(B) ++ keys(C)) =:= 100 end),
    eventually(fun() -> [Node || {Node} <- call(B, ets, tab2list, [livestash_agent_shadow_senders])] -- [node_of(C)] =:= [] end),
    shut([B, C]).

%% What was taken over gets copies again.
killed_twice() ->
    [A, B, C] = Vms = start_all(3, #{}),
    Keys = lists:append([call(Vm, ?MODULE, fill, [Name, 100]) || {Name, Vm} <- [{a, A}, {b, B}, {c, C}]]),
    covered(Vms),
    kill(A),
    eventually(fun() -> length(keys(B) ++ keys(C)) =:= 300 end),
    covered([B, C]),
    kill(B),
    eventually(fun() -> lists:sort(keys(C)) =:= lists:sort(Keys) end),
    shut([C]).

two_copies() ->
    [A, B, C] = Vms = start_all(3, #{"LIVESTASH_SHADOW_COPIES" => "2"}),
    Keys = call(A, ?MODULE, fill, [a, 200]),
    covered(Vms),
    kill(A),
    kill(B),
    eventually(fun() -> lists:sort(keys(C)) =:= lists:sort(Keys) end),
    shut([C]).

two_copies_one_owner() ->
    [A, B, C] = Vms = start_all(3, #{"LIVESTASH_SHADOW_COPIES" => "2"}),
    Keys = call(A, ?MODULE, fill, [a, 1000]),
    covered(Vms),
    ?assertEqual(2000, length(copies_of(Vms))),
    kill(A),
    eventually(fun() -> lists:sort(keys(B) ++ keys(C)) =:= lists:sort(Keys) end),
    covered([B, C]),
    ?assertEqual(lists:sort(Keys), lists:sort(keys(B) ++ keys(C))),
    shut([B, C]).

%% Users wait for what is taken over, so a node that does not answer is asked once by each of the four that take over, not for each 200 stashes.
two_copies_one_frozen() ->
    [A, B, #{os_pid := Pid} = C] = Vms = start_all(3, #{"LIVESTASH_SHADOW_COPIES" => "2"}),
    Keys = call(A, ?MODULE, fill, [a, 3000]),
    covered(Vms),
    ok = call(B, ?MODULE, count_questions, [node_of(C)]),
    "" = os:cmd("kill -STOP " ++ Pid),
    try
        kill(A),
        eventually(fun() -> lists:sort(keys(B)) =:= lists:sort(Keys) end),
        Asked = call(B, ?MODULE, questions, []),
        ?assert(Asked >= 1 andalso Asked =< 4)
    after
        %% Also when it fails: nobody waits for a VM that is frozen.
        shut([B, C])
    end.

%% Its holder is killed, and its own node within five seconds.
writer_loses_little() ->
    [A, B, C, D] = Vms = start_all(4, #{"LIVESTASH_SHADOW_INTERVAL_MS" => "1000"}),
    [call(Vm, ?MODULE, fill, [Name, 2000]) || {Name, Vm} <- [{a, A}, {b, B}, {c, C}, {d, D}]],
    Writers = [{writer, Number} || Number <- lists:seq(1, 30)],
    [call(A, erlang, spawn, [?MODULE, writer, [Writer, 200]]) || Writer <- Writers],
    covered_or_writing(Vms, Writers),
    Holder = holder(hd(Writers), [B, C, D]),
    kill(Holder),
    timer:sleep(3000),
    Killed = erlang:system_time(millisecond),
    kill(A),
    Left = [B, C, D] -- [Holder],
    eventually(fun() -> Writers -- [Key || {Key, _} <- values_of(Left)] =:= [] end),
    Lost = [Killed - Value || {{writer, _} = Key, Value} <- values_of(Left), lists:member(Key, Writers)],
    ?assertEqual(30, length(Lost)),
    ?assertEqual([], [Age || Age <- Lost, Age > 1000 + 1000 + 200]),
    shut(Left).

covered_or_writing(Vms, Writers) ->
    eventually(fun() -> Writers -- [Key || {Key, _, _} <- copies_of(Vms)] =:= [] end),
    eventually(fun() -> lists:sum([length(call(Vm, ?MODULE, copies, [])) || Vm <- Vms]) =:= 8030 end).

holder(Key, Vms) ->
    [Holder | _] = [Vm || Vm <- Vms, lists:keymember(Key, 1, call(Vm, ?MODULE, copies, []))],
    Holder.

%% A user takes their stash along, as LiveStash does it. The copy of where it was is nobody's.
moved() ->
    [A, B, C] = Vms = start_all(3, #{}),
    Keys = call(A, ?MODULE, fill, [a, 100]),
    covered(Vms),
    timer:sleep(700),
    [come_back(Key, B, 2) || Key <- Keys],
    eventually(fun() -> [Key || {Key, Sender, _} <- copies_of(Vms), Sender =/= node_of(B)] =:= [] end),
    kill(A),
    timer:sleep(500),
    ?assertEqual({lists:sort([{Key, 2} || Key <- Keys]), []}, {lists:sort(values_of([B])), values_of([C])}),
    shut([B, C]).

%% The owner is killed before it knows, and before the user's new node has said anything.
moved_unnoticed() ->
    [A, B, C] = Vms = start_all(3, #{}),
    Keys = call(A, ?MODULE, fill, [a, 100]),
    covered(Vms),
    timer:sleep(700),
    [call(B, ?MODULE, write, [Key, 2]) || Key <- Keys, call(A, ets, take, [?TABLE, Key]) =/= []],
    kill(A),
    eventually(fun() -> lists:sort(values_of([B, C])) =:= lists:sort([{Key, 2} || Key <- Keys]) end),
    timer:sleep(1500),
    ?assertEqual({lists:sort([{Key, 2} || Key <- Keys]), []}, {lists:sort(values_of([B])), values_of([C])}),
    shut([B, C]).

%% The user has a new stash before the copy of the old one was taken over.
quicker() ->
    [A, B, C] = Vms = start_all(3, #{}),
    Keys = call(A, ?MODULE, fill, [a, 60]),
    covered(Vms),
    timer:sleep(700),
    [call(Vm, sys, suspend, [?STORE]) || Vm <- [B, C]],
    kill(A),
    [call(B, ?MODULE, page, [Key]) || Key <- Keys],
    [call(Vm, sys, resume, [?STORE]) || Vm <- [B, C]],
    Anew = {lists:sort([{Key, 3} || Key <- Keys]), []},
    eventually(fun() -> {lists:sort(values_of([B])), values_of([C])} =:= Anew end),
    timer:sleep(1000),
    ?assertEqual(Anew, {lists:sort(values_of([B])), values_of([C])}),
    shut([B, C]).

%% A page that comes says at all nodes that nobody has a better version, its own included. By the time that is heard it may have ended.
leaves_at_once() ->
    [A, B] = Vms = start_all(2, #{}),
    [call(Vm, sys, suspend, [?STORE]) || Vm <- Vms],
    Key = call(A, ?MODULE, write, [user, 1]),
    call(A, livestash_agent_shadow_marks, arrived, [[Key]]),
    timer:sleep(500),
    [{state, Key, Page, _, _, _}] = call(A, ets, lookup, [?TABLE, Key]),
    true = call(A, erlang, exit, [Page, kill]),
    [call(Vm, sys, resume, [?STORE]) || Vm <- Vms],
    covered(Vms),
    timer:sleep(500),
    ?assertEqual([{Key, 1}], values_of(Vms)),
    shut([A, B]).

%% A user's page has looked and found nothing: the copy is taken over only then. LiveStash would refuse what the page stashes, because
%% the stash is another page's. It says that it has found nothing before or after that.
anew(When) ->
    [A, B] = Vms = start_all(2, #{}),
    Key = call(A, ?MODULE, write, [user, 1]),
    covered(Vms),
    call(B, sys, suspend, [?STORE]),
    kill(A),
    Page = call(B, ?MODULE, look, [Key]),
    IsLater = lists:member(When, [later, once]),
    [say(Page, B) || not IsLater],
    call(B, sys, resume, [?STORE]),
    eventually(fun() -> call(B, erlang, nodes, []) =:= [] end),
    [eventually(fun() -> keys(B) =:= [Key] end) || IsLater],
    [say(Page, B) || IsLater],
    [?assertEqual(stored, call(B, ?MODULE, tell_page, [Page, {stash, 2}])) || When =:= once],
    timer:sleep(1500),
    case When of
        once ->
            ?assertEqual([{Key, 2}], values_of([B]));
        %% It ends without a stash: the copy is taken over after all.
        ends ->
            ?assertEqual([], values_of([B])),
            true = call(B, erlang, exit, [Page, kill]),
            call(B, erlang, send, [?STORE, sweep]),
            eventually(fun() -> values_of([B]) =:= [{Key, 1}] end);
        _ ->
            ?assertEqual(stored, call(B, ?MODULE, tell_page, [Page, {stash, 2}])),
            ?assertEqual([{Key, 2}], values_of([B]))
    end,
    shut([B]).

say(Page, Vm) -> said = call(Vm, ?MODULE, tell_page, [Page, say]).

deleted() ->
    [A, B, C] = Vms = start_all(3, #{}),
    [Stays | Goes] = call(A, ?MODULE, fill, [a, 50]),
    covered(Vms),
    [call(A, ets, delete, [?TABLE, Key]) || Key <- Goes],
    [call(A, livestash_agent_shadow_marks, mark, [Key]) || Key <- Goes],
    eventually(fun() -> length(copies_of(Vms)) =:= 1 end),
    kill(A),
    eventually(fun() -> values_of([B, C]) =:= [{Stays, 1}] end),
    timer:sleep(500),
    ?assertEqual([{Stays, 1}], values_of([B, C])),
    shut([B, C]).

%% The time moves on at the holder, and the version there stays.
lives_on() ->
    [A, B] = Vms = start_all(2, #{}),
    [Key] = call(A, ?MODULE, fill, [a, 1]),
    covered(Vms),
    Version = call(B, ?STORE, versions_of, [sender(A)]),
    Until = erlang:system_time(second) + 2 * ?TTL,
    true = call(A, ets, update_element, [?TABLE, Key, {4, Until}]),
    call(A, livestash_agent_shadow_marks, mark, [Key]),
    eventually(fun() -> [Ends || {_, _, Ends} <- call(B, ?MODULE, copies, [])] =:= [Until] end),
    ?assertEqual(Version, call(B, ?STORE, versions_of, [sender(A)])),
    kill(A),
    eventually(fun() -> keys(B) =:= [Key] end),
    ?assertMatch([{state, Key, _, Until, _, _}], call(B, ets, lookup, [?TABLE, Key])),
    shut([B]).

goodbye() ->
    Environment = #{"LIVESTASH_DRAIN_ENDPOINT_WAIT_MS" => "0", "LIVESTASH_TERMINATION_LOG" => "/dev/null"},
    [A, B, C] = Vms = start_all(3, Environment),
    Keys = call(A, ?MODULE, fill, [a, 100]),
    covered(Vms),
    ok = call(A, livestash_agent_drain, run, []),
    ?assertEqual([], [Key || {Key, Sender, _} <- copies_of([B, C]), Sender =:= node_of(A)]),
    kill(A),
    timer:sleep(500),
    ?assertEqual(lists:sort(Keys), lists:sort(keys(B) ++ keys(C))),
    ?assertEqual(0, promoted(B) + promoted(C)),
    covered([B, C]),
    shut([B, C]).

%% Who takes the stashes tells all others then that it has them, and they live longer there: that makes them look better than
%% those that A still has for a moment.
goodbye_after_a_loss() ->
    Environment = #{"LIVESTASH_DRAIN_ENDPOINT_WAIT_MS" => "0", "LIVESTASH_TERMINATION_LOG" => "/dev/null"},
    [A, B, C, Lost] = Vms = start_all(4, Environment),
    Keys = call(A, ?MODULE, fill, [a, 100]),
    covered(Vms),
    kill(Lost),
    eventually(fun() -> length(call(B, erlang, nodes, []) ++ call(C, erlang, nodes, [])) =:= 4 end),
    ok = call(A, livestash_agent_drain, run, []),
    kill(A),
    timer:sleep(500),
    ?assertEqual(lists:sort(Keys), lists:sort(keys(B) ++ keys(C))),
    shut([B, C]).

leaves() ->
    [A, B, C] = Vms = start_all(3, #{}),
    call(A, ?MODULE, fill, [a, 100]),
    covered(Vms),
    call(B, livestash_agent_state, set_draining, [waiting]),
    ok = call(B, livestash_agent_shadow, leave, []),
    eventually(fun() -> length(call(C, ?MODULE, copies, [])) =:= 100 end),
    shut(Vms).

joins() ->
    [A, B] = Vms = start_all(2, #{}),
    call(A, ?MODULE, fill, [a, 200]),
    covered(Vms),
    C = start(#{}),
    join([A, B, C]),
    eventually(fun() -> length(call(C, ?MODULE, copies, [])) > 50 end),
    eventually(fun() -> length(copies_of([A, B, C])) =:= 200 end),
    kill(A),
    eventually(fun() -> length(keys(B) ++ keys(C)) =:= 200 end),
    shut([B, C]).

full() ->
    [A, B] = start_all(2, #{"LIVESTASH_SHADOW_MAX_BYTES" => "5000"}),
    call(A, ?MODULE, fill, [a, 100]),
    eventually(fun() -> maps:get(shadows_refused, call(B, livestash_agent_state, counters, [])) > 0 end),
    {Rows, Bytes} = call(B, ?STORE, size, []),
    ?assert(Rows > 5 andalso Rows < 100 andalso Bytes =< 5000),
    ?assertMatch(#{refused := true}, call(A, livestash_agent_shadow, status, [])),
    ?assertMatch({match, _}, re:run(?F:request(B, "/metrics"), "\nlivestash_shadows_refused_total [1-9]")),
    shut([A, B]).

agent_restarts() ->
    [A, B, C] = Vms = start_all(3, #{}),
    Keys = call(A, ?MODULE, fill, [a, 100]),
    covered(Vms),
    ok = call(B, application, stop, [livestash_agent]),
    ok = call(B, application, start, [livestash_agent]),
    eventually(fun() -> length(copies_of(Vms)) =:= 100 end),
    Server = call(C, erlang, whereis, [?STORE]),
    true = call(C, erlang, exit, [Server, kill]),
    eventually(fun() -> not lists:member(call(C, erlang, whereis, [?STORE]), [Server, undefined]) end),
    %% Its copies are taken over at once when it goes, not when somebody looks again.
    #{senders := Senders} = call(C, sys, get_state, [?STORE]),
    ?assert(is_map_key(node_of(A), Senders)),
    kill(A),
    eventually(fun() -> lists:sort(keys(B) ++ keys(C)) =:= lists:sort(Keys) end),
    shut([B, C]).

%% Nothing changes, so that only the next look at all stashes tells.
gives_up() ->
    [A, B, C] = Vms = start_all(3, #{}),
    Keys = call(A, ?MODULE, fill, [a, 100]),
    covered(Vms),
    ok = call(B, application, stop, [livestash_agent]),
    eventually(fun() -> not is_map_key(node_of(B), call(A, livestash_agent_shadow, peers, [])) end),
    covered([A, C]),
    kill(A),
    eventually(fun() -> lists:sort(keys(C)) =:= lists:sort(Keys) end),
    shut([B, C]).

gives_up_and_is_sent_something() ->
    [A, B, C] = Vms = start_all(3, #{}),
    Keys = call(A, ?MODULE, fill, [a, 100]),
    covered(Vms),
    ok = call(B, application, stop, [livestash_agent]),
    [ok = call(A, ?MODULE, write_again, [Key, 2]) || Key <- Keys],
    timer:sleep(5 * ?INTERVAL),
    ?assertNot(is_map_key(node_of(B), call(A, livestash_agent_shadow, peers, []))),
    covered([A]),
    kill(A),
    eventually(fun() -> lists:sort(values_of([C])) =:= lists:sort([{Key, 2} || Key <- Keys]) end),
    shut([B, C]).

%% The page lives on and writes on one side, and its copy is on the other one.
split() ->
    [A, B] = Vms = start_all(2, #{}),
    Writers = [{writer, Number} || Number <- lists:seq(1, 20)],
    [call(A, erlang, spawn, [?MODULE, writer, [Writer, 200]]) || Writer <- Writers],
    eventually(fun() -> length(copies_of(Vms)) =:= 20 end),
    livestash_agent_reunion_tests:split([A], [B]),
    eventually(fun() -> length(keys(B)) =:= 20 end),
    timer:sleep(1000),
    livestash_agent_reunion_tests:heal([A], [B]),
    eventually(fun() -> {lists:sort(keys(A)), keys(B)} =:= {Writers, []} end),
    eventually(fun() -> length(copies_of([B])) =:= 20 end),
    shut(Vms).

%% B stands still, as a frozen node does, while A goes on. What it takes over of A's then is as old as it was: C must not take it
%% for newer than what A has sent meanwhile.
frozen_holder() ->
    old_copies(fun(A, B, C, Write) ->
        ok = call(B, sys, suspend, [?STORE]),
        apart(A, B),
        eventually(fun() -> {call(A, erlang, nodes, []), call(B, erlang, nodes, [])} =:= {[node_of(C)], [node_of(C)]} end),
        Write(),
        ok = call(B, sys, resume, [?STORE])
    end).

%% B sees nobody, takes over what it has, and later meets C again.
lonely_holder() ->
    old_copies(fun(A, B, C, Write) ->
        Held = call(B, ?MODULE, copies, []),
        [apart(Vm, B) || Vm <- [C, A]],
        eventually(fun() -> length(keys(B)) =:= length(Held) end),
        [livestash_agent_shadow_marks = call(B, fun() -> livestash_agent_shadow_marks:arrived([Key]), livestash_agent_shadow_marks end) || Key <- keys(B)],
        eventually(fun() -> call(B, ets, info, [livestash_agent_shadow_marks, size]) =:= 0 end),
        Write(),
        [true = call(Vm, erlang, set_cookie, [node_of(Other), tests]) || {Vm, Other} <- [{B, C}, {C, B}]],
        true = call(B, net_kernel, connect_node, [node_of(C)])
    end).

old_copies(Happens) ->
    [A, B, C] = Vms = start_all(3, #{}),
    call(A, ?MODULE, fill, [a, 60]),
    covered(Vms),
    Held = lists:sort([Key || {Key, _, _} <- call(B, ?MODULE, copies, [])]),
    Happens(A, B, C, fun() ->
        %% So that it is another second.
        timer:sleep(1100),
        [ok = call(A, ?MODULE, write_again, [Key, 2]) || Key <- Held],
        covered([A])
    end),
    eventually(fun() -> lists:sort(keys(B)) =:= Held end),
    covered([B]),
    kill(A),
    eventually(fun() -> Held -- (keys(B) ++ keys(C)) =:= [] end),
    timer:sleep(1000),
    ?assertEqual([{Key, 2} || Key <- Held], lists:sort([Row || {Key, _} = Row <- values_of([B, C]), lists:member(Key, Held)])),
    shut([B, C]).

%% A user has gone from A to C while B, with the copy of A's, saw nobody. Now B meets C first.
meets_the_younger() ->
    [A, B, C, D] = Vms = start_all(4, #{}),
    call(A, ?MODULE, fill, [a, 60]),
    covered(Vms),
    Held = lists:sort([Key || {Key, _, _} <- call(B, ?MODULE, copies, [])]),
    [apart(Vm, B) || Vm <- [C, D, A]],
    eventually(fun() -> lists:sort(keys(B)) =:= Held end),
    [come_back(Key, C, 2) || Key <- Held],
    covered([A, C, D]),
    [true = call(Vm, erlang, set_cookie, [node_of(Other), tests]) || {Vm, Other} <- [{B, C}, {C, B}]],
    true = call(B, net_kernel, connect_node, [node_of(C)]),
    Seen = [begin timer:sleep(50), lists:sort([Row || {Key, _} = Row <- values_of([C]), lists:member(Key, Held)]) end || _ <- lists:seq(1, 100)],
    ?assertEqual([[{Key, 2} || Key <- Held]], lists:usort(Seen)),
    shut(Vms).

%% A user has gone from A to C, which drains, and A is killed before B, which has the copy of A's, has heard of that. What C has is still there until
%% it has handed it over: a user who comes to B before that must not find what is older.
younger_one_drains() ->
    [A, B, C] = start_all(3, #{}),
    call(A, ?MODULE, fill, [a, 60]),
    covered([A]),
    Held = lists:sort([Key || {Key, _, _} <- call(B, ?MODULE, copies, [])]),
    ok = call(C, sys, suspend, [livestash_agent_shadow]),
    ok = call(B, sys, suspend, [?STORE]),
    [come_back(Key, C, 2) || Key <- Held],
    call(C, livestash_agent_state, set_draining, [closing]),
    kill(A),
    eventually(fun() -> call(B, erlang, nodes, []) =:= [node_of(C)] end),
    ok = call(B, sys, resume, [?STORE]),
    eventually(fun() -> promoted(B) =:= length(Held) end),
    eventually(fun() -> values_of([B]) =:= [] end),
    ?assertEqual([{Key, 2} || Key <- Held], lists:sort([Row || {Key, _} = Row <- values_of([C]), lists:member(Key, Held)])),
    shut([B, C]).

%% Different cookies on both sides: whoever sees both would have them meet again.
apart(Vm, Other) ->
    true = call(Vm, erlang, set_cookie, [node_of(Other), one]),
    true = call(Other, erlang, set_cookie, [node_of(Vm), another]),
    true = call(Vm, erlang, disconnect_node, [node_of(Other)]).

%% Users who are away: no page writes or moves the end of its time. What the other side has taken over goes there again,
%% and so does its word that it has nothing any more.
split_idle() ->
    [A, B, C] = Vms = start_all(3, #{}),
    Keys = lists:sort(call(A, ?MODULE, fill, [a, 60])),
    covered(Vms),
    livestash_agent_reunion_tests:split([A], [B, C]),
    eventually(fun() -> lists:sort(keys(B) ++ keys(C)) =:= Keys end),
    covered([B, C]),
    livestash_agent_reunion_tests:heal([A], [B, C]),
    eventually(fun() -> {lists:sort(keys(A)), keys(B) ++ keys(C)} =:= {Keys, []} end),
    [call(Vm, livestash_agent_shadow, complete, []) || Vm <- Vms],
    Wanted = [{Key, node_of(A)} || Key <- Keys],
    eventually(fun() -> differ([{Key, Node} || {Key, Node, _} <- copies_of(Vms)], Wanted) end),
    shut(Vms).

%% What is too much, and what is missing.
differ(Found, Wanted) ->
    case {Found -- Wanted, Wanted -- Found} of
        {[], []} -> true;
        Differences -> Differences
    end.

%% It has taken the stashes over, which nobody wants there.
cut_off() ->
    [A, B] = Vms = start_all(2, #{}),
    Keys = lists:sort(call(A, ?MODULE, fill, [a, 20])),
    covered(Vms),
    livestash_agent_reunion_tests:split([A], [B]),
    eventually(fun() -> lists:sort(keys(B)) =:= Keys end),
    livestash_agent_reunion_tests:heal([A], [B]),
    eventually(fun() -> {lists:sort(keys(A)), keys(B)} =:= {Keys, []} end),
    eventually(fun() -> lists:sort([Key || {Key, _, _} <- call(B, ?MODULE, copies, [])]) =:= Keys end),
    kill(A),
    eventually(fun() -> lists:sort(keys(B)) =:= Keys end),
    shut([B]).

%% Both nodes of a machine are killed, as when it is lost.
machines() ->
    [A, B, C, D] = Vms = [start(#{"LIVESTASH_MACHINE" => Machine}) || Machine <- ["one", "one", "two", "three"]],
    join(Vms),
    Keys = [Key || {Name, Vm} <- [{a, A}, {b, B}, {c, C}, {d, D}], Key <- call(Vm, ?MODULE, fill, [Name, 50])],
    covered(Vms),
    kill(A),
    kill(B),
    eventually(fun() -> lists:sort(keys(C) ++ keys(D)) =:= lists:sort(Keys) end),
    shut([C, D]).

%% The node that the user has left is killed before it knows. The copies of where the user was next are elsewhere,
%% because they are to be on another machine than that.
moved_and_reset() ->
    [A, B, C, D] = Vms = [start(#{"LIVESTASH_MACHINE" => Machine}) || Machine <- ["one", "one", "other", "other"]],
    join(Vms),
    Keys = call(A, ?MODULE, fill, [a, 100]),
    covered(Vms),
    ?assertEqual(lists:sort(Keys), lists:sort([Key || {Key, _, _} <- copies_of([C, D])])),
    [?assertEqual({Key, 1}, {Key, call(C, livestash_agent_fixture, find, [Key, node_of(A)])}) || Key <- Keys],
    call(C, ?MODULE, arrive, [Keys]),
    covered([C]),
    [call(C, ?MODULE, reset, [Key]) || Key <- Keys],
    covered([C]),
    kill(A),
    timer:sleep(1500),
    ?assertEqual([], [Key || Vm <- [B, C, D], Key <- keys(Vm)]),
    shut([B, C, D]).

%% Where a stash goes to, its copy is given a stamp that looks older than the one before.
fast_clock() ->
    Environment = #{"LIVESTASH_DRAIN_ENDPOINT_WAIT_MS" => "0", "LIVESTASH_TERMINATION_LOG" => "/dev/null"},
    [A, B, C] = Vms = start_all(3, Environment),
    Keys = call(A, ?MODULE, fill, [a, 100]),
    covered(Vms),
    [call(Vm, ?MODULE, ahead, [3600000000]) || Vm <- [B, C]],
    ok = call(A, livestash_agent_drain, run, []),
    kill(A),
    ?assertEqual(lists:sort(Keys), lists:sort(keys(B) ++ keys(C))),
    eventually(fun() -> lists:sort([Key || {Key, _, _} <- copies_of([B, C])]) =:= lists:sort(Keys) end),
    shut([B, C]).

%% It grows beyond what the holder has room for, within the second in which it was copied, and the others go.
refused_later() ->
    [A, B] = Vms = start_all(2, #{"LIVESTASH_SHADOW_MAX_BYTES" => "5000"}),
    Until = erlang:system_time(second) + ?TTL,
    Write = fun(Key, Value) -> call(A, ?MODULE, put_row, [Key, Value, Until]) end,
    [Write({other, Number}, 1) || Number <- lists:seq(1, 10)],
    Write(key, 1),
    covered(Vms),
    ?assertEqual(11, length(copies_of(Vms))),
    Large = call(A, ?MODULE, noise, [3000]),
    Write(key, Large),
    eventually(fun() -> maps:get(shadows_refused, call(B, livestash_agent_state, counters, [])) > 0 end),
    ?assertEqual([], [Key || {key = Key, _, _} <- copies_of(Vms)]),
    [call(A, ?MODULE, reset, [{other, Number}]) || Number <- lists:seq(1, 10)],
    eventually(fun() -> copies_of(Vms) =:= [] end),
    ok = call(A, livestash_agent_shadow, complete, []),
    eventually(fun() -> [Key || {Key, _, _} <- copies_of(Vms)] =:= [key] end),
    kill(A),
    eventually(fun() -> values_of([B]) =:= [{key, Large}] end),
    shut([B]).

clock_set_back() ->
    [A, B] = Vms = start_all(2, #{}),
    key = call(A, ?MODULE, write, [key, 1]),
    [{state, key, Page, _, _, _}] = call(A, ets, lookup, [?TABLE, key]),
    true = call(A, ets, update_element, [livestash_agent_rank, Page, {2, os:system_time(millisecond) + 3600000}]),
    ok = call(A, ?MODULE, write_again, [key, 2]),
    covered(Vms),
    key = call(A, ?MODULE, write, [key, 3]),
    covered(Vms),
    kill(A),
    eventually(fun() -> keys(B) =:= [key] end),
    ?assertEqual([{key, 3}], values_of([B])),
    shut([B]).

%% What several tests do.

start_all(Count, Environment) ->
    Vms = [start(Environment) || _ <- lists:seq(1, Count)],
    join(Vms),
    Vms.

start(Environment) ->
    Defaults = #{
        "LIVE_STASH_ADAPTER" => "ets",
        "LIVESTASH_SHADOW_COPIES" => "1",
        "LIVESTASH_SHADOW_INTERVAL_MS" => integer_to_list(?INTERVAL)
    },
    Vm = ?F:start(#{environment => maps:merge(Defaults, Environment)}),
    eventually(fun() -> is_pid(call(Vm, erlang, whereis, [livestash_agent])) end),
    true = call(Vm, fun livestash_agent_fixture:make_table/0),
    ok = call(Vm, fun() -> ok end),
    Vm#{os_pid => call(Vm, os, getpid, [])}.

%% Until all know each other as holders.
join(Vms) ->
    [call(Vm, net_kernel, connect_node, [node_of(Other)]) || Vm <- Vms, Other <- Vms],
    Peers = length(Vms) - 1,
    Known = fun(Vm) -> maps:size(call(Vm, livestash_agent_shadow, peers, [])) end,
    eventually(fun() -> [Known(Vm) || Vm <- Vms] =:= [Peers || _ <- Vms] end).

node_of(#{node := Node}) -> Node.

sender(Vm) -> {node_of(Vm), call(Vm, livestash_agent_shadow, token, [])}.

%% As the kernel ends a process, without a word.
kill(#{os_pid := Pid, peer := Peer}) ->
    Monitor = monitor(process, Peer),
    unlink(Peer),
    _ = os:cmd("kill -9 " ++ Pid),
    receive
        {'DOWN', Monitor, process, Peer, _} -> ok
    end.

shut(Vms) ->
    [kill(Vm) || Vm <- Vms].

%% Until nothing waits to be copied.
covered(Vms) ->
    eventually(fun() -> [Vm || Vm <- Vms, lacks(Vm)] =:= [] end).

lacks(Vm) ->
    #{lag := Lag} = call(Vm, livestash_agent_shadow, status, []),
    Missing = [Key || Key <- keys(Vm), call(Vm, livestash_agent_shadow_index, copies, [Key]) =:= []],
    Lag > 0 orelse Missing =/= [] orelse call(Vm, ets, info, [livestash_agent_shadow_marks, size]) > 0.

keys(Vm) -> [Key || {Key, _Value} <- call(Vm, ?MODULE, rows, [])].

values_of(Vms) -> lists:append([call(Vm, ?MODULE, rows, []) || Vm <- Vms]).

copies_of(Vms) -> lists:append([call(Vm, ?MODULE, copies, []) || Vm <- Vms]).

promoted(Vm) -> maps:get(shadows_promoted, call(Vm, livestash_agent_state, counters, [])).

%% A page of that node takes the stash along from wherever it is, and stashes.
come_back(Key, Vm, Value) ->
    Hint = node(),
    _ = call(Vm, livestash_agent_fixture, find, [Key, Hint]),
    call(Vm, ?MODULE, write, [Key, Value]).

%% In the VMs.

fill(Name, Count) ->
    [write({Name, Number}, 1) || Number <- lists:seq(1, Count)].

%% How often processes that begin from now on ask that node which versions it has.
count_questions(Node) ->
    Counter = counters:new(1, []),
    persistent_term:put(?MODULE, Counter),
    Tracer = spawn(fun() -> count(Counter) end),
    _ = erlang:trace(new_processes, true, [call, {tracer, Tracer}]),
    _ = erlang:trace_pattern({livestash_agent_remote, call, 4}, [{[Node, ?STORE, stamps, '_'], [], []}], [global]),
    ok.

count(Counter) ->
    receive
        {trace, _Pid, call, _Call} -> counters:add(Counter, 1, 1)
    end,
    count(Counter).

questions() -> counters:get(persistent_term:get(?MODULE), 1).

%% A page that lives on.
write(Key, Value) ->
    Self = self(),
    Page = spawn(fun() ->
        _ = livestash_agent_fixture:begins(self()),
        put_row(Key, Value),
        Self ! {self(), written},
        timer:sleep(infinity)
    end),
    receive
        {Page, written} -> Key
    end.

put_row(Key, Value) ->
    put_row(Key, Value, erlang:system_time(second) + ?TTL).

put_row(Key, Value, Until) ->
    true = ets:insert(?TABLE, {state, Key, self(), Until, #{value => Value}, nil}),
    livestash_agent_shadow_marks:mark(Key).

%% As the page that has it.
write_again(Key, Value) ->
    true = ets:update_element(?TABLE, Key, [{4, erlang:system_time(second) + ?TTL}, {5, #{value => Value}}]),
    livestash_agent_shadow_marks:mark(Key).

%% What a page finds that begins now, as LiveView's telemetry tells it, and then asks LiveStash.
mounts(Key) ->
    Metadata = #{socket => #{transport_pid => self()}},
    ok = livestash_agent_shadow_marks:handle([phoenix, live_view, mount, start], #{}, Metadata, []),
    livestash_agent_fixture:find(Key, none).

%% Their pages say so, as LiveView's telemetry does.
arrive(Keys) ->
    [write(Key, 2) || Key <- Keys],
    livestash_agent_shadow_marks:arrived(Keys).

reset(Key) ->
    true = ets:delete(?TABLE, Key),
    livestash_agent_shadow_marks:mark(Key).

%% The copies here are of a node whose clock goes so many microseconds before this one's.
ahead(Microseconds) ->
    Later = fun(Key) ->
        {Owner, Birth, Stamp} = ets:lookup_element(?STORE, Key, 4),
        ets:update_element(?STORE, Key, {4, {Owner, Birth, Stamp + Microseconds}})
    end,
    [true = Later(Key) || {Key, _Node, _Until} <- copies()].

%% A page that has come back and found nothing.
look(Key) ->
    Test = self(),
    Page = spawn(fun() ->
        _ = livestash_agent_fixture:begins(self()),
        [] = ets:lookup(?TABLE, Key),
        Test ! {self(), looked},
        found_nothing(Key)
    end),
    receive
        {Page, looked} -> Page
    end.

found_nothing(Key) ->
    receive
        {From, say} ->
            ok = livestash_agent_shadow_marks:found_nothing(Key),
            ok = livestash_agent_shadow_marks:looked(Key),
            From ! {self(), said};
        %% As LiveStash does: only who has the stash may write it.
        {From, {stash, Value}} ->
            Row = {state, Key, self(), erlang:system_time(second) + ?TTL, #{value => Value}, nil},
            Mine = [{{state, Key, self(), '_', '_', '_'}, [], [{const, Row}]}],
            Stored = ets:select_replace(?TABLE, Mine) =:= 1 orelse ets:insert_new(?TABLE, Row),
            From ! {self(), case Stored of true -> stored; false -> refused end}
    end,
    found_nothing(Key).

tell_page(Page, What) ->
    Page ! {self(), What},
    receive
        {Page, Answer} -> Answer
    end.

%% Bytes that cannot be compressed.
noise(Bytes) ->
    rand:bytes(Bytes).

%% One that finds what there is here, and else begins anew, as LiveStash does it.
page(Key) ->
    [] = ets:lookup(?TABLE, Key),
    write(Key, 3).

%% Stashes what time it is, in unix milliseconds.
writer(Key, Every) ->
    put_row(Key, erlang:system_time(millisecond)),
    timer:sleep(Every),
    writer(Key, Every).

rows() ->
    [{Key, Value} || {state, Key, _, _, #{value := Value}, _} <- ets:tab2list(?TABLE)].

%% Key, node and the end of the time of each copy.
copies() ->
    [{element(2, Copy), element(1, element(3, Copy)), element(5, Copy)} || Copy <- ets:tab2list(?STORE)].
