defmodule Workload.Peers do
  @moduledoc "Further nodes for the tests, each a VM of its own that runs the whole workload on a free port."

  @doc "Starts connected nodes that end with the calling test. Returns their names."
  def start(count) do
    nodes = for _ <- 1..count, do: start_one()
    for a <- nodes, b <- nodes, a != b, do: true = :erpc.call(a, Node, :connect, [b])
    nodes
  end

  @doc "The port a node serves HTTP on."
  def port(node), do: :erpc.call(node, Workload.Endpoint, :port, [])

  @doc "The only row of a node's stash table, or nil."
  def row(node) do
    case :erpc.call(node, :ets, :tab2list, [:live_stash_server_storage]) do
      [] -> nil
      [row] -> row
    end
  end

  defp start_one do
    {:ok, _peer, node} =
      :peer.start_link(%{
        name: :peer.random_name(),
        host: ~c"127.0.0.1",
        longnames: true,
        args: [~c"-setcookie", Atom.to_charlist(Node.get_cookie()), ~c"-pa" | :code.get_path()]
      })

    {:ok, _apps} = :erpc.call(node, Application, :ensure_all_started, [:workload])
    :ok = :erpc.call(node, Logger, :configure, [[level: :critical]])
    node
  end
end
