%% Who keeps the stashes of a node that goes away? Moves the rows of an ETS table to peers, while clients that have
%% returned elsewhere are pulling their rows from here at the same time. What must hold is that a lookup finds a row at any
%% moment, that in the end no key has two, and that of two versions the right one stays.
%%
%% The table is gone through again and again, the youngest rows first. A row is left alone as long as its page lives, which
%% would only write it again: such pages are ended, and the row is found by the next pass. The others go in batches: see
%% livestash_agent_batch.
-module(livestash_agent_handoff).

-export([hand_over/4, nothing_moved/2, add/2]).

-export_type([result/0, keep/0]).

%% other_version: how many of the rows handed over are of another version.
-type result() :: #{
    handed_over := non_neg_integer(), other_version := non_neg_integer(), left := non_neg_integer(), reason := string()
}.
%% The rows of these pages live at least until the given unix second.
-type keep() :: {fun((pid()) -> boolean()), Until :: integer()} | none.

%% Of a batch. Large ones would delay the calls of users, which go over the same connections.
-define(BATCH_ROWS, 500).
-define(BATCH_BYTES, 262144).
%% Batches that are being sent at the same time: with the limits above it bounds the memory that a hand-over takes, and
%% what the calls of users wait for. More of them are hardly faster.
-define(MAX_SENDING, 2).
%% Rows that peers have taken and that still have to be here for a moment.
-define(MAX_RESTING, 100000).
%% Milliseconds, also below. Clients that have lost their socket pull their rows during the next second: waiting spares moving
%% rows twice, and whoever has come back cannot meet its row on its way.
-define(QUIET, 1000).
-define(MAX_QUIET, 5000).
-define(POLL, 100).
%% For pages that live on to end by themselves.
-define(END, 500).
%% Keys that are looked at at once.
-define(CHUNK, 500).
%% When the time is up, the oldest rows are left. They go in so many classes, the youngest first.
-define(CLASSES, 8).

-record(pass, {
    table :: atom(),
    key_position :: pos_integer(),
    until_position :: pos_integer() | none,
    %% Monotonic milliseconds.
    deadline :: integer(),
    %% Peers that answer and take rows, sorted: several draining nodes that have the same key pick the same one.
    peers :: [node()],
    %% Other nodes that answer: they go as well, and take none.
    going :: [node()],
    keep :: keep(),
    %% The next batch, and its size in bytes.
    rows = [] :: [tuple()],
    bytes = 0 :: non_neg_integer(),
    %% The batches on their way: the monitor of a process => which one; of these, those that are being sent; and how many rows of
    %% each of the others are still here.
    running = #{} :: #{reference() => reference()},
    sending = [] :: [reference()],
    resting = #{} :: #{reference() => pos_integer()},
    %% Pages that are still alive.
    living = [] :: [pid()],
    %% Rows that peers have taken, and those of them that were deleted here then.
    accepted = 0 :: non_neg_integer(),
    moved = 0 :: non_neg_integer(),
    %% Of all passes: rows that peers have taken and that are of another version, and whether a peer could not read one.
    other_version = 0 :: non_neg_integer(),
    unreadable = false :: boolean(),
    %% Rows with which nothing is lost: a peer has a better version, or their time is over.
    needless = 0 :: non_neg_integer()
}).

%% Moves the rows of the table to the peers within the given milliseconds. `left` counts rows that no other node has.
-spec hand_over(atom(), [node()], Milliseconds :: non_neg_integer(), keep()) -> result().
hand_over(Table, Peers, Within, Keep) ->
    Deadline = livestash_agent_clock:ms() + Within,
    await_quiet(Table, livestash_agent_clock:ms() + min(?MAX_QUIET, Within div 4)),
    case {row_count(Table), ets:info(Table, protection), ets:info(Table, type)} of
        {0, _, _} ->
            nothing_moved(0, "");
        {_, public, Type} when Type =:= set; Type =:= ordered_set ->
            hand_over_rows(Table, lists:usort(Peers), Deadline, Keep);
        {Size, public, Type} ->
            nothing_moved(Size, lists:concat(["The ETS table ", Table, " is a ", Type, ", not a set."]));
        {Size, Protection, _} ->
            nothing_moved(Size, lists:concat(["The ETS table ", Table, " is ", Protection, ", not public."]))
    end.

%% Until the table has not shrunk for a moment.
await_quiet(Table, Deadline) ->
    await_quiet(Table, row_count(Table), livestash_agent_clock:ms() + ?QUIET, Deadline).

await_quiet(Table, Size, QuietAt, Deadline) ->
    Now = livestash_agent_clock:ms(),
    case Now >= min(QuietAt, Deadline) orelse Size =:= 0 of
        true ->
            ok;
        false ->
            timer:sleep(?POLL),
            case row_count(Table) of
                Size -> await_quiet(Table, Size, QuietAt, Deadline);
                Changed -> await_quiet(Table, Changed, livestash_agent_clock:ms() + ?QUIET, Deadline)
            end
    end.

row_count(Table) ->
    case ets:info(Table, size) of
        undefined -> 0;
        Size -> Size
    end.

%% The result when no row has moved.
-spec nothing_moved(Left :: non_neg_integer(), Reason :: string()) -> result().
nothing_moved(Left, Reason) ->
    #{handed_over => 0, other_version => 0, left => Left, reason => Reason}.

%% The result of two hand-overs.
-spec add(result(), result()) -> result().
add(#{reason := First} = One, #{reason := Second} = Other) ->
    Sum = maps:merge_with(fun(_What, A, B) -> A + B end, maps:remove(reason, One), maps:remove(reason, Other)),
    Sum#{reason => hd([Reason || Reason <- [First, Second], Reason =/= ""] ++ [""])}.

hand_over_rows(Table, Peers, Deadline, Keep) ->
    Until = until_position(Table),
    Pass = #pass{
        table = Table,
        key_position = ets:info(Table, keypos),
        until_position = Until,
        deadline = Deadline,
        peers = Peers,
        going = nodes() -- Peers,
        keep = Keep
    },
    passes(Pass, classes(Table, Until), 0).

%% By the first row: they are all alike.
until_position(Table) ->
    case ets:match_object(Table, '_', 1) of
        {[Row], _} -> livestash_agent_row:until_position(Row);
        '$end_of_table' -> none
    end.

%% Rows that a peer refused stay, and so do rows that changed while they were moved and those of pages that lived; the next
%% pass finds them. The last one is that in which no peer takes anything, none turns out to be of no use, and no page has
%% to be ended.
passes(Pass, Classes, Moved) ->
    Done = pass(Pass#pass{accepted = 0, moved = 0, needless = 0, living = []}, Classes),
    Total = Moved + Done#pass.moved,
    Left = max(0, row_count(Done#pass.table) - Done#pass.needless),
    Stuck = Done#pass.accepted =:= 0 andalso Done#pass.peers =:= Pass#pass.peers andalso Done#pass.living =:= [],
    Result = #{handed_over => Total, other_version => Done#pass.other_version, left => Left, reason => ""},
    case {Left, Done#pass.peers, livestash_agent_clock:ms() >= Done#pass.deadline} of
        {0, _, _} ->
            Result;
        %% Whose answers do not come in time look useless then.
        {_, _, true} ->
            Result#{reason := "The time for handing over was up."};
        {_, Peers, false} when Peers =:= []; Stuck ->
            Result#{reason := refused(Done)};
        {_, _, false} ->
            end_pages(Done#pass.living),
            passes(Done, [all], Total)
    end.

refused(#pass{unreadable = true}) -> "Peers run another version of LiveStash, which cannot read the remaining rows.";
refused(#pass{unreadable = false}) -> "No peer took the remaining rows.".

end_pages([]) ->
    ok;
end_pages(Pages) ->
    Ended = livestash_agent_endpoint:end_sessions(Pages, ?END),
    logger:warning("livestash agent: ended ~b pages that were still alive after the web endpoints had stopped.", [Ended]).

%% Bounds of the ends of rows' time, in unix seconds, so that each class has about as many rows.
classes(_Table, none) ->
    [all];
classes(Table, Position) ->
    Counts = count_untils(ets:select(Table, livestash_agent_row:elements([Position]), ?CHUNK), #{}),
    Share = 1 + lists:sum(maps:values(Counts)) div ?CLASSES,
    bounds(lists:reverse(lists:sort(maps:to_list(Counts))), Share, 0, none).

count_untils('$end_of_table', Counts) ->
    Counts;
count_untils({Untils, Continuation}, Counts) ->
    Count = fun(Until, Acc) -> maps:update_with(coarse(Until), fun(N) -> N + 1 end, 1, Acc) end,
    count_untils(ets:select(Continuation), lists:foldl(Count, Counts, Untils)).

coarse(Until) when is_integer(Until) -> Until band -8;
coarse(_Other) -> 0.

%% From the youngest to the oldest; the first has no upper bound, the last no lower one.
bounds([], _Share, _Rows, Upper) -> [{none, Upper}];
bounds([{_Lower, _Count}], _Share, _Rows, Upper) -> [{none, Upper}];
bounds([{Lower, Count} | Rest], Share, Rows, Upper) when Rows + Count >= Share ->
    [{Lower, Upper} | bounds(Rest, Share, 0, Lower)];
bounds([{_Lower, Count} | Rest], Share, Rows, Upper) ->
    bounds(Rest, Share, Rows + Count, Upper).

pass(#pass{table = Table} = Pass, Classes) ->
    %% So that the walk goes on behind a row that is deleted meanwhile.
    true = ets:safe_fixtable(Table, true),
    try
        await_all(send(lists:foldl(fun walk/2, Pass, Classes)))
    after
        ets:safe_fixtable(Table, false)
    end.

walk(Class, #pass{table = Table, key_position = Position, until_position = Until} = Pass) ->
    Keys = livestash_agent_row:elements([Position, Until]),
    walk_on(Class, ets:select(Table, Keys, ?CHUNK), Pass).

walk_on(_Class, '$end_of_table', Pass) ->
    Pass;
walk_on(_Class, _Keys, #pass{peers = []} = Pass) ->
    Pass;
walk_on(Class, {Keys, Continuation}, #pass{table = Table} = Pass) ->
    case livestash_agent_clock:ms() >= Pass#pass.deadline of
        true ->
            Pass#pass{rows = [], bytes = 0};
        false ->
            Now = os:system_time(second),
            Collect = fun(Key, Acc) -> collect(ets:lookup(Table, Key), Now, Acc) end,
            walk_on(Class, ets:select(Continuation), lists:foldl(Collect, Pass, [Key || {Key, Until} <- Keys, is_within(Class, Until)]))
    end.

%% Where a row's end is not known, there is one class.
is_within(all, _Until) -> true;
is_within({Lower, Upper}, Until) -> (Lower =:= none orelse Until >= Lower) andalso (Upper =:= none orelse Until < Upper).

collect([], _Now, Pass) ->
    Pass;
collect([Row], Now, #pass{needless = Needless, living = Living} = Pass) ->
    case {livestash_agent_row:until(Row), livestash_agent_row:lives(Row)} of
        {_, true} -> Pass#pass{living = [livestash_agent_row:owner(Row) | Living]};
        %% The next round of LiveStash's cleaner deletes it.
        {Until, _} when is_integer(Until), Until < Now -> Pass#pass{needless = Needless + 1};
        _ -> add_row(Row, erlang:external_size(Row), Pass)
    end.

add_row(Row, Size, #pass{rows = [_ | _] = Rows, bytes = Bytes} = Pass) when
    Bytes + Size > ?BATCH_BYTES; length(Rows) >= ?BATCH_ROWS
->
    add_row(Row, Size, send(Pass));
add_row(Row, Size, #pass{rows = Rows, bytes = Bytes} = Pass) ->
    Pass#pass{rows = [Row | Rows], bytes = Bytes + Size}.

%% Sends the rows that were collected on their way, as one batch.
send(#pass{sending = Sending, resting = Resting} = Pass) ->
    case length(Sending) >= ?MAX_SENDING orelse lists:sum(maps:values(Resting)) >= ?MAX_RESTING of
        true -> send(await_one(Pass));
        false -> send_now(Pass)
    end.

send_now(#pass{rows = Rows, peers = Peers} = Pass) when Rows =:= []; Peers =:= [] ->
    Pass#pass{rows = [], bytes = 0};
send_now(#pass{rows = Rows, running = Running, sending = Sending} = Pass) ->
    [Batch, Walker, Count, Way] = [make_ref(), self(), length(Rows), way(Pass)],
    Sent = fun() -> Walker ! {?MODULE, sent, Batch, Count} end,
    Move = fun() -> livestash_agent_batch:move(Rows, Way, Sent) end,
    Pass#pass{
        rows = [],
        bytes = 0,
        running = livestash_agent_tasks:start(Batch, Move, [{priority, low}], Running),
        sending = [Batch | Sending]
    }.

way(#pass{table = Table, key_position = Position, deadline = Deadline, peers = Peers, going = Going} = Pass) ->
    #{
        table => Table,
        key_position => Position,
        deadline => Deadline,
        peers => Peers,
        going => Going,
        keep => Pass#pass.keep,
        bytes => Pass#pass.bytes
    }.

await_all(#pass{running = Running} = Pass) when map_size(Running) =:= 0 -> Pass;
await_all(Pass) -> await_all(await_one(Pass)).

%% Until a batch has been sent, or is done.
await_one(#pass{running = Running, sending = Sending, resting = Resting} = Pass) ->
    receive
        {?MODULE, sent, Batch, Count} ->
            Pass#pass{sending = lists:delete(Batch, Sending), resting = Resting#{Batch => Count}};
        {'DOWN', Monitor, process, _Pid, {done, {ok, Result}}} when is_map_key(Monitor, Running) ->
            {Batch, Others} = maps:take(Monitor, Running),
            done(Result, Pass#pass{running = Others, resting = maps:remove(Batch, Resting)});
        {'DOWN', Monitor, process, _Pid, Reason} when is_map_key(Monitor, Running) ->
            exit(Reason)
    end.

done(#{moved := Moved, other_version := OtherVersion, superseded := Superseded, useless := Useless} = Result, Pass) ->
    #pass{peers = Peers} = Pass,
    Gone = [Peer || Peer <- Peers, lists:member(Peer, Useless)],
    [logger:warning("livestash agent: ~ts takes no stashes from this node.", [Peer]) || Peer <- Gone],
    Pass#pass{
        peers = Peers -- Gone,
        going = Pass#pass.going -- Useless,
        accepted = Pass#pass.accepted + maps:get(accepted, Result),
        moved = Pass#pass.moved + Moved,
        other_version = Pass#pass.other_version + OtherVersion,
        unreadable = Pass#pass.unreadable orelse maps:get(unreadable, Result),
        needless = Pass#pass.needless + Superseded
    }.
