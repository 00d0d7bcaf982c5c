%% How do nodes of two cookies find each other, while a fleet changes its cookie pod by pod? A node with the new one is told the
%% previous one too. It lets nobody in with that, but shows it to peers that refuse the new one: those have not been replaced yet.
-module(livestash_agent_cookie).

-export([connect/1, is_previous_known/0, all_have_mine/1, has/1, forget/0]).

%% Milliseconds for all peers to say which cookie they have.
-define(ASK, 3000).

%% Connects a peer, whichever of the two cookies it has.
-spec connect(node()) -> boolean().
connect(Node) ->
    net_kernel:connect_node(Node) =:= true orelse connect_with(livestash_agent_config:get(previous_cookie), Node).

connect_with(undefined, _Node) ->
    false;
connect_with(Previous, Node) ->
    true = erlang:set_cookie(Node, list_to_atom(Previous)),
    try
        net_kernel:connect_node(Node) =:= true
    after
        %% Who connects to this node from here on must have the new one.
        erlang:set_cookie(Node, erlang:get_cookie())
    end.

%% Whether this node still knows the previous cookie.
-spec is_previous_known() -> boolean().
is_previous_known() ->
    livestash_agent_config:get(previous_cookie) =/= undefined.

%% Whether all those peers have the cookie that this node has.
-spec all_have_mine([node()]) -> boolean().
all_have_mine(Peers) ->
    Digest = digest(),
    Questions = [{fun() -> erpc:call(Peer, ?MODULE, has, [Digest]) end, false} || Peer <- Peers],
    lists:all(fun(Answer) -> Answer =:= true end, livestash_agent_tasks:answers(Questions, ?ASK)).

%% Whether this node has the cookie of that digest. Asked by peers.
-spec has(binary()) -> boolean().
has(Digest) ->
    Digest =:= digest().

%% The cookie itself never travels: between nodes without TLS it could be read.
digest() ->
    erlang:md5(["livestash cookie ", atom_to_list(erlang:get_cookie())]).

%% No peer needs the previous cookie any more.
-spec forget() -> ok.
forget() ->
    livestash_agent_config:forget(previous_cookie).
