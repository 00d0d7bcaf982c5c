-module(livestash_agent_rank_tests).

-include_lib("eunit/include/eunit.hrl").

-export([page/0]).

%% Milliseconds: more than between two births that are remembered.
-define(LATER, 600).

rank_test_() ->
    {setup, fun start/0, fun livestash_agent_fixture:kill/1, fun(_) ->
        [
            {Name, {timeout, 60, Test}}
         || {Name, Test} <- [
                {"the younger page's version is right, whatever the older one does", fun younger_page/0},
                {"of one page, the later write", fun later_write/0},
                {"a page that has ended has its birth", fun ended_page/0},
                {"a row without a page ranks below all others", fun without_page/0},
                {"what peers leave is known when they are gone", fun learnt/0}
            ]
        ]
    end}.

start() ->
    {ok, Pid} = livestash_agent_rank:start_link(),
    unlink(Pid),
    timer:sleep(?LATER),
    Pid.

younger_page() ->
    First = page(),
    timer:sleep(?LATER),
    Last = page(),
    exit(Last, kill),
    %% It lives on, and has moved the end of its row's time on.
    ?assert(livestash_agent_rank:rank(row(Last, 1000)) > livestash_agent_rank:rank(row(First, 2000))).

later_write() ->
    Page = page(),
    ?assert(livestash_agent_rank:rank(row(Page, 1001)) > livestash_agent_rank:rank(row(Page, 1000))).

ended_page() ->
    Before = os:system_time(millisecond),
    Page = page(),
    After = os:system_time(millisecond),
    exit(Page, kill),
    timer:sleep(?LATER),
    Birth = livestash_agent_rank:birth(Page),
    ?assert(Birth > Before - ?LATER),
    ?assert(Birth =< After),
    %% Nothing that was remembered is older than the process that remembers.
    ?assert(livestash_agent_rank:birth(whereis(init)) < Before - ?LATER),
    ?assert(livestash_agent_rank:birth(whereis(init)) > 0).

without_page() ->
    Ranks = [livestash_agent_rank:rank(Row) || Row <- [{state, key}, {state, key, 5, value}, row(page(), 0)]],
    [None, None, Least] = Ranks,
    ?assert(Least > None).

learnt() ->
    Vm = livestash_agent_fixture:start(#{}),
    {Page, Birth, Births} = livestash_agent_fixture:call(Vm, fun() ->
        timer:sleep(?LATER),
        Page = page(),
        timer:sleep(?LATER),
        {Page, livestash_agent_rank:birth(Page), livestash_agent_rank:births()}
    end),
    ?assertEqual(0, livestash_agent_rank:birth(Page)),
    ok = livestash_agent_rank:learn(Births),
    livestash_agent_fixture:stop(Vm),
    livestash_agent_fixture:eventually(fun() -> livestash_agent_rank:birth(Page) =:= Birth end),
    ?assert(Birth > os:system_time(millisecond) - 60000).

row(Page, Until) ->
    {state, key, Page, Until, #{}, undefined}.

page() ->
    spawn(fun() -> receive stop -> ok end end).
