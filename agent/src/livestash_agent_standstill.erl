%% Does Mnesia stand still on this node, because nodes wait for each other? When a node is back that was cut off or frozen, its Mnesia first asks the
%% others what became of the transactions that were going on, and lets nobody join until it knows. A node that tries to join it answers no question
%% until it is let in. Then no user's transaction goes on, on both nodes, and a node that starts waits as well: for ever, because Mnesia knows
%% no limit.
%%
%% So when Mnesia has asked for a while, whoever waits to be let in is refused, until Mnesia has its answers. LiveStash tries again to join, and so does
%% livestash_agent_join.
-module(livestash_agent_standstill).

-behaviour(gen_server).

-export([start_link/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% asked: whether Mnesia asked at the last look, too. running: what livestash_agent_tasks:start/4 keeps.
-record(state, {asked = false :: boolean(), running = #{} :: #{reference() => refuse}}).

%% Milliseconds between two looks. An answer takes as long as a node is slow, and a frozen one is given up after some seconds.
-define(TICK, 2000).
%% Milliseconds between two refusals, and for how long: each transaction is asked for alone, and whoever was refused is soon back.
-define(AGAIN, 20).
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
handle_info(look, #state{asked = Asked, running = Running} = State) ->
    _ = erlang:send_after(?TICK, self(), look),
    Asks = asks(),
    {noreply, State#state{asked = Asks, running = refuse(Asks andalso Asked, Running)}};
handle_info({'DOWN', Monitor, process, _Pid, _Result}, #state{running = Running} = State) ->
    {noreply, State#state{running = maps:remove(Monitor, Running)}};
handle_info(_Message, State) ->
    {noreply, State}.

refuse(false, Running) ->
    Running;
refuse(true, Running) ->
    livestash_agent_tasks:start(refuse, fun() -> tell(refuse_all(livestash_agent_clock:ms() + ?LIMIT, 0)) end, [], Running).

tell({Refused, Asks}) ->
    [
        logger:warning("livestash agent: Mnesia stood still, because nodes waited for each other; ~b attempts to join this node were refused.", [Refused])
     || Refused > 0
    ],
    [logger:warning("livestash agent: Mnesia stands still: other nodes do not say what became of transactions.") || Asks].

refuse_all(Deadline, Before) ->
    case asks() andalso livestash_agent_clock:left(Deadline) > 0 of
        true ->
            Refused = refuse_waiting(),
            timer:sleep(?AGAIN),
            refuse_all(Deadline, Before + Refused);
        false ->
            {Before, asks()}
    end.

%% Whether the process that carries all transactions out waits for what other nodes know.
asks() ->
    case whereis(mnesia_tm) of
        undefined -> false;
        Pid -> is_in(process_info(Pid, current_stacktrace), {mnesia_recover, what_happened_remotely, 3})
    end.

is_in({current_stacktrace, Stack}, Call) -> [in || {Module, Function, Arity, _} <- Stack, {Module, Function, Arity} =:= Call] =/= [];
is_in(undefined, _Call) -> false.

%% Answers those that wait, as a node without Mnesia would, and forgets them. Mnesia has no call for that, so it is done in the process that
%% would answer. To end those who ask would end Mnesia, which is linked to them.
refuse_waiting() ->
    Caller = self(),
    try
        _ = sys:replace_state(mnesia_monitor, fun(State) -> turn_away(State, Caller) end),
        receive
            {?MODULE, Refused} -> Refused
        after 0 -> 0
        end
    catch
        exit:_ -> 0
    end.

%% As OTP 25 to 29 have it. What looks different is left alone.
turn_away(State, Caller) when element(1, State) =:= state, tuple_size(State) =:= ?STATE, is_list(element(?PENDING, State)) ->
    Waiting = element(?PENDING, State),
    [gen_server:reply(From, {error, {node_not_running, node()}}) || {_Node, _Monitor, From, _Answer} <- Waiting],
    Caller ! {?MODULE, length(Waiting)},
    setelement(?PENDING, State, []);
turn_away(State, _Caller) ->
    State.
