defmodule Workload.Stash.Mnesia.Storage do
  @moduledoc """
  Decides when `Workload.Stash.Mnesia.Table` has to act: at start, when a node appears, and when Mnesia finds after a
  split that the copies differ. The timing is LiveStash's, too: at start the application waits for the table, later joins
  run beside, one at a time, and a failed one is tried again after 5 s, a failed repair three times.

  A repair that is due during a join is not made up for. The end of a split is a join, so the copies differ ever after.
  """

  use GenServer

  require Logger

  alias Workload.Stash.Mnesia.Table

  @retry_ms 5_000
  @repairs 3

  # peers: whom the join in progress, or the failed last one, was for. again?: a node appeared during the join.
  # repairs_left: nil unless a repair goes on.
  defstruct join: nil, peers: [], again?: false, repairs_left: nil

  @doc """
  The name of the supervisor of the joins, which outlive this process. LiveStash's, because tools outside of the
  application look for it.
  """
  @spec tasks() :: atom()
  def tasks, do: LiveStash.Adapters.Mnesia.TaskSupervisor

  @doc false
  def start_link(_opts), do: GenServer.start_link(__MODULE__, nil, name: __MODULE__)

  @impl true
  def init(nil) do
    # Running already, unless whoever restarts it has ended this process.
    :ok = :mnesia.start()
    {:ok, _node} = :mnesia.subscribe(:system)
    :ok = :net_kernel.monitor_nodes(true)
    Table.ensure(Node.list())
    {:ok, %__MODULE__{}}
  end

  @impl true
  def handle_info({:mnesia_system_event, {:inconsistent_database, _context, other}}, state) do
    Logger.error("The Mnesia tables of this node and #{other} differ after a split.")
    master = Table.master(Node.list())

    if state.join || state.repairs_left || master == node(),
      do: {:noreply, state},
      else: repair(%{state | repairs_left: @repairs}, master)
  end

  def handle_info({:repair, master}, state), do: repair(state, master)

  def handle_info({:nodeup, _node}, %{repairs_left: left} = state) when left != nil, do: {:noreply, state}
  def handle_info({:nodeup, _node}, %{join: %Task{}} = state), do: {:noreply, %{state | again?: true}}
  def handle_info({:nodeup, _node}, state), do: {:noreply, join(state, Node.list())}

  def handle_info({ref, :ok}, %{join: %Task{ref: ref}} = state) do
    Process.demonitor(ref, [:flush])
    state = %{state | join: nil, peers: []}
    {:noreply, if(state.again?, do: join(state, Node.list()), else: state)}
  end

  def handle_info({:DOWN, ref, :process, _pid, reason}, %{join: %Task{ref: ref}} = state) do
    Logger.error("Joining the Mnesia tables of #{inspect(state.peers)} failed: #{inspect(reason)}")
    state = %{state | join: nil}

    if state.again? do
      {:noreply, join(state, Node.list())}
    else
      Process.send_after(self(), :join_again, @retry_ms)
      {:noreply, state}
    end
  end

  def handle_info(:join_again, %{join: nil} = state), do: {:noreply, join(state, state.peers)}
  def handle_info(_other, state), do: {:noreply, state}

  defp join(state, peers) do
    join = Task.Supervisor.async_nolink(tasks(), Table, :ensure, [peers])
    %{state | join: join, peers: peers, again?: false}
  end

  # In this process, so that nothing else happens to the table meanwhile.
  defp repair(state, master) do
    Table.resync(master)
    {:noreply, %{state | repairs_left: nil}}
  rescue
    error ->
      Logger.error("The Mnesia table was not copied from #{master}: #{Exception.message(error)}")
      {:noreply, repair_later(state, master)}
  end

  defp repair_later(%{repairs_left: 1} = state, _master), do: %{state | repairs_left: nil}

  defp repair_later(state, master) do
    Process.send_after(self(), {:repair, master}, @retry_ms)
    %{state | repairs_left: state.repairs_left - 1}
  end
end
