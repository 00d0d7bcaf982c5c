%% Does every user find the state that it was promised, whatever happens while nodes go away?
%%
%% Users have one page after the other, on real nodes, and each page does what LiveStash's ETS adapter does. A user's
%% ledger says what its newest page has acknowledged. Whoever comes back must find that, or what was not acknowledged
%% yet, and in the end every key must be in one table once.
%%
%% What LiveStash itself does wrong is left out: whoever returns to a node where an older page lives on finds that page's
%% stash, without any hand-over.
%%
%% Users decide by a seed, which a failure names; when things happen, the machine decides.
%%   LEDGER_SEED    the first seed
%%   LEDGER_RUNS    how many seeds
-module(livestash_agent_ledger_tests).

-include_lib("eunit/include/eunit.hrl").

%% Called in the VMs.
-export([page/3, fill/2]).

-define(F, livestash_agent_fixture).
-define(TABLE, live_stash_server_storage).
%% Seconds.
-define(TTL, 300).
%% Milliseconds. The pages of a user are that far apart at least: their births have to be told apart.
-define(ROUND, 700).
-define(WITHIN, 20000).

all_test_() ->
    {inparallel, [
        {Name, {timeout, 1200, fun() -> seeds(Run) end}}
     || {Name, Run} <- [
            {"users of three nodes, two of which go", fun(Seed) -> run(3, mixed(40), 1000, Seed) end},
            {"users of two nodes", fun(Seed) -> run(2, mixed(40), 0, Seed) end},
            {"users of three nodes, two of which go together", fun(Seed) -> run_together(3, mixed(40), 300, Seed) end},
            {"older pages on a node that goes together with the newest's", fun(Seed) ->
                run_together(3, [older_here || _ <- seq(40)], 0, Seed)
            end},
            {"births of pages travel on with their rows", fun(_Seed) -> births_travel_on() end},
            {"pages that nobody has stopped", fun(Seed) -> run(2, [living || _ <- seq(40)], 3000, Seed) end},
            {"older pages that live on at a peer", fun(Seed) -> run(2, [older_there || _ <- seq(40)], 0, Seed) end},
            {"all nodes stop, and a pod comes", fun(Seed) -> run_out(3, 40, 300, Seed) end}
        ]
    ]}.

%% What a user is like. living: its page on the node that goes lives until somebody ends it; closing: its socket is
%% closed at some time; older_here: the newest page is on a node that stays, an older one lives on where the hand-over
%% is; older_there: the other way round; staying: nothing of it is on the node that goes; moving: its pages are
%% anywhere; older: the same, and an older one lives on.
mixed(Count) ->
    Kinds = [living, closing, older_here, older_there, staying],
    [lists:nth(1 + N rem length(Kinds), Kinds) || N <- seq(Count)].

seq(Count) ->
    lists:seq(1, Count).

seeds(Run) ->
    First = number("LEDGER_SEED", 1),
    [
        ?assertEqual({seed, Seed, []}, {seed, Seed, Run(Seed)})
     || Seed <- lists:seq(First, First + number("LEDGER_RUNS", 1) - 1)
    ].

number(Variable, Default) ->
    list_to_integer(os:getenv(Variable, integer_to_list(Default))).

start(Environment) ->
    Vm = #{node := Node} = ?F:start(#{environment => Environment#{"LIVE_STASH_ADAPTER" => "ets"}}),
    ?F:eventually(fun() -> is_pid(?F:call(Vm, erlang, whereis, [livestash_agent])) end),
    true = ?F:call(Vm, fun livestash_agent_fixture:make_table/0),
    ok = ?F:call(Vm, fun() -> ok end),
    %% Hidden, because LiveStash asks every node that it sees.
    true = net_kernel:hidden_connect_node(Node),
    Vm.

connect(Vms, Others) ->
    [?F:call(Vm, net_kernel, connect_node, [Node]) || Vm <- Vms, #{node := Node} <- Others].

%% Returns what went wrong. All nodes but one go away, one after the other; Rows are of users who are not there.
run(Size, Kinds, Rows, Seed) ->
    Vms = [start(#{}) || _ <- seq(Size)],
    connect(Vms, Vms),
    Away = ?F:call(hd(Vms), ?MODULE, fill, [Rows, Seed]),
    Users = settle(Vms, Kinds, Seed),
    Twice = drain_all(Vms, Users),
    Wrong = results(Users, Away, lists:last(Vms)),
    [?F:stop(Vm) || Vm <- Vms],
    Wrong ++ Twice.

%% The users have their first pages.
settle(Vms, Kinds, Seed) ->
    Nodes = [Node || #{node := Node} <- Vms],
    Users = [start_user(Seed, Number, Kind, Nodes) || {Number, Kind} <- lists:zip(seq(length(Kinds)), Kinds)],
    lists:foreach(
        fun(Round) ->
            tell(Users, {round, Round}),
            timer:sleep(?ROUND)
        end,
        [1, 2, 3]
    ),
    Users.

%% Everybody comes to the last node.
results(Users, Away, #{node := Node} = Vm) ->
    Wrong = lists:append([final(User, Node) || User <- Users]),
    Lost = Away -- keys(Vm),
    [stop_user(User) || User <- Users],
    Wrong ++ [{lost, Key} || Key <- Lost].

%% All nodes but the last go away at the same time.
run_together(Size, Kinds, Rows, Seed) ->
    Vms = [start(#{}) || _ <- seq(Size)],
    connect(Vms, Vms),
    {Going, [Last]} = lists:split(Size - 1, Vms),
    #{node := Stays} = Last,
    Away = lists:append([?F:call(Vm, ?MODULE, fill, [Rows, {Seed, Node}]) || #{node := Node} = Vm <- Going]),
    Users = settle(Vms, Kinds, Seed),
    [?F:call(Vm, livestash_agent_state, set_draining, [handing_over]) || Vm <- Going],
    [tell(Users, {drain, Node, [Stays]}) || #{node := Node} <- Going],
    HandOver = fun(Vm) -> ?F:call(Vm, livestash_agent_handoff, hand_over, [?TABLE, [Stays], ?WITHIN, none]) end,
    Ends = [spawn_monitor(fun() -> HandOver(Vm) end) || Vm <- Going],
    [
        receive
            {'DOWN', Monitor, process, Pid, normal} -> ok
        end
     || {Pid, Monitor} <- Ends
    ],
    [true = ?F:call(Vm, ets, delete, [?TABLE]) || Vm <- Going],
    tell(Users, gone),
    timer:sleep(2000),
    Wrong = results(Users, Away, Last),
    [?F:stop(Vm) || Vm <- Vms],
    Wrong.

%% A row moves twice, to a node that has never seen the node of its page; after that an older page writes elsewhere.
births_travel_on() ->
    [First, Second, Old] = Vms = [start(#{}) || _ <- seq(3)],
    connect(Vms, Vms),
    Older = ?F:page(Old),
    Keys = ?F:call(First, ?MODULE, fill, [100, births]),
    move_all(First, [Second, Old]),
    ?F:stop(First),
    New = [start(#{}) || _ <- seq(2)],
    connect(New, [Second, Old | New]),
    move_all(Second, [Old | New]),
    [?F:call(Old, ets, insert_new, [?TABLE, {state, Key, Older, until(), #{value => older}, nil}]) || Key <- Keys],
    move_all(Old, New),
    Rows = [Row || Vm <- New, Row <- ?F:call(Vm, ets, tab2list, [?TABLE])],
    [?F:stop(Vm) || Vm <- [Second, Old | New]],
    [{Key, away} || Key <- Keys] -- [{Key, Value} || {state, Key, _, _, #{value := Value}, _} <- Rows].

move_all(Vm, Peers) ->
    #{left := 0} = ?F:call(Vm, livestash_agent_handoff, hand_over, [?TABLE, [Node || #{node := Node} <- Peers], ?WITHIN, none]).

%% All nodes are told to stop within two seconds; a new one comes two seconds later.
run_out(Size, Count, Rows, Seed) ->
    rand:seed(exsss, {Seed, Size, Count}),
    {Dns, Names} = livestash_agent_dns:serve([], "app"),
    Environment = Names#{
        "LIVESTASH_DRAIN_ENDPOINT_WAIT_MS" => "500",
        "LIVESTASH_DRAIN_CLOSE_TIMEOUT_MS" => "4000",
        "LIVESTASH_TERMINATION_LOG" => "/dev/null"
    },
    Vms = [start(Environment) || _ <- seq(Size)],
    connect(Vms, Vms),
    Away = lists:append([?F:call(Vm, ?MODULE, fill, [Rows, {Seed, Node}]) || #{node := Node} = Vm <- Vms]),
    Users = settle(Vms, [lists:nth(1 + N rem 2, [moving, older]) || N <- seq(Count)], Seed),
    Nodes = [Node || #{node := Node} <- Vms],
    [
        begin
            Offset = rand:uniform(2000) - 1,
            {ok, _} = ?F:call(Vm, timer, apply_after, [Offset, livestash_agent_drain, start, []]),
            [erlang:send_after(Offset, User, {drain, Node, Nodes}) || User <- Users]
        end
     || #{node := Node} = Vm <- Vms
    ],
    timer:sleep(4000),
    New = #{node := Name} = start(Environment),
    connect([New], Vms),
    tell(Users, {stay, [Name | Nodes]}),
    [?F:eventually(fun() -> not is_process_alive(Peer) end) || #{peer := Peer} <- Vms],
    timer:sleep(2000),
    Wrong = results(Users, Away, New),
    ?F:stop(New),
    exit(Dns, kill),
    Wrong.

%% Returns the keys that two nodes had then.
drain_all([_Last], _Users) ->
    [];
drain_all([#{node := Node} = Vm | Staying], Users) ->
    Peers = [Peer || #{node := Peer} <- Staying],
    ?F:call(Vm, livestash_agent_state, set_draining, [handing_over]),
    tell(Users, {drain, Node, Peers}),
    _ = ?F:call(Vm, livestash_agent_handoff, hand_over, [?TABLE, Peers, ?WITHIN, none]),
    %% As if it had stopped.
    true = ?F:call(Vm, ets, delete, [?TABLE]),
    tell(Users, gone),
    %% Until everybody is back who comes back now.
    timer:sleep(2000),
    Twice = twice(Staying, 20),
    drain_all(Staying, Users) ++ Twice.

%% A row that is on its way for a moment may have two homes.
twice(Vms, Times) ->
    Keys = lists:append([keys(Vm) || Vm <- Vms]),
    case Keys -- lists:usort(Keys) of
        [_ | _] when Times > 0 ->
            timer:sleep(100),
            twice(Vms, Times - 1);
        Twice ->
            [{twice, Key} || Key <- Twice]
    end.

keys(Vm) ->
    [element(2, Row) || Row <- ?F:call(Vm, ets, tab2list, [?TABLE])].

%% Rows of pages that have ended. None began in the same millisecond as a page before: of two such ones the living one is the user's.
fill(Count, Seed) ->
    timer:sleep(2),
    Keys = [{Seed, away, Number} || Number <- lists:seq(1, Count)],
    [ets:insert(?TABLE, {state, Key, ?F:begins(spawn(fun() -> ok end)), until(), #{value => away}, nil}) || Key <- Keys],
    Keys.

%% A user, and its ledger. Each decides by a generator of its own, so that decisions do not hang on the others'.

start_user(Seed, Number, Kind, Nodes) ->
    spawn_link(fun() ->
        rand:seed(exsss, {Seed, Number, 0}),
        user(#{
            key => {Seed, Kind, Number},
            kind => Kind,
            %% The nodes of the pages in the rounds before nodes go away.
            plan => plan(Kind, Nodes),
            stay => [],
            page => none,
            %% The node of the newest page, which LiveStash's hint names.
            hint => none,
            %% A page that the user has left, and that lives on, for a while at least.
            older => none,
            pages => 0,
            stashes => 0,
            %% What was acknowledged last, and what was sent since then.
            acknowledged => none,
            sent => [],
            wrong => []
        })
    end).

plan(Kind, [Goes | Stay] = Nodes) ->
    First = one_of([none | Nodes]),
    case Kind of
        older_here -> [First, Goes, one_of(Stay)];
        older_there -> [First, one_of(Stay), Goes];
        staying -> [First, one_of(Nodes), one_of(Stay)];
        moving -> [First, one_of(Nodes), one_of(Nodes)];
        older -> [First | lists:sublist(shuffled(Nodes), 2)];
        _ -> [First, one_of(Nodes), Goes]
    end.

one_of(Elements) ->
    lists:nth(rand:uniform(length(Elements)), Elements).

shuffled(Elements) ->
    [Element || {_, Element} <- lists:sort([{rand:uniform(), Element} || Element <- Elements])].

%% True in so many of a hundred cases.
sometimes(Percent) ->
    rand:uniform(100) =< Percent.

tell(Users, Message) ->
    [User ! Message || User <- Users],
    ok.

%% What went wrong for the user, after it has come back to that node.
final(User, Node) ->
    User ! {final, self(), Node},
    receive
        {final, User, Wrong} -> Wrong
    end.

stop_user(User) ->
    Monitor = monitor(process, User),
    User ! stop,
    receive
        {'DOWN', Monitor, process, User, _} -> ok
    end.

user(#{page := Page, older := Older} = User) ->
    receive
        {round, Round} ->
            user(go_on(lists:nth(Round, maps:get(plan, User)), Round, User));
        {stash, Page} ->
            user(stash(User));
        {acknowledged, Page, Value, Result} ->
            erlang:send_after(20 + rand:uniform(300), self(), {stash, Page}),
            user(acknowledged(Value, Result, User));
        {'DOWN', _, process, Page, _} ->
            user(disconnected(User));
        {drain, Node, Peers} ->
            user(drain(Node, User#{stay := Peers}));
        close ->
            user(disconnected(end_page(User)));
        {stay, Nodes} ->
            user(User#{stay := Nodes});
        return ->
            user(return(open(User), User));
        gone ->
            user(gone(User));
        {final, From, Node} ->
            #{wrong := Wrong} = Back = return(Node, User),
            From ! {final, self(), Wrong},
            user(Back);
        stop ->
            [?F:kill(Old) || Old <- [Page, Older], Old =/= none],
            ok;
        _ ->
            user(User)
    end.

%% To the next page.
go_on(none, _Round, User) ->
    User;
go_on(Node, 3, #{kind := Kind, page := Page} = User) when Kind =:= older; Kind =:= older_here; Kind =:= older_there ->
    Next = mount(Node, User#{page := none, older := Page}),
    Page ! {live_on, 20 + rand:uniform(200)},
    receive
        {lives_on, Page} -> Next
    end;
go_on(Node, _Round, User) ->
    return(Node, User).

%% A node to which clients are sent, if there is one. Where an older page has written, LiveStash would give what that
%% has written.
open(#{stay := Nodes, older := Older}) ->
    case [Node || Node <- Nodes, Older =:= none orelse node(Older) =/= Node, is_open(Node)] of
        [] -> none;
        Open -> one_of(Open)
    end.

is_open(Node) ->
    try
        lists:member(erpc:call(Node, livestash_agent_state, phase, [], 2000), [none, waiting, keeping])
    catch
        error:_ -> false
    end.

return(none, User) ->
    erlang:send_after(100, self(), return),
    User;
return(Node, User) ->
    mount(Node, end_page(User)).

mount(Node, #{key := Key, hint := Hint, pages := Pages} = User) ->
    Page = spawn(Node, ?MODULE, page, [self(), Key, Hint]),
    monitor(process, Page),
    receive
        {mounted, Page, Found} ->
            self() ! {stash, Page},
            found(Found, User#{page := Page, hint := Node, pages := Pages + 1});
        {'DOWN', _, process, Page, _} ->
            User
    end.

found(new, User) ->
    User;
found(Found, #{acknowledged := Acknowledged, sent := Sent, wrong := Wrong} = User) ->
    Now = User#{acknowledged := Found, sent := []},
    case lists:member(Found, [Acknowledged | Sent]) of
        true -> Now;
        false -> Now#{wrong := [maps:put(found, Found, maps:with([key, acknowledged, sent], User)) | Wrong]}
    end.

stash(#{page := Page, pages := Pages, stashes := Stashes, sent := Sent} = User) ->
    Value = {Pages, Stashes + 1},
    Page ! {stash, Value},
    User#{stashes := Stashes + 1, sent := [Value | Sent]}.

acknowledged(Value, ok, User) ->
    User#{acknowledged := Value, sent := []};
acknowledged(Value, conflict, #{wrong := Wrong, key := Key} = User) ->
    User#{wrong := [{refused, Key, Value} | Wrong], sent := []}.

%% What the page has acknowledged before it ended counts.
end_page(#{page := none} = User) ->
    User;
end_page(#{page := Page} = User) ->
    ?F:kill(Page),
    last_words(User).

last_words(#{page := Page} = User) ->
    receive
        {acknowledged, Page, Value, Result} -> last_words(acknowledged(Value, Result, User))
    after 0 -> User#{page := none}
    end.

%% Most users come back at once. Where an older page lives on, they would find what it has stashed.
disconnected(#{kind := older_there} = User) ->
    User#{page := none};
disconnected(User) ->
    [erlang:send_after(10 + rand:uniform(1200), self(), return) || sometimes(80)],
    User#{page := none}.

%% A node goes away.
drain(Node, #{kind := Kind, page := Page, older := Older} = User) ->
    Here = is_pid(Page) andalso node(Page) =:= Node,
    Later = rand:uniform(1500),
    case Kind of
        living when Here -> ok;
        older_there -> [erlang:send_after(Later, self(), close) || Here, sometimes(50)];
        _ when Here -> erlang:send_after(Later, self(), close);
        _ -> [erlang:send_after(Later, self(), return) || sometimes(30)]
    end,
    Ends = is_pid(Older) andalso node(Older) =:= Node andalso lists:member(Kind, [older, older_there]),
    [?F:kill(Older) || Ends],
    User.

%% The node has stopped.
gone(#{page := Page, older := Older, stay := Stay} = User) ->
    [?F:kill(Older) || is_pid(Older), not lists:member(node(Older), Stay)],
    case is_pid(Page) andalso not lists:member(node(Page), Stay) of
        true -> disconnected(end_page(User));
        false -> User
    end.

%% A page: what LiveStash's ETS adapter does in it.

page(User, Key, Hint) ->
    _ = ?F:begins(self()),
    User ! {mounted, self(), recover(Key, Hint)},
    erlang:send_after(1000, self(), bump),
    page(User, Key).

page(User, Key) ->
    receive
        {stash, Value} ->
            User ! {acknowledged, self(), Value, put_row(Key, Value)},
            page(User, Key);
        bump ->
            ets:update_element(?TABLE, Key, {4, until()}),
            erlang:send_after(1000, self(), bump),
            page(User, Key);
        {live_on, Every} ->
            put_row(Key, {older, node()}),
            User ! {lives_on, self()},
            live_on(Key, Every)
    end.

live_on(Key, Every) ->
    timer:sleep(Every),
    put_row(Key, {older, node()}),
    live_on(Key, Every).

put_row(Key, Value) ->
    Row = {state, Key, self(), until(), #{value => Value}, nil},
    try
        case ets:select_replace(?TABLE, [{{state, Key, self(), '_', '_', '_'}, [], [{const, Row}]}]) of
            1 -> ok;
            0 -> put_new(Row)
        end
    catch
        %% There is no table: the node has stopped.
        error:badarg -> exit(gone)
    end.

put_new(Row) ->
    case ets:insert_new(?TABLE, Row) of
        true -> ok;
        false -> conflict
    end.

until() ->
    erlang:system_time(second) + ?TTL.

recover(_Key, none) ->
    new;
recover(Key, Hint) ->
    case ?F:find(Key, Hint) of
        none ->
            none;
        Value ->
            ets:insert(?TABLE, {state, Key, self(), until(), #{value => Value}, nil}),
            Value
    end.
