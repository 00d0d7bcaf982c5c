defmodule StashWorkloadWeb.RoomChannel do
  @moduledoc """
  A chat room: `publish_msg` sends its payload to everybody in the room as `new_message`.
  """
  use StashWorkloadWeb, :channel

  @impl true
  def join("room:" <> _name, _payload, socket), do: {:ok, socket}

  @impl true
  def handle_in("publish_msg", payload, socket) do
    broadcast!(socket, "new_message", payload)
    {:reply, :ok, socket}
  end
end
