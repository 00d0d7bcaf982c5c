%% Does the user's last page win after a network split, whatever pages and nodes have done before? Random interleavings of
%% what pages do, on three nodes, one of which is cut off for a part of the time. Users move to new pages on any node that
%% they reach, old pages live on and write, pages crash. LIVESTASH_TEST_RUNS=20 takes five minutes; the seed of a run that
%% fails is printed, LIVESTASH_TEST_SEED repeats it.
-module(livestash_agent_versions_tests).

-include_lib("eunit/include/eunit.hrl").

-import(livestash_agent_fixture, [call/2, call/4, eventually/1]).
-import(livestash_agent_reunion_tests, [with_ets/2, with_mnesia/2, split/2, heal/2, whole/1, tab/2]).

%% Called in the VMs.
-export([put_row/5, pop/4]).

-define(ETS, live_stash_server_storage).
-define(MNESIA, 'Elixir.LiveStash.Adapters.Mnesia.State').
-define(FAR, 4000000000).
-define(KEYS, 12).
%% Steps before and during the split.
-define(STEPS, [2, 4]).

all_test_() ->
    [
        {"the last page wins, ETS", {timeout, 3600, fun() -> runs(ets) end}},
        {"the last page wins, Mnesia", {timeout, 3600, fun() -> runs(mnesia) end}}
    ].

runs(Kind) ->
    [run(Kind, seed()) || _ <- lists:seq(1, number("LIVESTASH_TEST_RUNS", 1))].

run(ets, Seed) -> with_ets(3, fun(Vms) -> story(ets, Vms, Seed) end);
run(mnesia, Seed) -> with_mnesia(3, fun(Vms) -> story(mnesia, Vms, Seed) end).

story(Kind, [A, B, C] = Vms, Seed) ->
    rand:seed(exsss, Seed),
    [ok = call(Vm, fun() -> ok end) || Vm <- Vms],
    [Before, During] = ?STEPS,
    Start = maps:from_list([{Key, []} || Key <- lists:seq(1, ?KEYS)]),
    Together = steps(Before, Kind, [Vms], Start),
    split([A], [B, C]),
    Apart = steps(During, Kind, [[A], [B, C]], Together),
    heal([A], [B, C]),
    [take_over(A, [B, C]) || Kind =:= mnesia, rand:uniform(2) =:= 1],
    try
        eventually(fun() -> lists:all(fun(Vm) -> whole(Vm) end, Vms) andalso found(Kind, Vms) =:= expected(Kind, Vms, Apart) end)
    catch
        error:{never, _} -> ?assertEqual({Seed, expected(Kind, Vms, Apart)}, {Seed, found(Kind, Vms)})
    end.

%% Each key has its pages, the youngest first: {Vm, Pid, what it has written last, or none}.
steps(0, _Kind, _Sides, Pages) ->
    Pages;
steps(N, Kind, Sides, Pages) ->
    After = maps:map(fun(Key, Of) -> step(rand:uniform(10), Kind, Key, Of, one(Sides)) end, Pages),
    steps(N - 1, Kind, Sides, After).

%% The user comes (back) with a new page.
step(Chance, Kind, Key, Pages, Side) when Chance =< 4; Pages =:= [] ->
    Vm = one(Side),
    Pid = livestash_agent_fixture:page(Vm),
    [{Vm, Pid, call(Vm, ?MODULE, pop, [Kind, Key, Pid, [Node || #{node := Node} <- Side]])} | Pages];
%% The page stashes.
step(Chance, Kind, Key, [Page | Older], _Side) when Chance =< 7 -> [write(Kind, Key, Page) | Older];
%% An old page does, or its timer renews the row.
step(Chance, Kind, Key, Pages, _Side) when Chance =< 9 ->
    {Before, [Page | After]} = lists:split(rand:uniform(length(Pages)) - 1, Pages),
    Before ++ [write(Kind, Key, Page) | After];
step(_Crash, _Kind, _Key, [{Vm, Pid, _} | _] = Pages, _Side) ->
    true = call(Vm, erlang, exit, [Pid, kill]),
    Pages.

write(Kind, Key, {Vm, Pid, Before}) ->
    Value = erlang:unique_integer([positive, monotonic]),
    case call(Vm, erlang, is_process_alive, [Pid]) andalso call(Vm, ?MODULE, put_row, [Kind, Key, Pid, Value, until()]) of
        true -> {Vm, Pid, Value};
        false -> {Vm, Pid, Before}
    end.

%% Old pages' rows end later often enough.
until() -> ?FAR + rand:uniform(1000).

%% As LiveStash does it: only the owner overwrites.
put_row(ets, Key, Pid, Value, Until) ->
    case ets:lookup(?ETS, Key) of
        [Row] when element(3, Row) =/= Pid -> false;
        Own -> ets:insert(?ETS, {state, Key, Pid, later(Own, 4, Until), Value, nil})
    end;
put_row(mnesia, Key, Pid, Value, Until) ->
    Put = fun() ->
        case mnesia:read(?MNESIA, Key) of
            [Row] when element(3, Row) =/= Pid -> mnesia:abort(conflict);
            Own -> mnesia:write({?MNESIA, Key, Pid, later(Own, 4, Until), Value})
        end
    end,
    mnesia:sync_transaction(Put) =:= {atomic, ok}.

%% Of one page the time only grows.
later([], _Position, Until) -> Until;
later([Row], Position, Until) -> max(Until, element(Position, Row) + 1).

%% What the new page has found, or none.
pop(ets, Key, Pid, Nodes) ->
    Found =
        case ets:lookup(?ETS, Key) of
            [] -> lists:append([erpc:call(Node, ets, take, [?ETS, Key]) || Node <- Nodes, Node =/= node()]);
            Here -> Here
        end,
    case Found of
        [] -> none;
        [Row | _] -> ets:insert(?ETS, setelement(3, Row, Pid)), element(5, Row)
    end;
pop(mnesia, Key, Pid, _Nodes) ->
    Pop = fun() ->
        case mnesia:read(?MNESIA, Key) of
            [] -> none;
            [Row] -> mnesia:write(setelement(3, Row, Pid)), element(5, Row)
        end
    end,
    {atomic, Found} = mnesia:sync_transaction(Pop),
    Found.

%% LiveStash's heal: all take the copy of the one that was cut off.
take_over(A, Others) ->
    Rows = tab(A, ?MNESIA),
    [true = call(Vm, ets, delete_all_objects, [?MNESIA]) || Vm <- Others],
    [true = call(Vm, ets, insert, [?MNESIA, Rows]) || Vm <- Others].

%% What the youngest page that has written has written last.
youngest(Pages) ->
    maps:from_list([{Key, hd(written(Of))} || {Key, Of} <- maps:to_list(Pages), written(Of) =/= []]).

written(Pages) ->
    [{Pid, Value} || {_Vm, Pid, Value} <- Pages, Value =/= none].

expected(Kind, Vms, Pages) ->
    Rows = [{Key, Pid, Value} || {Key, {Pid, Value}} <- maps:to_list(youngest(Pages))],
    case Kind of
        ets -> lists:sort(Rows);
        mnesia -> lists:sort([Row || _ <- Vms, Row <- Rows])
    end.

found(Kind, Vms) ->
    lists:sort([parts(Row) || Vm <- Vms, Row <- tab(Vm, table(Kind))]).

parts({_, Key, Pid, _, Value}) -> {Key, Pid, Value};
parts({_, Key, Pid, _, Value, _}) -> {Key, Pid, Value}.

table(ets) -> ?ETS;
table(mnesia) -> ?MNESIA.

one(List) -> lists:nth(rand:uniform(length(List)), List).

seed() -> number("LIVESTASH_TEST_SEED", erlang:system_time(microsecond) rem 100000000).

number(Variable, Default) ->
    case os:getenv(Variable) of
        false -> Default;
        Text -> list_to_integer(Text)
    end.
