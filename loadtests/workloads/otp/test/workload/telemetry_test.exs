defmodule Workload.TelemetryTest do
  use ExUnit.Case

  alias Workload.{Client, Stash}

  @event [:phoenix, :live_view, :mount, :stop]

  defp listen(function) do
    id = make_ref()
    assert :telemetry.attach_many(id, [@event], function, self()) == :ok
    assert :telemetry.attach_many(id, [@event], function, self()) == {:error, :already_exists}
    id
  end

  def tell(@event, %{}, %{socket: socket}, test), do: send(test, {:mounted, self(), socket})
  def fail(@event, %{}, %{socket: _socket}, _test), do: raise("a handler that fails")

  test "says of a page what LiveView says: its socket, with LiveStash's context" do
    listen(&__MODULE__.fail/4)
    listen(&__MODULE__.tell/4)
    {_client, response} = Client.visit(Client.open("/stash/redis"))
    assert [["live-stash:init-redis", %{"stashId" => id}]] = response["rendered"]["e"]
    assert_receive {:mounted, page, %{view: Workload.Live, transport_pid: transport, private: private}}
    %{live_stash_context: context} = private
    assert page != transport
    assert Process.alive?(transport)
    assert %{id: ^id, ttl: ttl, reconnected?: false, stash_fingerprint: nil, version: nil} = context
    assert ttl > 0
    assert context.secret == Stash.secret()

    # The one that has failed has failed nothing else.
    {_client, response} = Client.visit(Client.open("/stash/none"))
    assert response["rendered"]["0"] == "new"
    assert_receive {:mounted, _page, %{private: private}}
    assert private == %{}
  end
end
