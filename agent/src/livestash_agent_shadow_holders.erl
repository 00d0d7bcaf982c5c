%% Which nodes hold the copies of a stash? Those for which the key and their names hash highest (rendezvous hashing):
%% every node knows it without asking, and when one comes or goes, only the copies move that it gets or had. All nodes
%% are weighed with and without a key's owner alike, so a stash that moves leaves most of its copies where they are.
-module(livestash_agent_shadow_holders).

-export([choose/3]).

%% Of the nodes, as many as there are to be copies, the first holder first.
-spec choose(Key :: term(), [node()], Copies :: pos_integer()) -> [node()].
choose(Key, Nodes, Copies) ->
    Weighed = lists:sort([{-erlang:phash2({Key, Node}), Node} || Node <- Nodes]),
    [Node || {_Weight, Node} <- lists:sublist(Weighed, Copies)].
