defmodule Workload.Stash.Redis do
  @moduledoc """
  The stash lies in a Redis outside of the fleet, so that a user finds it on any node.

  Key, fields, expiry and who may write are LiveStash's:

      live_stash:<base64(sha256(stash id <> secret))>   a hash of owner_id and payload, which expires after the TTL

  `owner_id` is the page's process, `payload` the compressed state, both as terms. The process behind an open page renews
  its key four times per TTL, whoever owns it.

  A stash that could not be stored is acknowledged all the same. The process has it, and stores it with the next one that
  differs. A client that comes back while Redis is away gets an error instead of its state.
  """

  @behaviour Workload.Stash

  require Logger

  alias Workload.{Config, Redis, Stash}

  # LiveStash's name for its connection. Tools outside of the application tell its traffic by it.
  @connection LiveStash.Adapters.Redis.Conn

  # Only the owner may overwrite: the client may meanwhile have returned by another connection.
  @store """
  local owner = redis.call('HGET', KEYS[1], 'owner_id')
  if owner and owner ~= ARGV[1] then return 0 end
  redis.call('HSET', KEYS[1], 'owner_id', ARGV[1], 'payload', ARGV[2])
  redis.call('EXPIRE', KEYS[1], ARGV[3])
  return 1
  """

  # Whoever owned the stash before was this client's earlier connection.
  @take_over """
  local payload = redis.call('HGET', KEYS[1], 'payload')
  if payload then
    redis.call('HSET', KEYS[1], 'owner_id', ARGV[1])
    redis.call('EXPIRE', KEYS[1], ARGV[2])
  end
  return payload
  """

  @impl Stash
  def children, do: [{Redis, {Config.get().redis, @connection}}]

  @impl Stash
  def init(%{reconnected?: true} = stash), do: {keep_alive_later(stash), [hello(stash)]}

  # A client that is new, or says it is, must not find an old stash under the id it brought.
  def init(stash) do
    with {:error, reason} <- Redis.command(@connection, ["DEL", key(stash)]), do: failed("deleted", reason)
    stash = %{stash | id: Stash.new_id()}
    {keep_alive_later(stash), [hello(stash)]}
  end

  @impl Stash
  def recover(stash) do
    case Redis.script(@connection, @take_over, [key(stash)], [owner(), ttl(stash)]) do
      {:ok, nil} ->
        {:not_found, stash}

      {:ok, payload} ->
        %{assigns: state} = :erlang.binary_to_term(payload)
        {:recovered, state, stash}

      {:error, reason} ->
        failed("read", reason)
        {:error, stash, []}
    end
  end

  @impl Stash
  def store(stash, state) do
    # The version is LiveStash's guard against states of an older release; the workload has only one.
    payload = :erlang.term_to_binary(%{version: nil, assigns: state}, compressed: 1)

    case Redis.script(@connection, @store, [key(stash)], [owner(), payload, ttl(stash)]) do
      {:ok, 1} ->
        {:ok, []}

      {:ok, 0} ->
        failed("stored", :conflict)
        :error

      {:error, reason} ->
        failed("stored", reason)
        :error
    end
  end

  @impl Stash
  def handle_info(:keep_alive, stash) do
    # The page does not wait for it.
    Task.start(fn ->
      with {:error, reason} <- Redis.command(@connection, ["EXPIRE", key(stash), ttl(stash)]),
           do: failed("renewed", reason)
    end)

    keep_alive_later(stash)
    :ok
  end

  defp hello(stash), do: {"live-stash:init-redis", %{stashId: stash.id}}

  defp failed(done, reason), do: Logger.error("A stash was not #{done}: #{inspect(reason)}")

  defp key(stash), do: "live_stash:" <> Stash.row_id(stash.id)
  defp owner, do: :erlang.term_to_binary(self())
  defp ttl(stash), do: Integer.to_string(stash.ttl)

  defp keep_alive_later(stash) do
    Process.send_after(self(), {:stash, :keep_alive}, div(stash.ttl * 1000, 4))
    stash
  end
end
