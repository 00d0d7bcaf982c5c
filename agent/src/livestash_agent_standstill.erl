%% Does Mnesia stand still on this node, because nodes wait for each other? A node that has lost another one asks the others what became of the
%% transactions that were going on, and lets whoever it has lost not join again until it knows. A node that tries to join answers no question until it is let
%% in. When the lost one is back before all is answered, both may wait for each other, or several in a circle: for ever, because Mnesia knows no limit. No
%% user's transaction goes on then, and a node that starts waits as well.
%%
%% So when Mnesia waits for the same answer at two looks, though the nodes that it asks are there, whoever waits to be let in here is turned away.
%% livestash_agent_join has nodes that are apart try again.
-module(livestash_agent_standstill).

-behaviour(gen_server).

-export([start_link/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% wait: what Mnesia waited for at the last look. running: what livestash_agent_tasks:start/4 keeps.
-record(state, {wait = none :: wait(), running = #{} :: #{reference() => turn_away}}).

%% The processes on other nodes, or those that speak with other nodes, that the answer depends on.
-type wait() :: [pid()] | none.

%% Milliseconds between two looks, and in which a node that is not frozen answers.
-define(TICK, 2000).
-define(ASK, 1000).
%% Milliseconds from one time to the next that those who wait are turned away, at first and at most, and for how long: each transaction is asked for alone,
%% and whoever was turned away is soon back.
-define(AGAIN, 100).
-define(RARELY, 2000).
-define(LIMIT, 60000).
%% How many elements the state of mnesia_monitor has, and which one those are who wait to be let in.
-define(STATE, 9).
-define(PENDING, 3).

-spec start_link() -> {ok, pid()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

-spec init([]) -> {ok, #state{}}.
init([]) ->
    process_flag(max_heap_size, livestash_agent:max_heap_size()),
    _ = erlang:send_after(?TICK, self(), look),
    {ok, #state{}}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, ok, #state{}}.
handle_call(_Request, _From, State) ->
    {reply, ok, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Message, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(look, #state{wait = Before, running = Running} = State) ->
    _ = erlang:send_after(?TICK, self(), look),
    Wait = wait(),
    {noreply, State#state{wait = Wait, running = turn_away(Wait =/= none andalso Wait =:= Before, Wait, Running)}};
handle_info({'DOWN', Monitor, process, _Pid, Result}, #state{running = Running} = State) when is_map_key(Monitor, Running) ->
    tell(Result),
    {noreply, State#state{running = maps:remove(Monitor, Running)}};
handle_info(_Message, State) ->
    {noreply, State}.

turn_away(false, _Wait, Running) ->
    Running;
turn_away(true, Wait, Running) ->
    Work = fun() -> turn_away_while(Wait, ?AGAIN, livestash_agent_clock:ms() + ?LIMIT, 0) end,
    livestash_agent_tasks:start(turn_away, Work, [], Running).

tell({done, {ok, {0, none}}}) ->
    ok;
tell({done, {ok, {Away, none}}}) ->
    logger:warning("livestash agent: Mnesia stood still, because nodes waited for each other; ~b attempts to join this node were turned away.", [Away]);
tell({done, {ok, {Away, _Wait}}}) ->
    logger:warning("livestash agent: Mnesia stands still, because other nodes do not answer it; ~b attempts to join this node were turned away.", [Away]);
tell(Failure) ->
    logger:warning("livestash agent: Mnesia stands still, and cannot be helped: ~tp", [Failure]).

%% The longer the answer does not come, the more rarely: then it is not for want of those who are turned away.
turn_away_while(none, _Pause, _Deadline, Away) ->
    {Away, none};
turn_away_while(Wait, Pause, Deadline, Away) ->
    Now = are_there(Wait) andalso turn_away(),
    timer:sleep(Pause),
    case {wait(), livestash_agent_clock:left(Deadline)} of
        {Last, 0} -> {Away + count(Now), Last};
        {Wait, _} -> turn_away_while(Wait, min(2 * Pause, ?RARELY), Deadline, Away + count(Now));
        {Next, _} -> turn_away_while(Next, ?AGAIN, Deadline, Away + count(Now))
    end.

count(false) -> 0;
count(Away) -> Away.

%% A frozen node is given up by the distribution. Who waits until then need not make a table of its own.
are_there(Pids) ->
    Nodes = lists:usort([node(Pid) || Pid <- Pids, node(Pid) =/= node()]),
    Answers = livestash_agent_tasks:run([{Node, fun() -> erpc:call(Node, erlang, node, []) end} || Node <- Nodes], ?ASK),
    Answers =:= [{Node, {ok, Node}} || Node <- Nodes].

%% What the process that begins transactions, or the one that looks after tables, waits for: an answer of other nodes, or one of mnesia_recover, which tries
%% to join other nodes itself.
wait() ->
    Stack = stack(mnesia_tm),
    case {has({mnesia_recover, what_happened_remotely, 3}, Stack), has({mnesia_recover, call, 1}, Stack ++ stack(mnesia_controller))} of
        {true, _} -> asked(whereis(mnesia_tm));
        {false, true} -> joins();
        {false, false} -> none
    end.

%% erpc watches whom it has asked.
asked(Pid) ->
    case [Asked || {process, Asked} <- info(Pid, monitors), is_pid(Asked)] of
        [] -> none;
        Asked -> Asked
    end.

%% Who speaks with other nodes for mnesia_recover, and whom it has asked.
joins() ->
    Joins = [Pid || Pid <- info(whereis(mnesia_monitor), links), is_pid(Pid), node(Pid) =:= node(), has({mnesia_monitor, negotiate_protocol_impl, 2}, info(Pid, current_stacktrace))],
    case Joins of
        [] -> none;
        _ -> lists:sort(Joins ++ lists:append([Asked || Pid <- Joins, (Asked = asked(Pid)) =/= none]))
    end.

stack(Name) ->
    info(whereis(Name), current_stacktrace).

has(Call, Stack) ->
    [in || {Module, Function, Arity, _} <- Stack, {Module, Function, Arity} =:= Call] =/= [].

info(undefined, _Item) ->
    [];
info(Pid, Item) ->
    case process_info(Pid, Item) of
        {Item, Info} -> Info;
        undefined -> []
    end.

%% Answers those that wait, as a node without Mnesia would, and forgets them. Returns how many. Mnesia has no call for that, so it is done in the
%% process that would answer. To end those who ask would end Mnesia, which is linked to them.
turn_away() ->
    Caller = self(),
    Round = make_ref(),
    _ = sys:replace_state(mnesia_monitor, fun(State) -> answer(State, Caller, Round) end),
    receive
        {Round, Away} -> Away
    after 0 -> 0
    end.

%% As OTP 25 to 29 have it. What looks different is left alone.
answer(State, Caller, Round) when element(1, State) =:= state, tuple_size(State) =:= ?STATE, is_list(element(?PENDING, State)) ->
    answer([From || {_Node, Monitor, {Pid, _} = From, _Answer} <- element(?PENDING, State), is_pid(Monitor), is_pid(Pid)], State, Caller, Round);
answer(State, _Caller, _Round) ->
    State.

answer(Waiting, State, Caller, Round) when length(Waiting) =:= length(element(?PENDING, State)) ->
    [gen_server:reply(From, {error, {node_not_running, node()}}) || From <- Waiting],
    Caller ! {Round, length(Waiting)},
    setelement(?PENDING, State, []);
answer(_Waiting, State, _Caller, _Round) ->
    State.
