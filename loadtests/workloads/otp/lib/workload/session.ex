defmodule Workload.Session do
  @moduledoc """
  The browser session: a signed cookie that holds a CSRF token and nothing else, as in a fresh Phoenix application.
  """

  alias Workload.Token

  @cookie "_workload_key"
  @salt "session cookie"
  @max_age 30 * 24 * 3600

  @typedoc "The session's CSRF token."
  @type t :: String.t()

  @doc "The session that a request's cookie carries, or nil when there is none or it was tampered with."
  @spec fetch(:cowboy_req.req()) :: t() | nil
  def fetch(req) do
    with {@cookie, cookie} <- List.keyfind(cookies(req), @cookie, 0),
         {:ok, csrf} <- Token.verify(@salt, cookie) do
      csrf
    else
      _other -> nil
    end
  end

  @doc "The request's session, or a new one whose cookie the reply will set."
  @spec fetch_or_create(:cowboy_req.req()) :: {t(), :cowboy_req.req()}
  def fetch_or_create(req) do
    case fetch(req) do
      nil ->
        csrf = Base.url_encode64(:crypto.strong_rand_bytes(18))
        cookie = Token.sign(@salt, csrf, @max_age)
        {csrf, :cowboy_req.set_resp_cookie(@cookie, cookie, req, %{path: "/", http_only: true, same_site: :lax})}

      csrf ->
        {csrf, req}
    end
  end

  @doc """
  The session of a WebSocket request. It counts only with the CSRF token of the page in the query: a foreign site can make
  a browser send the cookie, but cannot read the page.
  """
  @spec fetch_with_csrf(:cowboy_req.req(), term()) :: t() | nil
  def fetch_with_csrf(req, given) do
    session = fetch(req)
    if is_binary(session) and is_binary(given) and Token.equal?(session, given), do: session
  end

  # cowboy raises on a cookie header it cannot parse; a browser with a broken cookie simply has no session.
  defp cookies(req) do
    :cowboy_req.parse_cookies(req)
  catch
    :exit, {:request_error, _header, _reason} -> []
  end
end
