defmodule Workload.RedisServer do
  @moduledoc "Redis servers for the tests, which end with the calling process."

  alias Workload.{Eventually, Redis}

  @enforce_keys [:shell, :port, :options]
  defstruct @enforce_keys

  @doc "Starts a server that stores nothing on disk, with further options of redis-server. Returns when it accepts connections."
  def start(options \\ [], port \\ free_port()) do
    server = ["redis-server", "--port", "#{port}", "--bind", "127.0.0.1", "--save", "", "--dir", "/tmp"] ++ options
    # A port that closes closes its program's input, and no more.
    script = ~S(exec 3<&0; "$@" >/dev/null 2>&1 & read -r _ <&3; kill -KILL $!)
    shell = Port.open({:spawn_executable, "/bin/sh"}, args: ["-c", script, "sh" | server])
    Eventually.true?(fn -> connects?(port) end)
    %__MODULE__{shell: shell, port: port, options: options}
  end

  @doc "Ends a server as SIGKILL does, and returns when it is gone."
  def stop(server) do
    Port.close(server.shell)
    Eventually.true?(fn -> not connects?(server.port) end)
  end

  @doc "Starts a server again that was stopped."
  def start_again(server), do: start(server.options, server.port)

  @doc "A URL of a server."
  def url(server, login \\ ""), do: "redis://#{login}127.0.0.1:#{server.port}"

  @doc "The settings of a URL."
  def settings(url, ca \\ nil) do
    {:ok, settings} = Redis.Url.read(url, ca)
    settings
  end

  @doc "A port that nobody listens on."
  def free_port do
    {:ok, listener} = :gen_tcp.listen(0, ip: {127, 0, 0, 1})
    {:ok, port} = :inet.port(listener)
    :gen_tcp.close(listener)
    port
  end

  defp connects?(port) do
    case :gen_tcp.connect({127, 0, 0, 1}, port, []) do
      {:ok, tcp} -> :gen_tcp.close(tcp) == :ok
      {:error, _reason} -> false
    end
  end
end
