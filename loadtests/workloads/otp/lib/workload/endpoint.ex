defmodule Workload.Endpoint do
  @moduledoc """
  The web endpoint: everything that has to do with connections, and nothing else.

  Its shape is a Phoenix endpoint's, because tools rely on it: one supervisor whose module exports `__sockets__/0`. It can
  be terminated and restarted alone, while stashes, PubSub and the cluster stay. When it stops, it
  accepts nobody any more and closes all sockets with code 1012.
  """

  use Supervisor

  alias Workload.{Channel, Config, Drainer, HTTP, Socket}

  @listener Workload.Listener

  @doc "Starts serving HTTP on `config.port`."
  @spec start_link(Config.t()) :: Supervisor.on_start()
  def start_link(config), do: Supervisor.start_link(__MODULE__, config, name: __MODULE__)

  @doc "The sockets this endpoint serves: path, module and what travels over it."
  @spec __sockets__() :: [{String.t(), module(), Socket.kind()}]
  def __sockets__, do: [{"/live", Socket, :live}, {"/socket", Socket, :room}]

  @doc "The port the endpoint listens on; differs from the configured one when that is 0."
  @spec port() :: :inet.port_number()
  def port, do: :ranch.get_port(@listener)

  @impl true
  def init(config) do
    Supervisor.init([Socket.registry_spec(), Channel.supervisor_spec(), listener_spec(config), {Drainer, @listener}],
      strategy: :one_for_one
    )
  end

  defp listener_spec(config) do
    transport = %{
      connection_type: :supervisor,
      # ranch would stop accepting at 1,024 connections.
      max_connections: :infinity,
      num_acceptors: 100,
      socket_opts: [port: config.port, backlog: 1024, nodelay: true] ++ address()
    }

    protocol = %{
      connection_type: :supervisor,
      env: %{dispatch: :cowboy_router.compile([{:_, routes()}])},
      middlewares: [Workload.RequestLine, :cowboy_router, :cowboy_handler],
      # As Bandit has it: keep-alive without a limit of requests, and 60 s without any.
      max_keepalive: :infinity,
      idle_timeout: 60_000,
      request_timeout: 60_000,
      max_request_line_length: Workload.RequestLine.max_bytes()
    }

    :ranch.child_spec(@listener, :ranch_tcp, transport, :cowboy_clear, protocol)
  end

  defp routes do
    for({path, module, kind} <- __sockets__(), do: {path <> "/websocket", module, kind}) ++ HTTP.routes()
  end

  # Every address of the machine, of both families where the kernel knows IPv6.
  defp address do
    any = {0, 0, 0, 0, 0, 0, 0, 0}

    case :gen_tcp.listen(0, [:inet6, ip: any]) do
      {:ok, socket} ->
        :gen_tcp.close(socket)
        [:inet6, ip: any, ipv6_v6only: false]

      {:error, _reason} ->
        [ip: {0, 0, 0, 0}]
    end
  end
end
