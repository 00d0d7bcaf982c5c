import Config

config :stash_workload, StashWorkloadWeb.Endpoint,
  http: [ip: {127, 0, 0, 1}],
  debug_errors: true,
  secret_key_base: String.duplicate("development-only", 4)
