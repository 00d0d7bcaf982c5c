%% Which peers should this node see, and which does it see? Asks DNS every few seconds and connects to whoever is
%% missing. Lookups and connects run in processes of their own: neither a dead DNS server nor a frozen peer holds
%% anything up.
-module(livestash_agent_mesh).

-behaviour(gen_server).

-export([start_link/0, start_link/1, peers/0, had_peers/0, known/0, gone/0, names/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-define(INTERVAL, 5000).
%% A peer that refuses (another cookie) logs each attempt: it is asked more and more rarely.
-define(MAX_DELAY, 30000).
%% Milliseconds from when every peer has this node's cookie until it forgets the previous one: DNS may not have named them all.
-define(FORGET, 600000).
%% Milliseconds for which a peer that has gone is one whose pod may come back: it has to be scheduled, perhaps on a machine that
%% has to start first, and to pull its image.
-define(COMES_BACK, 300000).
%% Every name becomes an atom, and atoms stay: a DNS server that has gone mad must not fill the atom table.
-define(MAX_PEERS, 1000).

-spec start_link() -> {ok, pid()}.
start_link() ->
    start_link(?INTERVAL).

%% Interval: milliseconds between two lookups.
-spec start_link(pos_integer()) -> {ok, pid()}.
start_link(Interval) ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, Interval, []).

%% The peers that DNS names, without this node. Whoever is connected once the agent has given up, and where this node's
%% name, and so theirs, is not the operator's.
-spec peers() -> #{expected := [node()], connected := [node()], missing := [node()]}.
peers() ->
    Connected = nodes(),
    Expected =
        case livestash_agent_place:is_well_named() andalso livestash_agent_tasks:ask(?MODULE, expected, unknown) of
            false -> lists:sort(Connected);
            unknown -> lists:sort(Connected);
            Nodes -> Nodes
        end,
    {Here, Missing} = lists:partition(fun(Node) -> lists:member(Node, Connected) end, Expected),
    #{expected => Expected, connected => Here, missing => Missing}.

%% Whether there are peers, or were until a few minutes ago. Between a pod that has gone and the one in its place neither DNS nor a
%% connection tells of it.
-spec had_peers() -> boolean().
had_peers() ->
    maps:get(expected, peers()) =/= [] orelse livestash_agent_tasks:ask(?MODULE, had_peers, unknown) =:= true.

%% Whether DNS has answered yet, or need not be asked.
-spec known() -> boolean().
known() ->
    livestash_agent_tasks:ask(?MODULE, known, unknown) =:= true.

%% Whether DNS knows the fleet no more, or never did. Asks at once, and takes nothing but that very answer for it.
-spec gone() -> boolean().
gone() ->
    not asked() orelse livestash_agent_tasks:run([{lookup, fun resolve/0}], ?INTERVAL) =:= [{lookup, {ok, {error, nxdomain}}}].

%% Nodes in a sentence.
-spec names([node()]) -> iodata().
names(Nodes) ->
    lists:join(", ", [atom_to_list(Node) || Node <- Nodes]).

asked() ->
    not lists:member(undefined, [livestash_agent_config:get(Key) || Key <- [dns_query, app_name]]).

-spec init(pos_integer()) -> {ok, map()}.
init(Interval) ->
    process_flag(max_heap_size, livestash_agent:max_heap_size()),
    process_flag(priority, high),
    ok = net_kernel:monitor_nodes(true),
    self() ! tick,
    Asked = asked() andalso livestash_agent_place:is_well_named(),
    {ok, #{
        interval => Interval,
        asked => Asked,
        known => not Asked,
        expected => [],
        %% What runs now: the monitor of a process => lookup, or the node that it connects to.
        running => #{},
        %% Nodes that could not be connected => {milliseconds to wait, monotonic time of the next attempt}.
        delayed => #{},
        failed => false,
        %% The monotonic time at which the last peer went; undefined: none did.
        went => undefined,
        %% When to forget the previous cookie; undefined: a peer still has it, or nobody knows.
        forget => undefined
    }}.

-spec handle_call(expected | known | had_peers, gen_server:from(), map()) -> {reply, term(), map()}.
handle_call(expected, _From, #{expected := Expected} = State) ->
    {reply, Expected, State};
handle_call(known, _From, #{known := Known} = State) ->
    {reply, Known, State};
handle_call(had_peers, _From, #{went := Went} = State) ->
    {reply, is_integer(Went) andalso livestash_agent_clock:left(Went + ?COMES_BACK) > 0, State}.

-spec handle_cast(term(), map()) -> {noreply, map()}.
handle_cast(_Message, State) ->
    {noreply, State}.

-spec handle_info(term(), map()) -> {noreply, map()}.
handle_info(tick, #{interval := Interval, asked := Asked} = State) ->
    erlang:send_after(Interval, self(), tick),
    {noreply, compare_cookies(connect_missing(look_up(Asked, State)))};
handle_info({'DOWN', Monitor, process, _, Result}, #{running := Running} = State) when is_map_key(Monitor, Running) ->
    {What, Rest} = maps:take(Monitor, Running),
    {noreply, finished(What, Result, State#{running := Rest})};
handle_info({nodedown, _Node}, State) ->
    {noreply, State#{went := livestash_agent_clock:ms()}};
handle_info(_Message, State) ->
    {noreply, State}.

look_up(true, State) -> run(lookup, fun resolve/0, State);
look_up(false, State) -> State.

finished(lookup, {done, {ok, {ok, Nodes}}}, State) ->
    connect_missing(State#{known := true, failed := false, expected := Nodes});
finished(lookup, Failure, #{failed := false} = State) ->
    logger:warning("livestash agent: the peers could not be looked up; going on with those known. ~tp", [Failure]),
    State#{failed := true};
finished(lookup, _Failure, State) ->
    State;
finished(cookies, {done, {ok, true}}, #{expected := Expected} = State) ->
    ok = livestash_agent_cookie:settle(Expected),
    State#{forget := livestash_agent_clock:ms() + ?FORGET};
finished(cookies, _Otherwise, State) ->
    State;
finished(Node, {done, {ok, true}}, #{delayed := Delayed} = State) ->
    State#{delayed := maps:remove(Node, Delayed)};
finished(Node, _Failure, #{delayed := Delayed, interval := Interval} = State) ->
    {Before, _Next} = maps:get(Node, Delayed, {Interval div 2, 0}),
    Delay = min(2 * Before, ?MAX_DELAY),
    State#{delayed := Delayed#{Node => {Delay, livestash_agent_clock:ms() + Delay}}}.

connect_missing(#{expected := Expected, forget := Forget} = State) ->
    Missing = Expected -- nodes(),
    %% All of them before the first: whoever is connected leads to the others.
    [ok = livestash_agent_cookie:expect(Missing) || Forget =:= undefined],
    lists:foldl(fun connect/2, State, Missing).

connect(Node, #{delayed := Delayed} = State) ->
    {Delay, Next} = maps:get(Node, Delayed, {0, livestash_agent_clock:ms()}),
    case livestash_agent_clock:left(Next) of
        0 -> run(Node, fun() -> connect_node(Node, Delay) end, State);
        _ -> State
    end.

%% By the longest delay, whoever was booting has its agent.
connect_node(Node, Delay) ->
    case net_kernel:connect_node(Node) of
        false when Delay >= ?MAX_DELAY -> livestash_agent_cookie:connect_otherwise(Node);
        Connected -> Connected
    end.

%% While the fleet changes its cookie. A node that sees nobody knows nothing.
%% What is over stays so: peers with yet another cookie have begun the next rotation.
compare_cookies(#{forget := When} = State) when is_integer(When) ->
    [livestash_agent_cookie:forget() || livestash_agent_clock:left(When) =:= 0],
    State;
compare_cookies(#{expected := [_ | _] = Expected} = State) ->
    case livestash_agent_cookie:is_previous_known() of
        true -> run(cookies, fun() -> Expected -- nodes() =:= [] andalso livestash_agent_cookie:all_have_mine(Expected) end, State);
        false -> State
    end;
compare_cookies(State) ->
    State.

run(What, Fun, #{running := Running} = State) ->
    State#{running := livestash_agent_tasks:start(What, Fun, [], Running)}.

%% An empty answer is an answer; an error is not.
resolve() ->
    case inet_res:resolve(livestash_agent_config:get(dns_query), in, srv) of
        {ok, Message} -> {ok, nodes_of(inet_dns:msg(Message, anlist))};
        {error, Reason} -> {error, Reason}
    end.

nodes_of(Records) ->
    Services = [inet_dns:rr(Record, data) || Record <- Records, inet_dns:rr(Record, type) =:= srv],
    Targets = lists:usort([Target || {_Priority, _Weight, _Port, Target} <- Services]),
    Name = livestash_agent_config:get(app_name),
    lists:delete(node(), [list_to_atom(Name ++ "@" ++ Target) || Target <- lists:sublist(Targets, ?MAX_PEERS)]).
