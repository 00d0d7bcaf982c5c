defmodule Workload.Drainer do
  @moduledoc """
  Ends the endpoint's connections in good order when it stops: first nobody new gets in, then every socket is closed with
  code 1012. It is the endpoint's last child, so it stops first.
  """

  use GenServer

  alias Workload.{Endpoint, Socket}

  # Both waits take milliseconds; the limit is for a machine that has no time for them.
  @limit_ms 5_000

  @doc "Drains `listener` when it is told to stop."
  @spec start_link(:ranch.ref()) :: GenServer.on_start()
  def start_link(listener), do: GenServer.start_link(__MODULE__, listener)

  @impl true
  def init(listener) do
    Process.flag(:trap_exit, true)
    {:ok, listener}
  end

  @impl true
  def terminate(_reason, listener) do
    deadline = now() + @limit_ms
    port = Endpoint.port()
    :ok = :ranch.suspend_listener(listener)
    # The runtime closes the listening socket a moment later; starting the endpoint again before that would fail.
    wait(fn -> refused?(port) end, deadline)

    Socket.drain_all()
    # The listener kills connections when it stops; a socket that has not sent its close frame by then never will.
    wait(fn -> Socket.count() == 0 end, deadline)
  end

  defp refused?(port) do
    case :gen_tcp.connect({127, 0, 0, 1}, port, [], 100) do
      {:error, reason} ->
        reason == :econnrefused

      {:ok, socket} ->
        :gen_tcp.close(socket)
        false
    end
  end

  defp wait(done?, deadline) do
    unless done?.() or now() > deadline do
      Process.sleep(1)
      wait(done?, deadline)
    end
  end

  defp now, do: System.monotonic_time(:millisecond)
end
