defmodule Workload.PubSub do
  @moduledoc """
  Messages to everybody on a topic, on every node: subscribers are known to their own node only, and one process per
  node passes on what other nodes broadcast.
  """

  use Supervisor

  # The name of pg's process, so it cannot be the registry's.
  @scope __MODULE__.Nodes

  @doc false
  def start_link(_opts), do: Supervisor.start_link(__MODULE__, nil, name: __MODULE__.Supervisor)

  @impl true
  def init(nil) do
    Supervisor.init(
      [
        {Registry, keys: :duplicate, name: __MODULE__, partitions: System.schedulers_online()},
        %{id: :pg, start: {:pg, :start_link, [@scope]}},
        {__MODULE__.Relay, @scope}
      ],
      strategy: :rest_for_one
    )
  end

  @doc "Sends later broadcasts on `topic` to `receiver`, for as long as the calling process lives."
  @spec subscribe(String.t(), pid()) :: :ok
  def subscribe(topic, receiver) do
    {:ok, _owner} = Registry.register(__MODULE__, topic, receiver)
    :ok
  end

  @doc "Sends `message` to the subscribers of `topic` on all nodes."
  @spec broadcast(String.t(), term()) :: :ok
  def broadcast(topic, message) do
    remote = :pg.get_members(@scope, :relays) -- :pg.get_local_members(@scope, :relays)
    for relay <- remote, do: send(relay, {:broadcast, topic, message})
    local_broadcast(topic, message)
  end

  @doc "Sends `message` to the subscribers of `topic` on this node."
  @spec local_broadcast(String.t(), term()) :: :ok
  def local_broadcast(topic, message) do
    Registry.dispatch(__MODULE__, topic, fn entries -> for {_pid, receiver} <- entries, do: send(receiver, message) end)
  end

  defmodule Relay do
    @moduledoc false
    use GenServer

    def start_link(scope), do: GenServer.start_link(__MODULE__, scope)

    @impl true
    def init(scope) do
      :ok = :pg.join(scope, :relays, self())
      {:ok, nil}
    end

    @impl true
    def handle_info({:broadcast, topic, message}, state) do
      Workload.PubSub.local_broadcast(topic, message)
      {:noreply, state}
    end
  end
end
