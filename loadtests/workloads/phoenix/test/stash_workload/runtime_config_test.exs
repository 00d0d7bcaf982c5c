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

  defp payload_keys(value) do
    if value, do: System.put_env("STASH_PAYLOAD_KEYS", value)
    Config.Reader.read!("config/runtime.exs", env: :test)[:stash_workload][:payload_keys]
  after
    System.delete_env("STASH_PAYLOAD_KEYS")
  end
end
