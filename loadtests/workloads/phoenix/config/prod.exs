import Config

# A line per request would be most of the work under load.
config :logger, level: :warning
