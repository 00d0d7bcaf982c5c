%% What does one scrape cost with 100 processes, and with 50,000 and 10,000 stashes?
-module(livestash_agent_bench).

-export([main/0]).

-define(SCRAPES, 201).

-spec main() -> no_return().
main() ->
    logger:set_primary_config(level, error),
    Options = [named_table, public, {keypos, 2}, {write_concurrency, true}, {decentralized_counters, true}],
    live_stash_server_storage = ets:new(live_stash_server_storage, Options),
    Without = memory(),
    ok = application:start(livestash_agent),
    _ = [scrape() || _ <- lists:seq(1, 20)],
    io:format("memory that the agent adds: ~b KiB~n~n", [(memory() - Without) div 1024]),
    Small = measure("100 processes, 0 stashes", 100, 0),
    Full = measure("50,000 processes, 10,000 stashes", 50000, 10000),
    io:format("~-36s ~6.2f            ~6.2f~n", ["ratio" | [F / S || {F, S} <- lists:zip(Full, Small)]]),
    halt().

memory() ->
    [erlang:garbage_collect(Pid) || Pid <- processes()],
    erlang:memory(total).

%% Reductions are counted in the process that answers; the time is the median's.
measure(Name, Processes, Stashes) ->
    Missing = Processes - erlang:system_info(process_count),
    [spawn_link(fun() -> receive after infinity -> ok end end) || _ <- lists:seq(1, Missing)],
    Payload = maps:from_list([{Key, Key} || Key <- lists:seq(1, 150)]),
    ets:insert(live_stash_server_storage, [{state, Id, self(), 0, Payload, nil} || Id <- lists:seq(1, Stashes)]),
    _ = [scrape() || _ <- lists:seq(1, 20)],
    Scrapes = [scrape() || _ <- lists:seq(1, ?SCRAPES)],
    Reductions = median([R || {R, _} <- Scrapes]),
    Microseconds = median([T || {_, T} <- Scrapes]),
    io:format("~-36s ~6b reductions ~6b microseconds~n", [Name, Reductions, Microseconds]),
    [Reductions, Microseconds].

%% In a process of its own, as the server does it.
scrape() ->
    {_Pid, Monitor} = spawn_monitor(fun() ->
        Start = erlang:monotonic_time(microsecond),
        _ = iolist_to_binary(livestash_agent_metrics:text()),
        {reductions, Reductions} = process_info(self(), reductions),
        exit({Reductions, erlang:monotonic_time(microsecond) - Start})
    end),
    receive
        {'DOWN', Monitor, process, _, Cost} -> Cost
    end.

median(Values) ->
    lists:nth(1 + length(Values) div 2, lists:sort(Values)).
