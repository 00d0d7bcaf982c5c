defmodule StashWorkload do
  @moduledoc """
  A small Phoenix application whose LiveView stashes its state with LiveStash.

  It exists to be measured: the load tests connect to it, stash, disconnect and come back.
  """
end
