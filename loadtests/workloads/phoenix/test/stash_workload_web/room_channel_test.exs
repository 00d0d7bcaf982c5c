defmodule StashWorkloadWeb.RoomChannelTest do
  use ExUnit.Case, async: true

  import Phoenix.ChannelTest

  @endpoint StashWorkloadWeb.Endpoint

  test "a message reaches the room, then its sender gets a reply" do
    {:ok, _reply, socket} =
      StashWorkloadWeb.UserSocket
      |> socket()
      |> subscribe_and_join("room:7", %{})

    ref = push(socket, "publish_msg", %{"text" => "hi"})

    assert_broadcast "new_message", %{"text" => "hi"}
    assert_reply ref, :ok
  end
end
