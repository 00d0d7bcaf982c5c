%% What does one scrape cost with 100 processes, and with 50,000 and 10,000 stashes? And what does it cost to see whether 10,000 pages own their stashes
%% in Mnesia, which is done every 5 seconds?
-module(livestash_agent_bench).

-export([main/0]).

-define(SCRAPES, 201).
-define(LOOKS, 21).
-define(MNESIA, 'Elixir.LiveStash.Adapters.Mnesia.State').

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
    io:format("~-36s ~6.2f            ~6.2f~n~n", ["ratio" | [F / S || {F, S} <- lists:zip(Full, Small)]]),
    look(10000),
    halt().

look(Pages) ->
    {ok, _} = livestash_agent_pages:start_link(),
    ok = mnesia:start(),
    {atomic, ok} = mnesia:create_table(?MNESIA, [{attributes, [id, pid, delete_at, state]}]),
    [page(N) || N <- lists:seq(1, Pages)],
    Payload = payload(),
    Write = fun(Some) -> [ok = mnesia:dirty_write({?MNESIA, Key, Page, 4000000000, Payload}) || {Page, Key} <- Some] end,
    Pages = length(lists:append(livestash_agent_pages:had(Write, Pages))),
    Bytes = ets:info(livestash_agent_pages, memory) * erlang:system_info(wordsize) div Pages,
    Looks = [run(fun() -> 0 = livestash_agent_owners:look() end) || _ <- lists:seq(1, ?LOOKS)],
    show("a look at the owners of 10,000 pages", Looks),
    io:format("memory that each page takes: ~b bytes~n", [Bytes]).

page(N) ->
    Bench = self(),
    Context = #{id => integer_to_binary(N), secret => <<"live_stash">>, ttl => 300, stash_fingerprint => <<"hash">>},
    Page = spawn_link(fun() ->
        Socket = #{transport_pid => self(), private => #{live_stash_context => Context}},
        ok = livestash_agent_pages:handle([phoenix, live_view, mount, stop], #{}, #{socket => Socket}, []),
        Bench ! {self(), shown},
        receive after infinity -> ok end
    end),
    receive
        {Page, shown} -> ok
    end.

memory() ->
    [erlang:garbage_collect(Pid) || Pid <- processes()],
    erlang:memory(total).

%% Reductions are counted in the process that answers; the time is the median's.
measure(Name, Processes, Stashes) ->
    Missing = Processes - erlang:system_info(process_count),
    [spawn_link(fun() -> receive after infinity -> ok end end) || _ <- lists:seq(1, Missing)],
    ets:insert(live_stash_server_storage, [{state, Id, self(), 0, payload(), nil} || Id <- lists:seq(1, Stashes)]),
    _ = [scrape() || _ <- lists:seq(1, 20)],
    show(Name, [scrape() || _ <- lists:seq(1, ?SCRAPES)]).

payload() ->
    maps:from_list([{Key, Key} || Key <- lists:seq(1, 150)]).

show(Name, Costs) ->
    Reductions = median([R || {R, _} <- Costs]),
    Microseconds = median([T || {_, T} <- Costs]),
    io:format("~-36s ~6b reductions ~6b microseconds~n", [Name, Reductions, Microseconds]),
    [Reductions, Microseconds].

scrape() ->
    run(fun() -> iolist_to_binary(livestash_agent_metrics:text()) end).

%% In a process of its own, as a server does it.
run(Work) ->
    {_Pid, Monitor} = spawn_monitor(fun() ->
        Start = erlang:monotonic_time(microsecond),
        _ = Work(),
        {reductions, Reductions} = process_info(self(), reductions),
        exit({Reductions, erlang:monotonic_time(microsecond) - Start})
    end),
    receive
        {'DOWN', Monitor, process, _, Cost} -> Cost
    end.

median(Values) ->
    lists:nth(1 + length(Values) div 2, lists:sort(Values)).
