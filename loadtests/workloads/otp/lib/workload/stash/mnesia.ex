defmodule Workload.Stash.Mnesia do
  @moduledoc """
  The stash lies in a Mnesia table of which every node holds a copy in memory, so that a user finds it on any node.

  The table's name, its rows and who may write them are LiveStash's, and so is the way in which nodes join, see
  `Workload.Stash.Mnesia.Table`:

      {LiveStash.Adapters.Mnesia.State, id, owner, delete_at, state}

  `id` is base64(sha256(stash id <> secret)), `delete_at` is in unix seconds. As with ETS, a lookup ignores `delete_at`,
  only the cleaner ends a stash, and the process behind an open page renews the row four times per TTL, whoever owns it.
  """

  @behaviour Workload.Stash

  require Logger

  alias Workload.Stash
  alias Workload.Stash.Mnesia.{Cleaner, Storage, Table}

  @table Table.name()

  @impl Stash
  def children do
    children = [{Task.Supervisor, name: Storage.tasks()}, Storage, Cleaner]
    start = {Supervisor, :start_link, [children, [strategy: :one_for_one]]}
    [%{id: __MODULE__, start: start, type: :supervisor}]
  end

  @impl Stash
  def init(%{reconnected?: true} = stash), do: {keep_alive_later(stash), [hello(stash)]}

  # A client that is new, or says it is, must not find an old stash under the id it brought.
  def init(stash) do
    id = Stash.row_id(stash.id)
    with {:error, reason} <- transaction(fn -> :mnesia.delete({@table, id}) end), do: failed("deleted", reason)
    stash = %{stash | id: Stash.new_id()}
    {keep_alive_later(stash), [hello(stash)]}
  end

  @impl Stash
  def recover(stash) do
    id = Stash.row_id(stash.id)

    take_over = fn ->
      with [{@table, ^id, _owner, _delete_at, state}] <- :mnesia.read(@table, id) do
        # Whoever owned the row before was this client's earlier connection.
        :mnesia.write(row(id, stash, state))
        {:recovered, state, stash}
      end
    end

    case transaction(take_over) do
      {:ok, []} ->
        {:not_found, stash}

      {:ok, recovered} ->
        recovered

      {:error, reason} ->
        failed("read", reason)
        {:error, stash, []}
    end
  end

  @impl Stash
  def store(stash, state) do
    id = Stash.row_id(stash.id)
    row = row(id, stash, state)
    me = self()

    put = fn ->
      case :mnesia.read(@table, id) do
        # Only the owner may overwrite: the client may meanwhile have returned by another connection.
        [{@table, ^id, owner, _delete_at, _state}] when owner != me -> :mnesia.abort(:conflict)
        _own_or_none -> :mnesia.write(row)
      end
    end

    case transaction(put) do
      {:ok, :ok} ->
        {:ok, []}

      {:error, reason} ->
        failed("stored", reason)
        :error
    end
  end

  @impl Stash
  def handle_info(:keep_alive, stash) do
    renew = fn ->
      with [{@table, id, owner, _delete_at, state}] <- :mnesia.read(@table, Stash.row_id(stash.id)) do
        :mnesia.write({@table, id, owner, delete_at(stash), state})
      end
    end

    with {:error, reason} <- transaction(renew), do: failed("renewed", reason)
    keep_alive_later(stash)
    :ok
  end

  defp hello(stash), do: {"live-stash:init-mnesia", %{stashId: stash.id}}

  defp transaction(fun) do
    case :mnesia.transaction(fun) do
      {:atomic, result} -> {:ok, result}
      {:aborted, reason} -> {:error, reason}
    end
  end

  defp failed(done, reason), do: Logger.error("A stash was not #{done}: #{inspect(reason)}")

  defp row(id, stash, state), do: {@table, id, self(), delete_at(stash), state}
  defp delete_at(stash), do: System.os_time(:second) + stash.ttl

  defp keep_alive_later(stash) do
    Process.send_after(self(), {:stash, :keep_alive}, div(stash.ttl * 1000, 4))
    stash
  end
end
