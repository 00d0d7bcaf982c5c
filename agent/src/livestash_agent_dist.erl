%% Which connections does distribution use, and how are they? Under the names of prometheus.erl's collector of the same
%% purpose, but without its walk over all ports.
-module(livestash_agent_dist).

-export([connections/0, metrics/0]).

-export_type([connection/0]).

%% Port: the socket. Over TLS it belongs to another process than the one that the VM knows.
-type connection() :: #{
    node := node(), type := dist | tls_sender, controller := port() | pid(), port := port() | undefined
}.

%% The distribution connections that are up.
-spec connections() -> [connection()].
connections() ->
    [connection(Node, Controller) || {Node, Controller} <- erlang:system_info(dist_ctrl)].

connection(Node, Port) when is_port(Port) ->
    #{node => Node, type => dist, controller => Port, port => Port};
connection(Node, Pid) ->
    #{node => Node, type => tls_sender, controller => Pid, port => tls_port(Pid)}.

%% The sender's supervisor has the process that owns the socket as its other child.
tls_port(Sender) ->
    try
        {dictionary, Dictionary} = process_info(Sender, dictionary),
        {'$ancestors', [Supervisor | _]} = lists:keyfind('$ancestors', 1, Dictionary),
        Pids = [Pid || {_Id, Pid, _Type, _Modules} <- supervisor:which_children(Supervisor), is_pid(Pid), Pid =/= Sender],
        hd([Port || Pid <- Pids, {links, Links} <- [process_info(Pid, links)], Port <- Links, is_port(Port)])
    catch
        _:_ -> undefined
    end.

-spec metrics() -> [livestash_agent_metrics:family()].
metrics() ->
    Connections = connections(),
    [
        {"erlang_vm_dist_recv_bytes", gauge, "Bytes received by the socket.", moved(recv_oct, Connections)},
        {"erlang_vm_dist_send_bytes", gauge, "Bytes sent by the socket.", moved(send_oct, Connections)},
        {"erlang_vm_dist_proc_message_queue_len", gauge, "Messages in the process's queue.", messages(Connections)},
        {"erlang_vm_dist_node_queue_size_bytes", gauge, "Bytes in the node's output queue.", queue_sizes(Connections)}
    ].

peer(#{node := Node}) ->
    [{peer, Node}].

moved(Direction, Connections) ->
    [
        {peer(C), Bytes}
     || #{port := Port} = C <- Connections, is_port(Port), {ok, [{_, Bytes}]} <- [inet:getstat(Port, [Direction])]
    ].

messages(Connections) ->
    [
        {peer(C) ++ [{type, Type}], Length}
     || #{type := Type} = C <- Connections, Pid <- owner(C), {_, Length} <- [process_info(Pid, message_queue_len)]
    ].

owner(#{controller := Pid}) when is_pid(Pid) ->
    [Pid];
owner(#{controller := Port}) ->
    [Pid || {connected, Pid} <- [erlang:port_info(Port, connected)]].

%% sys_dist is the kernel's table of connections: nothing else knows the handle that dist_get_stat/1 wants.
queue_sizes(Connections) ->
    [{peer(C), Size} || C <- Connections, Size <- queue_size(C)].

queue_size(#{node := Node}) ->
    try erlang:dist_get_stat(ets:lookup_element(sys_dist, Node, 3)) of
        {ok, _Received, _Sent, Size} when is_integer(Size) -> [Size];
        {ok, _Received, _Sent, Pending} -> [case Pending of true -> -1; false -> 0 end]
    catch
        error:_ -> []
    end.
