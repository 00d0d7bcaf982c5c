%% A DNS server for tests: answers SRV questions with the targets it was told, or badly.
-module(livestash_agent_dns).

-export([start/1, answer/2, stop/1]).

%% Answer: the targets | nxdomain | garbage | silence.
start(Answer) ->
    Parent = self(),
    Pid = spawn(fun() ->
        {ok, Socket} = gen_udp:open(0, [binary, {active, true}, {ip, {127, 0, 0, 1}}]),
        {ok, Port} = inet:port(Socket),
        Parent ! {self(), Port},
        loop(Socket, Answer)
    end),
    receive
        {Pid, Port} -> {Pid, Port}
    end.

answer({Pid, _Port}, Answer) ->
    Pid ! {answer, Answer},
    ok.

stop({Pid, _Port}) ->
    exit(Pid, kill).

loop(Socket, Answer) ->
    receive
        {answer, New} ->
            loop(Socket, New);
        {udp, Socket, Address, Port, Packet} ->
            [gen_udp:send(Socket, Address, Port, Reply) || Reply <- reply(Answer, Packet)],
            loop(Socket, Answer)
    end.

reply(silence, _Packet) ->
    [];
reply(garbage, _Packet) ->
    [<<"this is no DNS message">>];
%% The header, the counts and the question are taken over; names are not compressed.
reply(nxdomain, <<Id:16, _Flags:16, _Counts:8/binary, Question/binary>>) ->
    [<<Id:16, 16#8183:16, 1:16, 0:16, 0:16, 0:16, (question(Question))/binary>>];
reply(Targets, <<Id:16, _Flags:16, _Counts:8/binary, Question/binary>>) ->
    Records = << <<16#c00c:16, 33:16, 1:16, 5:32, (byte_size(Name) + 6):16, 0:16, 0:16, 4000:16, Name/binary>> || Name <- [name(Target) || Target <- Targets] >>,
    [<<Id:16, 16#8180:16, 1:16, (length(Targets)):16, 0:16, 0:16, (question(Question))/binary, Records/binary>>].

%% Without the record for EDNS that may follow.
question(Packet) ->
    {Start, 1} = binary:match(Packet, <<0>>),
    binary:part(Packet, 0, Start + 5).

name(Target) ->
    Labels = binary:split(list_to_binary(Target), <<".">>, [global]),
    <<<< <<(byte_size(Label)), Label/binary>> || Label <- Labels >>/binary, 0>>.
