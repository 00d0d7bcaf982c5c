%% How does the agent get into a running release, and out of its way? Loads its modules where nothing is loaded on
%% demand, starts as an application that may end without the VM, and gives up with one log line.
-module(livestash_agent).

-behaviour(application).
-behaviour(supervisor).

-export([start/0, version/0, max_heap_size/0]).
-export([start/2, stop/1]).
-export([init/1]).

%% Starts the agent, if this VM is the application's (`bin/app rpc` starts a second VM with the same environment). Returns
%% at once: the boot of the release never waits for the agent.
-spec start() -> ok.
start() ->
    _ = spawn(fun start_application/0),
    ok.

%% The agent's version, as the .app file has it.
-spec version() -> string().
version() ->
    {ok, Version} = application:get_key(livestash_agent, vsn),
    Version.

%% What a process of the agent may use, in words (16 MiB): beyond that it ends, and the VM writes to the log how much it had.
-spec max_heap_size() -> map().
max_heap_size() ->
    #{size => 2097152, kill => true, error_logger => true}.

start_application() ->
    try
        ok = load([livestash_agent_config, livestash_agent_place]),
        livestash_agent_place:is_application() andalso start_here()
    catch
        Class:Reason ->
            logger:warning("livestash agent: it did not start, the application goes on without it: ~tp", [
                {Class, Reason}
            ])
    end.

start_here() ->
    case application:load(livestash_agent) of
        ok -> ok;
        {error, {already_loaded, livestash_agent}} -> ok
    end,
    {ok, Modules} = application:get_key(livestash_agent, modules),
    ok = load(Modules),
    ok = livestash_agent_place:check_name(),
    ok = application:start(livestash_agent, temporary).

%% A release runs in embedded mode: what is not loaded here does not exist later.
load(Modules) ->
    lists:foreach(fun(Module) -> {module, Module} = code:load_file(Module) end, [M || M <- Modules, not loaded(M)]).

loaded(Module) ->
    code:is_loaded(Module) =/= false.

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Arguments) ->
    ok = livestash_agent_config:load(),
    ok = livestash_agent_state:init(),
    ok = livestash_agent_browser:attach(),
    ok = livestash_agent_recovery:attach(),
    ok = livestash_agent_signal:install(),
    ok = livestash_agent_shutdown:install(),
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).

-spec stop(term()) -> ok.
stop(_State) ->
    case init:get_status() of
        {stopping, _} -> ok;
        _ -> logger:warning("livestash agent: it has stopped, the application goes on without it.")
    end.

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    ok = livestash_agent_rank:new(),
    _ = livestash_agent_shadow:is_on() andalso livestash_agent_shadow:new(),
    {ok, {#{strategy => one_for_one, intensity => 5, period => 60}, [
        #{id => Module, start => {Module, start_link, []}}
     || Module <- [livestash_agent_rank] ++ of_adapter(livestash_agent_config:get(adapter)) ++ [
            livestash_agent_mesh,
            livestash_agent_journal,
            livestash_agent_reunion,
            livestash_agent_network,
            livestash_agent_notice,
            livestash_agent_ready,
            livestash_agent_http
        ] ++ shadows(livestash_agent_shadow:is_on())
    ]}}.

%% What holds copies is there before it is told that this node has stashes.
shadows(true) -> [livestash_agent_shadow_store, livestash_agent_shadow];
shadows(false) -> [].

%% An application may use Mnesia for something else. Who watches how it joins must be there before nodes are connected.
of_adapter(redis) -> [livestash_agent_redis, livestash_agent_pages];
of_adapter(mnesia) -> [livestash_agent_join, livestash_agent_standstill, livestash_agent_births, livestash_agent_pages, livestash_agent_owners];
of_adapter(_Other) -> [].
