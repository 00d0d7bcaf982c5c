%% A real Redis for tests, which ends with the VM that has started it at the latest.
-module(livestash_agent_redis_server).

-export([start/2, stop/1, command/2]).

%% Arguments: further ones of redis-server. Returns when it accepts connections.
start(Port, Arguments) ->
    Folder = filename:join(os:getenv("TESTS"), "redis." ++ integer_to_list(Port)),
    ok = filelib:ensure_dir(filename:join(Folder, "x")),
    Server = [os:find_executable("redis-server"), "--port", integer_to_list(Port), "--bind", "127.0.0.1", "--save", ""],
    %% The shell ends Redis when its own input ends, however that comes.
    Script = "\"$@\" >log 2>&1 & read -r _; kill -9 $!; wait",
    Shell = open_port({spawn_executable, "/bin/sh"}, [
        {args, ["-c", Script, "sh" | Server ++ Arguments]}, {cd, Folder}, exit_status
    ]),
    livestash_agent_fixture:eventually(fun() -> accepts(Port) end),
    #{port => Port, shell => Shell}.

%% Returns when its port is free.
stop(#{shell := Shell}) ->
    true = port_command(Shell, "\n"),
    receive
        {Shell, {exit_status, _}} -> ok
    end.

%% The answer to a command of words without blanks.
command(#{port := Port}, Command) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}, {packet, line}]),
    ok = gen_tcp:send(Socket, [Command, "\r\n"]),
    {ok, Answer} = gen_tcp:recv(Socket, 0, 20000),
    ok = gen_tcp:close(Socket),
    string:trim(Answer).

accepts(Port) ->
    case gen_tcp:connect({127, 0, 0, 1}, Port, []) of
        {ok, Socket} -> gen_tcp:close(Socket) =:= ok;
        {error, _Refused} -> false
    end.
