defmodule StashWorkload.Payload do
  @moduledoc """
  What every user stashes beside the counter, the size of a filled form.
  """

  @keys 150

  @doc """
  A map of #{@keys} strings: 5,556 bytes as an external term, 864 bytes compressed at level 1
  and 15,280 bytes on a process heap.

  Built anew for every caller, because a literal would not be on any heap.
  """
  @spec new() :: %{String.t() => String.t()}
  def new do
    Map.new(1..@keys, fn i ->
      n = i |> Integer.to_string() |> String.pad_leading(3, "0")
      {"field_#{n}", "value_#{n}_xxxxxxxx"}
    end)
  end
end
