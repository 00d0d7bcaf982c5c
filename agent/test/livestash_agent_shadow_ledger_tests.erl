%% Does every user find what they stashed, but for the last moments, whatever is killed while users stash, move and
%% reset?
%%
%% Users stash every now and then on real nodes, go to other nodes, and reset their stash. Nodes lose each other for a
%% moment in which no user moves, nodes are killed, and one comes back. A user's ledger says what was stashed when. What a
%% user finds must be the newest, or, when the node that had it was killed since, not older than the bound before that.
%% In the end every key must be in one table once.
%%
%% Users decide by a seed, which a failure names.
%%   LEDGER_SEED    the first seed
%%   LEDGER_RUNS    how many seeds
-module(livestash_agent_shadow_ledger_tests).

-include_lib("eunit/include/eunit.hrl").

-import(livestash_agent_fixture, [call/2, call/4]).
-import(livestash_agent_shadow_tests, [join/1, kill/1, shut/1]).

%% Called in the VMs.
-export([mount/3, stash/2, leave/1, reset/1]).

-define(TABLE, live_stash_server_storage).
%% Milliseconds: between two copies, what may be lost, and how far apart two pages of a user are at least, whose births
%% have to be told apart.
-define(INTERVAL, 500).
-define(BOUND, (?INTERVAL + 1000)).
-define(PAGE, 700).
-define(USERS, 40).

all_test_() ->
    First = number("LEDGER_SEED", 1),
    [
        {
            lists:concat([Name, ", seed ", Seed]),
            {timeout, 300, fun() -> ?assertEqual([], run(Copies, Cuts, Kills, Seed)) end}
        }
     || Seed <- lists:seq(First, First + number("LEDGER_RUNS", 1) - 1),
        {Name, Copies, Cuts, Kills} <- [
            {"one copy, time between kills", "1", 0, 4000},
            {"two copies, kills at once", "2", 0, 0},
            {"one copy, nodes that lose each other before the kills", "1", 3, 4000}
        ]
    ].

number(Variable, Default) ->
    list_to_integer(os:getenv(Variable, integer_to_list(Default))).

%% Cuts: how often two nodes lose each other. Between: milliseconds from one kill to the next.
run(Copies, Cuts, Between, Seed) ->
    rand:seed(exsss, {Seed, 0, 0}),
    Environment = #{"LIVESTASH_SHADOW_COPIES" => Copies, "LIVESTASH_SHADOW_INTERVAL_MS" => integer_to_list(?INTERVAL)},
    Vms = [start(Environment) || _ <- lists:seq(1, 4)],
    join(Vms),
    Users = maps:from_list([{Number, none} || Number <- lists:seq(1, ?USERS)]),
    Begun = go_on(4000, #{vms => Vms, users => Users, kills => #{}, wrong => []}),
    World = lists:foldl(fun(_Cut, Before) -> go_on(1000, cut(Before)) end, Begun, lists:seq(1, Cuts)),
    Twice = go_on(4000, kill_one(go_on(Between, kill_one(World)))),
    Back = start(Environment),
    #{vms := Left} = Twice,
    join([Back | Left]),
    #{wrong := Wrong} = Last = everybody(go_on(2000, Twice#{vms := [Back | Left]})),
    timer:sleep(2 * ?BOUND),
    Owners = lists:sort([element(2, Row) || Vm <- [Back | Left], Row <- call(Vm, ets, tab2list, [?TABLE])]),
    Ledgers = [{Number, History} || {Number, #{history := History}} <- maps:to_list(maps:get(users, Last))],
    Stashed = lists:sort([Number || {Number, [{_, Value} | _]} <- Ledgers, Value =/= gone]),
    shut([Back | Left]),
    Wrong ++ [{owners, Owners, Stashed} || Owners =/= Stashed].

start(Environment) ->
    Vm = livestash_agent_shadow_tests:start(Environment),
    ok = call(Vm, fun() -> ok end),
    Vm.

now_ms() -> erlang:system_time(millisecond).

go_on(Milliseconds, World) ->
    go_on_until(now_ms() + Milliseconds, World).

go_on_until(Until, #{users := Users} = World) ->
    case now_ms() < Until of
        true ->
            Number = rand:uniform(?USERS),
            Action = rand:uniform(100),
            go_on_until(Until, act(Action, Number, maps:get(Number, Users), World));
        false ->
            World
    end.

act(_Action, Number, User, World) when User =:= none; map_get(vm, User) =:= none ->
    come(Number, User, World);
act(Action, Number, #{since := Since} = User, World) when Action > 80 ->
    case now_ms() - Since > ?PAGE of
        true -> come(Number, left(User), World);
        false -> World
    end;
act(Action, Number, #{vm := Vm, page := Page} = User, World) when Action > 75 ->
    ok = call(Vm, ?MODULE, reset, [Page]),
    wrote(Number, gone, User, World);
act(_Action, Number, #{vm := Vm, page := Page} = User, World) ->
    Value = {erlang:unique_integer([positive, monotonic]), binary:copy(<<"x">>, rand:uniform(2000))},
    ok = call(Vm, ?MODULE, stash, [Page, Value]),
    wrote(Number, Value, User, World).

wrote(Number, Value, #{vm := #{node := Node}, history := History} = User, #{users := Users} = World) ->
    World#{users := Users#{Number := User#{history := [{now_ms(), Value} | History], at := Node}}}.

left(#{vm := Vm, page := Page} = User) ->
    _ = call(Vm, ?MODULE, leave, [Page]),
    User#{vm := none}.

%% To any of the nodes that are there.
come(Number, User, #{vms := Vms, users := Users, wrong := Wrong} = World) ->
    #{node := Node} = Vm = lists:nth(rand:uniform(length(Vms)), Vms),
    {Hint, History, At} =
        case User of
            none -> {none, [], none};
            #{hint := Where, history := Before, at := Last} -> {Where, Before, Last}
        end,
    {Page, Found} = call(Vm, ?MODULE, mount, [Number, Hint, History =/= []]),
    Lost = lost_at(At, World),
    Ledger = [{When, told(Value)} || {When, Value} <- History],
    Bad = [{Number, told(Found), Lost, Ledger} || not allowed(Found, History, Lost)],
    Now = now_ms(),
    Next = #{vm => Vm, page => Page, since => Now, hint => Node, at => Node, history => [{Now, Found} | History]},
    World#{users := Users#{Number := Next}, wrong := Bad ++ Wrong}.

told(gone) -> gone;
told({Value, _Payload}) -> Value.

lost_at(Node, #{kills := Kills}) -> maps:get(Node, Kills, never).

%% What the newest was in the moment of the bound before the kill, or anything that is newer.
allowed(gone, [], _Lost) -> true;
allowed(Found, [{_, Newest} | _], never) -> Found =:= Newest;
allowed(Found, History, Lost) ->
    {Newer, Older} = lists:splitwith(fun({At, _Value}) -> At > Lost - ?BOUND end, History),
    lists:keymember(Found, 2, Newer ++ lists:sublist(Older, 1)) orelse (Older =:= [] andalso Found =:= gone).

%% Both take over what they have copies of, and drop it again. Returns when every stash has had the time for a copy.
cut(#{vms := Vms} = World) ->
    %% What was reset just before would be back: nobody remembers what was deleted.
    timer:sleep(?BOUND),
    [One, #{node := Node}] = lists:sublist([Vm || {_, Vm} <- lists:sort([{rand:uniform(), Vm} || Vm <- Vms])], 2),
    true = call(One, erlang, disconnect_node, [Node]),
    timer:sleep(500),
    join(Vms),
    livestash_agent_fixture:eventually(fun() -> [Vm || Vm <- Vms, not is_whole(Vm)] =:= [] end),
    timer:sleep(2 * ?BOUND),
    World.

is_whole(Vm) ->
    {Whole, _Reason} = call(Vm, livestash_agent_reunion, whole, []),
    Whole.

kill_one(#{vms := Vms, users := Users, kills := Kills} = World) ->
    #{node := Node} = Vm = lists:nth(rand:uniform(length(Vms)), Vms),
    Now = now_ms(),
    kill(Vm),
    Gone = fun
        (_Number, #{vm := #{node := Where}} = User) when Where =:= Node -> User#{vm := none};
        (_Number, User) -> User
    end,
    %% As long as a browser takes to notice.
    timer:sleep(200),
    World#{vms := Vms -- [Vm], users := maps:map(Gone, Users), kills := Kills#{Node => Now}}.

%% Everybody comes back to any node.
everybody(#{users := Users} = World) ->
    timer:sleep(?PAGE),
    lists:foldl(fun back/2, World, maps:keys(Users)).

back(Number, #{users := Users} = World) ->
    case maps:get(Number, Users) of
        #{vm := Vm} = User when Vm =/= none -> come(Number, left(User), World);
        User -> come(Number, User, World)
    end.

%% In the VMs: what LiveStash does in a page's process.

mount(Number, Hint, Reconnected) ->
    Test = self(),
    Page = spawn(fun() -> page(Number, Hint, Reconnected, Test) end),
    receive
        {Page, Found} -> {Page, Found}
    end.

page(Number, Hint, Reconnected, Test) ->
    _ = livestash_agent_fixture:begins(self()),
    Found =
        case Reconnected andalso livestash_agent_fixture:find(Number, Hint) of
            None when None =:= false; None =:= none ->
                gone;
            Value ->
                put_row(Number, Value),
                livestash_agent_shadow_marks:arrived([Number]),
                Value
        end,
    Test ! {self(), Found},
    page(Number).

page(Number) ->
    receive
        {From, {stash, Value}} ->
            put_row(Number, Value),
            From ! {self(), ok};
        {From, reset} ->
            true = ets:delete(?TABLE, Number),
            livestash_agent_shadow_marks:mark(Number),
            From ! {self(), ok}
    end,
    page(Number).

put_row(Number, Value) ->
    Row = {state, Number, self(), erlang:system_time(second) + 300, #{value => Value}, nil},
    true = ets:insert(?TABLE, Row),
    livestash_agent_shadow_marks:mark(Number).

stash(Page, Value) -> ask(Page, {stash, Value}).

reset(Page) -> ask(Page, reset).

ask(Page, What) ->
    Page ! {self(), What},
    receive
        {Page, Answer} -> Answer
    end.

leave(Page) ->
    livestash_agent_fixture:kill(Page).
