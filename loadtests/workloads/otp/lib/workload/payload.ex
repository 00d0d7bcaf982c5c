defmodule Workload.Payload do
  @moduledoc """
  The data each user stashes beside the counter: a shallow map of short strings.

  150 keys are the size that the published LiveStash benchmark uses: 5,556 bytes as a term, 864 bytes compressed,
  15,280 bytes on the heap.
  """

  @doc "A fresh copy, built at run time so that every process has its own heap cells as it would with real data."
  @spec new(non_neg_integer()) :: %{String.t() => String.t()}
  def new(keys) do
    for i <- 1..keys//1, into: %{} do
      number = String.pad_leading(Integer.to_string(i), 3, "0")
      {"field_#{number}", "value_#{number}_xxxxxxxx"}
    end
  end
end
