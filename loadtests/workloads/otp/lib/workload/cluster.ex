defmodule Workload.Cluster do
  @moduledoc """
  Joins the other nodes of the fleet as libcluster's Kubernetes.DNSSRV strategy does: every 5 s it asks DNS for the SRV
  records of the headless Service and connects to each `<app>@<host>` it is not connected to. It never disconnects anyone.

  The cluster's DNS domain is taken from this node's own name, `<app>@<pod>.<service>.<namespace>.svc.<domain>`.
  """

  use GenServer

  require Logger

  @interval_ms 5_000

  @type settings :: %{service: String.t(), namespace: String.t(), app: String.t()}

  @doc "Starts looking for the nodes of a Service. Without distribution it says so once and stays idle."
  @spec start_link(settings()) :: GenServer.on_start()
  def start_link(settings), do: GenServer.start_link(__MODULE__, settings, name: __MODULE__)

  @doc "The name to ask DNS for, or an error when `node`'s own name does not contain the domain."
  @spec srv_name(settings(), node()) :: {:ok, String.t()} | :error
  def srv_name(settings, node) do
    case String.split(Atom.to_string(node), ".svc.", parts: 2) do
      # The dot at the end keeps the resolver from trying its search domains.
      [_host, domain] -> {:ok, "#{settings.service}.#{settings.namespace}.svc.#{String.trim_trailing(domain, ".")}."}
      _other -> :error
    end
  end

  @doc "The nodes behind the targets of SRV records, without this node itself."
  @spec nodes([charlist()], String.t()) :: [node()]
  def nodes(hosts, app) do
    # Atoms are made from the names of the fleet's own pods only, so their number is bounded by the fleet's size.
    for(host <- hosts, do: String.to_atom("#{app}@#{host}")) |> Enum.uniq() |> List.delete(Node.self())
  end

  @impl true
  def init(settings) do
    with true <- Node.alive?(),
         {:ok, name} <- srv_name(settings, Node.self()) do
      {:ok, %{app: settings.app, name: name, failing?: false}, {:continue, :connect}}
    else
      _no ->
        Logger.warning(
          "Not clustering: the node's name is #{Node.self()}, but LIBCLUSTER_SERVICE needs " <>
            "RELEASE_DISTRIBUTION=name and a RELEASE_NODE like app@pod.service.namespace.svc.domain."
        )

        :ignore
    end
  end

  @impl true
  def handle_continue(:connect, state), do: handle_info(:connect, state)

  @impl true
  def handle_info(:connect, state) do
    state = connect(state)
    Process.send_after(self(), :connect, @interval_ms)
    {:noreply, state}
  end

  def handle_info(_other, state), do: {:noreply, state}

  defp connect(state) do
    case :inet_res.getbyname(String.to_charlist(state.name), :srv) do
      {:ok, {:hostent, _name, _aliases, :srv, _length, records}} ->
        hosts = for {_priority, _weight, _port, host} <- records, do: host

        for node <- nodes(hosts, state.app) -- Node.list(), Node.connect(node) == true do
          Logger.info("Connected to #{node}.")
        end

        %{state | failing?: false}

      {:error, reason} ->
        # Once per outage: a missing record is normal while the first pod starts.
        unless state.failing?,
          do: Logger.warning("No SRV records for #{state.name} (#{inspect(reason)}); trying again.")

        %{state | failing?: true}
    end
  end
end
