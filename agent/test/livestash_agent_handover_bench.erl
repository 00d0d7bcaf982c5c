%% How fast does a node hand its stashes over to the peers that stay, in how much memory, and what do users feel of it
%% meanwhile? The nodes are VMs of this machine, each with a table as LiveStash makes it.
-module(livestash_agent_handover_bench).

-export([main/1]).
%% Called in the VMs.
-export([fill/2, hand_over/2, watch_memory/0, memory_risen/0, start_calling/1, stop_calling/0]).

-define(F, livestash_agent_fixture).
-define(TABLE, live_stash_server_storage).
%% Milliseconds.
-define(CALL_EVERY, 20).
-define(CALLS_BEFORE, 5000).
-define(LOOK_AT_MEMORY, 100).
-define(FOR_EVER, 3600000).

%% The words of the command line: rows, "published" or "tiny", peers, milliseconds for the hand-over, and how the VMs load code: TLS
%% between them needs "interactive", because their boot script does not have it.
-spec main([string()]) -> no_return().
main([Rows, Kind, Peers, Within, Mode]) ->
    logger:set_primary_config(level, none),
    Vms = [Me | _] = fleet(1 + list_to_integer(Peers), Mode),
    RowBytes = for_long(Me, fill, [list_to_integer(Rows), list_to_atom(Kind)]),
    Figures = measure(Vms, list_to_integer(Within)),
    report(Figures#{rows => list_to_integer(Rows), row_bytes => RowBytes, peers => list_to_integer(Peers)}),
    [?F:stop(Vm) || Vm <- Vms],
    halt().

fleet(Size, Mode) ->
    Vms = [?F:start(#{mode => Mode, environment => #{"LIVE_STASH_ADAPTER" => "ets"}}) || _ <- lists:seq(1, Size)],
    [?F:eventually(fun() -> ?F:call(Vm, erlang, module_loaded, [livestash_agent_handoff]) end) || Vm <- Vms],
    [true = ?F:call(Vm, net_kernel, connect_node, [Other]) || Vm <- Vms, #{node := Other} <- Vms],
    [true = ?F:call(Vm, fun livestash_agent_fixture:make_table/0) || Vm <- Vms],
    %% Gives them this module.
    [0 = ?F:call(Vm, fun ?MODULE:memory_risen/0) || Vm <- Vms],
    Vms.

measure([#{node := Node} = Me | Peers] = Vms, Within) ->
    start_all_calling(Peers, Node),
    timer:sleep(?CALLS_BEFORE),
    Before = stop_all_calling(Peers),
    [ok = ?F:call(Vm, ?MODULE, watch_memory, []) || Vm <- Vms],
    Watcher = start_watching_rss(Vms),
    CpuBefore = [cpu(Vm) || Vm <- Vms],
    start_all_calling(Peers, Node),
    {Microseconds, Result} = for_long(Me, hand_over, [[Peer || #{node := Peer} <- Peers], Within]),
    Meanwhile = stop_all_calling(Peers),
    [CpuHere | CpuThere] = lists:zipwith(fun erlang:'-'/2, [cpu(Vm) || Vm <- Vms], CpuBefore),
    [RssHere | RssThere] = rss_risen(Watcher),
    [Here | There] = [?F:call(Vm, ?MODULE, memory_risen, []) || Vm <- Vms],
    %% Each peer has one row that is its caller's.
    Arrived = lists:sum([?F:call(Peer, ets, info, [?TABLE, size]) || Peer <- Peers]) - length(Peers),
    Kept = lists:max([?F:call(Peer, ets, info, [?TABLE, memory]) || Peer <- Peers]) * erlang:system_info(wordsize),
    Result#{
        arrived => Arrived,
        seconds => Microseconds / 1.0e6,
        rows_per_second => Arrived * 1.0e6 / Microseconds,
        draining_memory_mb => Here / 1.0e6,
        draining_rss_mb => RssHere / 1.0e6,
        peer_memory_mb => lists:max(There) / 1.0e6,
        peer_rss_mb => lists:max(RssThere) / 1.0e6,
        peer_table_mb => Kept / 1.0e6,
        draining_cpu_seconds => CpuHere,
        peers_cpu_seconds => lists:sum(CpuThere),
        calls_before => length(Before),
        calls_meanwhile => length(Meanwhile),
        call_p50_before_ms => percentile(50, Before),
        call_p99_before_ms => percentile(99, Before),
        call_p50_ms => percentile(50, Meanwhile),
        call_p99_ms => percentile(99, Meanwhile),
        call_max_ms => lists:max(Meanwhile) / 1000
    }.

report(#{rows_per_second := Rate, row_bytes := RowBytes} = Measured) ->
    Figures = Measured#{megabytes_per_second => Rate * RowBytes / 1.0e6},
    say("~b stashes of ~b bytes, ~b peers: ~b handed over in ~.2f s, ~b left.~n", Figures, [
        rows, row_bytes, peers, handed_over, seconds, left
    ]),
    [io:format("~ts~n", [Reason]) || #{reason := [_ | _] = Reason} <- [Figures]],
    say("~.1f rows/s, ~.1f MB/s~n", Figures, [rows_per_second, megabytes_per_second]),
    say("memory above the start, at most: here ~.1f MB (RSS ~.1f)", Figures, [draining_memory_mb, draining_rss_mb]),
    say(", at a peer ~.1f MB (RSS ~.1f), whose table takes ~.1f MB~n", Figures, [peer_memory_mb, peer_rss_mb, peer_table_mb]),
    say("CPU: here ~.1f s, all peers ~.1f s~n", Figures, [draining_cpu_seconds, peers_cpu_seconds]),
    say("a user's call, p99: before ~.2f ms, meanwhile ~.2f ms, at most ~.2f ms~n", Figures, [
        call_p99_before_ms, call_p99_ms, call_max_ms
    ]),
    io:format("{~ts}~n", [lists:join(",", [json(Name, Value) || {Name, Value} <- lists:sort(maps:to_list(Figures))])]).

say(Format, Figures, Names) ->
    io:format(Format, [maps:get(Name, Figures) || Name <- Names]).

json(Name, Value) when is_integer(Value) -> io_lib:format("\"~s\":~b", [Name, Value]);
json(Name, Value) when is_float(Value) -> io_lib:format("\"~s\":~.2f", [Name, Value]);
json(Name, Value) -> io_lib:format("\"~s\":\"~ts\"", [Name, Value]).

%% Of microseconds, in milliseconds.
percentile(Percent, Values) ->
    lists:nth(ceil(length(Values) * Percent / 100), lists:sort(Values)) / 1000.

for_long(#{peer := Peer}, Function, Arguments) ->
    peer:call(Peer, ?MODULE, Function, Arguments, ?FOR_EVER).

%% Every row has an owner of its own, which has ended: its user has lost the socket. Returns the bytes of a row.
-spec fill(pos_integer(), published | tiny) -> pos_integer().
fill(Rows, Kind) ->
    Payload = payload(Kind),
    [ets:insert(?TABLE, row(N, spawn(fun() -> ok end), Payload)) || N <- lists:seq(1, Rows)],
    erlang:external_size(row(1, self(), Payload)).

%% The published benchmark's: 5,556 bytes as a term.
payload(published) -> maps:from_list([{word("field_", N, ""), word("value_", N, "_xxxxxxxx")} || N <- lists:seq(1, 150)]);
payload(tiny) -> #{count => 1}.

word(Prefix, N, Suffix) ->
    iolist_to_binary(io_lib:format("~s~3..0b~s", [Prefix, N, Suffix])).

%% The key is as long as LiveStash's.
row(N, Owner, Payload) ->
    Hash = erlang:md5(integer_to_binary(N)),
    {state, binary:part(base64:encode(<<Hash/binary, Hash/binary>>), 0, 43), Owner, delete_at(), Payload, nil}.

delete_at() ->
    erlang:system_time(second) + 300.

-spec hand_over([node()], non_neg_integer()) -> {Microseconds :: non_neg_integer(), map()}.
hand_over(Peers, Within) ->
    timer:tc(livestash_agent_handoff, hand_over, [?TABLE, Peers, Within, none]).

start_all_calling(Peers, Node) ->
    [ok = ?F:call(Peer, ?MODULE, start_calling, [Node]) || Peer <- Peers].

stop_all_calling(Peers) ->
    lists:append([?F:call(Peer, ?MODULE, stop_calling, []) || Peer <- Peers]).

%% A user of this node: stashes here, and looks for a stash at the node that drains, every few milliseconds.
-spec start_calling(node()) -> ok.
start_calling(Node) ->
    Payload = payload(published),
    register(caller, spawn(fun() -> calling(Node, Payload, []) end)),
    ok.

calling(Node, Payload, Times) ->
    {Time, []} = timer:tc(fun() ->
        ets:insert(?TABLE, {state, {caller, node()}, self(), delete_at(), Payload, nil}),
        erpc:call(Node, ets, take, [?TABLE, <<"nobody's">>])
    end),
    receive
        {stop, From} -> From ! {times, [Time | Times]}
    after ?CALL_EVERY ->
        calling(Node, Payload, [Time | Times])
    end.

%% Microseconds of each call.
-spec stop_calling() -> [non_neg_integer()].
stop_calling() ->
    Monitor = monitor(process, caller),
    caller ! {stop, self()},
    receive
        {times, Times} ->
            receive
                {'DOWN', Monitor, process, _, _} -> Times
            end
    end.

-spec watch_memory() -> ok.
watch_memory() ->
    [erlang:garbage_collect(Pid) || Pid <- processes()],
    Start = erlang:memory(total),
    register(memory, spawn_opt(fun() -> watch_memory(Start, Start) end, [{priority, high}])),
    ok.

watch_memory(Start, Most) ->
    Risen = max(Most, erlang:memory(total)),
    receive
        {risen, From} -> From ! {risen, Risen - Start}
    after ?LOOK_AT_MEMORY ->
        watch_memory(Start, Risen)
    end.

%% Bytes that this VM has had above what it had when it began to watch.
-spec memory_risen() -> non_neg_integer().
memory_risen() ->
    case whereis(memory) of
        undefined ->
            0;
        Watcher ->
            Watcher ! {risen, self()},
            receive
                {risen, Bytes} -> Bytes
            end
    end.

%% As memory, but seen from outside: what the operating system gives the VMs.
start_watching_rss(Vms) ->
    Files = ["/proc/" ++ ?F:call(Vm, os, getpid, []) ++ "/statm" || Vm <- Vms],
    Start = lists:map(fun rss/1, Files),
    spawn_link(fun() -> watch_rss(Files, Start, Start) end).

watch_rss(Files, Start, Most) ->
    Risen = lists:zipwith(fun erlang:max/2, Most, lists:map(fun rss/1, Files)),
    receive
        {risen, From} -> From ! {rss, lists:zipwith(fun erlang:'-'/2, Risen, Start)}
    after ?LOOK_AT_MEMORY ->
        watch_rss(Files, Start, Risen)
    end.

rss_risen(Watcher) ->
    Watcher ! {risen, self()},
    receive
        {rss, Bytes} -> Bytes
    end.

%% Its second number is of pages of 4 KiB.
rss(File) ->
    {ok, Text} = file:read_file(File),
    [_Size, Pages | _] = binary:split(Text, <<" ">>, [global]),
    4096 * binary_to_integer(Pages).

%% Seconds of CPU that a VM has taken, in user and system mode: fields 14 and 15, counted in hundredths.
cpu(Vm) ->
    {ok, Text} = file:read_file("/proc/" ++ ?F:call(Vm, os, getpid, []) ++ "/stat"),
    [_Name, Rest] = binary:split(Text, <<") ">>),
    Fields = binary:split(Rest, <<" ">>, [global]),
    lists:sum([binary_to_integer(lists:nth(N - 2, Fields)) || N <- [14, 15]]) / 100.
