defmodule Workload.Stash.BrowserMemory do
  @moduledoc """
  The stash travels to the browser and back: a compressed term in a signed token that is good for the TTL.
  """

  @behaviour Workload.Stash

  require Logger

  alias Workload.{Stash, Token}

  @forget {"live-stash:init-browser-memory", %{}}

  @impl true
  def children, do: []

  @impl true
  def init(%{reconnected?: true} = stash), do: {stash, []}
  def init(stash), do: {stash, [@forget]}

  @impl true
  def recover(%{client: %{"stashedState" => token}} = stash) when is_binary(token) do
    with {:ok, compressed} <- Token.verify(Stash.secret(), token),
         %{assigns: state} <- :erlang.binary_to_term(compressed, [:safe]) do
      {:recovered, state, stash}
    else
      {:error, :expired} ->
        {:not_found, stash}

      _invalid ->
        Logger.warning("Refusing a stash that was tampered with or signed with another SECRET_KEY_BASE.")
        {:error, stash, [@forget]}
    end
  end

  def recover(stash), do: {:not_found, stash}

  @impl true
  def store(stash, state) do
    # The version is LiveStash's guard against states of an older release; the workload has only one.
    compressed = :erlang.term_to_binary(%{version: nil, assigns: state}, compressed: 1)
    {:ok, [{"live-stash:stash-state", %{assigns: Token.sign(Stash.secret(), compressed, stash.ttl)}}]}
  end
end
