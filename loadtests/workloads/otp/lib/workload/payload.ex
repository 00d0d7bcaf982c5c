defmodule Workload.Payload do
  @moduledoc """
  The data each user stashes beside the counter, of the size the published LiveStash benchmark uses:
  150 keys, 5,556 bytes as a term, 864 bytes compressed, 15,280 bytes on the heap.
  """

  @doc "A fresh copy, built at run time so that every process has its own heap cells as it would with real data."
  @spec new() :: %{String.t() => String.t()}
  def new do
    for i <- 1..150, into: %{} do
      number = String.pad_leading(Integer.to_string(i), 3, "0")
      {"field_#{number}", "value_#{number}_xxxxxxxx"}
    end
  end
end
