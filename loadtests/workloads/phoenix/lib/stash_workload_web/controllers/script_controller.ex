defmodule StashWorkloadWeb.ScriptController do
  @moduledoc """
  Serves LiveStash's browser script, which its package keeps outside priv: a release would not
  contain the file, so it is read when this module is compiled.
  """
  use StashWorkloadWeb, :controller

  @path Path.join(Mix.Project.deps_paths()[:live_stash], "assets/js/live-stash.js")
  @external_resource @path
  @script File.read!(@path)

  def live_stash(conn, _params) do
    conn
    |> put_resp_content_type("text/javascript")
    |> send_resp(200, @script)
  end
end
