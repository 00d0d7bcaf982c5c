defmodule Workload.WireTest do
  use ExUnit.Case

  alias Workload.{Client, Socket}

  defp stash_table, do: :ets.tab2list(:live_stash_server_storage)

  setup do
    :ets.delete_all_objects(:live_stash_server_storage)
    :ok
  end

  describe "the page" do
    test "has a session cookie, a CSRF token and the signed element that LiveView's client looks for" do
      page = Client.open("/stash/ets")
      assert page.set_cookie =~ ~r/^_workload_key=SFMy[^;]+; Path=\/; HttpOnly; SameSite=Lax$/
      assert "lv:phx-G" <> _ = page.topic
      assert "SFMy" <> _ = page.session
      assert "SFMy" <> _ = page.static
    end

    test "keeps the session of a browser that has one, and sets no cookie again" do
      first = Client.open("/stash/ets")
      second = Client.open("/stash/ets", Workload.Endpoint.port(), first.cookie)
      assert second.csrf == first.csrf
      assert second.set_cookie == nil
      assert second.topic != first.topic
    end
  end

  describe "the first visit" do
    test "renders status and counter with ETS's pushed event" do
      {_client, response} = Client.visit(Client.open("/stash/ets"))
      assert response["liveview_version"] == "1.2.10"

      rendered = response["rendered"]
      assert %{"0" => "new", "1" => "0", "2" => "ets", "3" => "nonode@nohost", "s" => 0, "r" => 1} = rendered
      assert %{"p" => %{"0" => statics}, "e" => events} = rendered
      assert length(statics) == 5
      assert [["live-stash:init-ets", %{"node" => node, "stashId" => id}]] = events
      assert is_binary(node)
      assert id =~ ~r/^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/
    end

    test "renders without events where there is no LiveStash" do
      {client, response} = Client.visit(Client.open("/stash/none"))
      refute Map.has_key?(response["rendered"], "e")
      assert Client.click(client, "stash") == %{"status" => "ok", "response" => %{"diff" => %{"1" => "1"}}}
    end

    test "tells the browser to forget what it has for BrowserMemory" do
      {_client, response} = Client.visit(Client.open("/stash/browser_memory"))
      assert response["rendered"]["e"] == [["live-stash:init-browser-memory", %{}]]
    end
  end

  describe "a stash" do
    test "is answered with nothing but what changed" do
      {client, _response} = Client.visit(Client.open("/stash/ets"))
      assert Client.click(client, "stash") == %{"status" => "ok", "response" => %{"diff" => %{"1" => "1"}}}
      assert Client.click(client, "stash") == %{"status" => "ok", "response" => %{"diff" => %{"1" => "2"}}}
    end

    test "is a row of LiveStash's layout, owned by the page's process" do
      {client, response} = Client.visit(Client.open("/stash/ets"))
      Client.click(client, "stash")
      id = Client.event(response["rendered"], "live-stash:init-ets")["stashId"]
      key = Base.encode64(:crypto.hash(:sha256, id <> "live_stash"), padding: false)
      assert [{:state, ^key, owner, delete_at, %{count: 1, payload: payload}, nil}] = stash_table()
      assert Process.alive?(owner)
      assert_in_delta delete_at, System.os_time(:second) + 300, 2
      assert map_size(payload) == 150
      assert byte_size(:erlang.term_to_binary(payload)) == 5556
      assert byte_size(:erlang.term_to_binary(payload, compressed: 1)) == 864
      assert :erts_debug.flat_size(payload) * 8 == 15_280
      assert :ets.info(:live_stash_server_storage, :keypos) == 2
    end

    test "goes to the browser as a token of about a kilobyte with BrowserMemory" do
      {client, _response} = Client.visit(Client.open("/stash/browser_memory"))
      %{"response" => %{"diff" => diff}} = Client.click(client, "stash")
      assert diff["1"] == "1"
      assert %{"assigns" => "SFMy" <> _ = token} = Client.event(diff, "live-stash:stash-state")
      assert byte_size(token) in 800..1600
    end
  end

  describe "a reconnect" do
    for {path, event, keys} <- [
          {"/stash/ets", "live-stash:init-ets", ["node", "stashId"]},
          {"/stash/mnesia", "live-stash:init-mnesia", ["stashId"]},
          {"/stash/redis", "live-stash:init-redis", ["stashId"]},
          {"/stash/browser_memory", "live-stash:stash-state", ["stashedState"]}
        ] do
      test "to #{path} recovers the counter" do
        page = Client.open(unquote(path))
        {client, first} = Client.visit(page)
        Client.click(client, "stash")
        %{"response" => %{"diff" => diff}} = Client.click(client, "stash")
        Client.close(client)

        brought = live_stash(Client.event(first["rendered"], unquote(event)) || Client.event(diff, unquote(event)))
        assert Enum.sort(Map.keys(brought)) == unquote(keys)
        {client, again} = Client.visit(page, %{"_mounts" => 1, "liveStash" => brought})
        assert %{"0" => "recovered", "1" => "2"} = again["rendered"]
        assert %{"response" => %{"diff" => %{"1" => "3"}}} = Client.click(client, "stash")
      end
    end

    test "keeps the stash id and takes the row over" do
      page = Client.open("/stash/ets")
      {client, first} = Client.visit(page)
      Client.click(client, "stash")
      [{:state, key, owner, _, _, _}] = stash_table()
      brought = Client.event(first["rendered"], "live-stash:init-ets")

      # The first connection stays open: the network may have died without telling the server.
      {_second, again} = Client.visit(page, %{"_mounts" => 1, "liveStash" => brought})
      assert Client.event(again["rendered"], "live-stash:init-ets")["stashId"] == brought["stashId"]
      assert [{:state, ^key, new_owner, _, %{count: 1}, nil}] = stash_table()
      assert new_owner != owner

      # What the first connection does now is not stored.
      assert %{"status" => "ok"} = Client.click(client, "stash")
      assert [{:state, ^key, ^new_owner, _, %{count: 1}, nil}] = stash_table()
    end

    test "with a stash of another version is an error, and the row is gone" do
      config = Workload.Config.get()
      on_exit(fn -> Workload.Config.put(config) end)
      page = Client.open("/stash/ets")
      {client, first} = Client.visit(page)
      Client.click(client, "stash")
      brought = Client.event(first["rendered"], "live-stash:init-ets")

      Workload.Config.put(%{config | stash_version: "2"})
      {client, again} = Client.visit(page, %{"_mounts" => 1, "liveStash" => brought})
      assert %{"0" => "error", "1" => "0"} = again["rendered"]
      assert stash_table() == []

      Client.click(client, "stash")
      assert [{:state, _key, _owner, _, %{count: 1}, "2"}] = stash_table()
      {_client, third} = Client.visit(page, %{"_mounts" => 1, "liveStash" => brought})
      assert %{"0" => "recovered", "1" => "1"} = third["rendered"]
    end

    test "without LiveStash starts anew" do
      page = Client.open("/stash/none")
      {client, _response} = Client.visit(page)
      Client.click(client, "stash")
      {_client, again} = Client.visit(page, %{"_mounts" => 1})
      assert %{"0" => "new", "1" => "0"} = again["rendered"]
    end

    test "finds nothing when the client brings nothing" do
      for path <- ["/stash/ets", "/stash/mnesia", "/stash/redis", "/stash/browser_memory"] do
        {_client, response} = Client.visit(Client.open(path), %{"_mounts" => 1, "liveStash" => %{}})
        assert %{"0" => "not_found", "1" => "0"} = response["rendered"]
      end
    end

    for mounts <- ["1", 0, nil] do
      test "with _mounts #{inspect(mounts)} is a new visit, which deletes the stored row" do
        page = Client.open("/stash/ets")
        {client, first} = Client.visit(page)
        Client.click(client, "stash")
        assert [_row] = stash_table()
        brought = Client.event(first["rendered"], "live-stash:init-ets")

        {_client, again} = Client.visit(page, %{"_mounts" => unquote(mounts), "liveStash" => brought})
        assert %{"0" => "new", "1" => "0"} = again["rendered"]
        assert Client.event(again["rendered"], "live-stash:init-ets")["stashId"] != brought["stashId"]
        assert stash_table() == []
      end
    end

    test "with a changed token is an error, and the browser is told to forget it" do
      page = Client.open("/stash/browser_memory")
      {client, _response} = Client.visit(page)
      %{"response" => %{"diff" => diff}} = Client.click(client, "stash")
      %{"assigns" => token} = Client.event(diff, "live-stash:stash-state")
      [head, body, mac] = String.split(token, ".")
      brought = %{"stashedState" => Enum.join([head, String.reverse(body), mac], ".")}
      {_client, again} = Client.visit(page, %{"_mounts" => 1, "liveStash" => brought})
      assert %{"0" => "error", "1" => "0"} = again["rendered"]
      assert again["rendered"]["e"] == [["live-stash:init-browser-memory", %{}]]
    end

    test "with an expired token finds nothing" do
      state = :erlang.term_to_binary(%{version: nil, assigns: %{count: 9}}, compressed: 1)
      brought = %{"stashedState" => Workload.Token.sign("live_stash", state, -1)}

      {_client, response} =
        Client.visit(Client.open("/stash/browser_memory"), %{"_mounts" => 1, "liveStash" => brought})

      assert %{"0" => "not_found"} = response["rendered"]
    end

    test "with a node hint that cannot be decrypted still finds the local row" do
      page = Client.open("/stash/ets")
      {client, first} = Client.visit(page)
      Client.click(client, "stash")
      brought = Client.event(first["rendered"], "live-stash:init-ets") |> Map.put("node", "XCP.nonsense")
      {_client, again} = Client.visit(page, %{"_mounts" => 1, "liveStash" => brought})
      assert %{"0" => "recovered", "1" => "1"} = again["rendered"]
    end
  end

  describe "a row" do
    test "is renewed by the page's process and removed by the cleaner when its time is over" do
      {client, _response} = Client.visit(Client.open("/stash/ets"))
      Client.click(client, "stash")
      [{:state, key, owner, delete_at, _, _}] = stash_table()

      :ets.update_element(:live_stash_server_storage, key, {4, 0})
      send(owner, {:stash, :keep_alive})
      _ = :sys.get_state(owner)
      assert [{:state, ^key, ^owner, renewed, _, _}] = stash_table()
      assert renewed >= delete_at

      assert Workload.Stash.Ets.clean(renewed) == 0
      assert Workload.Stash.Ets.clean(renewed + 1) == 1
    end

    test "whose time is over is still found until the cleaner has come" do
      page = Client.open("/stash/ets")
      {client, first} = Client.visit(page)
      Client.click(client, "stash")
      [{:state, key, _, _, _, _}] = stash_table()
      :ets.update_element(:live_stash_server_storage, key, {4, 0})
      brought = Client.event(first["rendered"], "live-stash:init-ets")
      {_client, again} = Client.visit(page, %{"_mounts" => 1, "liveStash" => brought})
      assert %{"0" => "recovered"} = again["rendered"]
    end
  end

  describe "a stale join" do
    @stale %{"status" => "error", "response" => %{"reason" => "stale"}}

    test "is one without a CSRF token, with a wrong one, or without a cookie" do
      page = Client.open("/stash/ets")

      for options <- [
            [query: %{"vsn" => "2.0.0"}],
            [query: %{"vsn" => "2.0.0", "_csrf_token" => "wrong"}],
            [cookie: nil],
            [cookie: "_workload_key=SFMyNTY.AAAA.AAAA"],
            [cookie: "=;="]
          ] do
        assert Client.join(Client.connect(page, options)) == @stale
      end
    end

    test "is one whose session or static does not belong to the topic" do
      page = Client.open("/stash/ets")
      other = Client.open("/stash/ets", page.port, page.cookie)

      for change <- [
            %{"static" => ""},
            %{"static" => other.static},
            %{"session" => other.session},
            %{"session" => page.static},
            %{"session" => nil},
            %{"session" => 7}
          ] do
        assert Client.join(Client.connect(page), %{}, change) == @stale
      end
    end

    test "leaves the socket open for a good one" do
      client = Client.connect(Client.open("/stash/ets"))
      assert Client.join(client, %{}, %{"static" => ""}) == @stale
      assert %{"status" => "ok"} = Client.join(client)
    end
  end

  test "a join's address says which page it is, and one of no page is unauthorized" do
    client = Client.connect(Client.open("/stash/ets"))
    unauthorized = %{"status" => "error", "response" => %{"reason" => "unauthorized"}}
    assert Client.join(client, %{}, %{"url" => "http://127.0.0.1/stash/files"}) == unauthorized
    assert %{"response" => %{"rendered" => rendered}} = Client.join(client, %{}, %{"url" => "http://x/stash/none"})
    assert rendered["2"] == "none"
  end

  test "a join without params or address crashes" do
    for change <- [%{"params" => nil}, %{"url" => nil}, %{"params" => [], "url" => 7}] do
      client = Client.connect(Client.open("/stash/ets"))
      assert Client.join(client, %{}, change) == %{"status" => "error", "response" => %{"reason" => "join crashed"}}
    end
  end

  describe "the socket" do
    test "answers heartbeats and pings" do
      client = Client.connect(Client.open("/stash/ets"))
      Client.send_json(client, [nil, "3", "phoenix", "heartbeat", %{}])
      ok = %{"status" => "ok", "response" => %{}}
      assert Client.receive_json(client) == [nil, "3", "phoenix", "phx_reply", ok]
      Client.send_json(client, ["4", "5", "phoenix", "heartbeat", %{}])
      assert Client.receive_json(client) == [nil, "5", "phoenix", "phx_reply", ok]
      Client.send_frame(client, 9, "are you there")
      assert Client.receive_frame(client) == {:pong, "are you there"}
    end

    test "is closed with 1002 after 60 s in which nothing was heard" do
      now = System.monotonic_time(:millisecond)
      assert {[], _state} = Socket.websocket_info(:idle?, %{heard_at: now - 59_000})
      assert {[{:close, 1002, ""}], _state} = Socket.websocket_info(:idle?, %{heard_at: now - 60_000})
    end

    test "is closed with 1011 by the first message of a client that named no version" do
      page = Client.open("/stash/ets")
      client = Client.connect(page, query: %{"_csrf_token" => page.csrf})
      Client.send_json(client, ["4", "4", page.topic, "phx_join", %{}])
      assert Client.receive_frame(client) == {:close, 1011}
    end

    test "is refused to a client of an unknown version" do
      for vsn <- ["3.0.0", "2", "x"],
          do: assert(Client.connect(Client.open("/stash/ets"), query: %{"vsn" => vsn}) == 403)
    end

    test "is refused to pages of other hosts" do
      page = Client.open("/stash/ets")
      assert Client.connect(page, origin: "http://evil.test") == 403

      for origin <- ["http://localhost:4000", "https://127.0.0.1", nil] do
        assert %Client{} = Client.connect(page, origin: origin)
      end
    end

    test "is nothing for plain HTTP" do
      assert %{status: 400} = Client.request("GET", "/live/websocket?vsn=2.0.0")
    end

    test "is closed with 1011 by a frame that is no message" do
      for frame <- ["", "{}", "[]", "[1,2,3]", ~s(["1","1",7,"event",{}]), "nonsense"] do
        client = Client.connect(Client.open("/stash/ets"))
        Client.send_frame(client, 1, frame)
        assert Client.receive_frame(client) == {:close, 1011}
      end
    end

    test "knows only its own topics" do
      client = Client.connect(Client.open("/stash/ets"))
      unmatched = %{"status" => "error", "response" => %{"reason" => "unmatched topic"}}

      for {topic, event} <- [{"room:7", "phx_join"}, {"lv:phx-none", "event"}, {"phoenix", "nonsense"}] do
        Client.send_json(client, ["4", "7", topic, event, %{}])
        assert Client.receive_json(client) == [nil, "7", topic, "phx_reply", unmatched]
      end
    end

    test "tells of a page's process that died" do
      {client, _response} = Client.visit(Client.open("/stash/ets"))
      topic = client.page.topic
      Client.send_json(client, ["4", "9", topic, "event", %{"type" => "click", "event" => "unknown", "value" => %{}}])
      assert Client.receive_json(client) == ["4", "4", topic, "phx_error", %{}]
    end

    test "ignores what is no event, and what was not sent for the current join" do
      {client, _response} = Client.visit(Client.open("/stash/ets"))
      topic = client.page.topic
      click = %{"type" => "click", "event" => "stash", "value" => %{}}

      for {join_ref, event} <- [{nil, "event"}, {"3", "event"}, {"4", "nonsense"}] do
        Client.send_json(client, [join_ref, "7", topic, event, click])
      end

      assert %{"response" => %{"diff" => %{"1" => "1"}}} = Client.click(client, "stash")
    end

    test "lets a page leave" do
      {client, _response} = Client.visit(Client.open("/stash/ets"))
      topic = client.page.topic
      Client.send_json(client, ["4", "8", topic, "phx_leave", %{}])
      assert Client.receive_json(client) == ["4", "4", topic, "phx_close", %{}]
      assert Client.receive_json(client) == ["4", "8", topic, "phx_reply", %{"status" => "ok", "response" => %{}}]
    end

    test "closes the first of two joins of the same topic" do
      {client, _response} = Client.visit(Client.open("/stash/ets"))
      assert %{"status" => "ok"} = Client.join(client)
      assert ["4", "4", _topic, "phx_close", %{}] = Client.receive_json(client)
      assert %{"response" => %{"diff" => %{"1" => "1"}}} = Client.click(client, "stash")
    end

    test "ends the page's process when it closes" do
      {client, _response} = Client.visit(Client.open("/stash/ets"))
      Client.click(client, "stash")
      [{:state, _, owner, _, _, _}] = stash_table()
      monitor = Process.monitor(owner)
      Client.close(client)
      assert_receive {:DOWN, ^monitor, :process, ^owner, _reason}, 2_000
    end
  end

  describe "a room" do
    test "passes a message to everybody in it, and to nobody else" do
      page = Client.open("/stash/none")

      [a, b, c] =
        for _ <- 1..3, do: Client.connect(page, path: "/socket/websocket", query: %{"vsn" => "2.0.0"}, cookie: nil)

      ok = %{"status" => "ok", "response" => %{}}
      for client <- [a, b], do: assert(Client.call(client, "1", "room:7", "phx_join", %{}) == ok)
      assert Client.call(c, "1", "room:8", "phx_join", %{}) == ok

      Client.send_json(a, ["1", "2", "room:7", "publish_msg", %{"text" => "hello"}])
      message = [nil, nil, "room:7", "new_message", %{"text" => "hello"}]
      assert Client.receive_json(a) == message
      assert Client.receive_json(a) == ["1", "2", "room:7", "phx_reply", ok]
      assert Client.receive_json(b) == message
      assert Client.receive_frame(c, 100) == :nothing

      Client.send_json(a, ["1", "3", "room:7", "phx_leave", %{}])
      assert Client.receive_json(a) == ["1", "3", "room:7", "phx_reply", ok]
      assert Client.receive_json(a) == ["1", "1", "room:7", "phx_close", %{}]
      Client.send_json(b, ["1", "4", "room:7", "publish_msg", %{}])
      assert Client.receive_json(b) == [nil, nil, "room:7", "new_message", %{}]
      assert Client.receive_frame(a, 100) == :nothing
    end
  end

  defp live_stash(%{"assigns" => token}), do: %{"stashedState" => token}
  defp live_stash(detail), do: detail
end
