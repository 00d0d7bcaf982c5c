defmodule StashWorkloadWeb.StashLive do
  @moduledoc """
  A counter that survives its process.

  The load tests read the first two dynamics of the render, status and count, by position.
  """
  use StashWorkloadWeb, :live_view

  alias StashWorkload.Payload
  alias StashWorkloadWeb.Stash

  on_mount {Stash, stored_keys: [:count, :payload]}

  @impl true
  def mount(_params, _session, socket) do
    socket =
      case Stash.recover(assign(socket, :node, node())) do
        {:recovered, socket} -> assign(socket, :status, :recovered)
        {status, socket} -> assign(socket, status: status, count: 0, payload: payload())
      end

    {:ok, socket}
  end

  @impl true
  def render(assigns) do
    ~H"""
    <main>
      <p>Status <output id="status">{@status}</output></p>
      <p>Count <output id="count">{@count}</output></p>
      <p>Adapter {@live_action}, served by {@node}</p>
      <button phx-click="stash">Stash</button>
    </main>
    """
  end

  @impl true
  def handle_event("stash", _params, socket) do
    socket =
      socket
      |> update(:count, &(&1 + 1))
      |> Stash.stash()

    {:noreply, socket}
  end

  defp payload, do: Payload.new(Application.fetch_env!(:stash_workload, :payload_keys))
end
