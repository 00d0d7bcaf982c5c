%% Does a stash of this node outlive the node? With ETS each node has its stashes for itself, and who is killed hands
%% nothing over. So at every interval what has changed is copied to one or two of the other nodes.
%%
%% Each of them has a queue (livestash_agent_shadow_index), and one batch on its way (livestash_agent_shadow_batch).
%% What it has not acknowledged stays in its queue. When a node comes, goes or says that it will go, the copies that are
%% missing now are queued behind what changes (livestash_agent_shadow_scan).
-module(livestash_agent_shadow).

-behaviour(gen_server).

-export([start_link/0, is_on/0, new/0, token/0, peers/0, holders/3, status/0, complete/0, wake/0]).
%% For drains.
-export([leave/0, goodbye/0]).
%% Called by peers.
-export([missing/2, ceded/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-export_type([status/0]).

-define(INDEX, livestash_agent_shadow_index).

%% lag: milliseconds since when something waits to be copied. peers: the nodes that hold copies. refused: whether one of
%% them had no room for a stash within the last minute.
-type status() :: #{lag := non_neg_integer(), peers := non_neg_integer(), refused := boolean()}.

%% Milliseconds, also below, from one scan's end to the next one's start.
-define(SCAN, 30000).
%% How often nodes that do not hold copies yet are asked whether they do.
-define(HELLO, 2000).
-define(ASK, 200).
-define(GOODBYE, 1000).
%% For how long after a node is gone a user may have come back before the copy of their stash was taken over.
-define(RETURNING, 60000).
-define(REFUSED, 60000).
%% Marked keys that are looked at in one go.
-define(MARKED, 2000).

-spec start_link() -> {ok, pid()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Whether stashes are copied.
-spec is_on() -> boolean().
is_on() ->
    livestash_agent_config:get(adapter) =:= ets andalso livestash_agent_config:get(shadow_copies) > 0.

%% Makes the tables, which the calling process owns: copies outlive the processes that use them.
-spec new() -> ok.
new() ->
    persistent_term:put(?MODULE, {erlang:system_info(creation), erlang:system_time(microsecond)}),
    persistent_term:put({?MODULE, awake}, atomics:new(1, [])),
    ok = ?INDEX:new(),
    ok = livestash_agent_shadow_marks:new(),
    ok = livestash_agent_shadow_store:new().

%% Tells this start of the agent from every other one.
-spec token() -> ?INDEX:token().
token() ->
    persistent_term:get(?MODULE).

%% The nodes that hold copies.
-spec peers() -> #{node() => ?INDEX:peer()}.
peers() ->
    persistent_term:get({?MODULE, peers}, #{}).

%% Those of the peers that are to hold so many copies of a stash of this node.
-spec holders(Key :: term(), #{node() => ?INDEX:peer()}, Copies :: pos_integer()) -> [node()].
holders(Key, Peers, Copies) ->
    livestash_agent_shadow_holders:choose(Key, places(Peers), Copies).

%% Where this node is, and where the others are.
places(Peers) ->
    {livestash_agent_shadow_holders:place(), maps:map(fun(_Node, {_Token, Place, _Connection}) -> Place end, Peers)}.

-spec status() -> status().
status() ->
    try
        gen_server:call(?MODULE, status, ?ASK)
    catch
        exit:_ -> #{lag => 0, peers => 0, refused => false}
    end.

%% Stashes have come to this node that have no copy yet.
-spec complete() -> ok.
complete() ->
    gen_server:cast(?MODULE, complete).

%% What is marked is looked at now. Whoever says so after somebody else, and before that look, says nothing.
-spec wake() -> ok.
wake() ->
    case persistent_term:get({?MODULE, awake}, none) of
        none -> ok;
        Awake -> wake(atomics:compare_exchange(Awake, 1, 0, 1))
    end.

wake(ok) ->
    gen_server:cast(?MODULE, wake);
wake(_Woken) ->
    ok.

%% The node had copies of these stashes of this node's, or others in their place, and has them no more.
-spec missing(node(), [Key :: term()]) -> ok.
missing(Node, Keys) ->
    gen_server:cast(?MODULE, {missing, Node, Keys}).

%% The node has copies of these stashes, which are this node's now.
-spec ceded(node(), [{Key :: term(), ?INDEX:stamp()}]) -> ok.
ceded(Node, Copies) ->
    gen_server:cast(?MODULE, {ceded, Node, Copies}).

%% This node begins to drain: others have to hold the copies that it holds.
-spec leave() -> ok.
leave() ->
    _ = is_on() andalso spawn(fun() -> gen_server:abcast(nodes(), ?MODULE, {leaves, node()}) end),
    ok.

%% This node goes and has handed all of its stashes over: nobody needs the copies of them. Where that word does not
%% arrive, they are compared with what there is.
-spec goodbye() -> ok.
goodbye() ->
    Say = fun(Node) -> livestash_agent_remote:call(Node, livestash_agent_shadow_store, goodbye, [{node(), token()}]) end,
    _ = is_on() andalso livestash_agent_tasks:run([{Node, fun() -> Say(Node) end} || Node <- nodes()], ?GOODBYE),
    ok.

-spec init([]) -> {ok, map()}.
init([]) ->
    process_flag(max_heap_size, livestash_agent:max_heap_size()),
    ok = net_kernel:monitor_nodes(true),
    ok = livestash_agent_shadow_marks:attach(),
    Started = {started, node(), token()},
    _ = spawn(fun() -> gen_server:abcast(nodes(), ?MODULE, Started) end),
    self() ! tick,
    Now = livestash_agent_clock:ms(),
    {ok, with_peers(#{}, #{
        interval => livestash_agent_config:get(shadow_interval),
        copies => livestash_agent_config:get(shadow_copies),
        %% The nodes that hold copies, and those that have said that they go.
        peers => #{},
        leaving => [],
        %% What runs: the monitor of a process => {send, Node}, {hello, Node} or scan.
        running => #{},
        %% When the next scan is due, and since when copies are missing that it has queued; when nodes are asked again.
        scan => Now,
        behind => Now,
        hello => Now,
        %% When a node was lost, and when one refused a copy.
        lost => none,
        refused => none
    })}.

-spec handle_call(status, gen_server:from(), map()) -> {reply, status(), map()}.
handle_call(status, _From, #{peers := Peers, refused := Refused} = State) ->
    {reply, #{lag => lag(State), peers => map_size(Peers), refused => is_within(Refused, ?REFUSED)}, State}.

-spec handle_cast(term(), map()) -> {noreply, map()}.
handle_cast({leaves, Node}, #{leaving := Leaving} = State) ->
    {noreply, without(Node, State#{leaving := [Node | Leaving]})};
%% Also an agent that was started anew, whose copies are gone.
handle_cast({started, Node, _Token}, State) ->
    {noreply, ask(Node, State)};
handle_cast({missing, Node, Keys}, State) ->
    Miss = fun(Key) ->
        ok = ?INDEX:missing(Key, Node),
        livestash_agent_shadow_marks:mark(Key)
    end,
    lists:foreach(Miss, Keys),
    {noreply, State};
%% Of which version they are is not known here. The scan after the promotion has them sent again, or dropped when others
%% have them.
handle_cast({ceded, Node, Copies}, #{peers := Peers} = State) when is_map_key(Node, Peers) ->
    Copy = #{node => Node, peer => maps:get(Node, Peers), number => unknown, until => unknown},
    [?INDEX:acknowledged(Key, Copy#{stamp => Stamp}, Peers) || {Key, Stamp} <- Copies],
    {noreply, State};
handle_cast(wake, State) ->
    {noreply, look(State)};
handle_cast(complete, State) ->
    {noreply, scan_now(State)};
handle_cast(_Message, State) ->
    {noreply, State}.

-spec handle_info(term(), map()) -> {noreply, map()}.
handle_info(tick, #{interval := Interval} = State) ->
    erlang:send_after(Interval, self(), tick),
    {noreply, scan_due(ask_others(look(State)))};
handle_info(look, State) ->
    {noreply, look(State)};
handle_info({nodeup, Node}, #{leaving := Leaving} = State) ->
    {noreply, ask(Node, State#{leaving := lists:delete(Node, Leaving)})};
handle_info({nodedown, Node}, #{leaving := Leaving, lost := Before} = State) ->
    Lost =
        case lists:member(Node, Leaving) of
            true -> Before;
            false -> livestash_agent_clock:ms()
        end,
    {noreply, without(Node, State#{leaving := lists:delete(Node, Leaving), lost := Lost})};
handle_info({'DOWN', Monitor, process, _Pid, Result}, #{running := Running} = State) when is_map_key(Monitor, Running) ->
    {What, Rest} = maps:take(Monitor, Running),
    {noreply, finished(What, Result, State#{running := Rest})};
handle_info(_Message, State) ->
    {noreply, State}.

%% Queues what was marked, some of it at a time.
look(State) ->
    ok = atomics:put(persistent_term:get({?MODULE, awake}), 1, 0),
    case livestash_agent_shadow_marks:take(?MARKED) of
        [] ->
            send_all(State);
        Keys ->
            self() ! look,
            New = [Key || Key <- Keys, not ?INDEX:is_known(Key)],
            overtake(New, State),
            Now = livestash_agent_clock:ms(),
            lists:foreach(fun(Key) -> changed(Key, Now, State) end, Keys),
            State
    end.

changed(Key, Now, #{peers := Peers, copies := Copies}) ->
    Holders = holders(Key, Peers, Copies),
    Others = [Node || #{node := Node} <- ?INDEX:valid(Key, Peers)],
    case lists:usort(Holders ++ Others) of
        [] -> unheld(Key);
        Nodes -> [?INDEX:changed(Node, Key, Now) || Node <- Nodes]
    end.

%% Nobody holds a copy of it. As long as it is here it is known when it was read.
unheld(Key) ->
    case [Table || {ets, Table} <- livestash_agent_store:tables(), ets:member(Table, Key)] of
        [] -> ?INDEX:dropped(Key, none);
        _Here -> ok
    end.

%% Of stashes that this node has not had before, an old copy may be at the holders of the node that had them. It must
%% not outlive the stash, whose new holders are others. An older version may be anywhere when a node was lost: the user
%% has come back before the copy was taken over.
overtake([], _State) ->
    ok;
overtake(Keys, #{lost := Lost, peers := Peers, copies := Copies}) ->
    Tables = [Table || {ets, Table} <- livestash_agent_store:tables()],
    Newer = [newer(Row, Key) || Table <- Tables, Key <- Keys, Row <- ets:lookup(Table, Key)],
    Places = places(Peers),
    Holders = fun({Key, _Version, _Rank}) -> livestash_agent_shadow_holders:former(Key, node(), Places, Copies) end,
    Nodes =
        case is_within(Lost, ?RETURNING) of
            true -> fun(_Newer) -> nodes() end;
            false -> Holders
        end,
    Told = [{Node, Each} || Each <- Newer, Node <- lists:usort([node() | Nodes(Each)])],
    Groups = maps:groups_from_list(fun({Node, _}) -> Node end, fun({_, Each}) -> Each end, Told),
    Tell = fun(Node, News) -> livestash_agent_remote:tell([Node], livestash_agent_shadow_store, overtaken, [News]) end,
    maps:foreach(Tell, Groups).

newer(Row, Key) ->
    Stamp = ?INDEX:stamp(Key, Row, erlang:system_time(microsecond)),
    {Key, livestash_agent_rank:version(Row, Stamp), livestash_agent_rank:rank(Row)}.

is_within(none, _Time) -> false;
is_within(Since, Time) -> livestash_agent_clock:ms() - Since < Time.

send_all(#{peers := Peers} = State) ->
    lists:foldl(fun send/2, State, maps:keys(Peers)).

send(Node, #{peers := Peers, running := Running} = State) ->
    case is_map_key(Node, Peers) andalso ?INDEX:has_waiting(Node) andalso way(Node, State) of
        false -> State;
        none -> State;
        Way -> State#{running := livestash_agent_tasks:start({send, Node}, batch(Node, Way), [], Running)}
    end.

batch(Node, Way) ->
    fun() -> livestash_agent_shadow_batch:send(Node, Way) end.

%% None while LiveStash's table is not there.
way(Node, #{peers := Peers, copies := Copies}) ->
    case [Table || {ets, Table} <- livestash_agent_store:tables()] of
        [Table] ->
            Sender = {node(), token()},
            #{table => Table, sender => Sender, peer => maps:get(Node, Peers), peers => Peers, copies => Copies};
        [] ->
            none
    end.

finished({send, Node}, {done, {ok, Outcomes}}, State) when is_list(Outcomes) ->
    send(Node, behind(lists:foldl(fun(Outcome, Acc) -> outcome(Outcome, Node, Acc) end, State, Outcomes)));
%% It has been started anew, or goes, or does not see this node: it says so itself when it is asked.
finished({send, Node}, {done, {ok, _Otherwise}}, State) ->
    without(Node, State);
finished({hello, Node}, {done, {ok, {{holds, Token}, Place}}}, #{peers := Peers, leaving := Leaving} = State) ->
    case {lists:member(Node, nodes()) andalso not lists:member(Node, Leaving), Peers} of
        {true, #{Node := {Token, Place, _Connection}}} -> State;
        {true, _} -> scan_now(with_peers(Peers#{Node => {Token, Place, erlang:unique_integer()}}, State));
        {false, _} -> State
    end;
finished({hello, Node}, {done, {ok, {{goes, _Token}, _Place}}}, State) ->
    without(Node, State);
finished(scan, {done, {ok, ok}}, State) ->
    behind(send_all(State));
%% What was not acknowledged stays in the queue, and is sent at the next tick.
finished(_What, _Failure, State) ->
    State.

outcome({Entry, nothing}, _Node, State) ->
    ok = ?INDEX:done(Entry),
    State;
outcome({{_, _, Key} = Entry, {has, Copy}}, Node, #{peers := Peers, copies := Count} = State) ->
    ok = ?INDEX:done(Entry),
    Copies = ?INDEX:acknowledged(Key, Copy, Peers),
    Holders = holders(Key, Peers, Count),
    Former = [Other || #{node := Other} <- Copies, Other =/= Node, not lists:member(Other, Holders)],
    [?INDEX:changed(Other, Key, livestash_agent_clock:ms()) || Other <- Former],
    State;
outcome({{_, _, Key} = Entry, dropped}, Node, State) ->
    ok = ?INDEX:done(Entry),
    ok = ?INDEX:dropped(Key, Node),
    State;
outcome({{_, _, Key} = Entry, missing}, Node, State) ->
    ok = ?INDEX:done(Entry),
    ok = ?INDEX:missing(Key, Node),
    livestash_agent_shadow_marks:mark(Key),
    State;
%% Nor has it an older version any more. Tried again at the next scan.
outcome({{_, _, Key} = Entry, refused}, Node, State) ->
    ok = ?INDEX:done(Entry),
    ok = ?INDEX:missing(Key, Node),
    State#{refused := livestash_agent_clock:ms()}.

%% Since when copies are missing.
behind(#{peers := Peers} = State) ->
    Waiting = [Node || Node <- maps:keys(Peers), ?INDEX:waits_since(Node) =/= none],
    case is_running(scan, State) orelse Peers =:= #{} orelse Waiting =/= [] of
        true -> State;
        false -> State#{behind := none}
    end.

lag(#{peers := Peers, behind := Behind}) ->
    Now = livestash_agent_clock:ms(),
    Waits = [?INDEX:waits_since(Node) || Node <- maps:keys(Peers)],
    Changed = [Since || Since <- Waits, is_integer(Since)],
    Now - lists:min([Now | Changed] ++ [Behind || Behind =/= none]).

%% What was on its way to a node that has gone is sent to the one that holds the copies now, before all else.
without(Node, #{peers := Peers} = State) ->
    Changed = ?INDEX:forget(Node),
    lists:foreach(fun livestash_agent_shadow_marks:mark/1, Changed),
    case is_map_key(Node, Peers) of
        true -> scan_now(look(with_peers(maps:remove(Node, Peers), State)));
        false -> State
    end.

with_peers(Peers, State) ->
    persistent_term:put({?MODULE, peers}, Peers),
    State#{peers => Peers}.

ask_others(#{hello := Next, peers := Peers, leaving := Leaving} = State) ->
    case livestash_agent_clock:left(Next) of
        0 ->
            Others = nodes() -- (maps:keys(Peers) ++ Leaving),
            lists:foldl(fun ask/2, State#{hello := livestash_agent_clock:ms() + ?HELLO}, Others);
        _ ->
            State
    end.

ask(Node, #{running := Running} = State) ->
    Hello = fun() -> {livestash_agent_remote:call(Node, livestash_agent_shadow_store, hello, []), place(Node)} end,
    State#{running := livestash_agent_tasks:start({hello, Node}, Hello, [], Running)}.

%% An agent that is older than places does not know its own.
place(Node) ->
    try
        livestash_agent_remote:call(Node, livestash_agent_shadow_holders, place, [])
    catch
        error:{exception, undef, _} -> {"", ""}
    end.

%% At once: one that runs has left behind it what it found in order.
scan_now(#{behind := Behind, running := Running} = State) ->
    Since =
        case Behind of
            none -> livestash_agent_clock:ms();
            _ -> Behind
        end,
    Others = maps:filter(fun(_Monitor, What) -> What =/= scan end, Running),
    scan(false, State#{running := Others, behind := Since}).

%% Where the agent has given up, the copies are gone without a word, and of stashes that do not change nothing is sent.
scan_due(#{scan := Next, peers := Peers} = State) ->
    case livestash_agent_clock:left(Next) =:= 0 andalso not is_running(scan, State) of
        true -> asked(Peers, scan(true, State));
        false -> State
    end.

asked(Peers, State) ->
    case is_running(scan, State) of
        true -> lists:foldl(fun ask/2, State, maps:keys(Peers));
        false -> State
    end.

scan(Rest, #{copies := Copies, running := Running} = State) ->
    case [Table || {ets, Table} <- livestash_agent_store:tables()] of
        [Table] ->
            Scan = fun() -> livestash_agent_shadow_scan:run(Table, Copies, Rest) end,
            Others = livestash_agent_tasks:start(scan, Scan, [], Running),
            State#{scan := livestash_agent_clock:ms() + ?SCAN, running := Others};
        [] ->
            State
    end.

is_running(What, #{running := Running}) ->
    lists:member(What, maps:values(Running)).
