%% Where does LiveStash keep its stashes on this node, and how much is there? Asks for sizes only, never for rows.
-module(livestash_agent_store).

-export([tables/0, ets_table/0, ready/0, size/0]).
-export([mnesia_table/0, mnesia_loaded/0, copies/1, lacks_copy/0, add_copy/0]).

%% Milliseconds that a peer may take.
-define(ASK_PEER, 500).

-define(MNESIA_TABLE, 'Elixir.LiveStash.Adapters.Mnesia.State').

%% The tables of stashes that this node has and can read at once.
-spec tables() -> [{ets | mnesia, atom()}].
tables() ->
    [{ets, Table} || Table <- [ets_table()], ets:info(Table, protection) =:= public] ++
        [{mnesia, ?MNESIA_TABLE} || mnesia_loaded()].

-spec mnesia_table() -> atom().
mnesia_table() ->
    ?MNESIA_TABLE.

%% Whether the adapter's table is there, or its Redis answers, and if not, a sentence that says so. Adapters without a
%% store are ready.
-spec ready() -> {boolean(), string()}.
ready() ->
    ready(livestash_agent_config:get(adapter), tables()).

ready(ets, Tables) ->
    present(ets, Tables, lists:concat(["LiveStash's ETS table ", ets_table(), " does not exist."]));
ready(mnesia, Tables) ->
    case livestash_agent_join:astray() of
        true -> {false, "This node has made a Mnesia table of its own beside the fleet's."};
        false -> present(mnesia, Tables, "This node holds no loaded copy of LiveStash's Mnesia table.")
    end;
ready(redis, _Tables) ->
    livestash_agent_redis:ready();
ready(_Adapter, _Tables) ->
    {true, ""}.

present(Kind, Tables, Reason) ->
    case lists:keymember(Kind, 1, Tables) of
        true -> {true, ""};
        false -> {false, Reason}
    end.

%% Rows and bytes of this node's stashes: its own rows with ETS, the whole local copy with Mnesia.
-spec size() -> {Stashes :: non_neg_integer(), Bytes :: non_neg_integer()}.
size() ->
    Adapter = livestash_agent_config:get(adapter),
    lists:foldl(fun add_size/2, {0, 0}, [Table || {Kind, Table} <- tables(), Kind =:= Adapter]).

%% Mnesia keeps a copy in RAM as an ETS table of the same name; mnesia:table_info/2 could ask another node.
add_size(Table, {Stashes, Bytes}) ->
    case {ets:info(Table, size), ets:info(Table, memory)} of
        {Size, Words} when is_integer(Size), is_integer(Words) ->
            {Stashes + Size, Bytes + Words * erlang:system_info(wordsize)};
        _ ->
            {Stashes, Bytes}
    end.

%% Which of the nodes hold a loaded copy of LiveStash's Mnesia table, the one that this node's Mnesia writes to. Mnesia writes
%% also to nodes that are still loading theirs; and what another node calls its copy may be a table of its own.
-spec copies([node()]) -> [node()].
copies(Nodes) ->
    Written = mnesia:table_info(?MNESIA_TABLE, where_to_write),
    Read = fun(Node) -> erpc:call(Node, mnesia, table_info, [?MNESIA_TABLE, where_to_read]) end,
    Questions = [{Node, fun() -> Read(Node) end} || Node <- Nodes, lists:member(Node, Written)],
    [Node || {Node, {ok, Node}} <- livestash_agent_tasks:run(Questions, ?ASK_PEER)].

%% Whether Mnesia here knows LiveStash's table, and has no copy of it.
-spec lacks_copy() -> boolean().
lacks_copy() ->
    erlang:module_loaded(mnesia) andalso
        try
            mnesia:system_info(is_running) =:= yes andalso
                lists:member(?MNESIA_TABLE, mnesia:system_info(tables)) andalso
                not lists:member(node(), mnesia:table_info(?MNESIA_TABLE, ram_copies))
        catch
            exit:_ -> false
        end.

%% Makes a copy of LiveStash's Mnesia table on this node.
-spec add_copy() -> ok.
add_copy() ->
    case mnesia:add_table_copy(?MNESIA_TABLE, node(), ram_copies) of
        {atomic, ok} ->
            logger:notice("livestash agent: this node had no copy of LiveStash's Mnesia table; now it has one.");
        {aborted, Reason} ->
            logger:warning("livestash agent: no copy of LiveStash's Mnesia table could be made: ~tp", [Reason])
    end.

%% The name of LiveStash's ETS table.
-spec ets_table() -> atom().
ets_table() ->
    case application:get_env(live_stash, ets_table_name, live_stash_server_storage) of
        Name when is_atom(Name) -> Name;
        _ -> live_stash_server_storage
    end.

%% Whether this node has a copy of LiveStash's Mnesia table: while it is being loaded, Mnesia reads from another node or
%% from none. A Mnesia that stops, which may take seconds, knows of its tables to the end.
-spec mnesia_loaded() -> boolean().
mnesia_loaded() ->
    erlang:module_loaded(mnesia) andalso
        try
            mnesia:table_info(?MNESIA_TABLE, where_to_read) =:= node() andalso
                mnesia:system_info(is_running) =:= yes
        catch
            exit:_ -> false
        end.
