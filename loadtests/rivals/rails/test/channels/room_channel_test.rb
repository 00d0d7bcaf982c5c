require_relative "../test_helper"

class RoomChannelTest < ActionCable::Channel::TestCase
  test "a member hears what is said in the room" do
    subscribe(room: "7")

    assert subscription.confirmed?
    assert_has_stream "room:7"
  end

  test "there is no room without a name" do
    subscribe

    assert subscription.rejected?
  end

  test "a message reaches the room, and its sender gets a reply" do
    subscribe(room: "7")

    assert_broadcast_on("room:7", { body: "hello" }) { perform :publish_msg, body: "hello" }
    assert_equal({ "reply" => "ok" }, transmissions.last)
  end
end
