%% The check of Redis alone, in the tests' own VM.
-module(livestash_agent_redis_check).

-export([with_check/2, with_check/3, says/1, connection/0]).

-import(livestash_agent_fixture, [environment/1, eventually/1]).

with_check(Url, Test) ->
    with_check(Url, [], Test).

%% Environment: further variables. The check ends with all that it has started.
with_check(Url, Environment, Test) ->
    environment([{"LIVE_STASH_REDIS_URL", Url} | Environment]),
    ok = livestash_agent_config:load(),
    ok = livestash_agent_state:init(),
    {ok, Check} = livestash_agent_redis:start_link(),
    try
        Test()
    after
        Connection = connection(),
        unlink(Check),
        ok = gen_server:stop(Check, shutdown, 5000),
        eventually(fun() -> not (is_pid(Connection) andalso is_process_alive(Connection)) end),
        environment([]),
        livestash_agent_config:load()
    end.

%% Waits until the store is ready, or until the agent says what matches a regular expression. No sentence may hold what
%% the tests have as passwords, or what cannot be printed.
says(ready) ->
    eventually(fun() -> livestash_agent_redis:ready() =:= {true, ""} end);
says(Expected) ->
    eventually(fun() ->
        {Ready, Sentence} = livestash_agent_redis:ready(),
        [error({secret, Sentence}) || re:run(Sentence, "sesame|[^ -~]") =/= nomatch],
        (not Ready andalso re:run(Sentence, Expected) =/= nomatch) orelse Sentence
    end).

%% The process that holds the connection.
connection() ->
    {links, Links} = process_info(whereis(livestash_agent_redis), links),
    case [Pid || Pid <- Links, is_pid(Pid), Pid =/= self()] of
        [Connection] -> Connection;
        [] -> undefined
    end.
