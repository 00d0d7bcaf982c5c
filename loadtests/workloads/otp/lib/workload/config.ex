defmodule Workload.Config do
  @moduledoc """
  What the environment says, read once at boot.

  | variable | meaning | default |
  |---|---|---|
  | PORT | HTTP port; 0 picks a free one | 4000 |
  | PHX_HOST | host that browsers know the workload by; WebSockets from pages of other hosts are refused | localhost |
  | SECRET_KEY_BASE | secret of at least 64 bytes behind every cookie and token; the same on all nodes | none, required |
  | LIVE_STASH_ADAPTER | the adapter to start beside none: ets, browser_memory, redis or mnesia | all that can be started |
  | LIVE_STASH_TTL | seconds a stash outlives its user's connection | 300 |
  | STASH_PAYLOAD_KEYS | keys of the map that each user stashes, see `Workload.Payload` | 150 |
  | STASH_PAYLOAD_ON_PAGE | shown: the page shows what it stashes, each time that changes; hidden: it does not | hidden |
  | STASH_VERSION | version of the pages, as LiveStash's option `version`: they refuse what others have stashed; only ets reads it | none |
  | LIVE_STASH_REDIS_URL | where redis stores, see `Workload.Redis.Url` | none, redis cannot be started |
  | SECRET_KEY_BASE_FILE, LIVE_STASH_REDIS_URL_FILE | files to read these two from, instead | none |
  | LIVE_STASH_REDIS_CACERTFILE | PEM file of who may have signed the certificate of a rediss:// server | the system's |
  | LIBCLUSTER_SERVICE, LIBCLUSTER_NAMESPACE, LIBCLUSTER_APP | whom to cluster with, see `Workload.Cluster` | not clustered |
  """

  alias Workload.Redis.Url
  alias Workload.Stash

  @enforce_keys [
    :port,
    :host,
    :secret_key_base,
    :adapters,
    :ttl,
    :payload_keys,
    :payload_on_page,
    :stash_version,
    :redis,
    :cluster
  ]
  defstruct @enforce_keys

  @type t :: %__MODULE__{
          port: :inet.port_number(),
          host: String.t(),
          secret_key_base: String.t(),
          adapters: [Stash.adapter()],
          ttl: pos_integer(),
          payload_keys: non_neg_integer(),
          payload_on_page: boolean(),
          stash_version: nil | String.t(),
          redis: nil | Url.t(),
          cluster: nil | %{service: String.t(), namespace: String.t(), app: String.t()}
        }

  # The length Plug asks for; the operator's and `mix phx.gen.secret`'s secrets have it.
  @secret_bytes 64

  # The longest spec.ttl that a LiveStashCluster takes, 720h, in seconds.
  @longest_ttl 2_592_000

  @doc "Reads the configuration from an environment, or says in one sentence what is wrong with it."
  @spec read(%{String.t() => String.t()}) :: {:ok, t()} | {:error, String.t()}
  def read(env) do
    with {:ok, env} <- files(env),
         {:ok, port} <- integer(env, "PORT", "4000", 0..65_535),
         {:ok, secret} <- secret(env),
         {:ok, redis} <- redis(env),
         {:ok, adapters} <- adapters(env, redis),
         {:ok, ttl} <- integer(env, "LIVE_STASH_TTL", "300", 1..@longest_ttl),
         {:ok, payload_keys} <- integer(env, "STASH_PAYLOAD_KEYS", "150", 0..100_000),
         {:ok, on_page} <- on_page(present(env, "STASH_PAYLOAD_ON_PAGE")),
         {:ok, cluster} <- cluster(env) do
      {:ok,
       %__MODULE__{
         port: port,
         host: present(env, "PHX_HOST") || "localhost",
         secret_key_base: secret,
         adapters: adapters,
         ttl: ttl,
         payload_keys: payload_keys,
         payload_on_page: on_page,
         stash_version: present(env, "STASH_VERSION"),
         redis: redis,
         cluster: cluster
       }}
    end
  end

  @doc "Makes `config` the one that `get/0` returns. Called once, before anything else starts."
  @spec put(t()) :: :ok
  def put(%__MODULE__{} = config), do: :persistent_term.put(__MODULE__, config)

  @doc "The configuration this node runs with."
  @spec get() :: t()
  def get, do: :persistent_term.get(__MODULE__)

  defp integer(env, name, default, range) do
    text = present(env, name) || default

    case Integer.parse(text) do
      {number, ""} when number >= range.first and number <= range.last ->
        {:ok, number}

      _other ->
        {:error, "#{name} must be a whole number from #{range.first} to #{range.last}, but it is #{inspect(text)}."}
    end
  end

  defp on_page(nil), do: {:ok, false}
  defp on_page("hidden"), do: {:ok, false}
  defp on_page("shown"), do: {:ok, true}

  defp on_page(other) do
    {:error, "STASH_PAYLOAD_ON_PAGE must be shown or hidden, but it is #{inspect(other)}."}
  end

  # What spec.secretsAs: Files gives in files.
  defp files(env) do
    Enum.reduce_while(~w(SECRET_KEY_BASE LIVE_STASH_REDIS_URL), {:ok, env}, fn name, {:ok, env} ->
      case file(present(env, name <> "_FILE")) do
        nil -> {:cont, {:ok, env}}
        {:ok, text} -> {:cont, {:ok, Map.put(env, name, text)}}
        {:error, reason} -> {:halt, {:error, "#{name}_FILE names a file that cannot be read: #{reason}."}}
      end
    end)
  end

  defp file(nil), do: nil

  defp file(path) do
    with {:error, reason} <- File.read(path), do: {:error, :file.format_error(reason)}
  end

  defp secret(env) do
    case present(env, "SECRET_KEY_BASE") do
      nil ->
        {:error,
         "SECRET_KEY_BASE is not set; give the same random text of at least #{@secret_bytes} bytes to every node."}

      secret when byte_size(secret) < @secret_bytes ->
        {:error, "SECRET_KEY_BASE has #{byte_size(secret)} bytes, but needs at least #{@secret_bytes}."}

      secret ->
        {:ok, secret}
    end
  end

  defp redis(env) do
    case present(env, "LIVE_STASH_REDIS_URL") do
      nil -> {:ok, nil}
      url -> Url.read(url, present(env, "LIVE_STASH_REDIS_CACERTFILE"))
    end
  end

  defp adapters(env, redis) do
    case present(env, "LIVE_STASH_ADAPTER") do
      nil ->
        {:ok, if(redis, do: Stash.adapters(), else: Stash.adapters() -- [:redis])}

      name ->
        case Stash.adapter(name) do
          {:ok, :redis} when redis == nil ->
            {:error, "LIVE_STASH_REDIS_URL is not set; LIVE_STASH_ADAPTER=redis needs it."}

          # The baseline needs nothing, so that it can be compared with on every deployment.
          {:ok, adapter} ->
            {:ok, Enum.uniq([:none, adapter])}

          :error ->
            {:error, "LIVE_STASH_ADAPTER must be one of #{Stash.names()}, but it is #{inspect(name)}."}
        end
    end
  end

  defp cluster(env) do
    case Enum.map(~w(SERVICE NAMESPACE APP), &present(env, "LIBCLUSTER_" <> &1)) do
      [nil, nil, nil] ->
        {:ok, nil}

      [service, namespace, app] when service != nil and namespace != nil and app != nil ->
        {:ok, %{service: service, namespace: namespace, app: app}}

      _some ->
        {:error, "Set all of LIBCLUSTER_SERVICE, LIBCLUSTER_NAMESPACE and LIBCLUSTER_APP, or none of them."}
    end
  end

  # An empty variable is what Kubernetes and docker make of a missing value, so it counts as unset.
  defp present(env, name) do
    case Map.get(env, name, "") do
      "" -> nil
      text -> text
    end
  end
end
