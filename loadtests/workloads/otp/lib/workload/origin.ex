defmodule Workload.Origin do
  @moduledoc """
  Refuses WebSockets that a browser opens from a page of another host, as Phoenix's `check_origin` does.
  """

  @local ["localhost", "127.0.0.1"]

  @doc """
  Whether the request's Origin is this workload (PHX_HOST or the local machine) or absent. Only browsers send one.
  """
  @spec allowed?(:cowboy_req.req()) :: boolean()
  def allowed?(req) do
    case :cowboy_req.header("origin", req) do
      :undefined -> true
      origin -> URI.parse(origin).host in [Workload.Config.get().host | @local]
    end
  end
end
