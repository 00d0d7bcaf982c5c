%% Is this VM the application's, and has its node the name by which its fleet looks for it? A pod has other VMs too, with
%% the same environment: `bin/app rpc`, `remote` and `eval`, and nodes that the application starts.
-module(livestash_agent_place).

-export([is_application/0, check_name/0, is_well_named/0]).

%% What the start script of an Elixir release is doing when the VM is no tool of it.
-define(STARTS, ["start", "start_iex", "daemon", "daemon_iex"]).
%% What runs in a VM that has booted no application.
-define(RUNTIME, [kernel, stdlib, compiler, elixir, logger, iex]).
%% For how long a VM that has booted no application may take to open the application's port: `mix phx.server` compiles
%% first. Looks, and milliseconds between two of them.
-define(LOOKS, 300).
-define(PAUSE, 1000).

%% Whether this is the application's VM. Its node has the name that the operator gave it, or it has booted applications, or
%% it opens the application's port, for which this waits. A second one in the same pod is told by the agent's port.
-spec is_application() -> boolean().
is_application() ->
    has_given_name() orelse (not is_tool() andalso (has_booted() orelse opens_port(?LOOKS)) andalso is_only_one()).

%% One line in the log when the node's name is not the one that its peers look for.
-spec check_name() -> ok.
check_name() ->
    is_well_named() orelse warn(node()),
    ok.

%% Whether peers find this node by its name, and so this node its peers by theirs. Without the operator's variables nobody
%% can tell.
-spec is_well_named() -> boolean().
is_well_named() ->
    lists:member(expected_name(), ["", atom_to_list(node())]).

warn('nonode@nohost') ->
    logger:warning(
        "livestash agent: this node has no name, so it has no peers that could take its stashes. Start it as ~ts: "
        "RELEASE_DISTRIBUTION and RELEASE_NODE say so already, remove what overrides them.",
        [expected_name()]
    );
warn(Node) ->
    logger:warning(
        "livestash agent: this node is called ~ts, but its peers look for ~ts, so the agent does not connect them. Remove "
        "what sets another name: RELEASE_NODE or RELEASE_DISTRIBUTION in env.sh, -name or -sname in vm.args. Until "
        "then, stashes go to those peers alone that the application connects.",
        [Node, expected_name()]
    ).

%% RELEASE_NODE is not enough: env.sh may have changed it.
expected_name() ->
    case [os:getenv(Variable, "") || Variable <- ["LIBCLUSTER_APP", "POD_NAME", "LIVESTASH_PEERS_QUERY"]] of
        [[_ | _] = Name, [_ | _] = Pod, [_ | _] = Query] -> Name ++ "@" ++ Pod ++ "." ++ string:trim(Query, trailing, ".");
        _ -> os:getenv("RELEASE_NODE", "")
    end.

has_given_name() ->
    os:getenv("RELEASE_NODE") =:= atom_to_list(node()).

is_tool() ->
    init:get_argument(hidden) =/= error orelse not lists:member(os:getenv("RELEASE_COMMAND", "start"), ?STARTS).

has_booted() ->
    [Name || {Name, _, _} <- application:which_applications(infinity)] -- ?RUNTIME =/= [].

opens_port(Looks) ->
    case string:to_integer(os:getenv("PORT", "")) of
        {Number, ""} -> opens_port(Number, Looks);
        _ -> false
    end.

opens_port(_Number, 0) ->
    false;
opens_port(Number, Looks) ->
    lists:any(fun(Port) -> listens(Port, Number) end, erlang:ports()) orelse
        begin
            timer:sleep(?PAUSE),
            opens_port(Number, Looks - 1)
        end.

listens(Port, Number) ->
    erlang:port_info(Port, name) =:= {name, "tcp_inet"} andalso
        inet:port(Port) =:= {ok, Number} andalso
        lists:member(listen, maps:get(states, inet:info(Port), [])).

is_only_one() ->
    ok = livestash_agent_config:load(),
    Port = livestash_agent_config:get(port),
    case gen_tcp:listen(Port, [{reuseaddr, true}]) of
        {error, eaddrinuse} ->
            logger:warning(
                "livestash agent: it does not start on ~ts, because its port ~b is taken: by the agent in another VM of "
                "this pod, or by something that needs another port.",
                [node(), Port]
            ),
            false;
        {ok, Listener} ->
            ok =:= gen_tcp:close(Listener);
        {error, _Other} ->
            true
    end.
