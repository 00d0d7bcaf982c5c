defmodule Workload.TokenTest do
  use ExUnit.Case, async: true

  alias Workload.Token

  @makers [{&Token.sign/3, &Token.verify/2}, {&Token.encrypt/3, &Token.decrypt/2}]

  test "a token gives back what went into it" do
    for {make, read} <- @makers do
      assert read.("salt", make.("salt", %{count: 7}, 60)) == {:ok, %{count: 7}}
    end
  end

  test "a token changed in any one place is refused" do
    for {make, read} <- @makers do
      token = make.("salt", %{count: 7}, 60)

      for at <- 0..(byte_size(token) - 2) do
        <<head::binary-size(^at), byte, tail::binary>> = token
        other = if byte == ?A, do: ?B, else: ?A
        assert {:error, :invalid} = read.("salt", head <> <<other>> <> tail)
      end
    end
  end

  test "a token of another salt, an expired one, none, and things that are no tokens are refused" do
    for {make, read} <- @makers do
      assert read.("another", make.("salt", 1, 60)) == {:error, :invalid}
      assert read.("salt", make.("salt", 1, -1)) == {:error, :expired}
      assert read.("salt", nil) == {:error, :missing}

      for junk <- ["", "SFMyNTY", "SFMyNTY..", "A256GCM.", "A256GCM.AAAA", 7, %{}],
          do: assert({:error, :invalid} = read.("salt", junk))
    end
  end

  test "an encrypted token does not show what is in it" do
    token = Token.encrypt("salt", "some@node", 60)
    "A256GCM." <> sealed = token
    refute Base.url_decode64!(sealed, padding: false) =~ "node"
  end
end
