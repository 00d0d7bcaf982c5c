%% When were this node's pages started? With Mnesia any node may have to know that of a page that has ended, and whose node is gone: of a page that has
%% taken its stash over late it must be known that it is older than the one that the user sees (livestash_agent_owners). So every node tells its
%% peers, soon after a page has begun. A page that takes its stash over late has been waiting for that for seconds. Two nodes that are connected anew tell
%% each other what they have of the last minutes, and a node that starts, which is connected before its agent listens, asks.
-module(livestash_agent_births).

-behaviour(gen_server).

-export([start_link/0, born/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% Milliseconds in which births are collected before they are told.
-define(TOGETHER, 500).
%% Births in one message.
-define(CHUNK, 2000).

-type birth() :: {Page :: pid(), UnixMilliseconds :: integer()}.

-spec start_link() -> {ok, pid()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% A page of this node has begun. Runs in the page's process, and does nothing where nobody has to be told.
-spec born(pid(), integer()) -> ok.
born(Page, Birth) ->
    gen_server:cast(?MODULE, {born, {Page, Birth}}).

-spec init([]) -> {ok, [birth()]}.
init([]) ->
    process_flag(max_heap_size, livestash_agent:max_heap_size()),
    ok = net_kernel:monitor_nodes(true),
    %% Births that an earlier process had not told yet are told now.
    tell(nodes(), livestash_agent_rank:recent()),
    [spawn(fun() -> catch learn(Node) end) || Node <- nodes()],
    {ok, []}.

%% Of each node's own: what is told of the others may be nobody's any more.
learn(Node) ->
    livestash_agent_rank:learn(livestash_agent_remote:call(Node, livestash_agent_rank, recent, [])).

-spec handle_call(term(), gen_server:from(), [birth()]) -> {reply, ok, [birth()]}.
handle_call(_Request, _From, Untold) ->
    {reply, ok, Untold}.

-spec handle_cast({born, birth()}, [birth()]) -> {noreply, [birth()]}.
handle_cast({born, Birth}, []) ->
    _ = erlang:send_after(?TOGETHER, self(), tell),
    {noreply, [Birth]};
handle_cast({born, Birth}, Untold) ->
    {noreply, [Birth | Untold]};
handle_cast(_Message, Untold) ->
    {noreply, Untold}.

-spec handle_info(term(), [birth()]) -> {noreply, [birth()]}.
handle_info(tell, Untold) ->
    tell(nodes(), Untold),
    {noreply, []};
handle_info({nodeup, Node}, Untold) ->
    tell([Node], livestash_agent_rank:recent()),
    {noreply, Untold};
handle_info(_Message, Untold) ->
    {noreply, Untold}.

%% An agent of before understands that as well.
tell(_Nodes, []) ->
    ok;
tell(Nodes, Births) ->
    {Some, Rest} = lists:split(min(?CHUNK, length(Births)), Births),
    ok = livestash_agent_remote:tell(Nodes, livestash_agent_rank, learn, [Some]),
    tell(Nodes, Rest).
