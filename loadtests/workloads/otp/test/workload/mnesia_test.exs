defmodule Workload.MnesiaTest do
  use ExUnit.Case

  alias Workload.{Client, Eventually, Peers}
  alias Workload.Stash.Mnesia.Table

  @table LiveStash.Adapters.Mnesia.State

  describe "a row" do
    setup do
      {:atomic, :ok} = :mnesia.clear_table(@table)
      page = Client.open("/stash/mnesia")
      {client, first} = Client.visit(page)
      Client.click(client, "stash")
      brought = Client.event(first["rendered"], "live-stash:init-mnesia")
      %{page: page, client: client, returning: %{"_mounts" => 1, "liveStash" => brought}}
    end

    defp rows, do: :ets.tab2list(@table)

    defp keep_alive(owner) do
      send(owner, {:stash, :keep_alive})
      _ = :sys.get_state(owner)
    end

    test "has LiveStash's layout and is owned by the page's process", context do
      assert [{@table, key, owner, delete_at, state}] = rows()
      id = context.returning["liveStash"]["stashId"]
      assert key == Base.encode64(:crypto.hash(:sha256, id <> "live_stash"), padding: false)
      assert delete_at in (System.os_time(:second) + 295)..(System.os_time(:second) + 300)
      assert Enum.sort(Map.keys(state)) == [:count, :payload]
      assert Process.alive?(owner)
      assert :mnesia.table_info(@table, :storage_type) == :ram_copies
      assert :mnesia.table_info(@table, :attributes) == [:id, :pid, :delete_at, :state]
    end

    test "is taken over by the process its user returns to, and stays with that one", context do
      [{@table, key, first_owner, _, _}] = rows()
      {_second, again} = Client.visit(context.page, context.returning)
      assert %{"0" => "recovered", "1" => "1"} = again["rendered"]
      assert [{@table, ^key, owner, _, %{count: 1}}] = rows()
      assert owner != first_owner

      # The first process may renew the row, but what it stashes now is not stored.
      assert %{"status" => "ok"} = Client.click(context.client, "stash")
      keep_alive(first_owner)
      assert [{@table, ^key, ^owner, _, %{count: 1}}] = rows()
    end

    test "that is gone is brought back by the next stash, not by being renewed", context do
      [{@table, key, owner, _, _}] = rows()
      :ok = :mnesia.dirty_delete(@table, key)
      keep_alive(owner)
      assert rows() == []
      Client.click(context.client, "stash")
      assert [{@table, ^key, ^owner, _, %{count: 2}}] = rows()
    end

    test "is deleted by a new visit that brings its id", context do
      {_client, again} = Client.visit(context.page, %{context.returning | "_mounts" => 0})
      assert %{"0" => "new", "1" => "0"} = again["rendered"]
      assert rows() == []
    end

    test "is renewed by the page's process, found when its time is over, and then removed by the cleaner", context do
      [{@table, _, owner, delete_at, _} = row] = rows()
      :ok = :mnesia.dirty_write(put_elem(row, 3, 0))
      keep_alive(owner)
      assert [{@table, _, ^owner, renewed, _}] = rows()
      assert renewed >= delete_at
      assert Table.clean(renewed) == 0

      :ok = :mnesia.dirty_write(put_elem(row, 3, 0))
      {_second, again} = Client.visit(context.page, context.returning)
      assert %{"0" => "recovered"} = again["rendered"]
      [row] = rows()
      :ok = :mnesia.dirty_write(put_elem(row, 3, 0))
      assert Table.clean(1) == 1
      assert rows() == []
    end
  end

  describe "a fleet" do
    # Three nodes that share one table, and a user who stashed once and left.
    setup do
      # Names sort as those of a StatefulSet's pods, and are no earlier test's.
      names = for ordinal <- 0..2, do: "stash-#{ordinal}-#{System.unique_integer([:positive])}"

      nodes =
        Enum.reduce(names, [], fn name, others -> others ++ [Peers.start_one(name, :mnesia, others)] end)

      [_first, second, _third] = nodes
      page = Client.open("/stash/mnesia", second.port)
      {client, first} = Client.visit(page)
      Client.click(client, "stash")
      Client.close(client)
      brought = Client.event(first["rendered"], "live-stash:init-mnesia")
      # The stash is acknowledged when its own node has it, and reaches the others a moment later.
      for peer <- nodes, do: Eventually.true?(fn -> Peers.row(peer, @table) != nil end)
      %{names: names, nodes: nodes, page: page, returning: %{"_mounts" => 1, "liveStash" => brought}}
    end

    defp return_to(peer, context) do
      {_client, response} = Client.visit(%{context.page | port: peer.port}, context.returning)
      Map.take(response["rendered"], ["0", "1"])
    end

    defp one_schema?(peer, nodes), do: same?(Peers.call(peer, :mnesia, :system_info, [:running_db_nodes]), nodes)

    defp one_table?(peer, nodes), do: same?(Peers.call(peer, :mnesia, :table_info, [@table, :where_to_write]), nodes)

    defp same?(names, nodes), do: Enum.sort(names) == nodes |> Enum.map(& &1.node) |> Enum.sort()

    test "a stash is found on every node, and every node holds its row", context do
      for peer <- context.nodes, do: assert(one_table?(peer, context.nodes))

      for peer <- context.nodes do
        assert return_to(peer, context) == %{"0" => "recovered", "1" => "1"}
        for holder <- context.nodes, do: assert({@table, _, _, _, %{count: 1}} = Peers.row(holder, @table))
      end
    end

    test "the lowest node that restarts alone empties everybody's stash when it meets the others", context do
      [lowest, second, third] = context.nodes
      Peers.stop(lowest)
      assert return_to(third, context) == %{"0" => "recovered", "1" => "1"}

      lowest = Peers.start_one(hd(context.names), :mnesia)
      Peers.connect(lowest, second)
      nodes = [lowest, second, third]
      Eventually.true?(fn -> Enum.all?(nodes, &one_schema?(&1, nodes)) end)
      lost = %{"0" => "not_found", "1" => "0"}
      Eventually.true?(fn -> Enum.all?(nodes, &(return_to(&1, context) == lost)) end)
    end

    test "the lowest node that connects before its applications start takes everybody's stash back", context do
      [lowest, second, third] = context.nodes
      Peers.stop(lowest)

      lowest = Peers.start_one(hd(context.names), :mnesia, [second, third])
      nodes = [lowest, second, third]
      for peer <- nodes, do: assert(one_table?(peer, nodes))
      for peer <- nodes, do: assert(return_to(peer, context) == %{"0" => "recovered", "1" => "1"})
    end

    test "the table is lost with the last node only", context do
      [lowest, second, third] = context.nodes
      Peers.stop(lowest)
      Peers.stop(second)
      assert return_to(third, context) == %{"0" => "recovered", "1" => "1"}
    end

    test "after a split the copy of the lowest node replaces the others", context do
      [lowest, second, third] = context.nodes
      row = Peers.row(lowest, @table)
      # As if the user had stashed again on that side of the split.
      true = Peers.call(third, :ets, :insert, [@table, put_elem(row, 4, %{count: 30})])
      assert return_to(second, context) == %{"0" => "recovered", "1" => "1"}

      differ = {:mnesia_system_event, {:inconsistent_database, :running_partitioned_network, lowest.node}}
      for peer <- [lowest, third], do: Peers.call(peer, :erlang, :send, [Workload.Stash.Mnesia.Storage, differ])
      Eventually.true?(fn -> match?({@table, _, _, _, %{count: 1}}, Peers.row(third, @table)) end)
      # What a node knows of its peers' copies comes a moment after its own.
      for peer <- context.nodes, do: Eventually.true?(fn -> one_table?(peer, context.nodes) end)
      assert return_to(third, context) == %{"0" => "recovered", "1" => "1"}
    end
  end
end
