defmodule StashWorkload.Application do
  @moduledoc false
  use Application

  @impl true
  def start(_type, _args) do
    topologies = Application.get_env(:libcluster, :topologies, [])

    children = [
      {Cluster.Supervisor, [topologies, [name: StashWorkload.ClusterSupervisor]]},
      {Phoenix.PubSub, name: StashWorkload.PubSub},
      StashWorkloadWeb.Endpoint
    ]

    Supervisor.start_link(children, strategy: :one_for_one, name: StashWorkload.Supervisor)
  end

  @impl true
  def config_change(changed, _new, removed) do
    StashWorkloadWeb.Endpoint.config_change(changed, removed)
    :ok
  end
end
