defmodule Workload.Page do
  @moduledoc """
  The one page: how it looks, and the two signed tokens that let its WebSocket join.
  """

  alias Workload.{Stash, Token}

  @typedoc "What the page shows; `stashed` is what it stashes, nil when it does not show that."
  @type view :: %{status: atom(), count: non_neg_integer(), adapter: Stash.adapter(), stashed: nil | map()}

  # LiveView's: a page left open for longer must be loaded again.
  @max_age 14 * 24 * 3600
  @session_salt "live session"
  @static_salt "live static"

  @statics [
    ~s(<main><p>Status <output id="status">),
    ~s(</output></p><p>Count <output id="count">),
    ~s(</output></p><p>Adapter ),
    ~s(, served by ),
    ~s(</p><button phx-click="stash">Stash</button></main>)
  ]

  # With what it stashes, as the page of the published benchmark.
  @statics_with_stashed List.replace_at(@statics, 4, "</p><pre>") ++
                          [~s(</pre><button phx-click="stash">Stash</button></main>)]

  @doc "The path of an adapter's page."
  @spec path(Stash.adapter()) :: String.t()
  def path(adapter), do: "/stash/#{adapter}"

  @doc "The page as HTML, before its WebSocket is open."
  @spec html(Stash.adapter(), Workload.Session.t(), nil | map()) :: String.t()
  def html(adapter, csrf, stashed) do
    id = new_id()
    session = Token.sign(@session_salt, %{id: id}, @max_age)
    static = Token.sign(@static_salt, %{id: id}, @max_age)

    # Tokens and names are plain letters, so nothing here needs escaping.
    document(
      ~s(<meta name="csrf-token" content="#{csrf}"><script defer src="/assets/live.js"></script>),
      ~s(<div id="#{id}" data-phx-main data-phx-session="#{session}" data-phx-static="#{static}">) <>
        content(%{status: :new, count: 0, adapter: adapter, stashed: stashed}) <>
        ~s(</div><p id="connection">not connected</p>)
    )
  end

  @doc "A page that links to every started adapter's page."
  @spec index([Stash.adapter()]) :: String.t()
  def index(adapters) do
    links = for adapter <- adapters, into: "", do: ~s(<li><a href="#{path(adapter)}">#{path(adapter)}</a></li>)
    document("", "<h1>LiveStash workload</h1><ul>#{links}</ul>")
  end

  @doc "Everything the client needs to draw the page: LiveView's `rendered`."
  @spec rendered(view()) :: map()
  def rendered(view) do
    view |> dynamics() |> Map.merge(stashed(view)) |> Map.merge(%{"s" => 0, "p" => %{"0" => statics(view)}, "r" => 1})
  end

  @doc "What changed from one view to the next: LiveView's `diff`."
  @spec diff(view(), view()) :: map()
  def diff(before, now) do
    old = dynamics(before)
    changed = Map.filter(dynamics(now), fn {slot, text} -> old[slot] != text end)
    if before.stashed == now.stashed, do: changed, else: Map.merge(changed, stashed(now))
  end

  @doc "The content of a page's data-phx-session."
  @spec verify_session(term()) :: {:ok, %{id: String.t()}} | {:error, Token.error()}
  def verify_session(token), do: Token.verify(@session_salt, token)

  @doc "The content of a page's data-phx-static."
  @spec verify_static(term()) :: {:ok, %{id: String.t()}} | {:error, Token.error()}
  def verify_static(token), do: Token.verify(@static_salt, token)

  defp dynamics(view) do
    %{
      "0" => Atom.to_string(view.status),
      "1" => Integer.to_string(view.count),
      "2" => Atom.to_string(view.adapter),
      "3" => Atom.to_string(Node.self())
    }
  end

  defp stashed(%{stashed: nil}), do: %{}
  defp stashed(view), do: %{"4" => escape(inspect(view.stashed, pretty: true, limit: :infinity))}

  defp statics(%{stashed: nil}), do: @statics
  defp statics(_view), do: @statics_with_stashed

  # As Phoenix.HTML does.
  defp escape(text) do
    String.replace(text, ["&", "<", ">", "\"", "'"], fn
      "&" -> "&amp;"
      "<" -> "&lt;"
      ">" -> "&gt;"
      "\"" -> "&quot;"
      "'" -> "&#39;"
    end)
  end

  defp content(view) do
    dynamics = Map.merge(dynamics(view), stashed(view))

    view
    |> statics()
    |> Enum.with_index()
    |> Enum.map_join(fn {part, slot} -> part <> Map.get(dynamics, "#{slot}", "") end)
  end

  # A time first, as in LiveView, so that ids sort by age in logs.
  defp new_id, do: "phx-" <> Base.url_encode64(<<System.system_time(:nanosecond)::64>> <> :crypto.strong_rand_bytes(4))

  defp document(head, body) do
    # Without it browsers ask for /favicon.ico.
    ~s(<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">) <>
      ~s(<meta name="viewport" content="width=device-width, initial-scale=1"><title>LiveStash workload</title>) <>
      ~s(<link rel="icon" href="data:,">) <>
      ~s(#{head}</head><body>#{body}</body></html>)
  end
end
