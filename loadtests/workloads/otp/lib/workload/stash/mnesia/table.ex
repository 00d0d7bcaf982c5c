defmodule Workload.Stash.Mnesia.Table do
  @moduledoc """
  How the nodes come to share one table: step by step what LiveStash does, its weakness included.

  A node that is connected to others before this runs takes part in their schema and copies their table. A node that
  is alone creates a table of its own. When such nodes meet later, two tables of one name cannot be merged: the node with
  the lowest name keeps its table, and all others drop theirs and copy that one, **empty or not**. Dropping reaches every node
  that shares the table, also those that had just done the same. So a node that restarts alone empties everybody's stash
  whenever it is the lowest, and often when it is not but meets another than the lowest first; some nodes may be left without
  a copy. None of it happens to a node that is connected before its applications start.
  """

  require Logger

  @table LiveStash.Adapters.Mnesia.State
  @join_retries 5
  @join_retry_ms 300
  @load_timeout_ms 15_000
  @rpc_timeout_ms 2_000

  @doc "The table's name. LiveStash's, because tools outside of the application look for it."
  @spec name() :: atom()
  def name, do: @table

  @doc """
  Makes this node share one table with `peers`. Can be called again at any time.

  Raises when a peer cannot be asked, or when Mnesia refuses; the table may be gone from this node then.
  """
  @spec ensure([node()]) :: :ok
  def ensure(peers) do
    case join(peers, @join_retries) do
      :ok ->
        create()
        copy()

      {:conflict, reason} ->
        resolve(master(peers), reason)
    end
  end

  @doc "Replaces this node's copy by that of `master`, for instance after a split."
  @spec resync(node()) :: :ok
  def resync(master) do
    done!(:mnesia.del_table_copy(@table, node()), :no_exists)
    copy_from(master)
  end

  @doc "The lowest name among this node and those `peers` that run Mnesia."
  @spec master([node()]) :: node()
  def master(peers), do: [node() | peers] |> Enum.sort() |> Enum.find(&(&1 == node() or running?(&1)))

  @doc "Deletes the rows whose time was over before `now`, in unix seconds. Returns how many, 0 while there is no table."
  @spec clean(integer()) :: non_neg_integer()
  def clean(now) do
    expired = :mnesia.dirty_select(@table, [{{@table, :_, :_, :"$1", :_}, [{:<, :"$1", now}], [:"$_"]}])
    # Row by row as it was read, so that one renewed meanwhile stays.
    Enum.each(expired, &:mnesia.dirty_delete_object/1)
    length(expired)
  catch
    :exit, {:aborted, reason} ->
      Logger.warning("Expired stashes were not removed: #{inspect(reason)}")
      0
  end

  defp join([], _retries), do: :ok

  defp join(peers, retries) do
    case :mnesia.change_config(:extra_db_nodes, peers) do
      {:ok, _merged} -> join_rest(peers -- :mnesia.system_info(:db_nodes), retries)
      {:error, {:merge_schema_failed, reason}} -> {:conflict, reason}
      {:error, reason} -> raise "Mnesia did not join #{inspect(peers)}: #{inspect(reason)}"
    end
  end

  defp join_rest([], _retries), do: :ok

  # A node can be connected before its Mnesia has started.
  defp join_rest(peers, retries) when retries > 0 do
    Process.sleep(@join_retry_ms)
    join(peers, retries - 1)
  end

  defp join_rest(peers, 0) do
    for peer <- peers, running?(peer), do: Logger.warning("Mnesia runs on #{peer}, but did not join.")
    :ok
  end

  defp resolve(master, reason) when master == node() do
    Logger.warning("Two Mnesia tables met, and this node's is kept: #{inspect(reason)}")
    wait()
  end

  defp resolve(master, reason) do
    Logger.warning("Two Mnesia tables met; dropping this node's for that of #{master}: #{inspect(reason)}")
    done!(:mnesia.delete_table(@table), :no_exists)

    case join([master], @join_retries) do
      :ok -> copy_from(master)
      {:conflict, reason} -> raise "The table of #{master} could not be joined either: #{inspect(reason)}"
    end
  end

  # Only from the master: another node that is about to drop its table may still offer it.
  defp copy_from(master) do
    :ok = :mnesia.set_master_nodes(@table, [master])
    copy()
  after
    :mnesia.set_master_nodes(@table, [])
  end

  defp create do
    options = [type: :set, attributes: [:id, :pid, :delete_at, :state], ram_copies: [node()]]
    done!(:mnesia.create_table(@table, options), :already_exists)
  end

  defp copy do
    done!(:mnesia.add_table_copy(@table, node(), :ram_copies), :already_exists)
    wait()
  end

  defp wait do
    case :mnesia.wait_for_tables([@table], @load_timeout_ms) do
      :ok -> :ok
      not_loaded -> raise "The Mnesia table was not loaded: #{inspect(not_loaded)}"
    end
  end

  # What is already as it should be is no failure: another node may have been faster.
  defp done!({:atomic, :ok}, _harmless), do: :ok
  defp done!({:aborted, reason}, harmless) when elem(reason, 0) == harmless, do: :ok
  defp done!({:aborted, reason}, _harmless), do: raise("Mnesia refused to change its table: #{inspect(reason)}")

  defp running?(node), do: :erpc.call(node, :mnesia, :system_info, [:is_running], @rpc_timeout_ms) == :yes
end
