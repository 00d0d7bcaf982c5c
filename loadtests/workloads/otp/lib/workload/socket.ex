defmodule Workload.Socket do
  @moduledoc """
  The server's end of a WebSocket: `/live/websocket` carries LiveViews, `/socket/websocket` carries rooms.

  It answers heartbeats and joins itself and passes everything else to the joined topic's process.
  Close codes are Phoenix's on Bandit: 1002 after 60 s without a frame, 1011 for a frame that cannot be read,
  1012 when the endpoint stops.
  """

  @behaviour :cowboy_websocket

  alias Workload.{Channel, Message, Origin, Session}

  @idle_ms 60_000
  # Bandit's own limit.
  @max_frame_bytes 8_000_000

  @type kind :: :live | :room

  @doc "Asks every open socket of this node to close with code 1012 (service restart), as Phoenix's drainer does."
  @spec drain_all() :: :ok
  def drain_all,
    do: Registry.dispatch(__MODULE__, :open, fn entries -> for {pid, _} <- entries, do: send(pid, :socket_drain) end)

  @doc "How many sockets are open on this node."
  @spec count() :: non_neg_integer()
  def count, do: Registry.count(__MODULE__)

  @doc "The registry of open sockets, for the endpoint's supervision tree."
  @spec registry_spec() :: Supervisor.child_spec()
  def registry_spec, do: {Registry, keys: :duplicate, name: __MODULE__, partitions: System.schedulers_online()}

  @impl true
  def init(req, kind) do
    query = Map.new(:cowboy_req.parse_qs(req))
    protocol = protocol(Map.get(query, "vsn", "1.0.0"))

    cond do
      not upgrade?(req) ->
        {:ok, :cowboy_req.reply(400, %{}, "This address is for WebSockets only.", req), kind}

      protocol == :unknown or not Origin.allowed?(req) ->
        {:ok, :cowboy_req.reply(403, req), kind}

      true ->
        state = %{
          kind: kind,
          protocol: protocol,
          session: Session.fetch_with_csrf(req, query["_csrf_token"]),
          # topic => {channel, monitor, join_ref}
          channels: %{},
          heard_at: now()
        }

        # cowboy's own idle timeout would close with 1000, so this module keeps the time itself.
        {:cowboy_websocket, req, state, %{idle_timeout: :infinity, max_frame_size: @max_frame_bytes}}
    end
  end

  @impl true
  def websocket_init(state) do
    {:ok, _owner} = Registry.register(__MODULE__, :open, nil)
    Process.send_after(self(), :idle?, @idle_ms)
    {[], state}
  end

  @impl true
  def websocket_handle({:text, text}, %{protocol: :v2} = state) do
    case Message.decode(text) do
      {:ok, message} -> handle_message(message, heard(state))
      :error -> {[{:close, 1011, ""}], state}
    end
  end

  # Binary frames and protocol 1 are for uploads and for old clients; neither belongs to this workload.
  def websocket_handle({type, _data}, state) when type in [:text, :binary], do: {[{:close, 1011, ""}], state}
  def websocket_handle(_ping_or_pong, state), do: {[], heard(state)}

  @impl true
  def websocket_info({:push, frame}, state), do: {[{:text, frame}], state}
  def websocket_info(:socket_drain, state), do: {[{:close, 1012, ""}], state}

  def websocket_info({:closed, channel}, state) do
    case pop_channel(channel, state) do
      {topic, join_ref, state} -> {[closed_frame(topic, join_ref)], state}
      :gone -> {[], state}
    end
  end

  def websocket_info({:DOWN, _monitor, :process, channel, _reason}, state) do
    case pop_channel(channel, state) do
      {topic, join_ref, state} ->
        {[text(%Message{join_ref: join_ref, ref: join_ref, topic: topic, event: "phx_error"})], state}

      :gone ->
        {[], state}
    end
  end

  def websocket_info(:idle?, state) do
    case state.heard_at + @idle_ms - now() do
      left when left > 0 ->
        Process.send_after(self(), :idle?, left)
        {[], state}

      _over ->
        {[{:close, 1002, ""}], state}
    end
  end

  def websocket_info(_other, state), do: {[], state}

  defp handle_message(%Message{topic: "phoenix", event: "heartbeat"} = message, state) do
    # It belongs to no join, whatever the client says.
    {[text(Message.reply(%{message | join_ref: nil}, :ok, %{}))], state}
  end

  defp handle_message(%Message{event: "phx_join", topic: topic} = message, state) do
    case state.channels do
      %{^topic => {channel, _monitor, join_ref}} ->
        # A second join of a topic replaces the first: the client has lost track of it.
        stop(channel)
        {^topic, ^join_ref, state} = pop_channel(channel, state)
        {frames, state} = join(message, state)
        {frames ++ [closed_frame(topic, join_ref)], state}

      %{} ->
        join(message, state)
    end
  end

  defp handle_message(%Message{topic: topic, join_ref: join_ref} = message, state) do
    case state.channels do
      %{^topic => {channel, _monitor, current}} ->
        # A message of an earlier join is late and meant for nobody.
        if current in [join_ref, nil], do: send(channel, message)
        {[], state}

      %{} when message.event == "phx_leave" ->
        {[text(Message.reply(message, :ok, %{}))], state}

      %{} ->
        {[unmatched(message)], state}
    end
  end

  defp join(message, state) do
    case channel_module(state.kind, message.topic) do
      nil ->
        {[unmatched(message)], state}

      module ->
        case Channel.join(module, message, state.session) do
          {:ok, response, channel} ->
            entry = {channel, Process.monitor(channel), message.join_ref}
            {[text(Message.reply(message, :ok, response))], put_in(state.channels[message.topic], entry)}

          {:error, response} ->
            {[text(Message.reply(message, :error, response))], state}
        end
    end
  end

  defp channel_module(:live, "lv:" <> _id), do: Workload.Live
  defp channel_module(:room, "room:" <> _name), do: Workload.Room
  defp channel_module(_kind, _topic), do: nil

  defp stop(channel) do
    monitor = Process.monitor(channel)
    Process.exit(channel, :kill)

    receive do
      {:DOWN, ^monitor, :process, ^channel, _reason} -> :ok
    end
  end

  # A socket has one channel, seldom two, so looking through them is cheaper than keeping a second index.
  defp pop_channel(channel, state) do
    case Enum.find(state.channels, fn {_topic, {pid, _monitor, _join_ref}} -> pid == channel end) do
      {topic, {_pid, monitor, join_ref}} ->
        Process.demonitor(monitor, [:flush])
        {topic, join_ref, %{state | channels: Map.delete(state.channels, topic)}}

      nil ->
        :gone
    end
  end

  defp closed_frame(topic, join_ref) do
    text(%Message{join_ref: join_ref, ref: join_ref, topic: topic, event: "phx_close"})
  end

  defp unmatched(message), do: text(Message.reply(%{message | join_ref: nil}, :error, %{reason: "unmatched topic"}))

  defp text(message), do: {:text, Message.encode(message)}
  defp upgrade?(req), do: :cowboy_req.header("upgrade", req, "") |> String.downcase() == "websocket"
  defp heard(state), do: %{state | heard_at: now()}
  defp now, do: System.monotonic_time(:millisecond)

  # Phoenix takes a client without `vsn` for one that speaks version 1 and then fails on its first version 2 frame.
  defp protocol(vsn) do
    case Version.parse(vsn) do
      {:ok, %Version{major: 2, minor: 0}} -> :v2
      {:ok, %Version{major: 1, minor: 0}} -> :v1
      _other -> :unknown
    end
  end
end
