import Config

config :stash_workload, StashWorkloadWeb.Endpoint,
  http: [ip: {127, 0, 0, 1}],
  server: false,
  secret_key_base: String.duplicate("for-tests-only--", 4)

config :logger, level: :warning
