defmodule Workload.Stash.None do
  @moduledoc """
  No LiveStash at all: the baseline. A client that comes back starts anew.
  """

  @behaviour Workload.Stash

  @impl true
  def children, do: []

  # A page without LiveStash does not look at the mounts, so to it every client is new.
  @impl true
  def init(stash), do: {%{stash | reconnected?: false}, []}

  @impl true
  def recover(stash), do: {:not_found, stash}

  @impl true
  def store(_stash, _state), do: {:ok, []}
end
