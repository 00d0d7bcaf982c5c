%% Which connections does distribution use, and how are they? Under the names of prometheus.erl's collector of the same
%% purpose, but without its walk over all ports.
-module(livestash_agent_dist).

-export([connections/0, metrics/0]).

-export_type([connection/0]).

%% Port: the socket. Over TLS it belongs to another process than the one that the VM knows.
-type connection() :: #{
    node := node(), type := dist | tls_sender, controller := port() | pid(), port := port() | undefined
}.

-define(INET, [
    {recv_bytes, recv_oct, "Bytes received by the socket."},
    {recv_cnt, recv_cnt, "Packets received by the socket."},
    {recv_max_bytes, recv_max, "Size of the largest packet received by the socket."},
    {recv_avg_bytes, recv_avg, "Average size of packets received by the socket."},
    {recv_dvi_bytes, recv_dvi, "Average deviation of the size of packets received by the socket."},
    {send_bytes, send_oct, "Bytes sent by the socket."},
    {send_cnt, send_cnt, "Packets sent by the socket."},
    {send_max_bytes, send_max, "Size of the largest packet sent by the socket."},
    {send_avg_bytes, send_avg, "Average size of packets sent by the socket."},
    {send_pend_bytes, send_pend, "Bytes waiting to be sent by the socket."}
]).
-define(PORT, [
    {port_input_bytes, input, "Bytes read from the port."},
    {port_output_bytes, output, "Bytes written to the port."},
    {port_memory_bytes, memory, "Bytes allocated for the port by the runtime system."},
    {port_queue_size_bytes, queue_size, "Bytes queued by the port."}
]).
-define(PROCESS, [
    {proc_memory_bytes, memory, "Bytes of the process."},
    {proc_heap_size_words, heap_size, "Words of the process's youngest heap."},
    {proc_total_heap_size_words, total_heap_size, "Words of all of the process's heaps."},
    {proc_stack_size_words, stack_size, "Words of the process's stack."},
    {proc_message_queue_len, message_queue_len, "Messages in the process's queue."},
    {proc_reductions, reductions, "Reductions executed by the process."},
    {proc_status, status, "exiting=1, suspended=2, runnable=3, garbage_collecting=4, running=5, waiting=6."}
]).

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
    Ports = [{peer(Connection), Port} || #{port := Port} = Connection <- Connections, is_port(Port)],
    Sockets = [{Peer, Stat} || {Peer, Port} <- Ports, {ok, Stat} <- [inet:getstat(Port)]],
    Processes = processes(Connections),
    [gauge(Name, Help, values(Key, Sockets)) || {Name, Key, Help} <- ?INET] ++
        [gauge(Name, Help, port_values(Key, Ports)) || {Name, Key, Help} <- ?PORT] ++
        [gauge(Name, Help, values(Key, Processes)) || {Name, Key, Help} <- ?PROCESS] ++
        [
            gauge(node_state, "pending=1, up_pending=2, up=3.", [{peer(C), 3} || C <- Connections]),
            gauge(node_queue_size_bytes, "Bytes in the node's output queue.", queue_sizes(Connections))
        ].

gauge(Name, Help, Values) ->
    {["erlang_vm_dist_", atom_to_list(Name)], gauge, Help, Values}.

peer(#{node := Node}) ->
    [{peer, Node}].

values(Key, All) ->
    [{Labels, value(Key, Info)} || {Labels, Info} <- All].

port_values(Key, Ports) ->
    [{Peer, Value} || {Peer, Port} <- Ports, {_, Value} <- [erlang:port_info(Port, Key)]].

processes(Connections) ->
    Keys = [Key || {_Name, Key, _Help} <- ?PROCESS],
    [
        {peer(C) ++ [{type, Type}], Info}
     || #{type := Type} = C <- Connections, Pid <- owner(C), Info <- [process_info(Pid, Keys)], is_list(Info)
    ].

owner(#{controller := Pid}) when is_pid(Pid) ->
    [Pid];
owner(#{controller := Port}) ->
    [Pid || {connected, Pid} <- [erlang:port_info(Port, connected)]].

value(status, Info) ->
    Statuses = [exiting, suspended, runnable, garbage_collecting, running, waiting],
    length(lists:takewhile(fun(Status) -> Status =/= proplists:get_value(status, Info) end, Statuses)) + 1;
value(Key, Values) ->
    proplists:get_value(Key, Values).

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
