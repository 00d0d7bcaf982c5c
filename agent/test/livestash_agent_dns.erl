%% A DNS server for tests: answers SRV questions with the targets it was told, or badly. An answer that is too long for a
%% datagram is cut off there, and whole over TCP, as with CoreDNS.
-module(livestash_agent_dns).

-export([with_dns/4, serve/2, answer/2]).

-import(livestash_agent_fixture, [start/1, stop/1, call/4, eventually/1]).

%% Bytes of a datagram, for who does not say that it takes more.
-define(DATAGRAM, 512).

%% Tests with a VM whose resolver asks such a server from the agent's first question on.
%% Answer: the targets | nxdomain | garbage | silence. AppName: what the peers' names have before the @.
with_dns(Answer, AppName, Test, Options) ->
    {Server, Environment} = serve(Answer, AppName),
    Given = maps:get(environment, Options, #{}),
    Vm = start(Options#{environment => maps:merge(Environment, Given)}),
    eventually(fun() -> is_pid(call(Vm, erlang, whereis, [livestash_agent_mesh])) end),
    Test(Vm, Server),
    stop(Vm),
    exit(Server, kill).

%% Such a server, and the environment of VMs that ask it.
serve(Answer, AppName) ->
    {Server, Port} = server(Answer),
    Inetrc = filename:join(os:getenv("TESTS"), "inetrc." ++ integer_to_list(Port)),
    Lines = "{resolv_conf, \"\"}.~n{nameserver, {127,0,0,1}, ~b}.~n{timeout, 300}.~n{retry, 1}.~n",
    ok = file:write_file(Inetrc, io_lib:format(Lines, [Port])),
    {Server, #{"LIVESTASH_PEERS_QUERY" => "nodes.test", "LIBCLUSTER_APP" => AppName, "ERL_INETRC" => Inetrc}}.

server(Answer) ->
    Parent = self(),
    Pid = spawn(fun() ->
        {Socket, Port, Listener} = open(),
        Self = self(),
        spawn_link(fun() -> accept(Listener, Self) end),
        Parent ! {self(), Port},
        loop(Socket, Answer)
    end),
    receive
        {Pid, Port} -> {Pid, Port}
    end.

%% A port that is free for datagrams may be somebody's connection.
open() ->
    {ok, Socket} = gen_udp:open(0, [binary, {active, true}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Socket),
    case gen_tcp:listen(Port, [binary, {packet, 2}, {active, false}, {ip, {127, 0, 0, 1}}, {backlog, 128}]) of
        {ok, Listener} ->
            {Socket, Port, Listener};
        {error, eaddrinuse} ->
            ok = gen_udp:close(Socket),
            open()
    end.

%% From now on the server answers this.
answer(Server, Answer) ->
    Server ! {answer, Answer},
    ok.

loop(Socket, Answer) ->
    receive
        {answer, New} ->
            loop(Socket, New);
        {udp, Socket, Address, Port, Packet} ->
            [gen_udp:send(Socket, Address, Port, cut(Reply)) || Reply <- reply(Answer, Packet)],
            loop(Socket, Answer);
        {tcp, Connection, Packet} ->
            [gen_tcp:send(Connection, Reply) || Reply <- reply(Answer, Packet)],
            loop(Socket, Answer)
    end.

%% Questions that come over TCP go to the server.
accept(Listener, Server) ->
    {ok, Connection} = gen_tcp:accept(Listener),
    spawn(fun() -> pass_on(Connection, Server) end),
    accept(Listener, Server).

pass_on(Connection, Server) ->
    case gen_tcp:recv(Connection, 0) of
        {ok, Packet} ->
            Server ! {tcp, Connection, Packet},
            pass_on(Connection, Server);
        {error, closed} ->
            ok
    end.

%% Nothing but the question, and the bit that says so.
cut(<<Id:16, Flags:16, _Counts:8/binary, Rest/binary>> = Reply) when byte_size(Reply) > ?DATAGRAM ->
    <<Id:16, (Flags bor 16#0200):16, 1:16, 0:16, 0:16, 0:16, (question(Rest))/binary>>;
cut(Reply) ->
    Reply.

reply(silence, _Packet) ->
    [];
reply(garbage, _Packet) ->
    [<<"this is no DNS message">>];
%% The header, the counts and the question are taken over; names are not compressed.
reply(nxdomain, <<Id:16, _Flags:16, _Counts:8/binary, Question/binary>>) ->
    [<<Id:16, 16#8183:16, 1:16, 0:16, 0:16, 0:16, (question(Question))/binary>>];
reply(Targets, <<Id:16, _Flags:16, _Counts:8/binary, Question/binary>>) ->
    Header = <<Id:16, 16#8180:16, 1:16, (length(Targets)):16, 0:16, 0:16>>,
    [iolist_to_binary([Header, question(Question) | [record(name(Target)) || Target <- Targets]])].

%% Of the name that was asked for, by a pointer to it.
record(Name) ->
    <<16#c00c:16, 33:16, 1:16, 5:32, (byte_size(Name) + 6):16, 0:16, 0:16, 4000:16, Name/binary>>.

%% Without the record for EDNS that may follow.
question(Packet) ->
    {Start, 1} = binary:match(Packet, <<0>>),
    binary:part(Packet, 0, Start + 5).

name(Target) ->
    Labels = binary:split(list_to_binary(Target), <<".">>, [global]),
    <<<< <<(byte_size(Label)), Label/binary>> || Label <- Labels >>/binary, 0>>.
