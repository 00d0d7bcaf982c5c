%% How do agents of different versions speak with each other? During the upgrade of an operator a fleet has both. Every
%% question to another agent carries the number of the protocol, and who does not know that one says which one it knows.
%% The number changes when an old agent must not answer a new question, not when a new one may be asked.
-module(livestash_agent_remote).

-export([call/4, ask/5, tell/4, without_agent/1]).
%% Called by peers.
-export([handle/4]).

-define(PROTOCOL, 2).

%% What the function gives on the node. Raises what erpc:call raises; an agent with another protocol raises
%% {protocol, Known} there. Not bounded in time: livestash_agent_tasks does that.
-spec call(node(), module(), atom(), [term()]) -> term().
call(Node, Module, Function, Arguments) when Node =:= node() ->
    apply(Module, Function, Arguments);
call(Node, Module, Function, Arguments) ->
    erpc:call(Node, ?MODULE, handle, [?PROTOCOL, Module, Function, Arguments]).

%% Like call/4 on each of the nodes at once, with the outcomes in the same order. Who takes longer than Limit milliseconds has {error, timeout}.
-spec ask([node()], module(), atom(), [term()], Limit :: non_neg_integer()) -> [{node(), livestash_agent_tasks:outcome(term())}].
ask(Nodes, Module, Function, Arguments, Limit) ->
    livestash_agent_tasks:run([{Node, fun() -> call(Node, Module, Function, Arguments) end} || Node <- Nodes], Limit).

%% Like call/4 on each of the nodes, of which nothing is awaited: they may be frozen.
-spec tell([node()], module(), atom(), [term()]) -> ok.
tell(Nodes, Module, Function, Arguments) ->
    [spawn(fun() -> catch call(Node, Module, Function, Arguments) end) || Node <- Nodes],
    ok.

-spec handle(pos_integer(), module(), atom(), [term()]) -> term().
handle(?PROTOCOL, Module, Function, Arguments) -> apply(Module, Function, Arguments);
handle(_Other, _Module, _Function, _Arguments) -> error({protocol, ?PROTOCOL}).

%% Whether that is what was raised because no agent is there.
-spec without_agent(term()) -> boolean().
without_agent({exception, undef, [{?MODULE, handle, _, _} | _]}) -> true;
without_agent(_Reason) -> false.
