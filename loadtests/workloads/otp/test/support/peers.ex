defmodule Workload.Peers do
  @moduledoc """
  Further nodes for the tests, each a VM of its own that runs the workload on a free port and ends with the calling test.
  The tests' own VM is no node, so it is not connected to them.
  """

  @enforce_keys [:vm, :node, :port]
  defstruct @enforce_keys

  @doc "Starts nodes that are connected to each other."
  def start(count, adapter) do
    peers = for _ <- 1..count, do: start_one(:peer.random_name(), adapter)
    for a <- peers, b <- peers, a != b, do: connect(a, b)
    peers
  end

  @doc """
  Starts a node of that name, which connects to those of `sync` before its applications start. `env` is what its environment
  has beside the tests' and the adapter.
  """
  def start_one(name, adapter, sync \\ [], env \\ []) do
    names = "[" <> Enum.map_join(sync, ",", &"'#{&1.node}'") <> "]"

    args =
      ["-setcookie", "tests", "-kernel", "sync_nodes_optional", names, "-kernel", "sync_nodes_timeout", "10000", "-pa"] ++
        :code.get_path()

    {:ok, vm, node} =
      :peer.start_link(%{
        name: to_charlist(name),
        host: ~c"127.0.0.1",
        longnames: true,
        connection: :standard_io,
        env: for({name, value} <- [{"LIVE_STASH_ADAPTER", adapter} | env], do: {~c"#{name}", ~c"#{value}"}),
        args: Enum.map(args, &to_charlist/1)
      })

    {:ok, _apps} = :peer.call(vm, Application, :ensure_all_started, [:workload], 30_000)
    # The tests break things on purpose, and the workload logs it.
    :ok = :peer.call(vm, Logger, :configure, [[level: :critical]])
    %__MODULE__{vm: vm, node: node, port: :peer.call(vm, Workload.Endpoint, :port, [])}
  end

  @doc "Connects two nodes."
  def connect(a, b), do: true = call(a, Node, :connect, [b.node])

  @doc "Ends a node as SIGKILL does."
  def stop(peer), do: :peer.stop(peer.vm)

  @doc "Calls a function on a node."
  def call(peer, module, function, args), do: :peer.call(peer.vm, module, function, args)

  @doc "The only row of a node's table, or nil."
  def row(peer, table) do
    case call(peer, :ets, :tab2list, [table]) do
      [] -> nil
      [row] -> row
    end
  end
end
