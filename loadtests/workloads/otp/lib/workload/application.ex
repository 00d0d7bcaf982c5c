defmodule Workload.Application do
  @moduledoc """
  Starts the workload in the order in which a Phoenix application with LiveStash starts: stash storage, cluster, PubSub,
  and the web endpoint last, so that a stopping node closes its sockets while its stashes can still be fetched.
  """

  use Application

  alias Workload.{Config, Stash}

  @impl true
  def start(_type, _args) do
    case Config.read(System.get_env()) do
      {:ok, config} ->
        Config.put(config)
        Supervisor.start_link(children(config), strategy: :one_for_one, name: Workload.Supervisor)

      {:error, sentence} ->
        # Returning an error here would bury the sentence in a crash report.
        IO.puts(:stderr, "The workload cannot start: " <> sentence)
        System.halt(1)
    end
  end

  defp children(config) do
    Stash.children(config.adapters) ++
      if(config.cluster, do: [{Workload.Cluster, config.cluster}], else: []) ++
      [Workload.PubSub, {Workload.Endpoint, config}]
  end
end
