defmodule Workload.PayloadTest do
  use ExUnit.Case, async: true

  alias Workload.Payload

  test "has as many keys as are asked for, and each key is a string of its own" do
    for keys <- [0, 1, 999, 1000, 1001] do
      assert map_size(Payload.new(keys)) == keys
    end
  end

  test "of 150 keys is as large as its documentation says" do
    payload = Payload.new(150)
    assert %{"field_001" => "value_001_xxxxxxxx", "field_150" => "value_150_xxxxxxxx"} = payload
    assert byte_size(:erlang.term_to_binary(payload)) == 5556
    assert byte_size(:erlang.term_to_binary(payload, compressed: 1)) == 864
    assert :erts_debug.flat_size(payload) * 8 == 15_280
  end
end
