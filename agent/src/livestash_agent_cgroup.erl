%% What does the node pay for this pod? The memory and CPU time that the kernel counts for its containers, which are more than the
%% VM's own: its allocators' reserves, the kernel's buffers for sockets, and whatever else runs beside it.
%%
%% No right is needed: a container sees its own control group, of version 2 or 1. The helper cannot be seen from here, and leaves its
%% figures in a file beside the agent.
-module(livestash_agent_cgroup).

-export([metrics/0, container/2, helper/1]).

-define(MOUNT, "/sys/fs/cgroup").

%% Bytes as `kubectl top` and the kubelet count them: without file pages that the kernel can drop at once. And CPU seconds.
-type usage() :: #{memory => non_neg_integer(), cpu => float()}.

-spec metrics() -> [livestash_agent_metrics:family()].
metrics() ->
    Parts = [{application, container(?MOUNT, own())}, {helper, helper(helper_file())}],
    Of = fun(Figure) -> [{[{part, Part}], maps:get(Figure, Usage)} || {Part, Usage} <- Parts, is_map_key(Figure, Usage)] end,
    [
        {"livestash_pod_memory_bytes", gauge, "Memory of the pod's containers as the kubelet counts it.", Of(memory)},
        {"livestash_pod_cpu_seconds_total", counter, "CPU seconds of the pod's containers.", Of(cpu)}
    ].

%% The usage of a container whose control groups are mounted at Mount, by its /proc/self/cgroup. Figures that the kernel does not tell
%% are not there.
-spec container(file:filename(), binary()) -> usage().
container(Mount, Own) ->
    Groups = groups(Own),
    Unified = folders(Mount, "", maps:get(<<>>, Groups, <<"/">>)),
    Of = fun(Controller) ->
        Path = maps:get(list_to_binary(Controller), Groups, <<"/">>),
        folders(Mount, Controller, Path) ++ folders(Mount, "cpu,cpuacct", Path) ++ folders(Mount, "cpuacct,cpu", Path)
    end,
    maps:from_list(
        first(memory, known(fun memory_v2/1, Unified) ++ known(fun memory_v1/1, Of("memory"))) ++
            first(cpu, known(fun cpu_v2/1, Unified) ++ known(fun cpu_v1/1, Of("cpuacct")))
    ).

%% What the helper wrote: bytes and microseconds. Nothing before its first word.
-spec helper(file:filename()) -> usage().
helper(File) ->
    try
        [Bytes, Microseconds] = [binary_to_integer(Word) || Word <- words(read(File))],
        #{memory => Bytes, cpu => Microseconds / 1000000}
    catch
        error:_ -> #{}
    end.

%% Found out once: the code server may be busy.
helper_file() ->
    case persistent_term:get(?MODULE, none) of
        none ->
            File = filename:join(filename:dirname(filename:dirname(code:which(?MODULE))), "usage"),
            persistent_term:put(?MODULE, File),
            File;
        File ->
            File
    end.

own() ->
    try read("/proc/self/cgroup") catch error:_ -> <<>> end.

%% The paths of the control groups by controller; that of version 2 has none.
groups(Own) ->
    maps:from_list([
        {Controller, Path}
     || Line <- binary:split(Own, <<"\n">>, [global, trim_all]),
        [_Hierarchy, Controllers, Path] <- [binary:split(Line, <<":">>, [global])],
        Controller <- binary:split(Controllers, <<",">>, [global])
    ]).

%% A container that sees all of the node's groups finds its own by its path. In one that sees its own alone, that is the root.
folders(Mount, Controller, Path) ->
    Root = filename:join(Mount, Controller),
    [filename:join(Root, string:trim(binary_to_list(Path), leading, "/")), Root].

first(_Name, []) -> [];
first(Name, [Value | _]) -> [{Name, Value}].

known(Figure, Folders) ->
    lists:flatmap(fun(Folder) -> try [Figure(Folder)] catch error:_ -> [] end end, Folders).

memory_v2(Folder) ->
    working(integer(Folder, "memory.current"), field(Folder, "memory.stat", <<"inactive_file">>)).

memory_v1(Folder) ->
    ok = is_no_node(Folder),
    working(integer(Folder, "memory.usage_in_bytes"), field(Folder, "memory.stat", <<"total_inactive_file">>)).

working(Used, Droppable) -> max(0, Used - Droppable).

cpu_v2(Folder) ->
    %% The node's own group has no events.
    _ = read(filename:join(Folder, "cgroup.events")),
    field(Folder, "cpu.stat", <<"usage_usec">>) / 1000000.

cpu_v1(Folder) ->
    ok = is_no_node(Folder),
    integer(Folder, "cpuacct.usage") / 1000000000.

%% The root of a hierarchy of version 1 holds all that runs on the node. It alone has a release agent.
is_no_node(Folder) ->
    {error, enoent} = file:read_file_info(filename:join(Folder, "release_agent"), [raw]),
    ok.

integer(Folder, Name) ->
    binary_to_integer(string:trim(read(filename:join(Folder, Name)))).

field(Folder, Name, Key) ->
    [Value | _] = [Value || [Found, Value] <- [words(Line) || Line <- lines(read(filename:join(Folder, Name)))], Found =:= Key],
    binary_to_integer(Value).

lines(Text) -> binary:split(Text, <<"\n">>, [global, trim_all]).

words(Line) -> string:lexemes(Line, " \n").

%% The first 16 KiB of a file, not through the VM's file server, which others may keep busy.
read(Path) ->
    {ok, File} = file:open(Path, [read, raw, binary]),
    try file:read(File, 16384) of
        {ok, Bytes} -> Bytes;
        eof -> <<>>
    after
        ok = file:close(File)
    end.
