%% Is nothing lost when several nodes are told to stop at the same time, or nearly so, and a pod comes back within their
%% grace?
%%
%% Every node has stashes, and some have older versions of others' stashes. When and in which order they are told to stop, a
%% seed decides, which a failure names.
%%   LAST_OUT_SEED    the first seed
%%   LAST_OUT_RUNS    how many seeds
-module(livestash_agent_last_out_tests).

-include_lib("eunit/include/eunit.hrl").

%% Called in the VMs.
-export([fill/2]).

-define(F, livestash_agent_fixture).
-define(TABLE, live_stash_server_storage).
-define(ROWS, 300).
%% Milliseconds. Births of pages are told apart when they are that far from each other.
-define(APART, 700).
-define(BACK_AFTER, 2000).
-define(PAUSE, 5000).

all_test_() ->
    {inparallel, [
        {Name, {timeout, 600, fun() -> seeds(Scenario) end}}
     || {Name, Scenario} <- [
            {"two nodes at once", #{nodes => 2, within => 0, back => same}},
            {"three nodes at once", #{nodes => 3, within => 0, back => same}},
            {"three nodes, the last one when the others have gone and not come back", #{
                nodes => 3, within => 0, back => same, last => later
            }},
            {"three nodes, nearly at once, and a pod with a new name", #{nodes => 3, within => 2000, back => other}},
            {"three nodes, one of which is killed", #{nodes => 3, within => 1000, back => other, fault => kill}},
            {"three nodes, one of which freezes", #{nodes => 3, within => 1000, back => other, fault => freeze}},
            {"three nodes, one of which is slow to wake up again", #{nodes => 3, within => 1000, back => other, fault => pause}}
        ]
    ]}.

seeds(Scenario) ->
    First = number("LAST_OUT_SEED", 1),
    [
        ?assertEqual({seed, Seed, Scenario, []}, {seed, Seed, Scenario, run(Scenario, Seed)})
     || Seed <- lists:seq(First, First + number("LAST_OUT_RUNS", 1) - 1)
    ].

number(Variable, Default) ->
    list_to_integer(os:getenv(Variable, integer_to_list(Default))).

%% Returns the keys whose newest version is not there in the end, each with what is.
run(#{nodes := Size, within := Within, back := Back} = Scenario, Seed) ->
    rand:seed(exsss, {Seed, Size, Within}),
    {Dns, Environment} = livestash_agent_dns:serve([], "app"),
    Vms = start_all(Size, Environment),
    Expected = fill_all(Vms),
    Fault = one_of(lists:seq(1, Size)),
    FaultAt = rand:uniform(2500),
    Later = maps:is_key(last, Scenario) andalso one_of(Vms),
    AtOnce = [Vm || Vm <- Vms, Vm =/= Later],
    [tell_to_stop(Vm, rand:uniform(1 + Within) - 1) || Vm <- AtOnce],
    [tell_to_stop_after(Later, AtOnce) || is_map(Later)],
    Fails = fail(maps:get(fault, Scenario, none), lists:nth(Fault, Vms), FaultAt),
    timer:sleep(max(0, ?BACK_AFTER - FaultAt)),
    New = come_back(Back, Vms, Environment),
    [ended(Vm, New) || Vm <- Vms, not is_map_key(Vm, Fails)],
    Found = maps:from_list([{Key, Value} || {state, Key, _, _, #{value := Value}, _} <- rows(New)]),
    ?F:stop(New),
    [os:cmd("kill -KILL " ++ Pid) || #{pid := Pid} <- maps:keys(Fails)],
    exit(Dns, kill),
    Excused = lists:append(maps:values(Fails)),
    lists:sublist(
        [
            {Key, maps:get(Key, Found, none)}
         || {Key, Value} <- lists:sort(maps:to_list(Expected)),
            maps:get(Key, Found, none) =/= Value,
            not lists:member(Key, Excused)
        ],
        10
    ).

one_of(Elements) ->
    lists:nth(rand:uniform(length(Elements)), Elements).

start_all(Size, Environment) ->
    Vms = [start(unique_name(), Environment) || _ <- lists:seq(1, Size)],
    connect(Vms, Vms),
    Vms.

unique_name() ->
    lists:concat(["out", erlang:unique_integer([positive]), "x", os:getpid()]).

start(Name, Environment) ->
    Vm = ?F:start(#{
        name => Name,
        environment => Environment#{
            "LIVE_STASH_ADAPTER" => "ets",
            "LIVESTASH_DRAIN_ENDPOINT_WAIT_MS" => "500",
            "LIVESTASH_DRAIN_CLOSE_TIMEOUT_MS" => "4000",
            "LIVESTASH_DRAIN_HANDOFF_TIMEOUT_MS" => "20000",
            "LIVESTASH_TERMINATION_LOG" => filename:join(os:getenv("TESTS"), "report." ++ Name)
        }
    }),
    ?F:eventually(fun() -> is_pid(?F:call(Vm, erlang, whereis, [livestash_agent])) end),
    true = ?F:call(Vm, fun livestash_agent_fixture:make_table/0),
    ok = ?F:call(Vm, fun() -> ok end),
    Vm#{name => Name, pid => ?F:call(Vm, os, getpid, [])}.

connect(Vms, Others) ->
    [true = ?F:call(Vm, net_kernel, connect_node, [Node]) || Vm <- Vms, #{node := Node} <- Others].

%% A tenth of each node's stashes are old: the next node has a newer version. Returns the newest version of each key.
fill_all([First | Rest] = Vms) ->
    Pairs = lists:zip(Vms, Rest ++ [First]),
    Old = [{Vm, Next, keys(Vm, old, ?ROWS div 10)} || {Vm, Next} <- Pairs],
    [ok = ?F:call(Vm, ?MODULE, fill, [Keys, old]) || {Vm, _Next, Keys} <- Old],
    timer:sleep(?APART),
    New = [{Vm, keys(Vm, new, ?ROWS)} || Vm <- Vms] ++ [{Next, Keys} || {_Vm, Next, Keys} <- Old],
    [ok = ?F:call(Vm, ?MODULE, fill, [Keys, new]) || {Vm, Keys} <- New],
    timer:sleep(?APART),
    maps:from_keys(lists:append([Keys || {_Vm, Keys} <- New]), new).

keys(#{name := Name}, Kind, Count) ->
    [{list_to_atom(Name), Kind, Number} || Number <- lists:seq(1, Count)].

%% Of pages that have ended.
fill(Keys, Value) ->
    Until = erlang:system_time(second) + 300,
    [ets:insert(?TABLE, {state, Key, ?F:begins(spawn(fun() -> ok end)), Until, #{value => Value}, nil}) || Key <- Keys],
    ok.

rows(Vm) ->
    ?F:call(Vm, ets, tab2list, [?TABLE]).

%% As SIGTERM does.
tell_to_stop(Vm, After) ->
    {ok, _} = ?F:call(Vm, timer, apply_after, [After, livestash_agent_drain, start, []]),
    ok.

%% Whoever hands over is gone from DNS by then, and whoever takes its place is not there yet.
tell_to_stop_after(Vm, Others) ->
    [?F:eventually(fun() -> has_ended(Other) end) || Other <- Others],
    ?F:eventually(fun() -> ?F:call(Vm, erlang, nodes, []) =:= [] end),
    tell_to_stop(Vm, 0).

%% Returns the VM that fails with what is lost with it: the keys that it had then.
fail(none, _Vm, At) ->
    timer:sleep(At),
    #{};
fail(Fault, #{peer := Peer, pid := Pid} = Vm, At) ->
    timer:sleep(At),
    case is_process_alive(Peer) of
        true when Fault =:= pause ->
            "" = os:cmd("kill -STOP " ++ Pid),
            {ok, _} = timer:apply_after(?PAUSE, os, cmd, ["kill -CONT " ++ Pid]),
            #{};
        true ->
            Keys = [element(2, Row) || Row <- rows(Vm)],
            "" = os:cmd(signal(Fault) ++ Pid),
            #{Vm => Keys};
        false ->
            #{}
    end.

signal(kill) -> "kill -KILL ";
signal(freeze) -> "kill -STOP ".

%% A pod that has the name of one of those that stop begins only when that one has ended.
come_back(other, _Vms, Environment) ->
    start(unique_name(), Environment);
come_back(same, Vms, Environment) ->
    ?F:eventually(fun() -> lists:any(fun has_ended/1, Vms) end),
    [#{name := Name} | _] = lists:filter(fun has_ended/1, Vms),
    start(Name, Environment).

has_ended(#{peer := Peer}) ->
    not is_process_alive(Peer).

%% Until then the new node connects to it again and again, as the agent does with those that DNS names.
ended(#{node := Node} = Vm, New) ->
    ?F:eventually(fun() -> has_ended(Vm) orelse not is_boolean(?F:call(New, net_kernel, connect_node, [Node])) end).
