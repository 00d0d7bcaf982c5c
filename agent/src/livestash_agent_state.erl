%% What has this node done so far, and is it draining? Kept in memory that no process owns, so that a drain, a peer's
%% question and the counters' values survive any crash in the agent.
-module(livestash_agent_state).

-export([init/0, draining/0, takes_stashes/0, phase/0, set_draining/1, count/2, counters/0, uptime/0]).

-export_type([phase/0, counter/0]).

%% none: not draining. The others, in this order: waiting for the endpoints to drop the pod; keeping the stashes of other
%% nodes that stop, until a node is there that stays; closing sockets; stopping the web endpoints; handing rows over;
%% done. A node that was handing over goes back to keeping when all others stop as well.
-type phase() :: none | waiting | keeping | closing | stopping | handing_over | done.
-type counter() ::
    handoffs_sent
    | handoffs_received
    | handoffs_failed
    | drains
    | sockets_closed
    | splits
    | reunited_rows
    | owners_restored
    | returns_recovered
    | returns_not_recovered
    | store_answers
    | shadows_promoted
    | shadows_refused.

-define(PHASES, [none, waiting, keeping, closing, stopping, handing_over, done]).
-define(COUNTERS, [
    handoffs_sent,
    handoffs_received,
    handoffs_failed,
    drains,
    sockets_closed,
    splits,
    reunited_rows,
    owners_restored,
    returns_recovered,
    returns_not_recovered,
    store_answers,
    shadows_promoted,
    shadows_refused
]).

%% Makes the state, unless an earlier start of the agent has. The first cell is the phase, the others are counters.
-spec init() -> ok.
init() ->
    case persistent_term:get(?MODULE, undefined) of
        undefined ->
            Cells = atomics:new(1 + length(?COUNTERS), []),
            persistent_term:put(?MODULE, {Cells, livestash_agent_clock:ms()});
        _ ->
            ok
    end.

%% Whether a drain has begun.
-spec draining() -> boolean().
draining() ->
    phase() =/= none.

%% Whether this node takes stashes of others, though it may have to hand them on.
-spec takes_stashes() -> boolean().
takes_stashes() ->
    lists:member(phase(), [none, waiting, keeping]).

-spec phase() -> phase().
phase() ->
    case persistent_term:get(?MODULE, undefined) of
        undefined -> none;
        {Cells, _Started} -> lists:nth(1 + atomics:get(Cells, 1), ?PHASES)
    end.

-spec set_draining(phase()) -> ok.
set_draining(Phase) ->
    {Cells, _Started} = persistent_term:get(?MODULE),
    atomics:put(Cells, 1, position(Phase, ?PHASES) - 1).

%% Adds N to a counter.
-spec count(counter(), integer()) -> ok.
count(Name, N) ->
    {Cells, _Started} = persistent_term:get(?MODULE),
    atomics:add(Cells, 1 + position(Name, ?COUNTERS), N).

-spec counters() -> #{counter() => integer()}.
counters() ->
    {Cells, _Started} = persistent_term:get(?MODULE),
    maps:from_list([{Name, atomics:get(Cells, 1 + position(Name, ?COUNTERS))} || Name <- ?COUNTERS]).

%% Milliseconds since the agent's first start in this VM.
-spec uptime() -> non_neg_integer().
uptime() ->
    {_Cells, Started} = persistent_term:get(?MODULE),
    livestash_agent_clock:ms() - Started.

position(Name, [Name | _]) -> 1;
position(Name, [_ | Names]) -> 1 + position(Name, Names).
