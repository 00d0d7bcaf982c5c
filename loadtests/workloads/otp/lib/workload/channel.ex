defmodule Workload.Channel do
  @moduledoc """
  What `Workload.Live` and `Workload.Room` have in common: a process of its own per joined topic, as in Phoenix.

  The socket process starts it with `join/2` and waits for the outcome. From then on the two exchange messages:
  to the channel go `Workload.Message` structs and `:drain`; to the socket go `{:push, frame}` and `{:closed, channel}`.
  """

  alias Workload.Message

  @typedoc "What a channel is started with: its join message, the socket's session and the socket's process."
  @type join :: %{message: Message.t(), session: Workload.Session.t() | nil, socket: pid(), reply_to: reference()}

  @doc "Starts `module` for a join message. Returns the response for the client."
  @spec join(module(), Message.t(), Workload.Session.t() | nil) :: {:ok, map(), pid()} | {:error, map()}
  def join(module, message, session) do
    reply_to = make_ref()
    join = %{message: message, session: session, socket: self(), reply_to: reply_to}
    spec = %{id: module, start: {GenServer, :start_link, [module, join, options()]}, restart: :temporary}
    {:ok, channel} = DynamicSupervisor.start_child(supervisor(), spec)
    monitor = Process.monitor(channel)

    receive do
      {^reply_to, {:ok, response}} ->
        Process.demonitor(monitor, [:flush])
        {:ok, response, channel}

      {^reply_to, {:error, response}} ->
        Process.demonitor(monitor, [:flush])
        {:error, response}

      {:DOWN, ^monitor, :process, ^channel, _reason} ->
        {:error, %{reason: "join crashed"}}
    end
  end

  @doc "Tells the waiting socket how its join went."
  @spec answer(join(), {:ok, map()} | {:error, map()}) :: :ok
  def answer(join, answer) do
    send(join.socket, {join.reply_to, answer})
    :ok
  end

  @doc "Sends a frame to the client."
  @spec push(pid(), Message.t()) :: :ok
  def push(socket, message) do
    send(socket, {:push, Message.encode(message)})
    :ok
  end

  @doc "The supervisors of all channels, for the endpoint's supervision tree."
  @spec supervisor_spec() :: Supervisor.child_spec()
  def supervisor_spec, do: {PartitionSupervisor, child_spec: DynamicSupervisor, name: __MODULE__}

  defp supervisor, do: {:via, PartitionSupervisor, {__MODULE__, self()}}

  # LiveView's default: a channel that has been idle for 15 s shrinks its heap.
  defp options, do: [hibernate_after: 15_000]
end
