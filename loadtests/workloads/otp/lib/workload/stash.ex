defmodule Workload.Stash do
  @moduledoc """
  Where a user's state goes when it is stashed. One module per adapter implements this behaviour; this module knows
  their list and what they share.

  To add an adapter: write `Workload.Stash.<Name>` and name it in `@modules`.
  """

  alias Workload.Stash.{BrowserMemory, Ets, Mnesia, None, Redis}

  @modules [none: None, ets: Ets, browser_memory: BrowserMemory, redis: Redis, mnesia: Mnesia]

  @typedoc "An adapter's name as it stands in LIVE_STASH_ADAPTER and in the path of its page."
  @type adapter :: :none | :ets | :browser_memory | :redis | :mnesia

  @typedoc """
  One user's stash, as the process behind the page keeps it.

  - `id`: names the stash; the client gets it and brings it back
  - `reconnected?`: the client says that it was here before
  - `client`: what the client brought back (`params.liveStash`)
  - `ttl`: seconds
  - `fingerprint`: hash of what was stashed last, so that stashing the same again costs nothing
  """
  @type t :: %{
          id: String.t(),
          reconnected?: boolean(),
          client: map(),
          ttl: pos_integer(),
          fingerprint: binary() | nil
        }

  @typedoc "An event for the client: name and detail."
  @type event :: {String.t(), map()}

  @doc "The processes that must run for this adapter to work."
  @callback children() :: [Supervisor.child_spec()]

  @doc "Called first on every join. Returns the events for the join's reply."
  @callback init(t()) :: {t(), [event()]}

  @doc "Looks for the state of a client that was here before. Called after `init/1`, and only for such clients."
  @callback recover(t()) :: {:recovered, map(), t()} | {:not_found, t()} | {:error, t(), [event()]}

  @doc "Stores the state, which differs from what was stored last. An error leaves the state unstored."
  @callback store(t(), map()) :: {:ok, [event()]} | :error

  @doc "Handles `{:stash, message}`, which the adapter sent to its own process."
  @callback handle_info(message :: term(), t()) :: :ok

  @optional_callbacks handle_info: 2

  # LiveStash's default secret. Salts tokens and hashes ids.
  @secret "live_stash"

  @doc "The secret that ids and tokens are derived with."
  @spec secret() :: String.t()
  def secret, do: @secret

  @doc "The key under which a stash lies in a table."
  @spec row_id(String.t()) :: String.t()
  def row_id(stash_id), do: Base.encode64(:crypto.hash(:sha256, stash_id <> @secret), padding: false)

  @doc "All adapters."
  @spec adapters() :: [adapter()]
  def adapters, do: Keyword.keys(@modules)

  @doc "The adapters' names for a sentence."
  @spec names() :: String.t()
  def names, do: Enum.join(adapters(), ", ")

  @doc "The adapter of that name."
  @spec adapter(String.t()) :: {:ok, adapter()} | :error
  def adapter(name) do
    case Enum.find(adapters(), &(Atom.to_string(&1) == name)) do
      nil -> :error
      adapter -> {:ok, adapter}
    end
  end

  @doc "The adapter of that name if it is among `started`, or a sentence that says why not."
  @spec started(String.t(), [adapter()]) :: {:ok, adapter()} | {:error, String.t()}
  def started(name, started) do
    case adapter(name) do
      {:ok, adapter} ->
        if adapter in started,
          do: {:ok, adapter},
          else: {:error, "The adapter #{name} is not started; LIVE_STASH_ADAPTER started #{Enum.join(started, ", ")}."}

      :error ->
        {:error, "There is no adapter of that name; there are #{names()}."}
    end
  end

  @doc "The module of an adapter."
  @spec module(adapter()) :: module()
  def module(adapter), do: Keyword.fetch!(@modules, adapter)

  @doc "The storage processes of some adapters."
  @spec children([adapter()]) :: [Supervisor.child_spec()]
  def children(adapters), do: Enum.flat_map(adapters, &module(&1).children())

  @doc "Starts a user's stash from the parameters of a join."
  @spec init(module(), map(), pos_integer()) :: {t(), [event()]}
  def init(module, params, ttl) do
    client = if is_map(params["liveStash"]), do: params["liveStash"], else: %{}
    id = if is_binary(client["stashId"]), do: client["stashId"], else: new_id()
    # LiveStash counts a whole number of mounts only: "1" is a new client.
    reconnected? = is_integer(params["_mounts"]) and params["_mounts"] > 0
    module.init(%{id: id, reconnected?: reconnected?, client: client, ttl: ttl, fingerprint: nil})
  end

  @doc "Gets a returning client's state. The status is what the page shows; the state is empty unless recovered."
  @spec recover(module(), t()) :: {:new | :recovered | :not_found | :error, map(), t(), [event()]}
  def recover(_module, %{reconnected?: false} = stash), do: {:new, %{}, stash, []}

  def recover(module, stash) do
    case module.recover(stash) do
      {:recovered, state, stash} -> {:recovered, state, %{stash | fingerprint: fingerprint(state)}, []}
      {:not_found, stash} -> {:not_found, %{}, stash, []}
      {:error, stash, events} -> {:error, %{}, stash, events}
    end
  end

  @doc "Stashes the state unless it is what was stashed last."
  @spec stash(module(), t(), map()) :: {t(), [event()]}
  def stash(module, stash, state) do
    fingerprint = fingerprint(state)

    with true <- fingerprint != stash.fingerprint,
         {:ok, events} <- module.store(stash, state) do
      {%{stash | fingerprint: fingerprint}, events}
    else
      _unchanged_or_error -> {stash, []}
    end
  end

  @doc "A random UUID of version 4."
  @spec new_id() :: String.t()
  def new_id do
    <<a::48, _::4, b::12, _::2, c::62>> = :crypto.strong_rand_bytes(16)
    <<a::32, b::16, c::16, d::16, e::48>> = <<a::48, 4::4, b::12, 2::2, c::62>>
    [{a, 8}, {b, 4}, {c, 4}, {d, 4}, {e, 12}] |> Enum.map_join("-", fn {part, width} -> hex(part, width) end)
  end

  defp hex(number, width), do: number |> Integer.to_string(16) |> String.downcase() |> String.pad_leading(width, "0")
  defp fingerprint(state), do: :crypto.hash(:sha256, :erlang.term_to_binary(state))
end
