%% How is the VM? What our dashboards and alerts show of it, under the names of prometheus.erl's collectors for memory, statistics
%% and system_info.
-module(livestash_agent_vm).

-export([metrics/0, cpu_seconds/0, memory_limit/0]).

-define(SYSTEM, [
    {atom_count, "Atoms that exist."},
    {atom_limit, "Atoms that may exist."},
    {logical_processors_available, "Logical processors that the VM may use."},
    {port_count, "Ports that exist."},
    {port_limit, "Ports that may exist."},
    {process_count, "Processes that exist."},
    {process_limit, "Processes that may exist."},
    {schedulers_online, "Scheduler threads online."}
]).

%% Where a container finds the limit of its memory: cgroup v2, and v1.
-define(MEMORY_LIMITS, ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]).
%% What cgroup v1 says without a limit is the largest number of whole pages, which differs.
-define(NO_LIMIT, 1 bsl 60).

%% What Linux counts CPU time in, for every process and architecture.
-define(TICKS_PER_SECOND, 100).

-spec metrics() -> [livestash_agent_metrics:family()].
metrics() ->
    memory() ++ statistics() ++ system().

memory() ->
    Memory = maps:from_list(erlang:memory()),
    #{atom := Atom, processes := Processes, processes_used := ProcessesUsed} = Memory,
    #{system := System, binary := Binary, code := Code, ets := Ets} = Memory,
    [
        {"erlang_vm_memory_bytes_total", gauge, "Bytes allocated by the VM.", [
            {[{kind, system}], System}, {[{kind, processes}], Processes}
        ]},
        {"erlang_vm_memory_ets_tables", gauge, "ETS tables that exist.", erlang:system_info(ets_count)},
        {"erlang_vm_memory_processes_bytes_total", gauge, "Bytes allocated for processes.", [
            {[{usage, used}], ProcessesUsed}, {[{usage, free}], Processes - ProcessesUsed}
        ]},
        {"erlang_vm_memory_system_bytes_total", gauge, "Bytes allocated for all but processes.", [
            {[{usage, atom}], Atom},
            {[{usage, binary}], Binary},
            {[{usage, code}], Code},
            {[{usage, ets}], Ets},
            {[{usage, other}], System - Atom - Binary - Code - Ets}
        ]}
    ].

statistics() ->
    {{input, Input}, {output, Output}} = erlang:statistics(io),
    {Collections, Words, _} = erlang:statistics(garbage_collection),
    {ContextSwitches, _} = erlang:statistics(context_switches),
    {Reductions, _} = erlang:statistics(reductions),
    {WallClock, _} = erlang:statistics(wall_clock),
    [DirtyIo, DirtyCpu | Normal] = lists:reverse(erlang:statistics(run_queue_lengths_all)),
    [
        {"erlang_vm_statistics_bytes_output_total", counter, "Bytes written to ports.", Output},
        {"erlang_vm_statistics_bytes_received_total", counter, "Bytes read from ports.", Input},
        {"erlang_vm_statistics_context_switches", counter, "Context switches.", ContextSwitches},
        {"erlang_vm_statistics_dirty_cpu_run_queue_length", gauge, "Length of the dirty CPU run queue.", DirtyCpu},
        {"erlang_vm_statistics_dirty_io_run_queue_length", gauge, "Length of the dirty I/O run queue.", DirtyIo},
        {"erlang_vm_statistics_garbage_collection_number_of_gcs", counter, "Garbage collections.", Collections},
        {"erlang_vm_statistics_garbage_collection_bytes_reclaimed", counter, "Bytes reclaimed by garbage collection.",
            Words * erlang:system_info(wordsize)},
        {"erlang_vm_statistics_reductions_total", counter, "Reductions.", Reductions},
        {"erlang_vm_statistics_run_queues_length", gauge, "Length of all normal run queues.", lists:sum(Normal)},
        {"erlang_vm_statistics_wallclock_time_milliseconds", counter, "Time since the VM started.", WallClock}
    ].

system() ->
    [
        {["erlang_vm_", atom_to_list(Name)], gauge, Help, Value}
     || {Name, Help} <- ?SYSTEM, Value <- [erlang:system_info(Name)], is_integer(Value)
    ].

%% CPU seconds of the VM's process, in user and system mode. Where there is no /proc, those that the VM knows.
-spec cpu_seconds() -> float().
cpu_seconds() ->
    try
        Line = read("/proc/self/stat"),
        %% The program's name, in brackets, may hold spaces.
        Fields = binary:split(lists:last(binary:split(Line, <<") ">>, [global])), <<" ">>, [global]),
        Ticks = binary_to_integer(lists:nth(12, Fields)) + binary_to_integer(lists:nth(13, Fields)),
        Ticks / ?TICKS_PER_SECOND
    catch
        error:_ -> element(1, erlang:statistics(runtime)) / 1000
    end.

%% Bytes that the kernel lets the container use before it kills the VM, none when there is no limit. Read anew each time: a
%% pod's limit can be changed while it runs.
-spec memory_limit() -> pos_integer() | [].
memory_limit() ->
    memory_limit(?MEMORY_LIMITS).

memory_limit([]) ->
    [];
memory_limit([Path | Paths]) ->
    try binary_to_integer(string:trim(read(Path))) of
        Bytes when Bytes < ?NO_LIMIT -> Bytes;
        _ -> []
    catch
        error:_ -> memory_limit(Paths)
    end.

%% The first KiB of a file, not through the VM's file server, which others may keep busy.
read(Path) ->
    {ok, File} = file:open(Path, [read, raw, binary]),
    {ok, Bytes} = file:read(File, 1024),
    ok = file:close(File),
    Bytes.
