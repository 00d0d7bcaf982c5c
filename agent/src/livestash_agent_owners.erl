%% Does the page that a user sees own the user's stash, with Mnesia? LiveStash refuses what any other page stashes, as long as that
%% page lives, and tells nobody. While the network between nodes is slow, a page may take its stash over late: its user has
%% given up waiting for it, has another page by then, and nobody is behind the late one. So each living page of this node that has
%% had its stash, and has lost it to an older page that has ended, gets it back.
%%
%% Nothing is taken from a page that lives, because it may be the user's, or from a younger one, because that was the user's last. Nor is anything given
%% while copies of the table may differ: the owner may be that of an older version, which goes when they are made one.
-module(livestash_agent_owners).

-behaviour(gen_server).

-export([start_link/0, look/0]).
%% Called by peers.
-export([describe/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% What one page lacks.
-type loss() :: {Page :: pid(), Key :: binary(), Owner :: pid()}.
%% When a page was started: 0 when nobody knows, and at the latest.
-type description() :: {Alive :: boolean(), Birth :: integer(), Latest :: integer()}.

%% Milliseconds between two looks, and that a peer may take to describe pages.
-define(TICK, 5000).
-define(ASK, 2000).
%% Milliseconds for giving all of a look back. Copies of the table may be on nodes that are frozen.
-define(LIMIT, 15000).
-define(CHUNK, 500).
-define(RETRIES, 5).

-spec start_link() -> {ok, pid()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

-spec init([]) -> {ok, #{reference() => look}}.
init([]) ->
    process_flag(max_heap_size, livestash_agent:max_heap_size()),
    _ = erlang:send_after(?TICK, self(), look),
    {ok, #{}}.

-spec handle_call(term(), gen_server:from(), map()) -> {reply, ok, map()}.
handle_call(_Request, _From, State) ->
    {reply, ok, State}.

-spec handle_cast(term(), map()) -> {noreply, map()}.
handle_cast(_Message, State) ->
    {noreply, State}.

%% A node that drains ends its pages.
-spec handle_info(term(), map()) -> {noreply, map()}.
handle_info(look, State) ->
    _ = erlang:send_after(?TICK, self(), look),
    case livestash_agent_state:draining() of
        true -> {noreply, State};
        false -> {noreply, livestash_agent_tasks:start(look, fun look_within/0, [], State)}
    end;
handle_info({'DOWN', Monitor, process, _Pid, Result}, State) when is_map_key(Monitor, State) ->
    [logger:warning("livestash agent: it does not know whose stashes are whose pages': ~tp", [Result]) || not is_normal(Result)],
    {noreply, maps:remove(Monitor, State)};
handle_info(_Message, State) ->
    {noreply, State}.

%% A peer that is frozen holds everybody up, and the next look finds what this one has not.
is_normal({done, {ok, [{look, {ok, _}}]}}) -> true;
is_normal({done, {ok, [{look, {error, timeout}}]}}) -> true;
is_normal(_Failure) -> false.

look_within() ->
    livestash_agent_tasks:run([{look, fun look/0}], ?LIMIT).

%% Gives this node's pages back what they have lost. Returns how many stashes.
-spec look() -> non_neg_integer().
look() ->
    case livestash_agent_reunion:whole() of
        {true, _} ->
            lists:sum([look(Table, livestash_agent_row:owner_position_in(Table)) || {mnesia, Table} <- livestash_agent_store:tables()]);
        {false, _} ->
            0
    end.

look(_Table, none) ->
    0;
look(Table, Position) ->
    Losses = lists:append(livestash_agent_pages:had(fun(Pages) -> losses(Pages, Table, Position) end, ?CHUNK)),
    Ended = ended(lists:usort([Owner || {_Page, _Key, Owner} <- Losses])),
    Given = [Loss || {_Page, _Key, Owner} = Loss <- youngest_first(Losses), is_older(Loss, maps:get(Owner, Ended, never)), give_back(Loss, Table, Position)],
    [
        logger:notice("livestash agent: ~b pages own their stashes again, which earlier pages had taken over late.", [length(Given)])
     || Given =/= []
    ],
    length(Given).

%% The others of its user find another owner then.
youngest_first(Losses) ->
    [Loss || {_Birth, Loss} <- lists:reverse(lists:sort([{livestash_agent_rank:birth(Page), Loss} || {Page, _Key, _Owner} = Loss <- Losses]))].

%% Whose stash has another owner that is not known to be younger.
losses(Pages, Table, Position) ->
    [{Page, Key, Owner} || {Page, Key} <- Pages, Owner <- owner(Table, Key, Position), Owner =/= Page, is_process_alive(Page), not is_younger({Page, Key, Owner})].

%% The row itself is not copied: it may be large.
owner(Table, Key, Position) ->
    try
        [ets:lookup_element(Table, Key, Position)]
    catch
        error:badarg -> []
    end.

is_younger({Page, _Key, Owner}) ->
    livestash_agent_rank:birth(Owner) >= livestash_agent_rank:birth(Page).

%% Whether the owner, which has ended and was started then at the latest, is older.
-spec is_older(loss(), Latest :: integer() | never) -> boolean().
is_older(_Loss, never) -> false;
is_older({Page, _Key, _Owner}, Latest) -> Latest < livestash_agent_rank:birth(Page).

%% When those of the pages that have ended were started, at the latest. Learns what can be learned of that. Pages of a node that is gone have ended,
%% or their users are not here.
ended(Owners) ->
    ByNode = maps:to_list(by_node(Owners)),
    Here = [node() | nodes()],
    Ask = fun(Node, Pages) -> fun() -> livestash_agent_remote:call(Node, ?MODULE, describe, [Pages]) end end,
    Outcomes = livestash_agent_tasks:run([{Pages, Ask(Node, Pages)} || {Node, Pages} <- ByNode, lists:member(Node, Here)], ?ASK),
    Gone = [{Page, livestash_agent_rank:birth(Page)} || {Node, Pages} <- ByNode, not lists:member(Node, Here), Page <- Pages],
    Said = lists:append([said(Pages, Outcome) || {Pages, Outcome} <- Outcomes]),
    maps:from_list([{Page, Latest} || {Page, Latest} <- Gone ++ Said, Latest =/= 0]).

by_node(Pages) ->
    lists:foldl(fun(Page, Nodes) -> maps:update_with(node(Page), fun(Others) -> [Page | Others] end, [Page], Nodes) end, #{}, Pages).

said(Pages, {ok, Descriptions}) ->
    livestash_agent_rank:learn([{Page, Birth} || {Page, {_Alive, Birth, _Latest}} <- lists:zip(Pages, Descriptions)]),
    [{Page, Latest} || {Page, {false, _Birth, Latest}} <- lists:zip(Pages, Descriptions)];
%% An agent of before, or a node that is frozen.
said(_Pages, {error, _Reason}) ->
    [].

%% Of pages of this node, or of a VM that had its name before.
-spec describe([pid()]) -> [description()].
describe(Pages) ->
    [
        case {livestash_agent_rank:birth(Page), is_of_this_vm(Page)} of
            {0, false} -> {false, 0, started()};
            {Birth, _} -> {is_process_alive(Page), Birth, Birth}
        end
     || Page <- Pages
    ].

%% Written as text, the number of the VM is left out.
is_of_this_vm(Page) ->
    list_to_pid(pid_to_list(Page)) =:= Page.

%% When this VM was started, in unix milliseconds.
started() ->
    erlang:convert_time_unit(erlang:system_info(start_time) + erlang:time_offset(), native, millisecond).

%% Unless it has another owner by now, or the page has stashed something else, which comes back when the copies are compared. The stash stays what
%% it is: the page writes its own the next time it stashes.
give_back({Page, Key, Owner}, Table, Position) ->
    Write = fun() ->
        case mnesia:read(Table, Key, write) of
            [Row] when element(Position, Row) =:= Owner -> is_due(Page, Row) andalso mnesia:write(Table, setelement(Position, Row, Page), write);
            _ -> false
        end
    end,
    Given = mnesia:transaction(Write, ?RETRIES) =:= {atomic, ok},
    [livestash_agent_state:count(owners_restored, 1) || Given],
    Given.

is_due(Page, Row) ->
    is_process_alive(Page) andalso not livestash_agent_journal:differs(Page, Row).
