%% Who keeps the stashes when several nodes stop at the same time? Any set of nodes that are told to stop loses nothing as
%% long as one pod can boot within their grace: those that stop agree on one keeper, the others hand over to it, and
%% it waits for a node that stays.
%%
%% Every node asks all others and decides for itself, again and again, until it is done. A node that stays is always
%% preferred. Else the keeper is, of the nodes that still take stashes, the one with the highest ordinal: a pod comes back
%% only after it has gone, and when a fleet is being made smaller as well, it is the highest ordinals that do not come
%% back. Were one of the others the keeper, it would wait for itself.
-module(livestash_agent_succession).

-export([role/1, last_resort/1, may_come_back/1]).
%% Called by peers.
-export([standing/0]).
%% For tests.
-export([decide/3, decide_last/3, ordinal/1]).

-export_type([what/0, standing/0, role/0]).

%% What a node can take over: users, for which it must be ready, or stashes in tables of a kind.
-type what() :: users | ets | mnesia.
%% stays: it is not stopping. open: it takes stashes, though it may have to hand them on. stores: the kinds of tables
%% that it has.
-type standing() :: #{stays := boolean(), open := boolean(), ready := boolean(), stores := [ets | mnesia]}.
-type role() ::
    %% These nodes stay and take it over.
    {stay, [node()]}
    %% Nodes stay, but none of them can take it over yet.
    | wait
    %% All others stop as well, and this one keeps what they have.
    | keep
    %% The keeper is that one.
    | {follow, node()}
    %% There is no other node.
    | alone.

%% Milliseconds that a node may take to say where it stands.
-define(ASK_PEER, 500).

%% What this node has to do, by what the connected nodes say. Those that do not answer are not there.
-spec role(what()) -> role().
role(What) ->
    decide(What, node(), [{node(), standing()} | survey()]).

survey() ->
    Questions = [{Peer, fun() -> ask(Peer) end} || Peer <- nodes()],
    [{Peer, Standing} || {Peer, {ok, Standing}} <- livestash_agent_tasks:run(Questions, ?ASK_PEER)].

%% Who may take the stashes of this node in its last moment, though nobody who stays can yet: they are better off there than lost.
-spec last_resort(ets | mnesia) -> [node()].
last_resort(Kind) ->
    decide_last(Kind, node(), survey()).

%% A node without the agent cannot say; it stops without a word, so it is taken for one that stays. One that still boots has none either, because
%% the agent comes after all applications: it serves nobody yet, and may never come so far.
ask(Peer) ->
    try
        livestash_agent_remote:call(Peer, ?MODULE, standing, [])
    catch
        error:Reason ->
            case livestash_agent_remote:without_agent(Reason) of
                true -> without_agent(Peer, has_booted(Peer));
                false -> error(Reason)
            end
    end.

without_agent(Peer, Booted) ->
    #{stays => true, open => Booted, ready => Booted, stores => [ets || has_table(Peer)]}.

has_booted(Peer) ->
    element(1, erpc:call(Peer, init, get_status, [])) =:= started.

has_table(Peer) ->
    erpc:call(Peer, ets, info, [livestash_agent_store:ets_table(), protection]) =:= public.

%% Where this node stands.
-spec standing() -> standing().
standing() ->
    Stays = not livestash_agent_state:draining(),
    #{
        stays => Stays,
        open => livestash_agent_state:takes_stashes(),
        ready => Stays andalso element(1, livestash_agent_ready:check()),
        stores => [Kind || {Kind, _Table} <- livestash_agent_store:tables()]
    }.

-spec decide(what(), Self :: node(), [{node(), standing()}]) -> role().
decide(_What, _Self, [_]) ->
    alone;
decide(What, Self, Survey) ->
    Staying = [{Node, Standing} || {Node, #{stays := true} = Standing} <- Survey, Node =/= Self],
    case {Staying, lists:sort([Node || {Node, Standing} <- Staying, takes_over(What, Standing)])} of
        {[], _} -> keeper(Self, [Node || {Node, #{open := true}} <- Survey], [Node || {Node, _} <- Survey]);
        {_, []} -> wait;
        {_, Takers} -> {stay, Takers}
    end.

%% One that stops as well and still takes stashes has more time. Else those that boot, as far as they have got to making their table.
-spec decide_last(ets | mnesia, Self :: node(), [{node(), standing()}]) -> [node()].
decide_last(Kind, Self, Survey) ->
    Able = [{ordinal(Node), Node, Open} || {Node, #{open := Open, stores := Stores}} <- Survey, Node =/= Self, lists:member(Kind, Stores)],
    case [Each || {_, _, true} = Each <- Able] of
        [] -> lists:sort([Node || {_, Node, false} <- Able, maps:get(stays, proplists:get_value(Node, Survey))]);
        Open -> [element(2, lists:max(Open))]
    end.

takes_over(users, #{ready := Ready}) -> Ready;
takes_over(Kind, #{open := Open, stores := Stores}) -> Open andalso lists:member(Kind, Stores).

%% When nobody takes stashes any more, one of them does again.
keeper(Self, [], All) -> keeper(Self, All);
keeper(Self, Open, _All) -> keeper(Self, Open).

keeper(Self, Nodes) ->
    case lists:max([{ordinal(Node), Node} || Node <- Nodes]) of
        {_, Self} -> keep;
        {_, Keeper} -> {follow, Keeper}
    end.

%% The number at the end of the pod's name.
-spec ordinal(node()) -> integer().
ordinal(Node) ->
    case re:run(atom_to_list(Node), "@[^.]*-([0-9]+)(\\.|$)", [{capture, [1], list}]) of
        {match, [Number]} -> list_to_integer(Number);
        nomatch -> -1
    end.

%% Whether a pod may still come: nobody does when the headless Service is gone, as it is when the fleet is deleted or scaled
%% to zero. A fleet of one pod has no other, and its pod comes back only after it has gone; Known are nodes that were there when the
%% question came up, which are waited for as long as there is time.
-spec may_come_back([node()]) -> boolean().
may_come_back(Known) ->
    (Known =/= [] orelse livestash_agent_mesh:had_peers()) andalso not livestash_agent_mesh:gone().
