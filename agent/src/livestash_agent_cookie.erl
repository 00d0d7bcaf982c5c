%% How do nodes of two cookies stay one mesh, while a fleet changes its cookie pod by pod? A node with the new one is told the previous
%% one too, and uses that with all of its peers until each of them has the new one. So a node that boots with the new one is let in
%% by all or by nobody: one that only some let in would part the others, because global suffers no mesh with holes.
-module(livestash_agent_cookie).

-export([expect/1, connect_otherwise/1, is_previous_known/0, all_have_mine/1, has/1, settle/1, forget/0]).

%% Milliseconds for all peers to say which cookie they have.
-define(ASK, 3000).
%% How many pods a fleet may grow by before DNS names them.
-define(GROWTH, 64).

%% These peers, and pods to come, may have, or be about to boot with, either cookie: from now on the previous one holds between them
%% and this node.
-spec expect([node()]) -> ok.
expect(Peers) ->
    case livestash_agent_config:get(previous_cookie) of
        undefined -> ok;
        Previous -> use(list_to_atom(Previous), Peers ++ (siblings() -- nodes()))
    end.

%% Each of these peers has the new one, and so will pods to come.
-spec settle([node()]) -> ok.
settle(Peers) ->
    use(erlang:get_cookie(), Peers ++ siblings()).

%% The names that pods of this fleet have, and will have when it grows.
siblings() ->
    siblings([livestash_agent_config:get(Key) || Key <- [app_name, pod_name, dns_query]]).

siblings([[_ | _] = App, [_ | _] = Pod, [_ | _] = Query]) ->
    [Base, Ordinal] = string:split(Pod, "-", trailing),
    Domain = string:trim(Query, trailing, "."),
    Last = list_to_integer(Ordinal) + length(nodes()) + ?GROWTH,
    [list_to_atom(lists:concat([App, "@", Base, "-", N, ".", Domain])) || N <- lists:seq(0, Last)] -- [node()];
siblings(_Unnamed) ->
    [].

use(Cookie, Peers) ->
    _ = [erlang:set_cookie(Peer, Cookie) || Peer <- Peers],
    ok.

%% Connects a peer with the cookie that does not hold between it and this node: the two may disagree, for example about whether the
%% rotation is over. Not for one that is just booting.
-spec connect_otherwise(node()) -> boolean().
connect_otherwise(Node) ->
    connect_otherwise(livestash_agent_config:get(previous_cookie), Node).

connect_otherwise(undefined, _Node) ->
    false;
connect_otherwise(Previous, Node) ->
    Mine = erlang:get_cookie(),
    Before = erlang:get_cookie(Node),
    true = erlang:set_cookie(Node, other(Before, Mine, list_to_atom(Previous))),
    Connected = net_kernel:connect_node(Node) =:= true,
    Connected orelse erlang:set_cookie(Node, Before),
    Connected.

other(Mine, Mine, Previous) -> Previous;
other(_Previous, Mine, _) -> Mine.

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
