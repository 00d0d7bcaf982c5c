defmodule Workload.EndpointTest do
  use ExUnit.Case

  alias Workload.{Client, Endpoint}

  setup do
    on_exit(fn -> Supervisor.restart_child(Workload.Supervisor, Endpoint) end)
  end

  # How a tool finds a Phoenix endpoint in an application it knows nothing about.
  defp find_endpoint do
    {top, _module} = :application_controller.get_master(:workload) |> :application_master.get_child()

    for {id, _pid, :supervisor, [module]} <- Supervisor.which_children(top),
        function_exported?(module, :__sockets__, 0),
        do: {top, id}
  end

  test "is found by the function its module exports, stopped alone and started again" do
    assert [{top, id}] = find_endpoint()
    page = Client.open("/stash/ets")
    {client, first} = Client.visit(page)
    Client.click(client, "stash")
    # It has joined nothing, but has been heard of: until then the server may still be busy opening it.
    idle = Client.connect(page)
    Client.call(idle, nil, "phoenix", "heartbeat", %{})

    :ok = Supervisor.terminate_child(top, id)
    assert Client.receive_frame(client) == {:close, 1012}
    assert Client.receive_frame(idle) == {:close, 1012}
    assert {:error, :econnrefused} = :gen_tcp.connect({127, 0, 0, 1}, page.port, [])
    assert :ets.info(:live_stash_server_storage, :size) >= 1
    assert is_pid(Process.whereis(Workload.PubSub))

    {:ok, _pid} = Supervisor.restart_child(top, id)
    brought = Client.event(first["rendered"], "live-stash:init-ets")
    {_client, again} = Client.visit(%{page | port: Endpoint.port()}, %{"_mounts" => 1, "liveStash" => brought})
    assert %{"0" => "recovered", "1" => "1"} = again["rendered"]
  end

  test "closes every one of many sockets with 1012" do
    page = Client.open("/stash/browser_memory")
    clients = for _ <- 1..200, do: Client.visit(page) |> elem(0)
    :ok = Supervisor.terminate_child(Workload.Supervisor, Endpoint)
    assert Enum.map(clients, &Client.receive_frame/1) |> Enum.uniq() == [{:close, 1012}]
  end

  test "can be stopped and started again on the same port at once" do
    port = Endpoint.port()
    :ok = Supervisor.terminate_child(Workload.Supervisor, Endpoint)
    :ok = Supervisor.delete_child(Workload.Supervisor, Endpoint)
    # The tests' endpoint listens on whatever port is free, which would hide a port that is still taken.
    fixed = {Endpoint, %{Workload.Config.get() | port: port}}

    for _ <- 1..20 do
      {:ok, _pid} = Supervisor.start_child(Workload.Supervisor, fixed)
      assert %{status: 200} = Client.request("GET", "/healthz")
      :ok = Supervisor.terminate_child(Workload.Supervisor, Endpoint)
      :ok = Supervisor.delete_child(Workload.Supervisor, Endpoint)
    end

    {:ok, _pid} = Supervisor.start_child(Workload.Supervisor, {Endpoint, Workload.Config.get()})
  end
end
