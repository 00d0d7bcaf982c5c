defmodule Workload.Redis.Url do
  @moduledoc """
  Where a Redis is and how to log in, from `redis://[user:password@]host[:port][/database]`; with `rediss://` over TLS.
  User and password are percent-encoded.
  """

  # The password is for Redis, not for logs.
  @derive {Inspect, except: [:password]}
  @enforce_keys [:host, :port, :username, :password, :database, :tls]
  defstruct @enforce_keys

  @typedoc "tls: the options of `:ssl.connect/4`, or nil for a connection without TLS."
  @type t :: %__MODULE__{
          host: String.t(),
          port: :inet.port_number(),
          username: String.t() | nil,
          password: String.t() | nil,
          database: non_neg_integer() | nil,
          tls: keyword() | nil
        }

  @doc """
  Reads a URL, or says in one sentence what is wrong with it; the sentence has no password in it. `ca` is the path of a PEM
  file with the certificate authorities to trust; nil for the system's.
  """
  @spec read(String.t(), String.t() | nil) :: {:ok, t()} | {:error, String.t()}
  def read(text, ca) do
    with {:ok, %URI{scheme: scheme} = uri} when scheme in ["redis", "rediss"] <- URI.new(text),
         host when host not in [nil, ""] <- uri.host,
         port when port in 1..65_535 <- uri.port || 6379,
         {:ok, username, password} <- login(uri.userinfo),
         {:ok, database} <- database(uri.path) do
      url = %__MODULE__{host: host, port: port, username: username, password: password, database: database, tls: nil}
      if scheme == "rediss", do: with_tls(url, ca), else: {:ok, url}
    else
      _wrong -> {:error, "LIVE_STASH_REDIS_URL must be redis:// or rediss://[user:password@]host[:port][/database]."}
    end
  end

  defp login(nil), do: {:ok, nil, nil}

  defp login(userinfo) do
    case String.split(userinfo, ":", parts: 2) do
      ["", password] -> {:ok, nil, URI.decode(password)}
      [username, password] -> {:ok, URI.decode(username), URI.decode(password)}
      [_username] -> :error
    end
  end

  defp database(path) when path in [nil, "", "/"], do: {:ok, nil}

  defp database("/" <> text) do
    with {number, ""} when number >= 0 <- Integer.parse(text), do: {:ok, number}
  end

  defp with_tls(url, ca) do
    with {:ok, trusted} <- trusted(ca) do
      # As browsers do it, so that wildcard certificates, which managed Redis services have, are accepted.
      match = :public_key.pkix_verify_hostname_match_fun(:https)
      {:ok, %{url | tls: [verify: :verify_peer, depth: 3, customize_hostname_check: [match_fun: match]] ++ trusted}}
    end
  end

  defp trusted(nil) do
    case :public_key.cacerts_load() do
      :ok ->
        {:ok, [cacerts: :public_key.cacerts_get()]}

      {:error, _reason} ->
        {:error, "LIVE_STASH_REDIS_CACERTFILE is not set, and the system has no CA certificates to verify Redis with."}
    end
  end

  defp trusted(ca), do: {:ok, [cacertfile: ca]}
end
