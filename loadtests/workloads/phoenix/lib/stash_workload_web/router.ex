defmodule StashWorkloadWeb.Router do
  use StashWorkloadWeb, :router

  pipeline :browser do
    plug :accepts, ["html"]
    plug :fetch_session
    plug :put_root_layout, html: {StashWorkloadWeb.Layouts, :root}
    plug :protect_from_forgery
    plug :put_secure_browser_headers
    plug StashWorkloadWeb.RequireAdapter
  end

  pipeline :api do
    plug :accepts, ["json"]
  end

  scope "/stash", StashWorkloadWeb do
    pipe_through :browser

    live_session :stash do
      live "/none", StashLive, :none
      live "/ets", StashLive, :ets
      live "/browser_memory", StashLive, :browser_memory
      live "/redis", StashLive, :redis
      live "/mnesia", StashLive, :mnesia
    end
  end

  scope "/", StashWorkloadWeb do
    get "/healthz", HealthController, :show
    get "/vendor/live-stash.js", ScriptController, :live_stash
  end

  scope "/api", StashWorkloadWeb do
    pipe_through :api

    post "/sum", SumController, :create
  end
end
