# A chat room: what a member publishes reaches everybody in the room, and then the sender gets a reply.
class RoomChannel < ApplicationCable::Channel
  def subscribed
    params[:room].present? ? stream_from(room) : reject
  end

  def publish_msg(data)
    ActionCable.server.broadcast(room, { body: data["body"] })
    transmit({ reply: "ok" })
  end

  private

  def room
    "room:#{params[:room]}"
  end
end
