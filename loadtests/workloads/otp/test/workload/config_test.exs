defmodule Workload.ConfigTest do
  use ExUnit.Case, async: true

  alias Workload.Config

  @secret String.duplicate("s", 64)

  test "the secret alone is enough, and everything else has its documented default" do
    assert Config.read(%{"SECRET_KEY_BASE" => @secret}) ==
             {:ok,
              %Config{
                port: 4000,
                host: "localhost",
                secret_key_base: @secret,
                adapters: [:none, :ets, :browser_memory, :mnesia],
                ttl: 300,
                payload_keys: 150,
                payload_on_page: false,
                stash_version: nil,
                redis: nil,
                cluster: nil
              }}
  end

  test "everything can be set" do
    env = %{
      "SECRET_KEY_BASE" => @secret,
      "PORT" => "4100",
      "PHX_HOST" => "shop.example.com",
      "LIVE_STASH_ADAPTER" => "ets",
      "LIVE_STASH_TTL" => "60",
      "STASH_PAYLOAD_KEYS" => "0",
      "STASH_PAYLOAD_ON_PAGE" => "shown",
      "LIBCLUSTER_SERVICE" => "shop-nodes",
      "LIBCLUSTER_NAMESPACE" => "default",
      "LIBCLUSTER_APP" => "shop"
    }

    assert {:ok, config} = Config.read(env)
    assert {4100, "shop.example.com", 60, 0} = {config.port, config.host, config.ttl, config.payload_keys}
    assert config.payload_on_page
    assert config.adapters == [:none, :ets]
    assert config.cluster == %{service: "shop-nodes", namespace: "default", app: "shop"}
  end

  test "redis is one of all adapters when it is known where it is" do
    env = %{"SECRET_KEY_BASE" => @secret, "LIVE_STASH_REDIS_URL" => "redis://:p%3Aw@stash:6380/2"}
    assert {:ok, config} = Config.read(env)
    assert config.adapters == [:none, :ets, :browser_memory, :redis, :mnesia]
    assert %{host: "stash", port: 6380, username: nil, password: "p:w", database: 2, tls: nil} = config.redis
  end

  test "a Redis over TLS is verified with the CA that is named, and its password is not for logs" do
    env = %{"LIVE_STASH_REDIS_URL" => "rediss://app:s3cret@stash", "LIVE_STASH_REDIS_CACERTFILE" => "/redis/ca.crt"}
    assert {:ok, config} = Config.read(Map.put(env, "SECRET_KEY_BASE", @secret))
    assert %{port: 6379, username: "app", password: "s3cret", database: nil} = config.redis
    assert config.redis.tls[:verify] == :verify_peer
    assert config.redis.tls[:cacertfile] == "/redis/ca.crt"
    refute inspect(config) =~ "s3cret"
  end

  for {name, value, word} <- [
        {"SECRET_KEY_BASE", "", "not set"},
        {"SECRET_KEY_BASE", "short", "5 bytes"},
        {"PORT", "65536", "PORT"},
        {"PORT", "http", "PORT"},
        {"LIVE_STASH_TTL", "0", "LIVE_STASH_TTL"},
        {"LIVE_STASH_TTL", "60s", "LIVE_STASH_TTL"},
        {"LIVE_STASH_TTL", "2592001", "from 1 to 2592000"},
        {"STASH_PAYLOAD_KEYS", "-1", "from 0 to 100000"},
        {"STASH_PAYLOAD_KEYS", "100001", "from 0 to 100000"},
        {"STASH_PAYLOAD_KEYS", "5KB", "STASH_PAYLOAD_KEYS"},
        {"STASH_PAYLOAD_ON_PAGE", "yes", "shown or hidden"},
        {"LIVE_STASH_ADAPTER", "ETS", "none, ets, browser_memory, redis, mnesia"},
        {"LIVE_STASH_ADAPTER", "redis", "LIVE_STASH_REDIS_URL"},
        {"LIVE_STASH_REDIS_URL", "http://stash:6379", "redis://"},
        {"LIVE_STASH_REDIS_URL", "stash:6379", "redis://"},
        {"LIVE_STASH_REDIS_URL", "redis://", "redis://"},
        {"LIVE_STASH_REDIS_URL", "redis://s3cret@stash", "user:password@"},
        {"LIVE_STASH_REDIS_URL", "redis://stash:99999", "redis://"},
        {"LIVE_STASH_REDIS_URL", "redis://stash/first", "redis://"},
        {"LIBCLUSTER_SERVICE", "shop-nodes", "LIBCLUSTER_APP"}
      ] do
    test "#{name}=#{inspect(value)} is refused with one sentence that says what is wrong" do
      env = Map.put(%{"SECRET_KEY_BASE" => @secret}, unquote(name), unquote(value))
      assert {:error, sentence} = Config.read(env)
      assert sentence =~ unquote(word)
      refute sentence =~ "s3cret"
      assert String.ends_with?(sentence, ".")
    end
  end

  @tag :tmp_dir
  test "secrets are read from files that are named", %{tmp_dir: folder} do
    write = fn name, text ->
      path = Path.join(folder, name)
      File.write!(path, text)
      {name <> "_FILE", path}
    end

    env = Map.new([write.("SECRET_KEY_BASE", @secret), write.("LIVE_STASH_REDIS_URL", "redis://stash")])
    assert {:ok, config} = Config.read(Map.put(env, "SECRET_KEY_BASE", "another"))
    assert {config.secret_key_base, config.redis.host} == {@secret, "stash"}

    File.rm!(env["SECRET_KEY_BASE_FILE"])
    assert {:error, sentence} = Config.read(env)
    assert sentence =~ "SECRET_KEY_BASE_FILE names a file that cannot be read: no such file"
  end
end
