defmodule Workload.RedisTest do
  use ExUnit.Case

  alias Workload.{Client, Eventually, Peers, Redis, RedisServer}

  defp folder do
    folder = Path.join(System.tmp_dir!(), "workload-tests-#{System.pid()}-#{System.unique_integer([:positive])}")
    File.mkdir_p!(folder)
    on_exit(fn -> File.rm_rf!(folder) end)
    folder
  end

  describe "a connection" do
    defp connect(settings) do
      name = :"redis_#{System.unique_integer([:positive])}"
      pid = start_supervised!({Redis, {settings, name}}, id: name, restart: :temporary)
      %{name: name, pid: pid}
    end

    defp answers?(connection), do: Redis.command(connection.name, ["PING"]) == {:ok, "PONG"}

    test "has texts, numbers, nothing and errors for answers, of any size" do
      server = RedisServer.start()
      %{name: name} = connect(RedisServer.settings(RedisServer.url(server)))
      text = String.duplicate("a\r\n", 100_000)
      assert Redis.command(name, ["SET", "text", text]) == {:ok, "OK"}
      assert Redis.command(name, ["GET", "text"]) == {:ok, text}
      assert Redis.command(name, ["SET", "text", ""]) == {:ok, "OK"}
      assert Redis.command(name, ["GET", "text"]) == {:ok, ""}
      assert Redis.command(name, ["GET", "none"]) == {:ok, nil}
      assert Redis.command(name, ["DEL", "text"]) == {:ok, 1}
      assert {:error, "ERR unknown command" <> _} = Redis.command(name, ["NONSENSE"])
      assert Redis.script(name, "return ARGV[1] .. KEYS[1]", ["key"], ["the "]) == {:ok, "the key"}
    end

    test "gives each of many processes its own answer" do
      server = RedisServer.start()
      %{name: name} = connect(RedisServer.settings(RedisServer.url(server)))
      echo = fn number -> Redis.command(name, ["ECHO", "#{number}"]) end
      answers = Task.async_stream(1..500, echo, max_concurrency: 100) |> Enum.map(fn {:ok, answer} -> answer end)
      assert answers == for(number <- 1..500, do: {:ok, "#{number}"})
    end

    test "logs in and selects a database" do
      server = RedisServer.start(["--requirepass", "pass", "--user", "app", "on", ">p:/@ %", "~*", "+@all"])
      assert {:ok, "app"} = ask(RedisServer.url(server, "app:p%3A%2F%40%20%25@"), ["ACL", "WHOAMI"])
      assert {:ok, "default"} = ask(RedisServer.url(server, ":pass@") <> "/3", ["ACL", "WHOAMI"])
      assert {:ok, "OK"} = ask(RedisServer.url(server, ":pass@") <> "/3", ["SET", "key", "value"])
      assert {:ok, nil} = ask(RedisServer.url(server, ":pass@"), ["GET", "key"])
      assert {:ok, "value"} = ask(RedisServer.url(server, ":pass@") <> "/3", ["GET", "key"])
      assert {:error, "NOAUTH" <> _} = ask(RedisServer.url(server), ["GET", "key"])
    end

    defp ask(url, command), do: Redis.command(connect(RedisServer.settings(url)).name, command)

    test "whose login is refused ends" do
      server = RedisServer.start(["--requirepass", "right"])
      %{pid: pid} = connect(RedisServer.settings(RedisServer.url(server, ":wrong@")))
      monitor = Process.monitor(pid)
      # noproc when it was quicker than the monitor.
      assert_receive {:DOWN, ^monitor, :process, ^pid, reason}, 10_000
      assert reason in [:refused, :noproc]
    end

    test "is made when Redis comes, and again when it comes back" do
      port = RedisServer.free_port()
      connection = connect(RedisServer.settings("redis://127.0.0.1:#{port}"))
      assert Redis.command(connection.name, ["PING"]) == {:error, :closed}

      server = RedisServer.start([], port)
      Eventually.true?(fn -> answers?(connection) end)
      RedisServer.stop(server)
      Eventually.true?(fn -> Redis.command(connection.name, ["PING"]) == {:error, :closed} end)

      RedisServer.start_again(server)
      Eventually.true?(fn -> answers?(connection) end)
      assert Process.alive?(connection.pid)
    end

    # Something else than Redis, which greets each connection with a text.
    defp listen(greeting) do
      {:ok, listener} = :gen_tcp.listen(0, ip: {127, 0, 0, 1}, active: false)
      {:ok, port} = :inet.port(listener)
      test = self()

      start_supervised!({Task, fn -> accept(listener, greeting, test) end})
      RedisServer.settings("redis://127.0.0.1:#{port}")
    end

    defp accept(listener, greeting, test) do
      {:ok, tcp} = :gen_tcp.accept(listener)
      :ok = :gen_tcp.send(tcp, greeting)
      send(test, :accepted)
      accept(listener, greeting, test)
    end

    test "that gets no answer is given up and made anew" do
      %{name: name} = connect(listen(""))
      assert Redis.command(name, ["PING"]) == {:error, :timeout}
      assert Redis.command(name, ["PING"]) == {:error, :closed}
      for _connection <- 1..2, do: assert_receive(:accepted, 10_000)
    end

    test "to what is no Redis is given up" do
      connection = connect(listen("220 mail.example.com ESMTP\r\n"))
      assert_receive :accepted, 10_000
      Eventually.true?(fn -> Redis.command(connection.name, ["PING"]) == {:error, :closed} end)
      assert Process.alive?(connection.pid)
    end

    test "over TLS is made to a server of a trusted authority only" do
      folder = folder()
      ca = certificate(folder, "server")
      strangers = certificate(folder, "other")
      port = RedisServer.free_port()

      files =
        for {name, file} <- [cert: "crt", key: "key", "ca-cert": "ca"],
            do: ["--tls-#{name}-file", "#{folder}/server.#{file}"]

      RedisServer.start(["--tls-port", "#{port}", "--tls-auth-clients", "no"] ++ List.flatten(files))

      trusting = connect(RedisServer.settings("rediss://127.0.0.1:#{port}", ca))
      Eventually.true?(fn -> answers?(trusting) end)

      for url <- ["rediss://127.0.0.1:#{port}", "redis://127.0.0.1:#{port}"] do
        connection = connect(RedisServer.settings(url, strangers))
        assert {:error, _reason} = Redis.command(connection.name, ["PING"])
        assert Process.alive?(connection.pid)
      end
    end

    # A server certificate for 127.0.0.1 in NAME.crt and NAME.key. Returns the path of its authority's.
    defp certificate(folder, name) do
      alt_name = {:Extension, {2, 5, 29, 17}, false, [iPAddress: <<127, 0, 0, 1>>]}
      # OpenSSL, and so Redis, refuses the defaults of both.
      strong = [digest: :sha256, key: {:namedCurve, :secp256r1}]
      chain = :public_key.pkix_test_data(%{root: strong, intermediates: [], peer: [extensions: [alt_name]] ++ strong})
      {kind, key} = chain[:key]
      write(folder, name <> ".crt", [{:Certificate, chain[:cert], :not_encrypted}])
      write(folder, name <> ".key", [{kind, key, :not_encrypted}])
      write(folder, name <> ".ca", for(ca <- chain[:cacerts], do: {:Certificate, ca, :not_encrypted}))
      Path.join(folder, name <> ".ca")
    end

    defp write(folder, name, entries), do: File.write!(Path.join(folder, name), :public_key.pem_encode(entries))
  end

  describe "a stash" do
    @connection LiveStash.Adapters.Redis.Conn

    setup do
      page = Client.open("/stash/redis")
      {client, first} = Client.visit(page)
      Client.click(client, "stash")
      brought = Client.event(first["rendered"], "live-stash:init-redis")
      key = "live_stash:" <> Base.encode64(:crypto.hash(:sha256, brought["stashId"] <> "live_stash"), padding: false)
      %{page: page, client: client, key: key, returning: %{"_mounts" => 1, "liveStash" => brought}}
    end

    defp hash(key) do
      for field <- ["owner_id", "payload"] do
        with {:ok, term} when is_binary(term) <- Redis.command(@connection, ["HGET", key, field]),
             do: :erlang.binary_to_term(term)
      end
    end

    defp seconds_left(key), do: Redis.command(@connection, ["TTL", key]) |> elem(1)

    defp keep_alive(owner) do
      send(owner, {:stash, :keep_alive})
      _ = :sys.get_state(owner)
    end

    test "has LiveStash's layout and is owned by the page's process", %{key: key} do
      assert [owner, %{version: nil, assigns: %{count: 1, payload: %{}} = state}] = hash(key)
      assert Enum.sort(Map.keys(state)) == [:count, :payload]
      assert Process.alive?(owner)
      assert seconds_left(key) in 295..300
      assert Redis.command(@connection, ["HLEN", key]) == {:ok, 2}
      assert {:ok, <<131, 80, _compressed::binary>>} = Redis.command(@connection, ["HGET", key, "payload"])
    end

    test "is taken over by the process its user returns to, and stays with that one", %{key: key} = context do
      [first_owner, _] = hash(key)
      {:ok, 1} = Redis.command(@connection, ["EXPIRE", key, "9"])
      {_second, again} = Client.visit(context.page, context.returning)
      assert %{"0" => "recovered", "1" => "1"} = again["rendered"]
      assert [owner, %{assigns: %{count: 1}}] = hash(key)
      assert owner != first_owner
      assert seconds_left(key) > 9

      # What the first process stashes now is acknowledged and not stored.
      assert %{"response" => %{"diff" => %{"1" => "2"}}} = Client.click(context.client, "stash")
      assert [^owner, %{assigns: %{count: 1}}] = hash(key)
    end

    test "that is gone is brought back by the next stash, not by being renewed", %{key: key} = context do
      [owner, _] = hash(key)
      {:ok, 1} = Redis.command(@connection, ["DEL", key])
      keep_alive(owner)
      {_second, again} = Client.visit(context.page, context.returning)
      assert %{"0" => "not_found", "1" => "0"} = again["rendered"]
      Client.click(context.client, "stash")
      assert [^owner, %{assigns: %{count: 2}}] = hash(key)
    end

    test "is deleted by a new visit that brings its id", %{key: key} = context do
      {_client, again} = Client.visit(context.page, %{context.returning | "_mounts" => 0})
      assert %{"0" => "new", "1" => "0"} = again["rendered"]
      assert Redis.command(@connection, ["EXISTS", key]) == {:ok, 0}
    end

    test "is renewed by the page's process", %{key: key} do
      [owner, _] = hash(key)
      {:ok, 1} = Redis.command(@connection, ["EXPIRE", key, "9"])
      keep_alive(owner)
      Eventually.true?(fn -> seconds_left(key) > 9 end)
    end
  end

  describe "a fleet" do
    setup context do
      server = RedisServer.start(if context[:persistent], do: ["--appendonly", "yes", "--dir", folder()], else: [])
      env = [{"LIVE_STASH_REDIS_URL", RedisServer.url(server)}]
      [one, other] = for _ <- 1..2, do: Peers.start_one(:peer.random_name(), :redis, [], env)
      %{server: server, one: one, other: other, idle: stashed(one), busy: stashed(one)}
    end

    # A user who has stashed once on a node.
    defp stashed(peer) do
      page = Client.open("/stash/redis", peer.port)
      {client, first} = Client.visit(page)
      Client.click(client, "stash")
      brought = Client.event(first["rendered"], "live-stash:init-redis")
      %{page: page, client: client, returning: %{"_mounts" => 1, "liveStash" => brought}}
    end

    defp return_to(peer, user) do
      {_client, response} = Client.visit(%{user.page | port: peer.port}, user.returning)
      Map.take(response["rendered"], ["0", "1"])
    end

    defp stores?(peer), do: Peers.call(peer, Redis, :command, [@connection, ["PING"]]) == {:ok, "PONG"}

    test "finds a stash on every node, though its nodes do not know each other", context do
      assert Peers.call(context.one, Node, :list, []) == []
      assert return_to(context.other, context.idle) == %{"0" => "recovered", "1" => "1"}
      Peers.stop(context.one)
      assert return_to(context.other, context.busy) == %{"0" => "recovered", "1" => "1"}
    end

    @tag :persistent
    test "outlives a restart of its Redis: what is stashed meanwhile is acknowledged, and stored with the next stash",
         %{one: one, other: other, idle: idle, busy: busy} = context do
      RedisServer.stop(context.server)
      assert %{"response" => %{"diff" => %{"1" => "2"}}} = Client.click(busy.client, "stash")
      assert return_to(other, idle) == %{"0" => "error", "1" => "0"}

      RedisServer.start_again(context.server)
      Eventually.true?(fn -> stores?(one) and stores?(other) end)
      assert return_to(other, idle) == %{"0" => "recovered", "1" => "1"}
      assert %{"response" => %{"diff" => %{"1" => "3"}}} = Client.click(busy.client, "stash")
      assert return_to(other, busy) == %{"0" => "recovered", "1" => "3"}
    end

    test "that restarts a Redis without persistence loses the stashes of those who do not stash again",
         %{one: one, other: other, idle: idle, busy: busy} = context do
      RedisServer.stop(context.server)
      RedisServer.start_again(context.server)
      Eventually.true?(fn -> stores?(one) and stores?(other) end)
      assert return_to(other, idle) == %{"0" => "not_found", "1" => "0"}
      assert %{"response" => %{"diff" => %{"1" => "2"}}} = Client.click(busy.client, "stash")
      assert return_to(other, busy) == %{"0" => "recovered", "1" => "2"}
    end
  end
end
