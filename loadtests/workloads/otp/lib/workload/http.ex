defmodule Workload.HTTP do
  @moduledoc """
  The plain HTTP routes: pages, health and a small JSON API as a baseline without WebSockets.
  """

  @behaviour :cowboy_handler

  alias Workload.{Config, Live, Page, Session, Stash}

  # longest body of a sum's request that is read
  @sum_bytes 1024
  @script_path "/assets/live.js"

  @doc "cowboy's routes to this module."
  @spec routes() :: [{String.t(), module(), atom()}]
  def routes do
    [
      {"/", __MODULE__, :index},
      {"/healthz", __MODULE__, :health},
      {"/api/sum", __MODULE__, :sum},
      {"/stash/:adapter", __MODULE__, :page},
      {@script_path, __MODULE__, :script},
      {:_, __MODULE__, :unknown}
    ]
  end

  @impl true
  def init(req, route), do: {:ok, handle(route, :cowboy_req.method(req), req), route}

  defp handle(:unknown, _method, req), do: text(404, "There is nothing at #{:cowboy_req.path(req)}.", req)
  defp handle(:sum, "POST", req), do: sum(req)
  defp handle(route, "GET", req) when route != :sum, do: get(route, req)
  defp handle(_route, method, req), do: text(405, "#{method} is not allowed here.", req)

  defp get(:health, req), do: text(200, "ok", req)
  defp get(:index, req), do: html(Page.index(Config.get().adapters), req)

  defp get(:script, req) do
    body = File.read!(Application.app_dir(:workload, "priv/live.js"))
    :cowboy_req.reply(200, %{"content-type" => "text/javascript; charset=utf-8"}, body, req)
  end

  defp get(:page, req) do
    name = :cowboy_req.binding(:adapter, req)

    case Stash.started(name, Config.get().adapters) do
      {:ok, adapter} ->
        {csrf, req} = Session.fetch_or_create(req)
        html(Page.html(adapter, csrf, Live.stashed_at_first()), req)

      {:error, sentence} ->
        text(404, sentence, req)
    end
  end

  # The smallest JSON request, to compare with what a page costs: {"a": 1, "b": 2}.
  defp sum(req) do
    with {:ok, body, req} <- :cowboy_req.read_body(req, %{length: @sum_bytes}),
         {:ok, %{"a" => a, "b" => b}} when is_integer(a) and is_integer(b) <- JSON.decode(body) do
      json(200, %{result: a + b}, req)
    else
      {:more, _body, req} -> json(413, %{error: "the body must have at most #{@sum_bytes} bytes"}, req)
      _no_integers -> json(400, %{error: "a and b must be integers"}, req)
    end
  end

  defp text(status, text, req),
    do: :cowboy_req.reply(status, %{"content-type" => "text/plain; charset=utf-8"}, text, req)

  # The page carries a user's tokens, so no cache may keep it.
  defp html(body, req) do
    headers = %{
      "content-type" => "text/html; charset=utf-8",
      "cache-control" => "max-age=0, private, must-revalidate"
    }

    :cowboy_req.reply(200, headers, body, req)
  end

  defp json(status, term, req) do
    :cowboy_req.reply(status, %{"content-type" => "application/json; charset=utf-8"}, JSON.encode_to_iodata!(term), req)
  end
end
