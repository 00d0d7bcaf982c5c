defmodule StashWorkload.PayloadTest do
  use ExUnit.Case, async: true

  alias StashWorkload.Payload

  test "is as large as its documentation says" do
    payload = Payload.new()

    assert map_size(payload) == 150
    assert byte_size(:erlang.term_to_binary(payload)) == 5_556
    assert byte_size(:erlang.term_to_binary(payload, compressed: 1)) == 864
    assert :erts_debug.flat_size(payload) * :erlang.system_info(:wordsize) == 15_280
  end
end
