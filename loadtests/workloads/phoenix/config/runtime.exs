import Config

if System.get_env("PHX_SERVER") do
  config :stash_workload, StashWorkloadWeb.Endpoint, server: true
end

config :stash_workload, StashWorkloadWeb.Endpoint,
  http: [port: String.to_integer(System.get_env("PORT", "4000"))]

# contract: docs/reference/environment.md shows the lines from here to its end.
# One adapter is started: no other costs anything.
adapter =
  case System.get_env("LIVE_STASH_ADAPTER", "ets") do
    "none" ->
      nil

    "ets" ->
      LiveStash.Adapters.ETS

    "browser_memory" ->
      LiveStash.Adapters.BrowserMemory

    "redis" ->
      LiveStash.Adapters.Redis

    "mnesia" ->
      LiveStash.Adapters.Mnesia

    other ->
      raise "LIVE_STASH_ADAPTER is #{inspect(other)}; " <>
              "set it to none, ets, browser_memory, redis or mnesia"
  end

ttl =
  case Integer.parse(System.get_env("LIVE_STASH_TTL", "300")) do
    {seconds, ""} when seconds > 0 ->
      seconds

    _ ->
      raise "LIVE_STASH_TTL is #{inspect(System.get_env("LIVE_STASH_TTL"))}; " <>
              "set it to a whole number of seconds above 0"
  end

# LiveStash demands a security mode of BrowserMemory, and refuses one with any other adapter.
mode = if adapter == LiveStash.Adapters.BrowserMemory, do: [security_mode: :sign], else: []

config :live_stash, adapters: List.wrap(adapter)
config :stash_workload, :stash, [adapter: adapter, ttl: ttl] ++ mode

# With spec.secretsAs: Files, secrets are in files that variables name.
secret = fn name ->
  case System.get_env(name <> "_FILE") do
    nil -> System.get_env(name)
    file -> File.read!(file)
  end
end

if adapter == LiveStash.Adapters.Redis do
  url =
    secret.("LIVE_STASH_REDIS_URL") ||
      raise("LIVE_STASH_REDIS_URL is missing; LIVE_STASH_ADAPTER=redis needs it")

  # Without a file Redix trusts the system's CAs. A connection without TLS does not know the option.
  tls_options =
    case {url, System.get_env("LIVE_STASH_REDIS_CACERTFILE")} do
      {"rediss:" <> _, file} when file not in [nil, ""] -> [cacertfile: file]
      _ -> []
    end

  config :live_stash, redis: {url, socket_opts: tls_options}
end

if service = System.get_env("LIBCLUSTER_SERVICE") do
  config :libcluster,
    topologies: [
      kubernetes: [
        strategy: Cluster.Strategy.Kubernetes.DNSSRV,
        config: [
          service: service,
          namespace: System.fetch_env!("LIBCLUSTER_NAMESPACE"),
          application_name: System.fetch_env!("LIBCLUSTER_APP"),
          polling_interval: 5_000
        ]
      ]
    ]
end
# end of the contract

payload_keys =
  case Integer.parse(System.get_env("STASH_PAYLOAD_KEYS", "150")) do
    {keys, ""} when keys in 0..100_000 ->
      keys

    _ ->
      raise "STASH_PAYLOAD_KEYS is #{inspect(System.get_env("STASH_PAYLOAD_KEYS"))}; " <>
              "set it to a whole number from 0 to 100000"
  end

payload_on_page =
  case System.get_env("STASH_PAYLOAD_ON_PAGE", "hidden") do
    "shown" ->
      true

    "hidden" ->
      false

    other ->
      raise "STASH_PAYLOAD_ON_PAGE is #{inspect(other)}; set it to shown or hidden"
  end

config :stash_workload, payload_keys: payload_keys, payload_on_page: payload_on_page

if config_env() == :prod do
  secret_key_base =
    secret.("SECRET_KEY_BASE") ||
      raise """
      environment variable SECRET_KEY_BASE is missing.
      You can generate one by calling: mix phx.gen.secret
      """

  host = System.get_env("PHX_HOST", "localhost")

  config :stash_workload, StashWorkloadWeb.Endpoint,
    url: [host: host],
    # localhost too, so that a browser can come through a port-forward.
    check_origin: ["//#{host}", "//localhost", "//127.0.0.1"],
    http: [ip: {0, 0, 0, 0, 0, 0, 0, 0}],
    secret_key_base: secret_key_base
end
