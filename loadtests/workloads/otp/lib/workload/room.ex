defmodule Workload.Room do
  @moduledoc """
  A chat room's channel: `publish_msg` reaches everybody who has joined the same room on any node.
  """

  use GenServer

  alias Workload.{Channel, Message, PubSub}

  @impl true
  def init(join), do: {:ok, join, {:continue, :join}}

  @impl true
  def handle_continue(:join, join) do
    Process.monitor(join.socket)
    # The socket is subscribed by way of this process, so that the subscription ends with the join.
    :ok = PubSub.subscribe(join.message.topic, join.socket)
    Channel.answer(join, {:ok, %{}})
    {:noreply, %{socket: join.socket, topic: join.message.topic}}
  end

  @impl true
  def handle_info(%Message{event: "publish_msg"} = message, state) do
    frame = Message.encode(%Message{topic: state.topic, event: "new_message", payload: message.payload})
    PubSub.broadcast(state.topic, {:push, IO.iodata_to_binary(frame)})
    Channel.push(state.socket, Message.reply(message, :ok, %{}))
    {:noreply, state}
  end

  def handle_info(%Message{event: "phx_leave"} = message, state) do
    Channel.push(state.socket, Message.reply(message, :ok, %{}))
    send(state.socket, {:closed, self()})
    {:stop, {:shutdown, :left}, state}
  end

  def handle_info(%Message{}, state), do: {:stop, {:shutdown, :unknown_event}, state}

  def handle_info({:DOWN, _monitor, :process, socket, _reason}, %{socket: socket} = state) do
    {:stop, {:shutdown, :closed}, state}
  end

  def handle_info(_other, state), do: {:noreply, state}
end
