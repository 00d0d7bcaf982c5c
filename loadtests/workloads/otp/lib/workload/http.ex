defmodule Workload.HTTP do
  @moduledoc """
  The plain HTTP routes: pages, health and a small JSON API as a baseline without WebSockets.
  """

  @behaviour :cowboy_handler

  alias Workload.{Config, Live, Page, Session, Stash}

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
  defp handle(route, "GET", req), do: get(route, req)
  defp handle(_route, method, req), do: text(405, "#{method} is not allowed here.", req)

  defp get(:health, req), do: text(200, "ok", req)
  defp get(:index, req), do: html(Page.index(Config.get().adapters), req)

  defp get(:script, req) do
    body = File.read!(Application.app_dir(:workload, "priv/live.js"))
    :cowboy_req.reply(200, %{"content-type" => "text/javascript; charset=utf-8"}, body, req)
  end

  # The smallest JSON request, to compare with what a page costs: /api/sum?a=1&b=2.
  defp get(:sum, req) do
    query = Map.new(:cowboy_req.parse_qs(req))

    with {:ok, a} <- integer(query["a"]),
         {:ok, b} <- integer(query["b"]) do
      json(200, %{sum: a + b}, req)
    else
      _no_integer -> json(400, %{error: "a and b must be integers"}, req)
    end
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

  # cowboy gives `true` for a parameter without a value.
  defp integer(text) when is_binary(text) do
    with {integer, ""} <- Integer.parse(text), do: {:ok, integer}
  end

  defp integer(_missing), do: :error

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
