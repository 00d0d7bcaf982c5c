defmodule Workload.Stash.Ets do
  @moduledoc """
  The stash stays on the node the client was connected to, in an ETS table, and is fetched by the node it returns to.

  The table's name, its rows and the order of the lookup are LiveStash's, because tools outside of the application
  read and move these rows:

      {:state, id, owner, delete_at, state, version}

  `id` is base64(sha256(stash id <> secret)), `delete_at` is in unix seconds. A lookup ignores `delete_at`: only the
  cleaner, once a minute, ends a stash. The process behind an open page renews its own row four times per TTL.

  A page gives back no stash of another version than its own (`STASH_VERSION`). As in LiveStash, the row is gone by the time
  its version is looked at.
  """

  @behaviour Workload.Stash

  require Logger

  alias Workload.{Config, Stash, Token}

  @table :live_stash_server_storage
  @delete_at 4
  # Phoenix.Token's default, which LiveStash leaves as it is.
  @hint_max_age 24 * 3600

  @doc "The table's name."
  @spec table() :: atom()
  def table, do: @table

  @doc "Takes a row's state out of this node's table. Other nodes call it."
  @spec pop(String.t()) :: {:ok, map(), version :: term()} | :not_found
  def pop(row_id), do: found(:ets.take(@table, row_id))

  @doc "Deletes the rows whose time was over before `now`, in unix seconds. Returns how many."
  @spec clean(integer()) :: non_neg_integer()
  def clean(now), do: :ets.select_delete(@table, [{{:state, :_, :_, :"$1", :_, :_}, [{:<, :"$1", now}], [true]}])

  @impl Stash
  def children do
    start = {Supervisor, :start_link, [[__MODULE__.Storage, __MODULE__.Cleaner], [strategy: :one_for_one]]}
    [%{id: __MODULE__, start: start, type: :supervisor}]
  end

  @impl Stash
  def init(%{reconnected?: true} = stash), do: {keep_alive_later(stash), [hello(stash)]}

  # A client that is new, or says it is, must not find an old stash under the id it brought.
  def init(stash) do
    :ets.delete(@table, Stash.row_id(stash.id))
    stash = %{stash | id: Stash.new_id()}
    {keep_alive_later(stash), [hello(stash)]}
  end

  @impl Stash
  def recover(stash) do
    id = Stash.row_id(stash.id)
    hint = hinted_node(stash.client["node"])

    with :not_found <- found(:ets.lookup(@table, id)),
         :not_found <- pop_from_hinted(hint, id),
         :not_found <- pop_from_others(Node.list() -- [hint], id) do
      {:not_found, stash}
    else
      {:ok, state, version} ->
        give_back(id, stash, state, version == Config.get().stash_version)
    end
  end

  # Whoever owned a local row before was this client's earlier connection.
  defp give_back(id, stash, state, true) do
    :ets.insert(@table, row(id, stash, state))
    {:recovered, state, stash}
  end

  defp give_back(id, stash, _state, false) do
    :ets.delete(@table, id)
    {:error, stash, []}
  end

  @impl Stash
  def store(stash, state) do
    id = Stash.row_id(stash.id)
    row = row(id, stash, state)
    mine = [{{:state, id, self(), :_, :_, :_}, [], [{:const, row}]}]

    # Only the owner may overwrite: the client may meanwhile have returned by another connection.
    if :ets.select_replace(@table, mine) == 1 or :ets.insert_new(@table, row) do
      {:ok, []}
    else
      Logger.error("A stash was not stored: its row belongs to another process.")
      :error
    end
  end

  @impl Stash
  def handle_info(:keep_alive, stash) do
    :ets.update_element(@table, Stash.row_id(stash.id), {@delete_at, delete_at(stash)})
    keep_alive_later(stash)
    :ok
  end

  defp hello(stash) do
    node = Token.encrypt(Stash.secret(), Atom.to_string(Node.self()), @hint_max_age)
    {"live-stash:init-ets", %{node: node, stashId: stash.id}}
  end

  defp hinted_node(token) do
    with {:ok, name} <- Token.decrypt(Stash.secret(), token) do
      # A node this VM has never heard of has no atom, and cannot be connected either.
      Enum.find([Node.self() | Node.list()], &(Atom.to_string(&1) == name))
    else
      {:error, _reason} -> nil
    end
  end

  defp pop_from_hinted(hint, _id) when hint == nil or hint == node(), do: :not_found

  defp pop_from_hinted(hint, id) do
    :erpc.call(hint, __MODULE__, :pop, [id])
  rescue
    error -> unreachable(hint, error)
  catch
    _kind, reason -> unreachable(hint, reason)
  end

  defp pop_from_others([], _id), do: :not_found

  defp pop_from_others(nodes, id) do
    answers = :erpc.multicall(nodes, __MODULE__, :pop, [id])

    Enum.zip(nodes, answers)
    |> Enum.find_value(:not_found, fn
      {_node, {:ok, {:ok, state, version}}} ->
        {:ok, state, version}

      {_node, {:ok, :not_found}} ->
        nil

      {node, failure} ->
        unreachable(node, failure)
        nil
    end)
  end

  defp unreachable(node, reason) do
    Logger.error("#{node} could not be asked for a stash: #{inspect(reason)}")
    :not_found
  end

  defp found([{:state, _id, _owner, _delete_at, state, version}]), do: {:ok, state, version}
  defp found([]), do: :not_found

  defp row(id, stash, state), do: {:state, id, self(), delete_at(stash), state, Config.get().stash_version}
  defp delete_at(stash), do: System.os_time(:second) + stash.ttl

  defp keep_alive_later(stash) do
    Process.send_after(self(), {:stash, :keep_alive}, div(stash.ttl * 1000, 4))
    stash
  end

  defmodule Storage do
    @moduledoc false
    use GenServer

    def start_link(_opts), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

    @impl true
    def init(nil) do
      options = [:set, :public, :named_table, keypos: 2, write_concurrency: true, decentralized_counters: true]
      {:ok, :ets.new(Workload.Stash.Ets.table(), options)}
    end
  end

  defmodule Cleaner do
    @moduledoc false
    use GenServer

    @interval_ms 60_000

    def start_link(_opts), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

    @impl true
    def init(nil) do
      {:ok, _timer} = :timer.send_interval(@interval_ms, :clean)
      {:ok, nil}
    end

    @impl true
    def handle_info(:clean, state) do
      Workload.Stash.Ets.clean(System.os_time(:second))
      {:noreply, state}
    end
  end
end
