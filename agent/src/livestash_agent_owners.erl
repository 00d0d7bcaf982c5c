%% Does the page that a user sees own the user's stash, with Mnesia? LiveStash refuses what any other page stashes, as long as that
%% page lives, and tells nobody. While the network between nodes is slow, a page may take its stash over late: its user has
%% given up waiting for it, has another page by then, and nobody is behind the late one. So each living page of this node that has
%% had its stash, and has lost it to an older page that has ended, gets it back.
%%
%% Nothing is taken from a page that lives, because it may be the user's, or from a younger one, because that was the user's last. While copies of the
%% table may differ, and as long as a peer is lost, only what is the same in all of them is given: another copy may have what the user has stashed last, and would be overwritten.
-module(livestash_agent_owners).

-behaviour(gen_server).

-export([start_link/0, look/0]).
%% Called by peers.
-export([describe/1, claims/1]).
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
    lists:sum([look(Table, livestash_agent_row:owner_position_in(Table)) || {mnesia, Table} <- livestash_agent_store:tables()]).

look(_Table, none) ->
    0;
look(Table, Position) ->
    Losses = lists:append(livestash_agent_pages:had(fun(Pages) -> losses(Pages, Table, Position) end, ?CHUNK)),
    Ended = ended(lists:usort([Owner || {_Page, _Key, Owner} <- Losses])),
    Due = [Loss || {_Page, _Key, Owner} = Loss <- youngest_first(Losses), is_older(Loss, maps:get(Owner, Ended, never))],
    Agreed = agreed(without_claims(Due), Table),
    %% So that all is remembered that the pages have stashed. They are not the owners, so there is nothing new meanwhile.
    _ = Agreed =:= [] orelse livestash_agent_journal:overlooked(),
    Given = [Loss || Loss <- Agreed, give_back(Loss, Table, Position)],
    [
        logger:notice("livestash agent: ~b pages own their stashes again, which earlier pages had taken over late.", [length(Given)])
     || Given =/= []
    ],
    length(Given).

%% Those of whose users no other node has a younger page: one that the user has given up waiting for may live on here for a minute.
without_claims([]) ->
    [];
without_claims(Losses) ->
    Keys = lists:usort([Key || {_Page, Key, _Owner} <- Losses]),
    Outcomes = livestash_agent_remote:ask(nodes(), ?MODULE, claims, [Keys], ?ASK),
    case [Node || {Node, {error, Reason}} <- Outcomes, not has_none(Reason)] of
        [] ->
            Add = fun({Key, Birth}, Youngest) -> maps:update_with(Key, fun(Other) -> max(Birth, Other) end, Birth, Youngest) end,
            Youngest = lists:foldl(Add, #{}, lists:append([Claims || {_Node, {ok, Claims}} <- Outcomes])),
            [Loss || {Page, Key, _Owner} = Loss <- Losses, maps:get(Key, Youngest, 0) < livestash_agent_rank:birth(Page)];
        %% One that is frozen may have one.
        _Silent ->
            []
    end.

%% A node that is gone, or an agent of before.
has_none({erpc, noconnection}) -> true;
has_none({exception, undef, _}) -> true;
has_none({exception, {protocol, _}, _}) -> true;
has_none(_Reason) -> false.

%% Those whose stashes are the same in all copies, which are all written.
agreed([], _Table) ->
    [];
agreed(Losses, Table) ->
    case livestash_agent_reunion:may_differ() of
        false ->
            Losses;
        true ->
            Keys = [Key || {_Page, Key, _Owner} <- Losses],
            Outcomes = livestash_agent_remote:ask(mnesia:table_info(Table, where_to_write), livestash_agent_copies, versions, [mnesia, Table, Keys], ?ASK),
            case [Versions || {_Node, {ok, Versions}} <- Outcomes] of
                [First | Others] = All when length(All) =:= length(Outcomes) ->
                    Narrow = fun(Versions, So) -> lists:zipwith3(fun(Is, Version, Same) -> Same andalso Is =:= Version end, First, Versions, So) end,
                    Same = lists:foldl(Narrow, [Version =/= absent || Version <- First], Others),
                    [Loss || {Loss, true} <- lists:zip(Losses, Same)];
                _Silent ->
                    []
            end
    end.

%% When those of this node's pages were started that live and have had one of the stashes.
-spec claims([Key :: binary()]) -> [{Key :: binary(), Birth :: integer()}].
claims(Keys) ->
    Wanted = maps:from_keys(Keys, true),
    Claim = fun(Pages) -> [{Key, livestash_agent_rank:birth(Page)} || {Page, Key} <- Pages, is_map_key(Key, Wanted), is_process_alive(Page)] end,
    lists:append(livestash_agent_pages:had(Claim, ?CHUNK)).

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
    ok = learn([Owner || Owner <- Owners, livestash_agent_rank:birth(Owner) =:= 0]),
    ByNode = maps:to_list(by_node(Owners)),
    Here = [node() | nodes()],
    Ask = fun(Node, Pages) -> fun() -> livestash_agent_remote:call(Node, ?MODULE, describe, [Pages]) end end,
    Outcomes = livestash_agent_tasks:run([{Pages, Ask(Node, Pages)} || {Node, Pages} <- ByNode, lists:member(Node, Here)], ?ASK),
    Gone = [{Page, livestash_agent_rank:birth(Page)} || {Node, Pages} <- ByNode, not lists:member(Node, Here), Page <- Pages],
    Said = lists:append([said(Pages, Outcome) || {Pages, Outcome} <- Outcomes]),
    maps:from_list([{Page, Latest} || {Page, Latest} <- Gone ++ Said, Latest =/= 0]).

%% What peers have been told of pages before this node was connected, or while it was not.
learn([]) ->
    ok;
learn(Pages) ->
    Outcomes = livestash_agent_remote:ask(nodes(), livestash_agent_rank, births, [Pages], ?ASK),
    [ok = livestash_agent_rank:learn(lists:zip(Pages, Births)) || {_Node, {ok, Births}} <- Outcomes],
    ok.

by_node(Pages) ->
    lists:foldl(fun(Page, Nodes) -> maps:update_with(node(Page), fun(Others) -> [Page | Others] end, [Page], Nodes) end, #{}, Pages).

said(Pages, {ok, Descriptions}) ->
    livestash_agent_rank:learn([{Page, Birth} || {Page, {_Alive, Birth, _Latest}} <- lists:zip(Pages, Descriptions)]),
    [{Page, latest(livestash_agent_rank:birth(Page), Latest)} || {Page, {false, _Birth, Latest}} <- lists:zip(Pages, Descriptions)];
%% An agent of before, or a node that is frozen.
said(_Pages, {error, _Reason}) ->
    [].

%% A VM that has the name of the page's knows less of it than this node may.
latest(0, Latest) -> Latest;
latest(Birth, _Latest) -> Birth.

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

%% Unless it has another owner by now. The page gets what it has stashed itself, if that is remembered; otherwise the stash as it is, until the page
%% stashes again.
give_back({Page, Key, Owner}, Table, Position) ->
    Write = fun() ->
        case mnesia:read(Table, Key, write) of
            [Row] when element(Position, Row) =:= Owner ->
                is_process_alive(Page) andalso mnesia:write(Table, setelement(Position, livestash_agent_journal:latest(Page, Row), Page), write);
            _ ->
                false
        end
    end,
    Given = mnesia:transaction(Write, ?RETRIES) =:= {atomic, ok},
    [livestash_agent_state:count(owners_restored, 1) || Given],
    Given.
