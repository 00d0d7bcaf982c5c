%% Does Redis take a stash? One process holds one connection, which it opens when it is first asked, and ends with its
%% first failure. Whatever the server sends, at most a few KiB of it are read, and its heap is limited.
-module(livestash_agent_redis_connection).

-export([start_link/0, check/1, sums/4]).

-export_type([report/0, ending/0]).

%% What the process that has started this one gets: {Pid, Report}. answered: microseconds of the round trip.
-type report() :: {port, port()} | {answered, non_neg_integer()}.
%% stale: the connection had answered before, and is closed now. Nothing is wrong unless a new one fails.
-type ending() :: stale | {failed, Sentence :: string()}.

%% Milliseconds for each of: reaching the server by one address family, TLS, and the check.
-define(PATIENCE, 2000).
-define(MAX_ANSWER, 4096).
%% What LiveStash does when it stashes, recovers and resets, with the same commands, and nothing is left of it.
-define(SCRIPT, <<
    "redis.call('HGET', KEYS[1], 'payload') "
    "redis.call('HSET', KEYS[1], 'owner_id', 'livestash-agent', 'payload', '') "
    "redis.call('EXPIRE', KEYS[1], 5) "
    "return redis.call('DEL', KEYS[1])"
>>).
%% More than half of all hash slots lie between the two: in a cluster of several masters one of them is elsewhere.
-define(KEYS, [<<"live_stash:agent-check:{right}">>, <<"live_stash:agent-check:{left}">>]).

%% Exits with ending().
-spec start_link() -> pid().
start_link() ->
    Owner = self(),
    spawn_opt(fun() -> run(Owner) end, [link, {max_heap_size, livestash_agent:max_heap_size()}]).

-spec check(pid()) -> ok.
check(Connection) ->
    Connection ! check,
    ok.

%% Logs in over a connection of its own, for the calling process, and gives Redis commands that it answers with some numbers
%% each, one after the other, as long as their sums are wanted and until the deadline in monotonic milliseconds. Returns the
%% sums, and a sentence when Redis or the time has ended it.
-spec sums([[binary()]], Zeros :: [0], IsWanted :: fun(([integer()]) -> boolean()), Deadline :: integer()) ->
    {[integer()], Sentence :: string()}.
sums(Commands, Zeros, IsWanted, Deadline) ->
    case livestash_agent_redis_url:parse(livestash_agent_config:get(redis_url)) of
        {ok, Target} ->
            try open(reach(Target), Target) of
                Connection ->
                    Sums = sums(Connection, Target, Commands, Zeros, IsWanted, Deadline),
                    _ = close(Connection),
                    Sums
            catch
                throw:{failed, Sentence} -> {Zeros, Sentence}
            end;
        {error, Sentence} ->
            {Zeros, Sentence}
    end.

sums(Connection, Target, Commands, Zeros, IsWanted, Deadline) ->
    case exchange(Connection, login(Target)) of
        {ok, _Microseconds} -> add(Connection, Target, Commands, Zeros, IsWanted, Deadline);
        {error, Failure} -> {Zeros, livestash_agent_redis_reason:sentence(Failure, Target)}
    end.

add(_Connection, _Target, [], Sums, _IsWanted, _Deadline) ->
    {Sums, ""};
add(Connection, Target, [Command | Commands], Sums, IsWanted, Deadline) ->
    case {IsWanted(Sums), livestash_agent_clock:ms() < Deadline} of
        {false, _} ->
            {Sums, ""};
        {true, false} ->
            {Sums, "There was no time for the others."};
        {true, true} ->
            case numbers(Connection, Command, length(Sums)) of
                {ok, Numbers} ->
                    add(Connection, Target, Commands, lists:zipwith(fun erlang:'+'/2, Sums, Numbers), IsWanted, Deadline);
                {error, Failure} ->
                    {Sums, livestash_agent_redis_reason:sentence(Failure, Target)}
            end
    end.

close({Transport, Socket}) ->
    Transport:close(Socket).

%% Nothing but a sentence leaves this process, because anything else could hold the password.
run(Owner) ->
    Ending =
        try
            serve(Owner)
        catch
            throw:Thrown -> Thrown;
            _:_:Stack ->
                Where = [{Module, Function} || {Module, Function, _Arguments, _Location} <- Stack],
                {failed, lists:flatten(io_lib:format("The check of Redis has itself failed: ~0p", [Where]))}
        end,
    exit(Ending).

serve(Owner) ->
    receive
        check -> ok
    end,
    case livestash_agent_redis_url:parse(livestash_agent_config:get(redis_url)) of
        {ok, Target} ->
            Socket = reach(Target),
            Owner ! {self(), {port, Socket}},
            serve(Owner, open(Socket, Target), Target, new);
        {error, Sentence} ->
            {failed, Sentence}
    end.

serve(Owner, Connection, Target, Age) ->
    case exchange(Connection, requests(Target)) of
        {ok, Microseconds} ->
            Owner ! {self(), {answered, Microseconds}},
            receive
                check -> serve(Owner, Connection, Target, used)
            end;
        {error, closed} when Age =:= used ->
            stale;
        {error, Failure} ->
            failed(Failure, Target)
    end.

failed(Failure, Target) ->
    {failed, livestash_agent_redis_reason:sentence(Failure, Target)}.

reach(#{host := Host, port := Port} = Target) ->
    case connect(Host, Port) of
        {ok, Socket} -> Socket;
        {error, Reason} -> throw(failed({connect, Reason}, Target))
    end.

connect(Host, Port) ->
    case inet:parse_address(Host) of
        {ok, Address} when tuple_size(Address) =:= 4 -> connect(Address, Port, inet);
        {ok, Address} -> connect(Address, Port, inet6);
        {error, einval} -> connect_by_name(Host, Port)
    end.

connect_by_name(Host, Port) ->
    case connect(Host, Port, inet) of
        {error, nxdomain} ->
            case connect(Host, Port, inet6) of
                {error, eafnosupport} -> {error, nxdomain};
                Result -> Result
            end;
        Result ->
            Result
    end.

connect(Address, Port, Family) ->
    Options = [Family, binary, {active, false}, {nodelay, true}, {buffer, ?MAX_ANSWER}, {send_timeout, ?PATIENCE}],
    gen_tcp:connect(Address, Port, Options, ?PATIENCE).

open(Socket, #{tls := false}) ->
    {gen_tcp, Socket};
open(Socket, Target) ->
    %% Loaded and started by the release or not at all: the agent adds nothing to it.
    whereis(ssl_sup) =/= undefined orelse throw(failed(no_tls, Target)),
    case ssl:connect(Socket, tls_options(Target), ?PATIENCE) of
        {ok, Secured} -> {ssl, Secured};
        {error, Reason} -> throw(failed({tls, Reason}, Target))
    end.

tls_options(#{host := Host} = Target) ->
    Verified = [
        {verify, verify_peer},
        {customize_hostname_check, [{match_fun, public_key:pkix_verify_hostname_match_fun(https)}]},
        %% A handshake that fails is told by the agent, once.
        {log_level, none}
        | authorities(livestash_agent_config:get(redis_cacertfile), Target)
    ],
    case inet:parse_address(Host) of
        {ok, _Address} -> Verified;
        {error, einval} -> [{server_name_indication, Host} | Verified]
    end.

%% Without a CA file as Redix does it: the system's, else those of the package castore.
authorities(undefined, Target) ->
    try
        [{cacerts, public_key:cacerts_get()}]
    catch
        error:_ ->
            try
                [{cacertfile, 'Elixir.CAStore':file_path()}]
            catch
                error:undef -> throw(failed(no_authorities, Target))
            end
    end;
authorities(File, _Target) ->
    [{cacertfile, File}].

%% In one round trip: the login, which is checked each time, because a password may change; the database; the writes.
requests(Target) ->
    login(Target) ++ [{stash, [<<"EVAL">>, ?SCRIPT, <<"1">>, Key], <<":1">>} || Key <- ?KEYS].

login(#{login := Login, database := Database}) ->
    [{login, [<<"AUTH">> | Login], <<"+OK">>} || Login =/= []] ++
        [{database, [<<"SELECT">>, integer_to_binary(Database)], <<"+OK">>} || Database =/= undefined].

exchange({Transport, Socket}, Requests) ->
    Start = erlang:monotonic_time(microsecond),
    Deadline = livestash_agent_clock:ms() + ?PATIENCE,
    case Transport:send(Socket, [encode(Command) || {_Step, Command, _Wanted} <- Requests]) of
        ok ->
            case read(Transport, Socket, Requests, <<>>, Deadline) of
                ok -> {ok, erlang:monotonic_time(microsecond) - Start};
                Failure -> Failure
            end;
        {error, Reason} ->
            {error, lost(Reason)}
    end.

%% The numbers that Redis answers a command with.
numbers({Transport, Socket}, Command, Count) ->
    case Transport:send(Socket, encode(Command)) of
        ok -> read_numbers(Transport, Socket, Count, <<>>, livestash_agent_clock:ms() + ?PATIENCE);
        {error, Reason} -> {error, lost(Reason)}
    end.

read_numbers(Transport, Socket, Count, Answer, Deadline) ->
    Array = <<"*", (integer_to_binary(Count))/binary>>,
    case binary:split(Answer, <<"\r\n">>, [global]) of
        [<<"-", Error/binary>>, <<>>] ->
            {error, {refused, stash, Error}};
        [Array | Lines] when length(Lines) =:= Count + 1 ->
            {ok, [binary_to_integer(Digits) || <<":", Digits/binary>> <- Lines]};
        _ when byte_size(Answer) < ?MAX_ANSWER ->
            case Transport:recv(Socket, 0, livestash_agent_clock:left(Deadline)) of
                {ok, Bytes} -> read_numbers(Transport, Socket, Count, <<Answer/binary, Bytes/binary>>, Deadline);
                {error, Reason} -> {error, lost(Reason)}
            end;
        _ ->
            {error, not_redis}
    end.

encode(Parts) ->
    [$*, integer_to_list(length(Parts)), "\r\n" | [bulk(Part) || Part <- Parts]].

bulk(Part) ->
    [$$, integer_to_list(byte_size(Part)), "\r\n", Part, "\r\n"].

read(Transport, Socket, Requests, Answer, Deadline) ->
    case judge(Requests, Answer) of
        incomplete when byte_size(Answer) < ?MAX_ANSWER ->
            case Transport:recv(Socket, 0, livestash_agent_clock:left(Deadline)) of
                {ok, Bytes} -> read(Transport, Socket, Requests, <<Answer/binary, Bytes/binary>>, Deadline);
                {error, Reason} -> {error, lost(Reason)}
            end;
        incomplete ->
            {error, not_redis};
        Verdict ->
            Verdict
    end.

%% All that is expected is one short line for each request, and the first that is an error tells what is wrong.
judge([], <<>>) ->
    ok;
judge(Requests, Answer) ->
    case binary:split(Answer, <<"\r\n">>) of
        [Line, Rest] -> judge_line(Requests, Line, Rest);
        [Begun] -> judge_begun(binary:bin_to_list(Begun, 0, min(2, byte_size(Begun))))
    end.

judge_line([{_Step, _Command, Line} | Requests], Line, Rest) -> judge(Requests, Rest);
judge_line([{Step, _Command, _Wanted} | _], <<$-, Error/binary>>, _Rest) -> {error, {refused, Step, Error}};
judge_line(_Requests, _Unwanted, _Rest) -> {error, not_redis}.

%% Not everything ends a line. A TLS server answers with a fatal alert.
judge_begun([]) -> incomplete;
judge_begun([21]) -> incomplete;
judge_begun([21, 3]) -> {error, speaks_tls};
judge_begun([Kind | _]) when Kind =:= $+; Kind =:= $-; Kind =:= $: -> incomplete;
judge_begun(_Begun) -> {error, not_redis}.

lost(timeout) -> silent;
lost({tls_alert, _} = Alert) -> {tls, Alert};
lost(_Closed) -> closed.
