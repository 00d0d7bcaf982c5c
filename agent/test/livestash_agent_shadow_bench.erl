%% What do copies of stashes cost? One node copies all that it has to the others, and is killed. The nodes are VMs of this
%% machine, each with a table as LiveStash makes it.
-module(livestash_agent_shadow_bench).

-import(livestash_agent_fixture, [call/2, call/4]).
-import(livestash_agent_shadow_tests, [start_all/2, kill/1, shut/1]).

-export([main/1]).
%% Called in the VMs.
-export([fill/1, cpu/0]).

-define(TABLE, live_stash_server_storage).
-define(COPIES, livestash_agent_shadow_store).
-define(KEYS, 150).
%% Milliseconds between two looks, and unix seconds when the stashes end.
-define(LOOK, 20).
-define(FAR, 4000000000).

%% The words of the command line: stashes, and nodes that hold copies.
-spec main([string()]) -> no_return().
main([Words, Count]) ->
    {Rows, Peers} = {list_to_integer(Words), list_to_integer(Count)},
    logger:set_primary_config(level, none),
    [Owner | Others] = Vms = start_all(1 + Peers, #{"LIVESTASH_SHADOW_MAX_BYTES" => "8589934592"}),
    [ok = call(Vm, fun() -> ok end) || Vm <- Vms],
    ok = call(Owner, ?MODULE, fill, [Rows]),
    ok = call(Owner, livestash_agent_shadow, complete, []),
    {Copied, [OwnerCpu | _]} = measure(Vms, fun() -> size_of(Others, ?COPIES) =:= Rows end),
    Bytes = lists:sum([element(2, call(Vm, ?COPIES, size, [])) || Vm <- Others]),
    kill(Owner),
    {Promoted, HolderCpu} = measure(Others, fun() -> size_of(Others, ?TABLE) =:= Rows end),
    Figures = [
        {rows, Rows},
        {peers, Peers},
        {copied_seconds, Copied / 1000},
        {owner_cpu_us_per_row, 1000 * OwnerCpu div Rows},
        {copy_bytes_per_row, Bytes div Rows},
        {promoted_seconds, Promoted / 1000},
        {holder_cpu_us_per_row, 1000 * lists:sum(HolderCpu) div Rows}
    ],
    io:format("~ts~n", [livestash_agent_json:encode({object, Figures})]),
    shut(Others),
    halt().

%% Milliseconds until it is so, and those of CPU that each VM has taken meanwhile.
measure(Vms, Condition) ->
    Before = [call(Vm, ?MODULE, cpu, []) || Vm <- Vms],
    Began = erlang:monotonic_time(millisecond),
    await(Condition),
    Took = erlang:monotonic_time(millisecond) - Began,
    {Took, lists:zipwith(fun(Vm, Earlier) -> call(Vm, ?MODULE, cpu, []) - Earlier end, Vms, Before)}.

await(Condition) ->
    case Condition() of
        true ->
            ok;
        false ->
            timer:sleep(?LOOK),
            await(Condition)
    end.

size_of(Vms, Table) ->
    lists:sum([call(Vm, ets, info, [Table, size]) || Vm <- Vms]).

cpu() ->
    element(1, erlang:statistics(runtime)).

%% Stashes of a page that lives on.
fill(Rows) ->
    Page = spawn(timer, sleep, [infinity]),
    Payload = maps:from_list([{key(N), value(N)} || N <- lists:seq(1, ?KEYS)]),
    Row = fun(N) -> {state, {bench, N}, Page, ?FAR, #{count => N, payload => Payload}, nil} end,
    lists:foreach(fun(N) -> true = ets:insert(?TABLE, Row(N)) end, lists:seq(1, Rows)).

key(N) -> iolist_to_binary(io_lib:format("key-~3..0b", [N])).

value(N) -> iolist_to_binary(io_lib:format("value-~12..0b", [N * 7919])).
