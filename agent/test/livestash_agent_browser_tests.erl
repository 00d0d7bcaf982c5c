%% Does the agent see the largest stash that a browser carries, and never more of a LiveView than that?
-module(livestash_agent_browser_tests).

-include_lib("eunit/include/eunit.hrl").

-import(livestash_agent_fixture, [start/1, start_with_telemetry/1, stop/1, call/2, call/4, eventually/1, request/2]).

attach_test_() ->
    [{timeout, 60, Test} || Test <- [
        fun largest_token_is_kept/0,
        fun other_adapters_do_not_listen/0,
        fun without_telemetry/0
    ]].

%% LiveView as the agent sees it: what it hands to telemetry when it has rendered.
largest_token_is_kept() ->
    Vm = start_with_telemetry("browser_memory"),
    ok = call(Vm, livestash_agent_browser, attach, []),
    ok = call(Vm, livestash_agent_browser, attach, []),
    ?assertEqual([1, 1], [call(Vm, telemetry, handlers, [Event]) || Event <- events()]),
    ?assertEqual(0, call(Vm, livestash_agent_browser, largest, [])),
    [push(Vm, Event, Size) || Event <- events(), Size <- [100, 2000, 300]],
    ?assertEqual(2000, call(Vm, livestash_agent_browser, largest, [])),
    push(Vm, hd(events()), 12345),
    ?assertMatch({match, _}, re:run(request(Vm, "/status"), "\"largestStashBytes\":12345,")),
    ?assertMatch({match, _}, re:run(request(Vm, "/metrics"), "\nlivestash_largest_stash_bytes 12345\n")),
    ?assertMatch({_, _}, binary:match(last_word(Vm), <<"\"largestStashBytes\":12345,">>)),
    stop(Vm).

%% What a drain without a stash on its node leaves behind.
last_word(Vm) ->
    File = filename:join(os:getenv("TESTS"), "last-word"),
    true = call(Vm, os, putenv, ["LIVESTASH_TERMINATION_LOG", File]),
    Zeros = maps:from_keys([sessions_before, sockets_closed, handed_off, other_version, not_handed_off, milliseconds], 0),
    ok = call(Vm, livestash_agent_report, write, [Zeros#{reason => ""}]),
    {ok, Word} = file:read_file(File),
    Word.

other_adapters_do_not_listen() ->
    Vm = start_with_telemetry("ets"),
    ok = call(Vm, livestash_agent_browser, attach, []),
    ?assertEqual([0, 0], [call(Vm, telemetry, handlers, [Event]) || Event <- events()]),
    stop(Vm).

without_telemetry() ->
    Vm = start(#{environment => #{"LIVE_STASH_ADAPTER" => "browser_memory"}}),
    eventually(fun() -> is_binary(request(Vm, "/healthz")) end),
    ?assertEqual(0, call(Vm, livestash_agent_browser, largest, [])),
    stop(Vm).

no_shape_fails_test_() ->
    Cell = atomics:new(1, []),
    Token = fun(Events) -> #{socket => #{private => #{live_temp => #{push_events => Events}}}} end,
    [
        ?_assertEqual(ok, livestash_agent_browser:handle([a], #{}, Metadata, Cell))
     || Metadata <- [
            #{},
            #{socket => nil},
            #{socket => #{private => #{}}},
            #{socket => #{private => #{live_temp => nil}}},
            Token(nil),
            Token([]),
            Token([nil]),
            Token([[]]),
            Token([[<<"live-stash:stash-state">>]]),
            Token([[<<"live-stash:stash-state">>, #{}]]),
            Token([[<<"live-stash:stash-state">>, #{<<"assigns">> => nil}]]),
            Token([[<<"other">>, #{<<"assigns">> => <<"x">>}] | improper])
        ]
    ] ++ [?_assertEqual(0, atomics:get(Cell, 1))].

events() ->
    [[phoenix, live_view, render, stop], [phoenix, live_view, handle_event, stop]].

push(Vm, Event, Size) ->
    Events = [
        [<<"other">>, #{<<"assigns">> => binary:copy(<<"x">>, 99999)}],
        [<<"live-stash:stash-state">>, #{<<"assigns">> => binary:copy(<<"x">>, Size)}, true]
    ],
    Metadata = #{socket => #{private => #{live_temp => #{push_events => Events}}}},
    ok = call(Vm, telemetry, execute, [Event, #{}, Metadata]).
