defmodule StashWorkloadWeb.HealthController do
  use StashWorkloadWeb, :controller

  def show(conn, _params), do: text(conn, "ok")
end
