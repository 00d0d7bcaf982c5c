%% How long does the stash of a socket live that a drain has closed? A browser reconnects a hidden tab only when it is shown
%% again, and a phone that sleeps when it wakes up. Until then nobody renews the stash, which the page did before. So the
%% rows of pages that the drain ends get more time.
-module(livestash_agent_keep).

-export([pages/1, keep/1, raise/3]).

-export_type([pages/0]).

%% A table of processes.
-opaque pages() :: ets:table().

-define(CHUNK, 500).
%% Rows of Mnesia that are written in one transaction, and how often one is tried.
-define(BATCH, 50).
-define(RETRIES, 5).

%% The pages of this node that are alive and have rows in the tables, or stash in Redis. Belongs to the calling process.
-spec pages([atom()]) -> pages().
pages(Tables) ->
    Pages = ets:new(?MODULE, [set, protected]),
    lists:foreach(fun(Table) -> add(Table, ets:match_object(Table, '_', 1), Pages) end, Tables),
    true = ets:insert(Pages, [{Page} || Page <- livestash_agent_pages:alive()]),
    Pages.

add(_Table, '$end_of_table', _Pages) ->
    ok;
add(Table, {[Row], _}, Pages) ->
    case livestash_agent_row:until_position(Row) of
        none -> ok;
        Position -> add_all(ets:select(Table, livestash_agent_row:elements([Position - 1]), ?CHUNK), Pages)
    end.

add_all('$end_of_table', _Pages) ->
    ok;
add_all({Owners, Continuation}, Pages) ->
    true = ets:insert(Pages, [{Owner} || Owner <- Owners, is_pid(Owner), node(Owner) =:= node(), is_process_alive(Owner)]),
    add_all(ets:select(Continuation), Pages).

%% What the hand-over gives these pages' rows.
-spec keep(pages()) -> livestash_agent_handoff:keep().
keep(Pages) ->
    case livestash_agent_config:get(drain_keep_for) of
        0 -> none;
        For -> {fun(Page) -> ets:member(Pages, Page) end, os:system_time(second) + For div 1000}
    end.

%% Gives more time to the rows of a Mnesia table that are still these pages', as long as the table takes less than
%% its share and until the deadline, in monotonic milliseconds. Returns how many rows. Where LiveStash has replaced the table, they get what the page has
%% stashed itself.
-spec raise(atom(), livestash_agent_handoff:keep(), Deadline :: integer()) -> non_neg_integer().
raise(_Table, none, _Deadline) ->
    0;
raise(Table, {IsKept, Until}, Deadline) ->
    Bytes = mnesia:table_info(Table, memory) * erlang:system_info(wordsize),
    case Bytes < livestash_agent_config:get(drain_keep_bytes) of
        true ->
            _ = livestash_agent_journal:overlooked(),
            Kept = fun(Key, Keys) -> [Key || Row <- ets:lookup(Table, Key), is_kept(Row, IsKept, Until)] ++ Keys end,
            raise_all(lists:foldl(Kept, [], mnesia:dirty_all_keys(Table)), Table, {IsKept, Until}, Deadline, 0);
        false ->
            0
    end.

is_kept(Row, IsKept, Until) ->
    Owner = livestash_agent_row:owner(Row),
    is_pid(Owner) andalso IsKept(Owner) andalso livestash_agent_row:keep(Row, Until) =/= Row.

raise_all([], _Table, _Keep, _Deadline, Raised) ->
    Raised;
raise_all(Keys, Table, {IsKept, Until} = Keep, Deadline, Raised) ->
    {Batch, Rest} = lists:split(min(?BATCH, length(Keys)), Keys),
    Write = fun() ->
        Rows = [Row || Key <- Batch, Row <- mnesia:read(Table, Key, write), is_kept(Row, IsKept, Until)],
        [mnesia:write(Table, livestash_agent_row:keep(livestash_agent_journal:latest(livestash_agent_row:owner(Row), Row), Until), write) || Row <- Rows],
        length(Rows)
    end,
    case livestash_agent_clock:ms() < Deadline andalso mnesia:transaction(Write, ?RETRIES) of
        {atomic, Count} -> raise_all(Rest, Table, Keep, Deadline, Raised + Count);
        _LateOrAborted -> Raised
    end.
