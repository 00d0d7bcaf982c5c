%% What several tests need: an environment, VMs to test in, and patience.
-module(livestash_agent_fixture).

-export([environment/1, start/1, start_with_telemetry/1, stop/1, call/2, call/4, eventually/1, kill/1]).
-export([free_port/0, request/2, send/2, body/1, listen/1]).
-export([make_table/0, find/2]).
-export([page/1, ended_page/1, begins/1, begins/2]).

-define(STASHES, live_stash_server_storage).
-define(VARIABLES, [
    "LIVESTASH_AGENT_PORT",
    "LIVESTASH_READY_GRACE_MS",
    "LIVESTASH_DRAIN_ENDPOINT_WAIT_MS",
    "LIVESTASH_DRAIN_BATCH_SIZE",
    "LIVESTASH_DRAIN_BATCH_INTERVAL_MS",
    "LIVESTASH_DRAIN_CLOSE_TIMEOUT_MS",
    "LIVESTASH_DRAIN_HANDOFF_TIMEOUT_MS",
    "LIVESTASH_DRAIN_KEEP_FOR_MS",
    "LIVESTASH_DRAIN_KEEP_BYTES",
    "LIVESTASH_SHADOW_COPIES",
    "LIVESTASH_SHADOW_INTERVAL_MS",
    "LIVESTASH_SHADOW_MAX_BYTES",
    "LIVESTASH_MACHINE",
    "LIVESTASH_ZONE",
    "RELEASE_NODE",
    "LIBCLUSTER_APP",
    "LIVESTASH_PEERS_QUERY",
    "PORT",
    "LIVE_STASH_ADAPTER",
    "LIVE_STASH_REDIS_URL",
    "LIVE_STASH_REDIS_CACERTFILE",
    "POD_NAME",
    "LIVESTASH_PREVIOUS_COOKIE",
    "ERL_AFLAGS"
]).

%% Sets the agent's variables in this VM, and unsets those that are not named.
environment(Given) ->
    lists:foreach(fun os:unsetenv/1, ?VARIABLES),
    lists:foreach(fun({Name, Value}) -> os:putenv(Name, Value) end, Given).

%% Starts a VM with the agent as the operator gives it to a release: in embedded mode, by ERL_AFLAGS alone.
%% name: the node's name, one of its own by default; port: the agent's; environment: further variables; mode: "embedded"
%% or "interactive"; log: the least that is logged; cookie: the node's; flags: further arguments of erl.
start(Options) ->
    Name = maps:get(name, Options, unique_name()),
    Port = integer_to_list(maps:get(port, Options, free_port())),
    Defaults = #{
        "RELEASE_NODE" => Name ++ "@127.0.0.1",
        "LIVESTASH_AGENT_PORT" => Port,
        "ERL_AFLAGS" =>
            "-pa " ++ os:getenv("EBIN") ++
                " -eval [livestash_agent:start()||{module,_}<-[code:load_file(livestash_agent)]]."
    },
    Environment = maps:merge(Defaults, maps:get(environment, Options, #{})),
    {ok, Peer, Node} = peer:start_link(#{
        name => list_to_atom(Name),
        host => "127.0.0.1",
        longnames => true,
        connection => standard_io,
        wait_boot => 20000,
        env => maps:to_list(Environment),
        args => ["-mode", maps:get(mode, Options, "embedded"), "-setcookie", maps:get(cookie, Options, "tests"), "-kernel", "logger_level", maps:get(log, Options, "error"),
            "-kernel", "prevent_overlapping_partitions", "false"] ++ maps:get(flags, Options, [])
    }),
    #{peer => Peer, node => Node, port => list_to_integer(Port)}.

%% With telemetry, as an application with LiveView has it. Adapter: LiveStash's.
start_with_telemetry(Adapter) ->
    Vm = start(#{environment => #{"LIVE_STASH_ADAPTER" => Adapter}, flags => ["-pa", os:getenv("TESTS")]}),
    {module, telemetry} = call(Vm, code, load_file, [telemetry]),
    eventually(fun() -> is_binary(request(Vm, "/healthz")) end),
    %% In a release it is there before the agent.
    ok = call(Vm, livestash_agent_rank, attach, []),
    Vm.

stop(#{peer := Peer}) ->
    peer:stop(Peer).

%% Runs a fun of the calling test module in the VM, which gets the tests' modules for it.
call(#{peer := Peer} = Vm, Fun) ->
    {module, Module} = erlang:fun_info(Fun, module),
    load(Vm, Module),
    load(Vm, ?MODULE),
    peer:call(Peer, erlang, apply, [Fun, []], 30000).

call(#{peer := Peer}, Module, Function, Arguments) ->
    peer:call(Peer, Module, Function, Arguments, 30000).

load(#{peer := Peer}, Module) ->
    {Module, Code, File} = code:get_object_code(Module),
    {module, Module} = peer:call(Peer, code, load_binary, [Module, File, Code]).

unique_name() ->
    lists:concat(["vm", erlang:unique_integer([positive]), "x", os:getpid()]).

%% Waits for a condition: it may take long on a busy machine, but it must come true.
eventually(Condition) ->
    eventually(Condition, erlang:monotonic_time(millisecond) + 60000).

eventually(Condition, Deadline) ->
    case Condition() of
        true ->
            ok;
        Other ->
            erlang:monotonic_time(millisecond) < Deadline orelse error({never, Other}),
            timer:sleep(50),
            eventually(Condition, Deadline)
    end.

%% Ends a process, and returns when it has ended.
kill(Pid) ->
    Monitor = monitor(process, Pid),
    exit(Pid, kill),
    receive
        {'DOWN', Monitor, process, Pid, _} -> ok
    end.

%% A port that nobody listens on, and that stays the calling process's own: other tests that run at the same time pick another
%% one, and no outgoing connection gets it, as it is none of the system's ephemeral ports.
free_port() ->
    Port = 10000 + erlang:phash2({os:getpid(), erlang:unique_integer()}, 20000),
    Name = iolist_to_binary(io_lib:format("livestash-tests-~b", [Port])),
    case {gen_tcp:listen(0, [{ifaddr, {local, <<0, Name/binary>>}}]), gen_tcp:listen(Port, [{reuseaddr, true}])} of
        {{ok, _Reserved}, {ok, Listener}} ->
            ok = gen_tcp:close(Listener),
            Port;
        {Reserved, Listened} ->
            [gen_tcp:close(Listener) || {ok, Listener} <- [Reserved, Listened]],
            free_port()
    end.

%% A listener that accepts and says nothing, owned by a process of its own.
listen(Port) ->
    Parent = self(),
    Pid = spawn(fun() ->
        {ok, Listener} = gen_tcp:listen(Port, [{reuseaddr, true}, {active, true}]),
        Parent ! {self(), listening},
        accept(Listener)
    end),
    receive
        {Pid, listening} -> Pid
    end.

accept(Listener) ->
    {ok, _Socket} = gen_tcp:accept(Listener),
    accept(Listener).

%% GETs a path of a VM's agent. The answer is all that came until the connection was closed.
request(#{port := Port}, Path) ->
    send(Port, ["GET ", Path, " HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"]);
request(Port, Path) ->
    request(#{port => Port}, Path).

send(Port, Bytes) ->
    case gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}], 5000) of
        {ok, Socket} ->
            _ = gen_tcp:send(Socket, Bytes),
            Answer = receive_all(Socket, <<>>),
            gen_tcp:close(Socket),
            Answer;
        {error, Reason} ->
            {error, Reason}
    end.

receive_all(Socket, Answer) ->
    case gen_tcp:recv(Socket, 0, 20000) of
        {ok, Bytes} -> receive_all(Socket, <<Answer/binary, Bytes/binary>>);
        {error, _Closed} -> Answer
    end.

body(Answer) ->
    [_Head, Body] = binary:split(Answer, <<"\r\n\r\n">>),
    Body.

%% LiveStash's ETS table, anew. Its owner runs none of this module's code, and so survives that it is loaded again.
make_table() ->
    case whereis(table_owner) of
        undefined -> ok;
        Old -> kill(Old)
    end,
    Owner = spawn(timer, sleep, [infinity]),
    register(table_owner, Owner),
    Options = [set, public, named_table, {keypos, 2}, {write_concurrency, true}, {decentralized_counters, true}],
    true = ets:give_away(ets:new(?STASHES, Options), Owner, given).

%% A page of the VM that lives on, and one that has ended.
page(Vm) -> begins(Vm, call(Vm, erlang, spawn, [timer, sleep, [infinity]])).

ended_page(Vm) -> begins(Vm, call(Vm, erlang, spawn, [erlang, node, []])).

%% Not in the same millisecond as the one before.
begins(Vm, Page) ->
    timer:sleep(2),
    ok = call(Vm, livestash_agent_rank, learn, [[{Page, os:system_time(millisecond)}]]),
    Page.

%% The process of this VM is a page that begins now. It says so itself in LiveView's telemetry.
begins(Page) ->
    ok = livestash_agent_rank:learn([{Page, os:system_time(millisecond)}]),
    Page.

%% What LiveStash's ETS adapter finds for a page of this node: here, else at the hinted node, else at all others at once. What
%% is found elsewhere is gone there.
find(Key, Hint) ->
    case ets:lookup(?STASHES, Key) of
        [Row] -> value(Row);
        [] -> pop_hinted(Key, Hint, lists:member(Hint, nodes()))
    end.

pop_hinted(Key, Hint, true) ->
    try erpc:call(Hint, ets, take, [?STASHES, Key]) of
        [Row] -> value(Row);
        [] -> pop_others(Key, Hint)
    catch
        error:_ -> pop_others(Key, Hint)
    end;
pop_hinted(Key, Hint, false) ->
    pop_others(Key, Hint).

pop_others(Key, Hint) ->
    case [value(Row) || {ok, [Row]} <- erpc:multicall(nodes() -- [Hint], ets, take, [?STASHES, Key])] of
        [Value | _] -> Value;
        [] -> none
    end.

value({state, _Key, _Owner, _Until, #{value := Value}, _Version}) ->
    Value.
