defmodule Workload.Stash.Mnesia.Cleaner do
  @moduledoc false
  use GenServer

  alias Workload.Stash.Mnesia.Table

  @interval_ms 60_000

  def start_link(_opts), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  @impl true
  def init(nil) do
    {:ok, _timer} = :timer.send_interval(@interval_ms, :clean)
    {:ok, nil}
  end

  @impl true
  def handle_info(:clean, state) do
    Table.clean(System.os_time(:second))
    {:noreply, state}
  end
end
