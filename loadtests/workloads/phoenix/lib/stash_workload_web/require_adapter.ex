defmodule StashWorkloadWeb.RequireAdapter do
  @moduledoc """
  Answers 404 for the page of an adapter that this release was not started with.
  """

  @behaviour Plug

  import Plug.Conn

  @impl true
  def init(opts), do: opts

  @impl true
  def call(conn, _opts) do
    adapter = List.last(conn.path_info)

    if StashWorkloadWeb.Stash.active?(adapter) do
      conn
    else
      conn
      |> put_resp_content_type("text/plain")
      |> send_resp(404, "This release was not started with LIVE_STASH_ADAPTER=#{adapter}\n")
      |> halt()
    end
  end
end
