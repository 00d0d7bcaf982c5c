%% Which nodes hold the copies of a stash? First those on other machines than its own node's, in other zones where they
%% are known: what takes a machine must not take a stash and its copy. Among such nodes those for which the key and
%% their names hash highest (rendezvous hashing): every node knows it without asking, and when one comes or goes, only
%% the copies move that it gets or had. All nodes are weighed alike, whosever the key is, so a stash that moves leaves
%% many of its copies where they are.
-module(livestash_agent_shadow_holders).

-export([place/0, choose/3, former/4, weight/2]).

-export_type([place/0, places/0]).

%% Where a node runs, as its pod was told. Empty where it was not.
-type place() :: {Zone :: string(), Machine :: string()}.
-type places() :: #{node() => place()}.

%% Where this node runs.
-spec place() -> place().
place() ->
    {livestash_agent_config:get(zone), livestash_agent_config:get(machine)}.

%% Of the nodes, as many as there are to be copies of a stash of a node at the given place, the first holder first.
-spec choose(Key :: term(), {place(), places()}, Copies :: pos_integer()) -> [node()].
choose(Key, {Place, Nodes}, Copies) ->
    choose_from(weighed(Key, Nodes), [Place], Copies).

%% The nodes that may hold copies from before the stash came to this node, whichever of the others had it. This node may
%% be one of them.
-spec former(Key :: term(), node(), {place(), places()}, Copies :: pos_integer()) -> [node()].
former(Key, Self, {Place, Nodes}, Copies) ->
    Weighed = weighed(Key, Nodes#{Self => Place}),
    Of = fun(Owner, At) -> choose_from(lists:keydelete(Owner, 2, Weighed), [At], Copies) end,
    lists:usort(lists:append([Of(Owner, At) || {Owner, At} <- maps:to_list(Nodes)])).

%% Which of several nodes is the one for a key? That with the greatest.
-spec weight(Key :: term(), node()) -> {non_neg_integer(), node()}.
weight(Key, Node) ->
    {erlang:phash2({Key, Node}), Node}.

%% The heaviest first.
weighed(Key, Nodes) ->
    lists:reverse(lists:sort([{weight(Key, Node), Node, Place} || {Node, Place} <- maps:to_list(Nodes)])).

choose_from(Weighed, _Taken, Copies) when Weighed =:= []; Copies =:= 0 ->
    [];
choose_from([First | Others] = Weighed, Taken, Copies) ->
    {_Distance, {_Weight, Node, Place} = Best} = farthest(Others, Taken, {distance(First, Taken), First}),
    [Node | choose_from(lists:delete(Best, Weighed), [Place | Taken], Copies - 1)].

farthest([], _Taken, Best) ->
    Best;
farthest([Next | Others], Taken, {Most, _Node} = Best) ->
    case distance(Next, Taken) of
        Distance when Distance > Most -> farthest(Others, Taken, {Distance, Next});
        _ -> farthest(Others, Taken, Best)
    end.

distance({_Weight, _Node, Place}, Taken) ->
    lists:min([apart(Place, Other) || Other <- Taken]).

%% In another zone, on another machine, perhaps on another one, or on the same.
apart({Zone, _}, {Other, _}) when Zone =/= "", Other =/= "", Zone =/= Other -> 3;
apart({_, Machine}, {_, Other}) when Machine =/= "", Other =/= "", Machine =/= Other -> 2;
apart({_, Machine}, {_, Other}) when Machine =:= ""; Other =:= "" -> 1;
apart(_Place, _Same) -> 0.
