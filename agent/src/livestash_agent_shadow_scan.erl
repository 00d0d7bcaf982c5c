%% What do pages not say of their stashes? That they have moved the end of their time on, that a user has taken one
%% along to another node, what they write without LiveView's noticing; and which copies are missing since a node came or
%% went. This goes through all keys, never through what is stashed under them.
-module(livestash_agent_shadow_scan).

-export([run/3]).

%% Keys that are looked at at once, and milliseconds between two such looks when nothing presses.
-define(CHUNK, 500).
-define(REST, 5).

%% Marks what has changed and queues what lacks one of so many copies. Rest: milliseconds are left to others now and
%% then.
-spec run(atom(), Copies :: pos_integer(), Rest :: boolean()) -> ok.
run(Table, Copies, Rest) ->
    [process_flag(priority, low) || Rest],
    ok = livestash_agent_shadow_marks:forget_ended(),
    walk(Table, rows(Table), fun(Row) -> look(Row, livestash_agent_shadow:peers(), Copies) end, Rest),
    {Index, Keys} = livestash_agent_shadow_index:keys(),
    walk(Index, Keys, fun(Key) -> ets:member(Table, Key) orelse livestash_agent_shadow_marks:mark(Key) end, Rest).

%% Keys and the ends of their time.
rows(Table) ->
    Until =
        case ets:match_object(Table, '_', 1) of
            {[Row], _} -> livestash_agent_row:until_position(Row);
            '$end_of_table' -> none
        end,
    livestash_agent_row:elements([ets:info(Table, keypos), Until]).

walk(Table, Specification, Look, Rest) ->
    true = ets:safe_fixtable(Table, true),
    try
        walk_on(ets:select(Table, Specification, ?CHUNK), Look, Rest)
    after
        ets:safe_fixtable(Table, false)
    end.

walk_on('$end_of_table', _Look, _Rest) ->
    ok;
walk_on({Found, Continuation}, Look, Rest) ->
    lists:foreach(Look, Found),
    [timer:sleep(?REST) || Rest],
    walk_on(ets:select(Continuation), Look, Rest).

look({Key, Until}, Peers, Count) ->
    Copies = livestash_agent_shadow_index:valid(Key, Peers),
    Has = [Node || #{node := Node} <- Copies],
    Holders = livestash_agent_shadow:holders(Key, Peers, Count),
    [livestash_agent_shadow_index:behind(Node, Key, livestash_agent_shadow_index:stamp(Key)) || Node <- Holders -- Has],
    case [Copy || #{until := Other} = Copy <- Copies, Other =/= Until] =/= [] orelse Has -- Holders =/= [] of
        true -> livestash_agent_shadow_marks:mark(Key);
        false -> ok
    end.
