defmodule Workload.ClusterTest do
  use ExUnit.Case

  alias Workload.{Client, Cluster, Eventually, Peers}

  @table :live_stash_server_storage
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
    assert Cluster.nodes(hosts, app) == [:"#{app}@pod-0.x", :"#{app}@pod-1.x"]
  end

  test "without names to go by it stays out of the way" do
    assert Cluster.init(@settings) == :ignore
  end

  describe "a stash" do
    setup do
      [a, b, c] = Peers.start(3, :ets)
      page = Client.open("/stash/ets", a.port)
      {client, first} = Client.visit(page)
      Client.click(client, "stash")
      brought = Client.event(first["rendered"], "live-stash:init-ets")
      %{nodes: {a, b, c}, page: page, client: client, returning: %{"_mounts" => 1, "liveStash" => brought}}
    end

    defp return_to(peer, context, returning) do
      {_client, response} = Client.visit(%{context.page | port: peer.port}, returning)
      Map.take(response["rendered"], ["0", "1"])
    end

    test "moves to the node its user returns to", %{nodes: {a, b, _c}} = context do
      assert return_to(b, context, context.returning) == %{"0" => "recovered", "1" => "1"}
      assert Peers.row(a, @table) == nil
      assert {:state, _, owner, _, %{count: 1}, nil} = Peers.row(b, @table)
      assert node(owner) == b.node
    end

    test "that moved is not brought back by the process that is left behind, until that stashes again", context do
      {a, b, _c} = context.nodes
      {:state, _, left_behind, _, _, _} = Peers.row(a, @table)
      assert return_to(b, context, context.returning) == %{"0" => "recovered", "1" => "1"}

      Peers.call(a, :erlang, :send, [left_behind, {:stash, :keep_alive}])
      _ = Peers.call(a, :sys, :get_state, [left_behind])
      assert Peers.row(a, @table) == nil

      # From now on the two nodes tell different stories, as they do with LiveStash.
      Client.click(context.client, "stash")
      assert {:state, _, ^left_behind, _, %{count: 2}, nil} = Peers.row(a, @table)
      assert {:state, _, _, _, %{count: 1}, nil} = Peers.row(b, @table)
    end

    test "is found where it was handed to, though the hint names another node", %{nodes: {a, b, c}} = context do
      row = Peers.row(a, @table)
      Peers.call(a, :ets, :delete_all_objects, [@table])
      Peers.call(c, :ets, :insert, [@table, row])
      assert return_to(b, context, context.returning) == %{"0" => "recovered", "1" => "1"}
      assert Peers.row(c, @table) == nil
    end

    test "is found without a hint", %{nodes: {_a, b, _c}} = context do
      returning = put_in(context.returning, ["liveStash", "node"], nil)
      assert return_to(b, context, returning) == %{"0" => "recovered", "1" => "1"}
    end

    test "comes from the local row before the hinted node, and from there before the others", context do
      {a, b, c} = context.nodes
      row = Peers.row(a, @table)
      Peers.call(c, :ets, :insert, [@table, put_elem(row, 4, %{count: 30})])
      assert return_to(b, context, context.returning) == %{"0" => "recovered", "1" => "1"}
      # The row on c is untouched: nobody had to ask it. On c itself it is the local one and wins.
      assert return_to(c, context, context.returning) == %{"0" => "recovered", "1" => "30"}
    end

    test "is lost with its node", %{nodes: {a, b, _c}} = context do
      Peers.stop(a)
      Eventually.true?(fn -> a.node not in Peers.call(b, Node, :list, []) end)
      assert return_to(b, context, context.returning) == %{"0" => "not_found", "1" => "0"}
    end
  end

  test "a room's message reaches the other nodes" do
    [a, b] = Peers.start(2, :none)

    [here, there] =
      for peer <- [a, b] do
        options = [path: "/socket/websocket", query: %{"vsn" => "2.0.0"}, cookie: nil]
        client = Client.connect(%{port: peer.port, csrf: nil, cookie: nil}, options)
        assert %{"status" => "ok"} = Client.call(client, "1", "room:1", "phx_join", %{})
        client
      end

    # pg tells the nodes about each other in the background.
    Eventually.true?(fn -> length(Peers.call(a, :pg, :get_members, [Workload.PubSub.Nodes, :relays])) == 2 end)
    Client.send_json(here, ["1", "2", "room:1", "publish_msg", %{"n" => 1}])
    assert Client.receive_json(there) == [nil, nil, "room:1", "new_message", %{"n" => 1}]
  end
end
