defmodule Workload.RequestLine do
  @moduledoc """
  Refuses request lines of over 10,000 bytes with 414, as Bandit does: a browser that brings a big BrowserMemory stash in
  its WebSocket's address must fail here as it fails there.

  cowboy has such a limit too, but applies it only to lines that have not arrived whole.
  """

  @behaviour :cowboy_middleware

  @max_bytes 10_000

  @doc "The longest request line that is accepted, without its line end."
  @spec max_bytes() :: pos_integer()
  def max_bytes, do: @max_bytes

  @impl true
  def execute(%{method: method, path: path, qs: query} = req, env) do
    target = if query == "", do: path, else: path <> "?" <> query

    if byte_size("#{method} #{target} HTTP/1.1") > @max_bytes,
      do: {:stop, :cowboy_req.reply(414, %{"connection" => "close"}, req)},
      else: {:ok, req, env}
  end
end
