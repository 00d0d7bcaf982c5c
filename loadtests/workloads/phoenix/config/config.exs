import Config

config :stash_workload, StashWorkloadWeb.Endpoint,
  adapter: Bandit.PhoenixAdapter,
  render_errors: [
    formats: [html: StashWorkloadWeb.ErrorHTML, json: StashWorkloadWeb.ErrorJSON],
    layout: false
  ],
  pubsub_server: StashWorkload.PubSub,
  live_view: [signing_salt: "8tSXYqVd"]

config :logger, :default_formatter,
  format: "$time $metadata[$level] $message\n",
  metadata: [:request_id]

config :phoenix, :json_library, Jason

import_config "#{config_env()}.exs"
