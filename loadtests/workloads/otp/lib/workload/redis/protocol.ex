defmodule Workload.Redis.Protocol do
  @moduledoc """
  Redis' wire protocol, version 2: commands as arrays of texts, and those kinds of answers that the workload's commands have.
  """

  @typedoc "An answer. An error is what Redis says, for instance `NOSCRIPT No matching script.`"
  @type answer :: {:ok, binary() | integer() | nil} | {:error, binary()}

  @doc "A command as it is sent."
  @spec pack([binary()]) :: iodata()
  def pack(command) do
    ["*#{length(command)}\r\n" | Enum.map(command, &["$#{byte_size(&1)}\r\n", &1, "\r\n"])]
  end

  @doc "The first answer in what was received, and what follows it; `:incomplete` until all of it is there."
  @spec parse(binary()) :: {answer(), rest :: binary()} | :incomplete | :unknown
  def parse(<<kind, received::binary>>) when kind in ~c"+-:$" do
    case :binary.split(received, "\r\n") do
      [line, rest] -> answer(kind, line, rest)
      [_part] -> :incomplete
    end
  end

  def parse(""), do: :incomplete
  def parse(_received), do: :unknown

  defp answer(?+, text, rest), do: {{:ok, text}, rest}
  defp answer(?-, text, rest), do: {{:error, text}, rest}
  defp answer(?:, number, rest), do: {{:ok, String.to_integer(number)}, rest}
  defp answer(?$, "-1", rest), do: {{:ok, nil}, rest}

  defp answer(?$, size, rest) do
    size = String.to_integer(size)

    case rest do
      <<text::binary-size(^size), "\r\n", rest::binary>> -> {{:ok, text}, rest}
      _part -> :incomplete
    end
  end
end
