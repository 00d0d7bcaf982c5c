%% Of which stashes of this node are there copies, and which have to be sent? What is known of each key, and a queue for
%% each node that holds copies: what has changed comes first, in the order of the changes; then what has lost its copy
%% with the node that had it, or has never had one, the stashes that changed last first.
%%
%% Both tables outlive the processes that use them. Only livestash_agent_shadow writes what is known of a key that is
%% queued.
-module(livestash_agent_shadow_index).

-export([new/0, is_known/1, copies/1, stamp/1, stamp/3, keys/0]).
-export([promoted/2, acknowledged/3, dropped/2, missing/2, valid/2]).
-export([changed/3, behind/3, first/1, next/1, done/1]).
-export([has_waiting/1, waits_since/1, forget/1]).

-export_type([copy/0, entry/0, stamp/0, token/0, peer/0]).

%% The tables of one start of the agent.
-type token() :: {Creation :: integer(), UnixMicroseconds :: integer()}.
%% A node that holds copies: which start of the agent there, where it runs, and a number for the time that it has been
%% connected. What it held before, it has taken over, or dropped, when it lost this node.
-type peer() :: {token(), livestash_agent_shadow_holders:place(), Connection :: integer()}.
%% When a version was read, in unix microseconds.
-type stamp() :: integer().
%% A copy at a node: of which version, and what a livestash_agent_row:number/1 of all but the end of its time, and that
%% end, are; unknown when it was another node's copy first.
-type copy() :: #{
    node := node(),
    peer := peer(),
    stamp := stamp(),
    number := non_neg_integer() | unknown,
    until := integer() | none | unknown
}.
%% A key in the queue of a node. Order: when it changed, in monotonic milliseconds.
-type entry() :: {node(), Order :: integer() | {behind, integer()}, Key :: term()}.

-define(QUEUE, livestash_agent_shadow_queue).
%% Before all that there is of a node.
-define(LEAST, -(1 bsl 62)).

%% Makes the tables, which the calling process owns.
-spec new() -> ok.
new() ->
    ?MODULE = ets:new(?MODULE, [named_table, public, {read_concurrency, true}]),
    ?QUEUE = ets:new(?QUEUE, [named_table, public, ordered_set]),
    ok.

-spec is_known(Key :: term()) -> boolean().
is_known(Key) ->
    ets:member(?MODULE, Key).

%% The copies that nodes have acknowledged.
-spec copies(Key :: term()) -> [copy()].
copies(Key) ->
    case ets:lookup(?MODULE, Key) of
        [{Key, _Stamp, Copies}] -> Copies;
        [] -> []
    end.

%% That of the latest version known. 0 of a key that is not known.
-spec stamp(Key :: term()) -> stamp().
stamp(Key) ->
    case ets:lookup(?MODULE, Key) of
        [{Key, Stamp, _Copies}] -> Stamp;
        [] -> 0
    end.

%% When the row under a key was read that is read now. That of another node's page was read on that node, and says nothing newer since
%% it was taken over from a copy.
-spec stamp(Key :: term(), tuple(), Now :: stamp()) -> stamp().
stamp(Key, Row, Now) ->
    Owner = livestash_agent_row:owner(Row),
    case is_pid(Owner) andalso node(Owner) =/= node() andalso stamp(Key) of
        Known when is_integer(Known), Known > 0 -> Known;
        _ -> Now
    end.

%% For ets:select/3, so that no copies are copied.
-spec keys() -> {atom(), ets:match_spec()}.
keys() ->
    {?MODULE, [{{'$1', '_', '_'}, [], ['$1']}]}.

%% This node has become the owner of a stash of which it had the copy. Copies that were ceded to it are its own; what
%% else was known was of an earlier time.
-spec promoted(Key :: term(), stamp()) -> ok.
promoted(Key, Stamp) ->
    true = ets:insert(?MODULE, {Key, Stamp, [Copy || #{number := unknown} = Copy <- copies(Key)]}),
    ok.

%% A node has it. Peers: the nodes that hold copies. Returns the copies that there are.
-spec acknowledged(Key :: term(), copy(), #{node() => peer()}) -> [copy()].
acknowledged(Key, #{node := Node, stamp := Stamp} = Copy, Peers) ->
    Copies = [Copy | [Other || #{node := Holder} = Other <- valid(Key, Peers), Holder =/= Node]],
    true = ets:insert(?MODULE, {Key, max(Stamp, stamp(Key)), Copies}),
    Copies.

%% The copies that are still there: not what a node had in a former life, or before it lost this node.
-spec valid(Key :: term(), #{node() => peer()}) -> [copy()].
valid(Key, Peers) ->
    [Copy || #{node := Node, peer := Peer} = Copy <- copies(Key), maps:get(Node, Peers, none) =:= Peer].

%% A node does not have it any more. Of a key without copies nothing is known.
-spec dropped(Key :: term(), node()) -> ok.
dropped(Key, Node) ->
    case {[Copy || #{node := Other} = Copy <- copies(Key), Other =/= Node], stamp(Key)} of
        {[], _Stamp} -> ets:delete(?MODULE, Key);
        {Copies, Stamp} -> ets:insert(?MODULE, {Key, Stamp, Copies})
    end,
    ok.

%% The same, of a stash that this node has, or has had until now.
-spec missing(Key :: term(), node()) -> ok.
missing(Key, Node) ->
    [
        ets:insert(?MODULE, {Key, Stamp, [Copy || #{node := Other} = Copy <- Copies, Other =/= Node]})
     || {_Key, Stamp, Copies} <- ets:lookup(?MODULE, Key)
    ],
    ok.

%% The node has to be sent what is under the key. At: now, in monotonic milliseconds.
-spec changed(node(), Key :: term(), At :: integer()) -> ok.
changed(Node, Key, At) ->
    true = ets:insert(?QUEUE, {{Node, At, Key}}),
    ok.

%% The same, after all that has changed.
-spec behind(node(), Key :: term(), stamp()) -> ok.
behind(Node, Key, Stamp) ->
    true = ets:insert(?QUEUE, {{Node, {behind, -Stamp}, Key}}),
    ok.

-spec first(node()) -> entry() | none.
first(Node) ->
    next({Node, ?LEAST, none}).

%% What comes after it in the queue of its node.
-spec next(entry()) -> entry() | none.
next({Node, _Order, _Key} = Entry) ->
    case ets:next(?QUEUE, Entry) of
        {Node, _, _} = Next -> Next;
        _ -> none
    end.

-spec done(entry()) -> ok.
done(Entry) ->
    true = ets:delete(?QUEUE, Entry),
    ok.

-spec has_waiting(node()) -> boolean().
has_waiting(Node) ->
    first(Node) =/= none.

%% When what waits for longest has changed, in monotonic milliseconds; behind: only copies that were lost are missing.
-spec waits_since(node()) -> integer() | behind | none.
waits_since(Node) ->
    case first(Node) of
        none -> none;
        {Node, {behind, _}, _Key} -> behind;
        {Node, At, _Key} -> At
    end.

%% The node is gone, or goes. Returns the keys of what has changed and did not get there.
-spec forget(node()) -> [Key :: term()].
forget(Node) ->
    Changed = ets:select(?QUEUE, [{{{Node, '$1', '$2'}}, [{is_integer, '$1'}], ['$2']}]),
    true = ets:match_delete(?QUEUE, {{Node, '_', '_'}}),
    Changed.
