defmodule Workload.ClusterTest do
  use ExUnit.Case

  alias Workload.{Client, Cluster, Peers}

  @settings %{service: "shop-nodes", namespace: "prod", app: "shop"}

  test "the SRV name has the domain of the node's own name" do
    assert Cluster.srv_name(@settings, :"shop@shop-0.shop-nodes.prod.svc.cluster.local") ==
             {:ok, "shop-nodes.prod.svc.cluster.local."}

    assert Cluster.srv_name(@settings, :"shop@shop-0.shop-nodes.prod.svc.k8s.example.com") ==
             {:ok, "shop-nodes.prod.svc.k8s.example.com."}

    assert Cluster.srv_name(@settings, :"shop@127.0.0.1") == :error
  end

  test "the nodes are the app at every target, once, without this node" do
    [app, own] = Node.self() |> Atom.to_string() |> String.split("@")
    hosts = [~c"pod-0.x", ~c"pod-1.x", ~c"pod-0.x", String.to_charlist(own)]
    assert Cluster.nodes(hosts, app) == [:"tests@pod-0.x", :"tests@pod-1.x"]
  end

  test "without names to go by it stays out of the way" do
    assert Cluster.init(@settings) == :ignore
  end

  describe "a stash" do
    setup do
      [a, b, c] = Peers.start(3)
      page = Client.open("/stash/ets", Peers.port(a))
      {client, first} = Client.visit(page)
      Client.click(client, "stash")
      Client.close(client)
      brought = Client.event(first["rendered"], "live-stash:init-ets")
      %{nodes: {a, b, c}, page: page, returning: %{"_mounts" => 1, "liveStash" => brought}}
    end

    defp return_to(node, context, returning) do
      {_client, response} = Client.visit(%{context.page | port: Peers.port(node)}, returning)
      Map.take(response["rendered"], ["0", "1"])
    end

    test "moves to the node its user returns to", %{nodes: {a, b, _c}} = context do
      assert return_to(b, context, context.returning) == %{"0" => "recovered", "1" => "1"}
      assert Peers.row(a) == nil
      assert {:state, _, owner, _, %{count: 1}, nil} = Peers.row(b)
      assert node(owner) == b
    end

    test "is found where it was handed to, though the hint names another node", %{nodes: {a, b, c}} = context do
      row = Peers.row(a)
      :erpc.call(a, :ets, :delete_all_objects, [:live_stash_server_storage])
      :erpc.call(c, :ets, :insert, [:live_stash_server_storage, row])
      assert return_to(b, context, context.returning) == %{"0" => "recovered", "1" => "1"}
      assert Peers.row(c) == nil
    end

    test "is found without a hint", %{nodes: {_a, b, _c}} = context do
      returning = put_in(context.returning, ["liveStash", "node"], nil)
      assert return_to(b, context, returning) == %{"0" => "recovered", "1" => "1"}
    end

    test "comes from the local row before the hinted node, and from there before the others", context do
      {a, b, c} = context.nodes
      row = Peers.row(a)
      :erpc.call(c, :ets, :insert, [:live_stash_server_storage, put_elem(row, 4, %{count: 30})])
      assert return_to(b, context, context.returning) == %{"0" => "recovered", "1" => "1"}
      # The row on c is untouched: nobody had to ask it. On c itself it is the local one and wins.
      assert return_to(c, context, context.returning) == %{"0" => "recovered", "1" => "30"}
    end

    test "is lost with its node", %{nodes: {a, b, _c}} = context do
      :erpc.cast(a, :erlang, :halt, [0])
      wait_until(fn -> a not in :erpc.call(b, Node, :list, []) end)
      assert return_to(b, context, context.returning) == %{"0" => "not_found", "1" => "0"}
    end
  end

  test "a room's message reaches the other nodes" do
    [a, b] = Peers.start(2)

    [here, there] =
      for node <- [a, b] do
        options = [path: "/socket/websocket", query: %{"vsn" => "2.0.0"}, cookie: nil]
        client = Client.connect(%{port: Peers.port(node), csrf: nil, cookie: nil}, options)
        assert %{"status" => "ok"} = Client.call(client, "1", "room:1", "phx_join", %{})
        client
      end

    # pg tells the nodes about each other in the background.
    wait_until(fn -> length(:erpc.call(a, :pg, :get_members, [Workload.PubSub.Nodes, :relays])) >= 2 end)
    Client.send_json(here, ["1", "2", "room:1", "publish_msg", %{"n" => 1}])
    assert Client.receive_json(there) == [nil, nil, "room:1", "new_message", %{"n" => 1}]
  end

  defp wait_until(condition, tries \\ 200) do
    cond do
      condition.() -> :ok
      tries == 0 -> flunk("It did not happen within 4 s.")
      true -> Process.sleep(20) && wait_until(condition, tries - 1)
    end
  end
end
