defmodule StashWorkload.Payload do
  @moduledoc """
  What every user stashes beside the counter: a shallow map of short strings.
  """

  @doc """
  A map of that many strings. 150 keys are the size of a filled form and of the published
  benchmark: 5,556 bytes as an external term, 864 bytes compressed at level 1 and 15,280 bytes on
  a process heap.

  Built anew for every caller, because a literal would not be on any heap.
  """
  @spec new(non_neg_integer()) :: %{String.t() => String.t()}
  def new(keys) do
    Map.new(1..keys//1, fn i ->
      n = i |> Integer.to_string() |> String.pad_leading(3, "0")
      {"field_#{n}", "value_#{n}_xxxxxxxx"}
    end)
  end
end
