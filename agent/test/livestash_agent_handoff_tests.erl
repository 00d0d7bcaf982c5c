-module(livestash_agent_handoff_tests).

-include_lib("eunit/include/eunit.hrl").

-define(TABLE, live_stash_server_storage).
-define(KEY, 2).
-define(F, livestash_agent_fixture).

%% Called in other VMs.
-export([halt_when_rows_come/0, hand_over_other/3, start_changing/2, start_looking/2, changed/0]).
-export([hand_over_keeping/3, fill_by_age/1, ages/0, fill_large/1, digests/0]).
-export([start_clients/3, clients_found/0, visit/2]).

%% Four nodes: the first hands over, the last has no agent.

all_test_() ->
    {setup, fun start/0, fun stop/1, fun(Vms) ->
        [
            {Name, {timeout, 100, fun() -> reset(Vms), Test(Vms) end}}
         || {Name, Test} <- [
                {"every row arrives once and unchanged", fun rows_arrive/1},
                {"a row whose key is at a peer stays", fun old_rows_stay/1},
                {"also when that peer is not the one that would take it", fun old_rows_stay_everywhere/1},
                {"a worse version at a peer is replaced, and others of it go", fun worse_rows_go/1},
                {"a page that lives is ended before its row moves", fun living_pages/1},
                {"rows of closed sockets live longer, as long as there is room", fun kept_rows/1},
                {"rows whose time is over", fun expired_rows/1},
                {"the youngest rows go first", fun youngest_first/1},
                {"rows of another version of the application are counted", fun other_version/1},
                {"rows that LiveStash cannot read there", fun other_shape/1},
                {"an agent that speaks another protocol takes nothing", fun other_protocol/1},
                {"an agent of the next version, in both directions", fun next_protocol/1},
                {"a draining peer takes nothing", fun draining_peer/1},
                {"a peer without the table takes nothing", fun peer_without_table/1},
                {"a peer without the agent takes rows", fun peer_without_agent/1},
                {"a frozen peer takes nothing, also not later", fun frozen_peer/1},
                {"a peer that dies before its rows are deleted here", fun dying_peer/1},
                {"rows that are changed here while peers have copies", fun changing_rows/1},
                {"a lookup that takes as long as other calls do", fun slow_calls/1},
                {"nobody is there", fun nobody/1},
                {"no time", fun no_time/1},
                {"rows larger than a batch", fun large_rows/1},
                {"an offer that was withdrawn", fun withdrawn_offer/1},
                {"tables that cannot be handed over", fun other_tables/1},
                {"clients pull their rows at the same time", fun clients/1}
            ]
        ]
    end}.

start() ->
    Vms = [?F:start(#{environment => #{"LIVE_STASH_ADAPTER" => "ets"}}) || _ <- [1, 2, 3]],
    Plain = ?F:start(#{environment => #{"ERL_AFLAGS" => ""}}),
    [?F:eventually(fun() -> ?F:call(Vm, erlang, module_loaded, [livestash_agent_handoff]) end) || Vm <- Vms],
    All = Vms ++ [Plain],
    [connect(Vm, All) || Vm <- All],
    All.

%% And gives the VM this module.
connect(Vm, All) ->
    ok = ?F:call(Vm, fun() -> ok end),
    [true = ?F:call(Vm, net_kernel, connect_node, [Node]) || #{node := Node} <- All].

stop(Vms) ->
    [?F:stop(Vm) || Vm <- Vms].

reset(Vms) ->
    [?F:call(Vm, ?F, make_table, []) || Vm <- Vms],
    [?F:call(Vm, livestash_agent_state, set_draining, [none]) || Vm <- lists:droplast(Vms)].

row(Key, Value) ->
    {state, Key, undefined, 0, #{value => Value}, nil}.

fill(Vm, Rows) ->
    true = ?F:call(Vm, ets, insert, [?TABLE, Rows]),
    Rows.

rows(Vm) ->
    ?F:call(Vm, ets, tab2list, [?TABLE]).

%% In any order. Sorting would take 1 and 1.0 for the same.
same(Rows, Others) ->
    Rows -- Others =:= [] andalso Others -- Rows =:= [].

hand_over(Vm, Peers) ->
    hand_over(Vm, Peers, 20000).

hand_over(Vm, Peers, Within) ->
    ?F:call(Vm, livestash_agent_handoff, hand_over, [?TABLE, [Node || #{node := Node} <- Peers], Within, none]).

rows_arrive([Me, P1, P2 | _]) ->
    %% Terms that mean something in patterns, and keys of many kinds.
    Odd = ['_', '$1', '$_', {'_', a}, #{a => 1}, [], 1.0, 1, <<"k">>],
    Keys = Odd ++ [integer_to_binary(N) || N <- lists:seq(1, 1000)],
    Rows = fill(Me, [row(Key, {'_', '$1', fun erlang:abs/1, #{'_' => Key}}) || Key <- Keys]),
    ?assertEqual(#{handed_over => length(Rows), other_version => 0, left => 0, reason => ""}, hand_over(Me, [P1, P2])),
    ?assertEqual([], rows(Me)),
    ?assert(same(Rows, rows(P1) ++ rows(P2))),
    %% Spread.
    ?assert(length(rows(P1)) > 300),
    ?assert(length(rows(P2)) > 300).

old_rows_stay([Me, P1 | _]) ->
    fill(Me, [row(N, old) || N <- lists:seq(1, 10)]),
    New = fill(P1, [row(N, new) || N <- lists:seq(1, 5)]),
    ?assertEqual(#{handed_over => 5, other_version => 0, left => 0, reason => ""}, hand_over(Me, [P1])),
    ?assert(same(New ++ [row(N, old) || N <- lists:seq(6, 10)], rows(P1))).

old_rows_stay_everywhere([Me, P1, P2 | _]) ->
    Keys = lists:seq(1, 300),
    fill(Me, [row(N, old) || N <- Keys]),
    New = fill(P1, [row(N, new) || N <- Keys]),
    ?assertEqual(#{handed_over => 0, other_version => 0, left => 0, reason => ""}, hand_over(Me, [P1, P2])),
    ?assert(same(New, rows(P1))),
    ?assertEqual([], rows(P2)).

%% Of the same page, the later write.
worse_rows_go([Me, P1, P2 | _]) ->
    Until = os:system_time(second) + 1000,
    Page = ?F:page(Me),
    ?F:call(Me, erlang, exit, [Page, kill]),
    Rows = fill(Me, [of_page(N, Page, Until + 10, new) || N <- lists:seq(1, 300)]),
    fill(P1, [of_page(N, Page, Until, old) || N <- lists:seq(1, 300)]),
    fill(P2, [of_page(N, Page, Until + 1, older) || N <- lists:seq(1, 300)]),
    ?assertEqual(#{handed_over => 300, other_version => 0, left => 0, reason => ""}, hand_over(Me, [P1, P2])),
    ?F:eventually(fun() -> length(rows(P1) ++ rows(P2)) =:= 300 end),
    ?assert(same(Rows, rows(P1) ++ rows(P2))).

living_pages([Me, P1, P2 | _]) ->
    Until = os:system_time(second) + 1000,
    Pages = [?F:page(Me) || _ <- lists:seq(1, 20)],
    Rows = fill(Me, [of_page(N, Page, Until, N) || {N, Page} <- lists:enumerate(Pages)]),
    ?assertEqual(#{handed_over => 20, other_version => 0, left => 0, reason => ""}, hand_over(Me, [P1, P2])),
    ?assertNot(lists:any(fun(Page) -> ?F:call(Me, erlang, is_process_alive, [Page]) end, Pages)),
    ?assert(same(Rows, rows(P1) ++ rows(P2))).

kept_rows([Me, P1 | _]) ->
    Until = os:system_time(second) + 1000,
    Longer = Until + 5000,
    [Closed, Other] = [?F:page(Me), ?F:page(Me)],
    [?F:call(Me, erlang, exit, [Page, kill]) || Page <- [Closed, Other]],
    fill(Me, [of_page(1, Closed, Until, a), of_page(2, Other, Until, b), of_page(3, Closed, Longer + 1, c)]),
    Moved = ?F:call(Me, ?MODULE, hand_over_keeping, [[node_of(P1)], Closed, Longer]),
    ?assertEqual(#{handed_over => 3, other_version => 0, left => 0, reason => ""}, Moved),
    ?assert(same([of_page(1, Closed, Longer, a), of_page(2, Other, Until, b), of_page(3, Closed, Longer + 1, c)], rows(P1))),
    Config = ?F:call(P1, persistent_term, get, [livestash_agent_config]),
    ?F:call(P1, persistent_term, put, [livestash_agent_config, Config#{drain_keep_bytes := 1}]),
    fill(Me, [of_page(4, Closed, Until, d)]),
    ?F:call(Me, ?MODULE, hand_over_keeping, [[node_of(P1)], Closed, Longer]),
    ?F:call(P1, persistent_term, put, [livestash_agent_config, Config]),
    ?assert(lists:member(of_page(4, Closed, Until, d), rows(P1))).

hand_over_keeping(Peers, Page, Until) ->
    livestash_agent_handoff:hand_over(?TABLE, Peers, 20000, {fun(Other) -> Other =:= Page end, Until}).

expired_rows([Me, P1 | _]) ->
    Now = os:system_time(second),
    Page = ?F:page(Me),
    ?F:call(Me, erlang, exit, [Page, kill]),
    fill(Me, [of_page(1, Page, Now - 5, over), of_page(2, Page, Now + 100, good)]),
    ?assertEqual(#{handed_over => 1, other_version => 0, left => 0, reason => ""}, hand_over(Me, [P1])),
    ?assertEqual([of_page(2, Page, Now + 100, good)], rows(P1)).

%% What is left when the time is up are the oldest.
youngest_first([Me, P1 | _]) ->
    {Count, Moved} = hand_some_over(Me, P1, 6000, 300),
    %% They go by eighths.
    ?assert(lists:min(Moved) >= Count - length(Moved) - Count div 8 - 16).

%% With so little time that it is enough for some, and not for all.
hand_some_over(Me, P1, Count, Within) ->
    [?F:call(Vm, ?F, make_table, []) || Vm <- [Me, P1]],
    ?F:call(Me, ?MODULE, fill_by_age, [Count]),
    #{left := Left} = ?F:call(Me, livestash_agent_handoff, hand_over, [?TABLE, [node_of(P1)], Within, none]),
    case ?F:call(P1, ?MODULE, ages, []) of
        [] -> hand_some_over(Me, P1, Count, 2 * Within);
        _All when Left =:= 0 -> hand_some_over(Me, P1, 2 * Count, Within);
        Moved -> {Count, Moved}
    end.

%% The higher the number, the younger.
fill_by_age(Count) ->
    Now = os:system_time(second),
    Page = spawn(fun() -> ok end),
    Value = binary:copy(<<"x">>, 5500),
    true = ets:insert(?TABLE, [of_page(N, Page, Now + N, Value) || N <- lists:seq(1, Count)]).

ages() ->
    ets:select(?TABLE, [{{state, '$1', '_', '_', '_', '_'}, [], ['$1']}]).

other_version([Me, P1 | _]) ->
    Rows = fill(Me, [row(N, N) || N <- lists:seq(1, 10)] ++ [setelement(6, row(N, N), 2) || N <- lists:seq(11, 30)]),
    ?F:call(P1, livestash_agent_shape, saw_version, [2]),
    Result = hand_over(Me, [P1]),
    ?F:call(P1, persistent_term, erase, [livestash_agent_shape]),
    ?assertEqual(#{handed_over => 30, other_version => 10, left => 0, reason => ""}, Result),
    ?assert(same(Rows, rows(P1))).

other_shape([Me, P1 | _]) ->
    fill(Me, [row(N, N) || N <- lists:seq(1, 10)]),
    true = ?F:call(P1, ets, insert, [?TABLE, {stash, mine, ?F:page(P1), 0}]),
    ?assertMatch(
        #{handed_over := 0, left := 10, reason := "Peers run another version of LiveStash, which cannot read" ++ _},
        hand_over(Me, [P1])
    ),
    ?assertMatch([{stash, mine, _, 0}], rows(P1)).

other_protocol([Me, P1, P2 | _]) ->
    Rows = fill(Me, [row(N, N) || N <- lists:seq(1, 100)]),
    speaking(P1, "handle(3, M, F, A) -> apply(M, F, A); handle(_, _, _, _) -> error({protocol, 3}). ", fun() ->
        ?assertEqual(#{handed_over => 100, other_version => 0, left => 0, reason => ""}, hand_over(Me, [P1, P2]))
    end),
    ?assertEqual([], rows(P1)),
    ?assert(same(Rows, rows(P2))).

%% That agent asks in the new protocol first, and answers both.
next_protocol([Me, P1 | _]) ->
    Next =
        "handle(P, M, F, A) when P =:= 2; P =:= 3 -> apply(M, F, A). "
        "call(N, M, F, A) -> "
        "  try erpc:call(N, ?MODULE, handle, [3, M, F, A]) "
        "  catch error:{exception, {protocol, 2}, _} -> erpc:call(N, ?MODULE, handle, [2, M, F, A]) end. "
        "tell(Nodes, M, F, A) -> [call(N, M, F, A) || N <- Nodes], ok. "
        "without_agent(_) -> false. ",
    Rows = fill(Me, [row(N, N) || N <- lists:seq(1, 100)]),
    speaking(P1, string:replace(Next, "?MODULE", "livestash_agent_remote", all), fun() ->
        ?assertEqual(#{handed_over => 100, other_version => 0, left => 0, reason => ""}, hand_over(Me, [P1])),
        ?assert(same(Rows, rows(P1))),
        ?assertEqual(#{handed_over => 100, other_version => 0, left => 0, reason => ""}, hand_over(P1, [Me])),
        ?assert(same(Rows, rows(Me)))
    end).

%% With another livestash_agent_remote in that VM.
speaking(Vm, Functions, Test) ->
    Source = ["-module(livestash_agent_remote). -compile([export_all, nowarn_export_all]). ", Functions],
    {ok, Tokens, _} = erl_scan:string(lists:flatten(Source)),
    {ok, livestash_agent_remote, Code} = compile:forms(forms(Tokens, [])),
    {_, Original, File} = code:get_object_code(livestash_agent_remote),
    Load = fun(Binary) -> {module, _} = ?F:call(Vm, code, load_binary, [livestash_agent_remote, File, Binary]) end,
    Load(Code),
    try
        Test()
    after
        Load(Original)
    end.

forms([], []) ->
    [];
forms([{dot, _} = Dot | Tokens], Form) ->
    {ok, Parsed} = erl_parse:parse_form(lists:reverse([Dot | Form])),
    [Parsed | forms(Tokens, [])];
forms([Token | Tokens], Form) ->
    forms(Tokens, [Token | Form]).

node_of(#{node := Node}) ->
    Node.

of_page(Key, Page, Until, Value) ->
    {state, Key, Page, Until, #{value => Value}, nil}.

draining_peer([Me, P1, P2 | _]) ->
    Rows = fill(Me, [row(N, N) || N <- lists:seq(1, 500)]),
    ?F:call(P1, livestash_agent_state, set_draining, [closing]),
    ?assertEqual(#{handed_over => 500, other_version => 0, left => 0, reason => ""}, hand_over(Me, [P1, P2])),
    ?assertEqual([], rows(P1)),
    ?assert(same(Rows, rows(P2))).

peer_without_table([Me, P1, P2 | _]) ->
    Rows = fill(Me, [row(N, N) || N <- lists:seq(1, 500)]),
    ?F:call(P1, ets, delete, [?TABLE]),
    ?assertEqual(#{handed_over => 500, other_version => 0, left => 0, reason => ""}, hand_over(Me, [P1, P2])),
    ?assert(same(Rows, rows(P2))).

peer_without_agent([Me, P1, P2, Plain]) ->
    Rows = fill(Me, [row(N, N) || N <- lists:seq(1, 500)]),
    fill(Plain, [row(1, new)]),
    ?assertEqual(#{handed_over => 499, other_version => 0, left => 0, reason => ""}, hand_over(Me, [P1, P2, Plain])),
    ?assert(length(rows(Plain)) > 100),
    ?assert(same([row(1, new) | Rows -- [row(1, 1)]], rows(P1) ++ rows(P2) ++ rows(Plain))).

frozen_peer([Me, P1, P2 | _]) ->
    Rows = fill(Me, [row(N, N) || N <- lists:seq(1, 500)]),
    Pid = ?F:call(P1, os, getpid, []),
    "" = os:cmd("kill -STOP " ++ Pid),
    try
        ?assertEqual(#{handed_over => 500, other_version => 0, left => 0, reason => ""}, hand_over(Me, [P1, P2])),
        ?assert(same(Rows, rows(P2)))
    after
        "" = os:cmd("kill -CONT " ++ Pid)
    end,
    %% Whatever it was asked while it was frozen is done once it has answered this.
    timer:sleep(500),
    ?assertEqual([], rows(P1)).

%% The rows are at the peer, and the node that hands over has not deleted them yet.
dying_peer([Me, P1 | _]) ->
    Rows = fill(Me, [row(N, N) || N <- lists:seq(1, 500)]),
    Third = ?F:start(#{environment => #{"LIVE_STASH_ADAPTER" => "ets"}}),
    ?F:eventually(fun() -> ?F:call(Third, erlang, module_loaded, [livestash_agent_handoff]) end),
    connect(Third, [Me]),
    ?F:call(Third, ?F, make_table, []),
    ?F:call(Third, ?MODULE, halt_when_rows_come, []),
    ?assertEqual(#{handed_over => 500, other_version => 0, left => 0, reason => ""}, hand_over(Me, [P1, Third])),
    ?assert(same(Rows, rows(P1))),
    ?assertEqual([], rows(Me)).

halt_when_rows_come() ->
    spawn(fun Wait() ->
        case maps:get(handoffs_received, livestash_agent_state:counters()) of
            0 ->
                erlang:yield(),
                Wait();
            _ ->
                timer:sleep(5),
                erlang:halt(0, [{flush, false}])
        end
    end),
    ok.

%% As a process does that the endpoint could not stop in time. That there is time for it is also what saves a client
%% that has looked at the peer too early, and looks here next. On a busy machine the time may be over too soon.
changing_rows(Vms) ->
    ?F:eventually(fun() ->
        reset(Vms),
        length(change_rows(Vms)) > 50
    end).

change_rows([#{node := Source} = Me, P1 | _]) ->
    Keys = lists:seq(1, 100),
    Rows = fill(Me, [row(N, old) || N <- Keys]),
    ?F:call(P1, ?MODULE, start_changing, [Source, Keys]),
    ?assertEqual(#{handed_over => 100, other_version => 0, left => 0, reason => ""}, hand_over(Me, [P1])),
    Changed = ?F:call(P1, ?MODULE, changed, []),
    Unchanged = Rows -- [row(N, old) || N <- Changed],
    ?assert(same([row(N, new) || N <- Changed] ++ Unchanged, rows(P1))),
    Changed.

%% Where calls take 700 ms, a lookup that has found nothing at the peer may look here as much later.
slow_calls(Vms) ->
    ?F:eventually(fun() ->
        reset(Vms),
        slow_lookups(Vms) =:= 100
    end).

slow_lookups([#{node := Source} = Me, P1 | _]) ->
    Rows = fill(Me, [row(N, old) || N <- lists:seq(1, 100)]),
    ?F:call(P1, ?MODULE, start_looking, [Source, [Key || {state, Key, _, _, _, _} <- Rows]]),
    Pid = ?F:call(P1, os, getpid, []),
    %% The first second is spent on waiting for clients.
    Slow = spawn_monitor(fun() -> "" = os:cmd("sleep 0.8; kill -STOP " ++ Pid ++ "; sleep 0.9; kill -CONT " ++ Pid) end),
    #{left := 0} = hand_over(Me, [P1]),
    {_, Monitor} = Slow,
    receive
        {'DOWN', Monitor, process, _, normal} -> ok
    end,
    length(?F:call(P1, ?MODULE, changed, [])).

%% Looks at the source 700 ms after its rows have begun to come here.
start_looking(Source, Keys) ->
    register(changing, spawn(fun() ->
        await_here(hd(Keys)),
        timer:sleep(700),
        Found = [Key || Key <- Keys, erpc:call(Source, ets, member, [?TABLE, Key])],
        receive
            {From, changed} -> From ! {changed, Found}
        end
    end)),
    ok.

%% Changes a row at its source as soon as its copy has been here for a moment.
start_changing(Source, Keys) ->
    register(changing, spawn(fun() ->
        await_here(hd(Keys)),
        timer:sleep(5),
        Changed = [Key || Key <- Keys, change(Source, Key) =:= 1],
        receive
            {From, changed} -> From ! {changed, Changed}
        end
    end)),
    ok.

await_here(Key) ->
    case ets:member(?TABLE, Key) of
        true ->
            ok;
        false ->
            erlang:yield(),
            await_here(Key)
    end.

change(Source, Key) ->
    Change = [{{state, Key, '_', '_', '_', '_'}, [], [{const, row(Key, new)}]}],
    erpc:call(Source, ets, select_replace, [?TABLE, Change]).

changed() ->
    changing ! {self(), changed},
    receive
        {changed, Changed} -> Changed
    end.

nobody([Me | _]) ->
    Rows = fill(Me, [row(N, N) || N <- lists:seq(1, 5)]),
    ?assertMatch(#{handed_over := 0, left := 5, reason := [_ | _]}, hand_over(Me, [])),
    ?assert(same(Rows, rows(Me))).

no_time([Me, P1 | _]) ->
    fill(Me, [row(N, N) || N <- lists:seq(1, 5)]),
    ?assertMatch(#{handed_over := 0, left := 5, reason := [_ | _]}, hand_over(Me, [P1], 0)),
    ?assertEqual([], rows(P1)).

large_rows([Me, P1, P2 | _]) ->
    ?F:call(Me, ?MODULE, fill_large, [6]),
    Rows = ?F:call(Me, ?MODULE, digests, []),
    ?assertEqual(#{handed_over => 6, other_version => 0, left => 0, reason => ""}, hand_over(Me, [P1, P2])),
    ?assertEqual(lists:sort(Rows), lists:sort(lists:append([?F:call(Peer, ?MODULE, digests, []) || Peer <- [P1, P2]]))).

fill_large(Count) ->
    true = ets:insert(?TABLE, [row(N, binary:copy(<<N>>, 3 * 1024 * 1024)) || N <- lists:seq(1, Count)]).

digests() ->
    [{element(?KEY, Row), erlang:phash2(Row)} || Row <- ets:tab2list(?TABLE)].

withdrawn_offer([Me, P1 | _]) ->
    Dead = ?F:call(Me, erlang, spawn, [erlang, now, []]),
    ?F:eventually(fun() -> not ?F:call(Me, erlang, is_process_alive, [Dead]) end),
    ?assertEqual([withdrawn], ?F:call(P1, livestash_agent_intake, take, [?TABLE, [{row(1, 1), {0, 0, false, true}, 0}], Dead])),
    ?assertEqual([], rows(P1)).

other_tables([Me, #{node := Peer} | _]) ->
    [
        begin
            Result = ?F:call(Me, ?MODULE, hand_over_other, [Type, Access, Peer]),
            ?assertMatch(#{handed_over := 0, left := 1, reason := [_ | _]}, Result)
        end
     || {Type, Access} <- [{bag, public}, {duplicate_bag, public}, {set, protected}, {set, private}]
    ].

hand_over_other(Type, Access, Peer) ->
    Table = ets:new(other, [Type, Access, named_table]),
    ets:insert(Table, {key, value}),
    try
        livestash_agent_handoff:hand_over(Table, [Peer], 1000, none)
    after
        ets:delete(Table)
    end.

%% Half of the clients come back while their rows are on their way, and some of them a second time, each looking for its
%% row as LiveStash does. Whoever comes back must find what it stashed last, and in the end there must be one row for
%% each, the right one.
clients([Me, P1, P2, P3] = Vms) ->
    Keys = lists:seq(1, 8000),
    fill(Me, [row(Key, 1) || Key <- Keys]),
    #{node := Source} = Me,
    Nodes = [Node || #{node := Node} <- [P1, P2, P3]],
    Returning = lists:zip(lists:seq(1, 8000, 2), lists:sublist(lists:append(lists:duplicate(4000, Nodes)), 4000)),
    [
        ?F:call(Vm, ?MODULE, start_clients, [[Key || {Key, At} <- Returning, At =:= Node], Source, Nodes])
     || #{node := Node} = Vm <- [P1, P2, P3]
    ],
    #{left := 0, reason := "", handed_over := HandedOver} = hand_over(Me, [P1, P2, P3]),
    Found = lists:append([?F:call(Vm, ?MODULE, clients_found, []) || Vm <- [P1, P2, P3]]),
    %% The race has to have taken place.
    ?assert(HandedOver < 8000),
    ?assert(HandedOver > 4000),
    %% Everybody has found something, and the last that was stashed.
    ?assertEqual([], [Client || {_Key, Visits} = Client <- Found, Visits =/= lists:seq(1, length(Visits))]),
    ?assertEqual(4000, length(Found)),
    Rows = [{Key, Value} || Vm <- Vms, {state, Key, _, _, #{value := Value}, _} <- rows(Vm)],
    Expected = maps:to_list(maps:merge(
        maps:from_keys(Keys, 1), maps:from_list([{Key, 1 + length(Visits)} || {Key, Visits} <- Found])
    )),
    ?assert(same(Expected, Rows)).

%% The clients of this node wait until the first rows have arrived somewhere, then come back within a second.
start_clients(Keys, Source, Nodes) ->
    register(clients, spawn(fun() ->
        await_rows(Nodes),
        Clients = [spawn_monitor(fun() -> client(Key, Source, Nodes) end) || Key <- Keys],
        Found = [
            receive
                {'DOWN', Monitor, process, Pid, Visits} -> Visits
            end
         || {Pid, Monitor} <- Clients
        ],
        receive
            {From, found} -> From ! {found, Found}
        end
    end)),
    ok.

clients_found() ->
    clients ! {self(), found},
    receive
        {found, Found} -> Found
    end.

await_rows(Nodes) ->
    case lists:any(fun(Node) -> erpc:call(Node, ets, info, [?TABLE, size]) > 0 end, Nodes) of
        true -> ok;
        false -> await_rows(Nodes)
    end.

client(Key, Source, Nodes) ->
    timer:sleep(rand:uniform(1000)),
    Hint = lists:nth(rand:uniform(4), [Source, Source, Source, none]),
    First = visit(Key, Hint),
    Second =
        case rand:uniform(3) of
            1 ->
                %% Several times longer than a row has two homes, as on a real way back.
                timer:sleep(1000 + rand:uniform(500)),
                Elsewhere = lists:nth(rand:uniform(length(Nodes)), Nodes),
                Here = node(),
                [erpc:call(Elsewhere, ?MODULE, visit, [Key, Here])];
            _ ->
                []
        end,
    exit({Key, [First | Second]}).

visit(Key, Hint) ->
    %% One of the nodes has no agent.
    _ = erlang:module_loaded(livestash_agent_rank) andalso ?F:begins(self()),
    case ?F:find(Key, Hint) of
        none ->
            none;
        Value ->
            ets:insert(?TABLE, {state, Key, self(), 1, #{value => Value + 1}, nil}),
            Value
    end.
