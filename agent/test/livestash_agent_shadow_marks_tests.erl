%% Does a page mark its stash whenever that has changed, and only then?
-module(livestash_agent_shadow_marks_tests).

-include_lib("eunit/include/eunit.hrl").

-define(EVENT, [phoenix, live_view, handle_event, stop]).
-define(SECRET, <<"live_stash">>).

marks_test_() ->
    {foreach, fun began/0, fun ended/1, [
        fun() -> ?assertEqual([], marked([context(<<"a">>, nil)])) end,
        fun() -> ?assertEqual([key(<<"a">>)], marked([context(<<"a">>, <<"1">>)])) end,
        %% What is the same is not said again.
        fun() -> ?assertEqual([], marked([context(<<"a">>, <<"1">>), take, context(<<"a">>, <<"1">>)])) end,
        fun() -> ?assertEqual([key(<<"a">>)], marked([context(<<"a">>, <<"1">>), take, context(<<"a">>, <<"2">>)])) end,
        %% A stash that was reset is gone.
        fun() -> ?assertEqual([key(<<"a">>)], marked([context(<<"a">>, <<"1">>), take, context(<<"a">>, nil)])) end,
        %% Under another id than before.
        fun() ->
            Both = lists:sort([key(<<"a">>), key(<<"b">>)]),
            ?assertEqual(Both, marked([context(<<"a">>, <<"1">>), take, context(<<"b">>, nil)]))
        end,
        fun() -> ?assertEqual([], marked([maps:remove(stash_fingerprint, context(<<"a">>, <<"1">>))])) end,
        %% A page that has come back and found nothing is known until it stashes, or ends.
        fun() ->
            Anew = (context(<<"a">>, nil))#{'reconnected?' => true},
            Test = self(),
            Page = spawn(fun() ->
                [see(Anew) || _ <- [mounted, rendered]],
                Test ! {livestash_agent_shadow_marks:begins_anew(key(<<"a">>)), livestash_agent_shadow_marks:take(10)},
                see(context(<<"a">>, <<"1">>)),
                Test ! {livestash_agent_shadow_marks:begins_anew(key(<<"a">>)), livestash_agent_shadow_marks:take(10)}
            end),
            ?assertEqual({true, []}, receive First -> First end),
            ?assertEqual({false, [key(<<"a">>)]}, receive Then -> Then end),
            [livestash_agent_fixture:kill(Page) || is_process_alive(Page)],
            {Other, Monitor} = spawn_monitor(fun() -> see(Anew) end),
            receive {'DOWN', Monitor, process, Other, normal} -> ok end,
            ?assertNot(livestash_agent_shadow_marks:begins_anew(key(<<"a">>))),
            ?assertEqual(1, ets:info(livestash_agent_shadow_anew, size)),
            ok = livestash_agent_shadow_marks:forget_ended(),
            ?assertEqual(0, ets:info(livestash_agent_shadow_anew, size))
        end,
        %% A request without a socket.
        fun() ->
            #{socket := Socket} = socket(context(<<"a">>, <<"1">>)),
            ok = livestash_agent_shadow_marks:handle(?EVENT, #{}, #{socket => Socket#{transport_pid := nil}}, []),
            ?assertEqual([], livestash_agent_shadow_marks:take(10))
        end,
        fun() ->
            [livestash_agent_shadow_marks:mark(Number) || Number <- lists:seq(1, 10)],
            Taken = [livestash_agent_shadow_marks:take(4) || _ <- lists:seq(1, 4)],
            ?assertEqual([[], lists:seq(1, 10)], [lists:last(Taken), lists:sort(lists:append(Taken))])
        end
    ]}.

no_shape_fails_test_() ->
    [
        ?_assertEqual(ok, livestash_agent_shadow_marks:handle(?EVENT, #{}, Metadata, []))
     || Metadata <- [
            #{},
            #{socket => nil},
            #{socket => #{private => nil}},
            socket(nil),
            socket(#{}),
            socket((context(<<"a">>, nil))#{id := 1})
        ]
    ].

%% The agent may have ended.
no_table_fails_test() ->
    ?assertEqual(ok, livestash_agent_shadow_marks:handle(?EVENT, #{}, socket(context(<<"b">>, <<"1">>)), [])).

%% In a release. The telemetry of the tests is there only after it has booted.
release_test_() ->
    {timeout, 60, fun() ->
        Vm = livestash_agent_fixture:start(#{
            environment => #{"LIVE_STASH_ADAPTER" => "ets", "LIVESTASH_SHADOW_COPIES" => "1"},
            flags => ["-pa", os:getenv("TESTS")]
        }),
        {module, telemetry} = livestash_agent_fixture:call(Vm, code, load_file, [telemetry]),
        livestash_agent_fixture:eventually(fun() -> is_pid(server(Vm)) end),
        true = livestash_agent_fixture:call(Vm, erlang, exit, [server(Vm), kill]),
        livestash_agent_fixture:eventually(fun() ->
            [1, 1, 1] =:= [
                livestash_agent_fixture:call(Vm, telemetry, handlers, [[phoenix, live_view, Event, stop]])
             || Event <- [handle_params, handle_event, render]
            ]
        end),
        livestash_agent_fixture:stop(Vm)
    end}.

server(Vm) ->
    livestash_agent_fixture:call(Vm, erlang, whereis, [livestash_agent_shadow]).

%% A page, and the test in between, which takes what is marked. Returns what is marked in the end.
marked(Contexts) ->
    {Page, Monitor} = spawn_monitor(fun() -> lists:foreach(fun see/1, Contexts) end),
    receive
        {'DOWN', Monitor, process, Page, normal} -> lists:sort(livestash_agent_shadow_marks:take(10))
    end.

see(take) -> livestash_agent_shadow_marks:take(10);
see(Context) -> ok = livestash_agent_shadow_marks:handle(?EVENT, #{}, socket(Context), []).

socket(Context) ->
    #{socket => #{transport_pid => self(), private => #{live_stash_context => Context}}}.

context(Id, Fingerprint) ->
    #{id => Id, secret => ?SECRET, stash_fingerprint => Fingerprint, ttl => 300}.

%% LiveStash's own.
key(Id) ->
    string:trim(base64:encode(crypto:hash(sha256, <<Id/binary, ?SECRET/binary>>)), trailing, "=").

began() ->
    livestash_agent_shadow_marks:new().

ended(ok) ->
    [ets:delete(Set) || Set <- [livestash_agent_shadow_marks, livestash_agent_shadow_anew]].
