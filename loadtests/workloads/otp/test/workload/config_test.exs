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
      "LIBCLUSTER_SERVICE" => "shop-nodes",
      "LIBCLUSTER_NAMESPACE" => "default",
      "LIBCLUSTER_APP" => "shop"
    }

    assert {:ok, config} = Config.read(env)
    assert {4100, "shop.example.com", 60} = {config.port, config.host, config.ttl}
    assert config.adapters == [:none, :ets]
    assert config.cluster == %{service: "shop-nodes", namespace: "default", app: "shop"}
  end

  for {name, value, word} <- [
        {"SECRET_KEY_BASE", "", "not set"},
        {"SECRET_KEY_BASE", "short", "5 bytes"},
        {"PORT", "65536", "PORT"},
        {"PORT", "http", "PORT"},
        {"LIVE_STASH_TTL", "0", "LIVE_STASH_TTL"},
        {"LIVE_STASH_TTL", "60s", "LIVE_STASH_TTL"},
        {"LIVE_STASH_ADAPTER", "ETS", "none, ets, browser_memory, mnesia"},
        {"LIVE_STASH_ADAPTER", "redis", "none, ets, browser_memory, mnesia"},
        {"LIBCLUSTER_SERVICE", "shop-nodes", "LIBCLUSTER_APP"}
      ] do
    test "#{name}=#{inspect(value)} is refused with one sentence that says what is wrong" do
      env = Map.put(%{"SECRET_KEY_BASE" => @secret}, unquote(name), unquote(value))
      assert {:error, sentence} = Config.read(env)
      assert sentence =~ unquote(word)
      assert String.ends_with?(sentence, ".")
    end
  end
end
