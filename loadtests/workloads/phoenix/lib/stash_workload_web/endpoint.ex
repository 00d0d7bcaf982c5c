defmodule StashWorkloadWeb.Endpoint do
  use Phoenix.Endpoint, otp_app: :stash_workload

  @session_options [
    store: :cookie,
    key: "_stash_workload_key",
    signing_salt: "Qw1b7Lzu",
    same_site: "Lax"
  ]

  socket "/live", Phoenix.LiveView.Socket,
    websocket: [connect_info: [session: @session_options]],
    longpoll: [connect_info: [session: @session_options]]

  socket "/socket", StashWorkloadWeb.UserSocket,
    websocket: true,
    longpoll: false

  plug Plug.Static, at: "/", from: :stash_workload, only: ~w(assets)

  # The browser clients come from the packages themselves, so there is no bundler to install.
  plug Plug.Static, at: "/vendor", from: {:phoenix, "priv/static"}, only: ~w(phoenix.min.js)

  plug Plug.Static,
    at: "/vendor",
    from: {:phoenix_live_view, "priv/static"},
    only: ~w(phoenix_live_view.min.js)

  plug Plug.RequestId
  plug Plug.Telemetry, event_prefix: [:phoenix, :endpoint]

  plug Plug.Parsers,
    parsers: [:urlencoded, :json],
    pass: ["*/*"],
    json_decoder: Phoenix.json_library()

  plug Plug.Head
  plug Plug.Session, @session_options
  plug StashWorkloadWeb.Router
end
