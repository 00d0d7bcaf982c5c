defmodule StashWorkloadWeb.StashLive do
  @moduledoc """
  A counter that survives its process.

  The load tests read the first two dynamics of the render, status and count, by position. With
  `STASH_PAYLOAD_ON_PAGE=shown` the page shows all that it stashes, and sends it anew with every
  stash, as that of the published benchmark does.
  """
  use StashWorkloadWeb, :live_view

  alias StashWorkload.Payload
  alias StashWorkloadWeb.Stash

  on_mount {Stash, stored_keys: [:count, :payload]}

  @impl true
  def mount(_params, _session, socket) do
    shown? = Application.fetch_env!(:stash_workload, :payload_on_page)

    socket =
      case Stash.recover(assign(socket, node: node(), shown?: shown?)) do
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
      <pre :if={@shown?}>{stashed(@count, @payload)}</pre>
      <button phx-click="stash">Stash</button>
      <button phx-click="stash_slowly">Stash slowly</button>
    </main>
    """
  end

  # How long a slow event takes, in milliseconds.
  @slow 2_000

  @impl true
  def handle_event("stash_slowly", params, socket) do
    Process.sleep(@slow)
    handle_event("stash", params, socket)
  end

  def handle_event("stash", _params, socket) do
    socket =
      socket
      |> update(:count, &(&1 + 1))
      |> Stash.stash()

    {:noreply, socket}
  end

  defp stashed(count, payload) do
    inspect(%{count: count, payload: payload}, pretty: true, limit: :infinity)
  end

  defp payload, do: Payload.new(Application.fetch_env!(:stash_workload, :payload_keys))
end
