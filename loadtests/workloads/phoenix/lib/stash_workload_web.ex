defmodule StashWorkloadWeb do
  @moduledoc """
  The web interface: `use StashWorkloadWeb, :live_view` and so on.
  """

  def router do
    quote do
      use Phoenix.Router, helpers: false

      import Plug.Conn
      import Phoenix.Controller
      import Phoenix.LiveView.Router
    end
  end

  def channel do
    quote do
      use Phoenix.Channel
    end
  end

  def controller do
    quote do
      use Phoenix.Controller, formats: [:html, :json]

      import Plug.Conn
    end
  end

  def live_view do
    quote do
      use Phoenix.LiveView
    end
  end

  def html do
    quote do
      use Phoenix.Component

      import Phoenix.Controller, only: [get_csrf_token: 0]
    end
  end

  @doc "Dispatches to the controller, live view and so on of this module."
  defmacro __using__(which) when is_atom(which) do
    apply(__MODULE__, which, [])
  end
end
