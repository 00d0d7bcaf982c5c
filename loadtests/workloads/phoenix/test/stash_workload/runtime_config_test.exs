defmodule StashWorkload.RuntimeConfigTest do
  # It sets environment variables, which all tests share.
  use ExUnit.Case, async: false

  test "a user stashes 150 keys unless the environment says otherwise" do
    assert payload_keys(nil) == 150
    assert payload_keys("0") == 0
    assert payload_keys("100000") == 100_000
  end

  for value <- ["", "-1", "100001", "1.5", "5KB"] do
    test "STASH_PAYLOAD_KEYS=#{inspect(value)} stops the boot with a sentence that says what to set" do
      assert_raise RuntimeError,
                   "STASH_PAYLOAD_KEYS is #{inspect(unquote(value))}; " <>
                     "set it to a whole number from 0 to 100000",
                   fn -> payload_keys(unquote(value)) end
    end
  end

  test "the page shows what it stashes when it is told to, and nothing else is understood" do
    assert [nil, "hidden", "shown"] |> Enum.map(&payload_on_page/1) == [false, false, true]

    assert_raise RuntimeError, "STASH_PAYLOAD_ON_PAGE is \"yes\"; set it to shown or hidden", fn ->
      payload_on_page("yes")
    end
  end

  test "what LiveStash is told follows adapter and TTL of the environment" do
    alias LiveStash.Adapters.{BrowserMemory, ETS, Mnesia}

    assert stash(%{}) == {[ETS], [adapter: ETS, ttl: 300]}

    assert stash(%{"LIVE_STASH_ADAPTER" => "mnesia", "LIVE_STASH_TTL" => "60"}) ==
             {[Mnesia], [adapter: Mnesia, ttl: 60]}

    assert stash(%{"LIVE_STASH_ADAPTER" => "browser_memory"}) ==
             {[BrowserMemory], [adapter: BrowserMemory, ttl: 300, security_mode: :sign]}

    assert stash(%{"LIVE_STASH_ADAPTER" => "none"}) == {[], [adapter: nil, ttl: 300]}
  end

  defp stash(environment) do
    System.put_env(environment)
    config = Config.Reader.read!("config/runtime.exs", env: :test)
    {config[:live_stash][:adapters], config[:stash_workload][:stash]}
  after
    Enum.each(Map.keys(environment), &System.delete_env/1)
  end

  defp payload_on_page(value) do
    if value, do: System.put_env("STASH_PAYLOAD_ON_PAGE", value)
    Config.Reader.read!("config/runtime.exs", env: :test)[:stash_workload][:payload_on_page]
  after
    System.delete_env("STASH_PAYLOAD_ON_PAGE")
  end

  defp payload_keys(value) do
    if value, do: System.put_env("STASH_PAYLOAD_KEYS", value)
    Config.Reader.read!("config/runtime.exs", env: :test)[:stash_workload][:payload_keys]
  after
    System.delete_env("STASH_PAYLOAD_KEYS")
  end
end
