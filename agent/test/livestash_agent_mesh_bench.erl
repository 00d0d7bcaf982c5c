%% What is a full mesh of many nodes like? How long until it is whole, what it costs at rest, what a user's question to all
%% nodes takes, and whether a rolling restart loses a stash. The nodes are VMs of this machine, each with the agent as the
%% operator gives it, an address of its own and the name that its pod would have; DNS answers as a headless Service does.
-module(livestash_agent_mesh_bench).

-export([main/1]).
%% Called in the VMs.
-export([fill/2, ask_all/1, moved/0]).

-define(F, livestash_agent_fixture).
-define(TABLE, live_stash_server_storage).
-define(APP, "shop").
-define(QUERY, "shop-nodes.default.svc.cluster.local").
%% The port that every node listens on at its own address: no port mapper is asked.
-define(DISTRIBUTION, "24371").
%% Milliseconds.
-define(LOOK, 50).
-define(LONGEST, 600000).
-define(FOR_EVER, 3600000).
-define(QUESTIONS, 200).

%% The words of the command line: nodes, stashes of each, seconds of rest, and how many nodes are replaced.
-spec main([string()]) -> no_return().
main(Words) ->
    [Count, Stashes, Rest, Roll] = lists:map(fun list_to_integer/1, Words),
    logger:set_primary_config(level, none),
    {Dns, Environment} = livestash_agent_dns:serve([host(N) || N <- lists:seq(1, Count)], ?APP),
    ok = name_hosts(Environment, Count + 1),
    {Whole, Vms} = timed(fun() -> bring_up(lists:seq(1, Count), Environment) end),
    [ok = ?F:call(Vm, ?MODULE, fill, [N, Stashes]) || {N, Vm} <- Vms],
    Resting = rest(Vms, Rest * 1000),
    Asking = ask(Vms),
    {Joining, Joined} = join(Vms, Count + 1, Dns, Environment),
    {Rolling, Last} = roll(lists:sublist(Vms, Roll), Joined, Environment, []),
    Figures = maps:merge(Resting, Asking),
    report(Figures#{
        nodes => Count,
        whole_s => Whole / 1000,
        join_s => Joining / 1000,
        replaced => Roll,
        replace_s => mean(Rolling) / 1000,
        replace_worst_s => lists:max([0 | Rolling]) / 1000,
        stashes => Count * Stashes,
        lost => Count * Stashes - stashes(Last)
    }),
    halt().

host(N) -> lists:concat([pod(N), ".", ?QUERY]).

pod(N) -> lists:concat(["shop-", N]).

address(N) -> {127, 1, N div 250, N rem 250 + 1}.

%% What the resolver of the VMs knows without asking.
name_hosts(#{"ERL_INETRC" := File}, Count) ->
    Hosts = [io_lib:format("{host, ~p, [~p]}.~n", [address(N), host(N)]) || N <- lists:seq(1, Count)],
    file:write_file(File, ["{lookup, [file]}.\n" | Hosts], [append]).

%% Starts nodes, all at the same time, and returns when each sees all others.
bring_up(Numbers, Environment) ->
    Self = self(),
    Starters = [{N, spawn_link(fun() -> Self ! {self(), start(N, Environment)} end)} || N <- Numbers],
    Vms = [receive {Starter, Vm} -> {N, Vm} end || {N, Starter} <- Starters],
    await_whole(Vms),
    Vms.

start(N, Given) ->
    Port = integer_to_list(?F:free_port()),
    Own = #{
        "POD_NAME" => pod(N),
        "LIVESTASH_PEERS_QUERY" => ?QUERY,
        "RELEASE_NODE" => ?APP ++ "@" ++ host(N),
        "LIVESTASH_AGENT_PORT" => Port,
        "LIVE_STASH_ADAPTER" => "ets",
        "ERL_AFLAGS" => "-pa " ++ os:getenv("EBIN") ++ " -eval [livestash_agent:start()||{module,_}<-[code:load_file(livestash_agent)]]."
    },
    {ok, Peer, Node} = peer:start(#{
        name => list_to_atom(?APP),
        host => host(N),
        longnames => true,
        connection => standard_io,
        wait_boot => ?LONGEST,
        env => maps:to_list(maps:merge(Given, Own)),
        args => ["-mode", "embedded", "-setcookie", "tests", "-start_epmd", "false", "-erl_epmd_port", ?DISTRIBUTION, "-kernel", "inet_dist_use_interface",
            lists:flatten(io_lib:format("~w", [address(N)])), "-kernel", "logger_level", "none", "-kernel", "prevent_overlapping_partitions", "false"]
    }),
    Vm = #{peer => Peer, node => Node, port => list_to_integer(Port)},
    %% What LiveStash does when its application starts.
    true = ?F:call(Vm, fun livestash_agent_fixture:make_table/0),
    %% Gives it this module.
    ok = ?F:call(Vm, fun() -> ok end),
    Vm.

%% A node is ready when it sees all whom DNS names.
await_whole(Vms) ->
    [await(fun() -> is_ready(Vm) andalso length(?F:call(Vm, erlang, nodes, [])) >= length(Vms) - 1 end) || {_N, Vm} <- Vms],
    ok.

is_ready(Vm) ->
    case ?F:request(Vm, "/readyz") of
        <<"HTTP/1.1 200", _/binary>> -> true;
        _ -> false
    end.

await(Condition) ->
    Condition() orelse
        begin
            timer:sleep(?LOOK),
            await(Condition)
        end.

%% Nobody does anything but the agents.
rest(Vms, Milliseconds) ->
    Before = [usage(Vm) || {_N, Vm} <- Vms],
    timer:sleep(Milliseconds),
    Spent = lists:zipwith(fun({_N, Vm}, Earlier) -> lists:zipwith(fun erlang:'-'/2, usage(Vm), Earlier) end, Vms, Before),
    [Bytes, Packets, Cpu] = [mean(Column) || Column <- columns(Spent)],
    {_, Some} = hd(Vms),
    Metrics = ?F:body(?F:request(Some, "/metrics")),
    #{
        rest_bytes_per_s => Bytes * 1000 / Milliseconds,
        rest_packets_per_s => Packets * 1000 / Milliseconds,
        rest_cores => Cpu * 10 / Milliseconds,
        rss_mib => mean([rss(Vm) || {_N, Vm} <- Vms]) / 1048576,
        metrics_bytes => byte_size(Metrics)
    }.

columns([[] | _]) -> [];
columns(Rows) -> [[hd(Row) || Row <- Rows] | columns([tl(Row) || Row <- Rows])].

%% Bytes and packets that distribution has sent, and hundredths of a second of CPU.
usage(Vm) ->
    {ok, Text} = file:read_file("/proc/" ++ ?F:call(Vm, os, getpid, []) ++ "/stat"),
    [_Name, Fields] = binary:split(Text, <<") ">>),
    Cpu = [binary_to_integer(lists:nth(N - 2, binary:split(Fields, <<" ">>, [global]))) || N <- [14, 15]],
    ?F:call(Vm, ?MODULE, moved, []) ++ [lists:sum(Cpu)].

%% Its second number is of pages of 4 KiB.
rss(Vm) ->
    {ok, Text} = file:read_file("/proc/" ++ ?F:call(Vm, os, getpid, []) ++ "/statm"),
    4096 * binary_to_integer(lists:nth(2, binary:split(Text, <<" ">>, [global]))).

-spec moved() -> [non_neg_integer()].
moved() ->
    Stats = [Stat || #{port := Port} <- livestash_agent_dist:connections(), {ok, Stat} <- [inet:getstat(Port, [send_oct, send_cnt])]],
    [lists:sum([proplists:get_value(What, Stat) || Stat <- Stats]) || What <- [send_oct, send_cnt]].

%% What LiveStash asks for a user of whom this node knows nothing: all others, at once.
ask([{_N, Vm} | _]) ->
    Times = lists:sort(call_for_long(Vm, ask_all, [?QUESTIONS])),
    #{ask_p50_ms => percentile(50, Times), ask_p99_ms => percentile(99, Times)}.

%% Microseconds of each question.
-spec ask_all(pos_integer()) -> [non_neg_integer()].
ask_all(Count) ->
    [element(1, timer:tc(erpc, multicall, [nodes(), ets, take, [?TABLE, <<"nobody's">>]])) || _ <- lists:seq(1, Count)].

%% One node more, as when a fleet grows. Returns the milliseconds until it is in the mesh.
join(Vms, N, Dns, Environment) ->
    livestash_agent_dns:answer(Dns, [host(M) || M <- lists:seq(1, N)]),
    {Took, [New]} = timed(fun() ->
        [New] = bring_up([N], Environment),
        await_whole([New | Vms]),
        [New]
    end),
    {Took, [New | Vms]}.

%% As a rolling update: a node is told to stop, drains, and another one of its name takes its place; then the next.
roll([], Vms, _Environment, Took) ->
    {Took, Vms};
roll([{N, #{peer := Peer} = Old} | Next], Vms, Environment, Took) ->
    {Milliseconds, Now} = timed(fun() ->
        Gone = monitor(process, Peer),
        "" = os:cmd("kill -TERM " ++ ?F:call(Old, os, getpid, [])),
        receive {'DOWN', Gone, process, Peer, _Reason} -> ok end,
        New = {N, start(N, Environment)},
        Others = lists:keystore(N, 1, Vms, New),
        await_whole(Others),
        Others
    end),
    roll(Next, Now, Environment, [Milliseconds | Took]).

%% Stashes whose users have lost their sockets.
-spec fill(pos_integer(), non_neg_integer()) -> ok.
fill(N, Stashes) ->
    Until = erlang:system_time(second) + 3600,
    [true = ets:insert(?TABLE, {state, {N, M}, spawn(fun() -> ok end), Until, #{value => M}, nil}) || M <- lists:seq(1, Stashes)],
    ok.

stashes(Vms) ->
    lists:sum([?F:call(Vm, ets, info, [?TABLE, size]) || {_N, Vm} <- Vms]).

call_for_long(#{peer := Peer}, Function, Arguments) ->
    peer:call(Peer, ?MODULE, Function, Arguments, ?FOR_EVER).

timed(Function) ->
    Began = erlang:monotonic_time(millisecond),
    Result = Function(),
    {erlang:monotonic_time(millisecond) - Began, Result}.

mean([]) -> 0;
mean(Values) -> lists:sum(Values) / length(Values).

%% Of sorted microseconds, in milliseconds.
percentile(Percent, Values) ->
    lists:nth(ceil(length(Values) * Percent / 100), Values) / 1000.

report(Figures) ->
    io:format("{~ts}~n", [lists:join(",", [json(Name, Value) || {Name, Value} <- lists:sort(maps:to_list(Figures))])]).

json(Name, Value) when is_integer(Value) -> io_lib:format("\"~s\":~b", [Name, Value]);
json(Name, Value) -> io_lib:format("\"~s\":~.3f", [Name, Value * 1.0]).
