-module(livestash_agent_rank_tests).

-include_lib("eunit/include/eunit.hrl").

-define(F, livestash_agent_fixture).
-define(TABLE, live_stash_server_storage).
-define(RANK, livestash_agent_rank).

rank_test_() ->
    {setup, fun start/0, fun ?F:kill/1, fun(_) ->
        [
            {Name, {timeout, 60, Test}}
         || {Name, Test} <- [
                {"the younger page's version is right, whatever the older one does", fun younger_page/0},
                {"of one page, the later write", fun later_write/0},
                {"a page that has ended has its birth", fun ended_page/0},
                {"a row without a page ranks below all others", fun without_page/0},
                {"whatever a LiveView's socket looks like, its process goes on", fun sockets/0},
                {"without the agent's process nothing is known, and nothing fails", fun without_process/0}
            ]
        ]
    end}.

vms_test_() ->
    [
        {"pages say when they begin", {timeout, 60, fun says_so/0}},
        {"also when the numbers of processes are used again", {timeout, 60, fun many_processes/0}},
        {"that goes along with the stash", {timeout, 60, fun travels/0}},
        {"what is not needed is forgotten, and nothing else", {timeout, 60, fun forgotten/0}},
        {"nothing is remembered for ever where stashes are elsewhere", fun stashes_elsewhere/0},
        {"nor when stashes are large", {timeout, 60, fun large_stashes/0}},
        {"nor with the process that forgets", {timeout, 60, fun crashes/0}}
    ].

start() ->
    {ok, Pid} = ?RANK:start_link(),
    unlink(Pid),
    Pid.

younger_page() ->
    First = page(),
    timer:sleep(2),
    Last = page(),
    exit(Last, kill),
    %% It lives on, and has moved the end of its row's time on.
    ?assert(?RANK:rank(row(Last, 1000)) > ?RANK:rank(row(First, 2000))).

later_write() ->
    Page = page(),
    ?assert(?RANK:rank(row(Page, 1001)) > ?RANK:rank(row(Page, 1000))).

ended_page() ->
    Before = os:system_time(millisecond),
    Page = page(),
    After = os:system_time(millisecond),
    exit(Page, kill),
    ?assert(?RANK:birth(Page) >= Before),
    ?assert(?RANK:birth(Page) =< After),
    ?assertEqual(0, ?RANK:birth(whereis(init))).

without_page() ->
    Ranks = [?RANK:rank(Row) || Row <- [{state, key}, {state, key, 5, value}, row(page(), 0)]],
    [None, None, Least] = Ranks,
    ?assert(Least > None).

sockets() ->
    [
        ok = ?RANK:handle([phoenix, live_view, mount, start], #{}, Metadata, [])
     || Metadata <- [#{}, #{socket => none}, #{socket => #{}}, #{socket => #{transport_pid => nil}}]
    ],
    ?assertEqual(0, ?RANK:birth(self())).

without_process() ->
    ?F:kill(whereis(?RANK)),
    ok = ?RANK:handle([phoenix, live_view, mount, start], #{}, #{socket => #{transport_pid => self()}}, []),
    ok = ?RANK:learn([{self(), 1}]),
    ?assertEqual(0, ?RANK:birth(self())),
    start().

says_so() ->
    Vm = ?F:start_with_telemetry("ets"),
    Before = os:system_time(millisecond),
    Birth = ?F:call(Vm, fun() -> ?RANK:birth(mounts()) end),
    ?F:stop(Vm),
    ?assert(Birth >= Before),
    ?assert(Birth =< os:system_time(millisecond)).

%% A VM numbers its processes in order only until it has started as many as it may have at once.
many_processes() ->
    Vm = ?F:start(#{environment => #{"LIVE_STASH_ADAPTER" => "ets"}, flags => ["+P", "1024"]}),
    ?F:eventually(fun() -> is_pid(?F:call(Vm, erlang, whereis, [?RANK])) end),
    Sorted = ?F:call(Vm, fun() ->
        %% The numbers of processes are free again in the order in which these end.
        Lived = [spawn(fun() -> timer:sleep(rand:uniform(500)) end) || _ <- lists:seq(1, 800)],
        [?F:eventually(fun() -> not is_process_alive(Pid) end) || Pid <- Lived],
        [?F:kill(spawn(fun() -> ok end)) || _ <- lists:seq(1, 1000)],
        Pages = [begin timer:sleep(2), page() end || _ <- lists:seq(1, 60)],
        Ranked = lists:sort([{?RANK:rank(row(Page, 1)), Page} || Page <- Pages]),
        {Pages =:= lists:sort(Pages), [Page || {_, Page} <- Ranked] =:= Pages}
    end),
    ?F:stop(Vm),
    ?assertEqual({false, true}, Sorted).

travels() ->
    [A, #{node := Second} = B] = [?F:start(#{environment => #{"LIVE_STASH_ADAPTER" => "ets"}}) || _ <- [1, 2]],
    [?F:eventually(fun() -> is_pid(?F:call(Vm, erlang, whereis, [?RANK])) end) || Vm <- [A, B]],
    [true = ?F:call(Vm, fun() -> ?F:make_table() end) || Vm <- [A, B]],
    true = ?F:call(A, net_kernel, connect_node, [Second]),
    Page = ?F:ended_page(A),
    [Birth] = ?F:call(A, ?RANK, births, [[Page]]),
    true = ?F:call(A, ets, insert, [?TABLE, row(Page, os:system_time(second) + 300)]),
    ?assertEqual([0], ?F:call(B, ?RANK, births, [[Page]])),
    #{handed_over := 1} = ?F:call(A, livestash_agent_handoff, hand_over, [?TABLE, [Second], 10000, none]),
    ?assert(Birth > 0),
    ?assertEqual([Birth], ?F:call(B, ?RANK, births, [[Page]])),
    [?F:stop(Vm) || Vm <- [A, B]].

forgotten() ->
    Vm = ?F:start(#{environment => #{"LIVE_STASH_ADAPTER" => "ets"}}),
    ?F:eventually(fun() -> is_pid(?F:call(Vm, erlang, whereis, [?RANK])) end),
    Sweep = fun() -> sweep(Vm) end,
    [Living, Stashed, Gone] = Pages = [?F:page(Vm), ?F:ended_page(Vm), ?F:ended_page(Vm)],
    Known = fun() -> [Page || {Page, Birth} <- lists:zip(Pages, ?F:call(Vm, ?RANK, births, [Pages])), Birth > 0] end,
    %% Without LiveStash's table nobody knows who is needed. It is there within an hour, or never.
    Sweep(),
    ?assertEqual(Pages, Known()),
    sweep(Vm, 3601000),
    ?assertEqual([Living], Known()),
    [?F:begins(Vm, Page) || Page <- [Stashed, Gone]],
    true = ?F:call(Vm, ?F, make_table, []),
    Sweep(),
    ?assertEqual([Living], Known()),
    [?F:begins(Vm, Page) || Page <- [Stashed, Gone]],
    true = ?F:call(Vm, ets, insert, [?TABLE, row(Stashed, 1000)]),
    ?RANK = ?F:call(Vm, fun() -> ?RANK ! sweep, sys:get_state(?RANK), ?RANK end),
    ?assertEqual(Pages, Known()),
    Sweep(),
    ?assertEqual([Living, Stashed], Known()),
    ?F:stop(Vm).

stashes_elsewhere() ->
    Vm = ?F:start(#{environment => #{"LIVE_STASH_ADAPTER" => "browser_memory"}}),
    ?F:eventually(fun() -> is_pid(?F:call(Vm, erlang, whereis, [?RANK])) end),
    [Living, Gone] = [?F:page(Vm), ?F:ended_page(Vm)],
    sweep(Vm),
    ?assertMatch([Birth, 0] when Birth > 0, ?F:call(Vm, ?RANK, births, [[Living, Gone]])),
    ?F:stop(Vm).

%% As if all were known for six minutes.
sweep(Vm) -> sweep(Vm, 360000).

sweep(Vm, Milliseconds) ->
    ?F:call(Vm, fun() ->
        [ets:update_element(?RANK, Page, {3, Since - Milliseconds}) || {Page, _, Since} <- ets:tab2list(?RANK)],
        ?RANK ! sweep,
        try sys:get_state(?RANK) catch exit:_ -> ended end
    end).

%% 1,500 stashes of 24 kB are more than a process of the agent may have on its heap.
large_stashes() ->
    Vm = ?F:start(#{environment => #{"LIVE_STASH_ADAPTER" => "ets"}}),
    ?F:eventually(fun() -> is_pid(?F:call(Vm, erlang, whereis, [?RANK])) end),
    true = ?F:call(Vm, fun() -> ?F:make_table() end),
    Page = ?F:ended_page(Vm),
    ?F:call(Vm, fun() -> [ets:insert(?TABLE, {state, N, Page, 1000, #{all => lists:seq(1, 1500)}, undefined}) || N <- lists:seq(1, 1500)] end),
    Sweeper = ?F:call(Vm, erlang, whereis, [?RANK]),
    sweep(Vm),
    ?assertEqual(Sweeper, ?F:call(Vm, erlang, whereis, [?RANK])),
    ?assertMatch([Birth] when Birth > 0, ?F:call(Vm, ?RANK, births, [[Page]])),
    ?F:stop(Vm).

crashes() ->
    Vm = ?F:start(#{environment => #{"LIVE_STASH_ADAPTER" => "ets"}}),
    ?F:eventually(fun() -> is_pid(?F:call(Vm, erlang, whereis, [?RANK])) end),
    Before = ?F:page(Vm),
    Sweeper = ?F:call(Vm, erlang, whereis, [?RANK]),
    true = ?F:call(Vm, erlang, exit, [Sweeper, kill]),
    ?F:eventually(fun() -> not lists:member(?F:call(Vm, erlang, whereis, [?RANK]), [undefined, Sweeper]) end),
    Births = ?F:call(Vm, ?RANK, births, [[Before, ?F:page(Vm)]]),
    ?assertEqual([], [Birth || Birth <- Births, Birth =:= 0]),
    ?F:stop(Vm).

row(Page, Until) ->
    {state, key, Page, Until, #{}, undefined}.

page() ->
    ?F:begins(spawn(fun() -> receive stop -> ok end end)).

%% What LiveView does in the process of a page that is mounted over a socket.
mounts() ->
    Test = self(),
    Page = spawn(fun() ->
        telemetry:execute([phoenix, live_view, mount, start], #{}, #{socket => #{transport_pid => Test}}),
        Test ! mounted
    end),
    receive
        mounted -> Page
    end.
