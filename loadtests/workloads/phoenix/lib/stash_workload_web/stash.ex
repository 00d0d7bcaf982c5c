defmodule StashWorkloadWeb.Stash do
  @moduledoc """
  LiveStash for a LiveView whose live action is the adapter of this release, or `:none`, which
  does without.

  `use LiveStash` fixes adapter and TTL when the module is compiled. Here both come from the
  environment, so the hook calls `LiveStash.init_stash/3` itself, as `use LiveStash` does.
  """

  @adapters %{
    ets: LiveStash.Adapters.ETS,
    browser_memory: LiveStash.Adapters.BrowserMemory,
    redis: LiveStash.Adapters.Redis,
    mnesia: LiveStash.Adapters.Mnesia
  }

  @doc "The LiveView `on_mount` callback; its argument are options of LiveStash that the page decides."
  def on_mount(options, params, session, socket)

  def on_mount(_options, _params, _session, %{assigns: %{live_action: :none}} = socket) do
    {:cont, socket}
  end

  # contract: docs/reference/environment.md shows the lines from here to its end.
  def on_mount(options, _params, session, socket) do
    options = options ++ Application.fetch_env!(:stash_workload, :stash)
    {:cont, LiveStash.init_stash(socket, session, options)}
  end

  # end of the contract

  @doc "Whether this release was started with the adapter that `name` needs."
  @spec active?(String.t()) :: boolean()
  def active?("none"), do: true

  def active?(name) do
    adapter = Application.fetch_env!(:stash_workload, :stash)[:adapter]

    Enum.any?(@adapters, fn {action, module} ->
      module == adapter and Atom.to_string(action) == name
    end)
  end

  @doc "Gives back what was stashed; the status is that of `LiveStash.recover_state/1`."
  @spec recover(Phoenix.LiveView.Socket.t()) ::
          {LiveStash.recovery_status(), Phoenix.LiveView.Socket.t()}
  def recover(%{assigns: %{live_action: :none}} = socket), do: {:new, socket}
  def recover(socket), do: LiveStash.recover_state(socket)

  @doc "Stashes the counter and the payload."
  @spec stash(Phoenix.LiveView.Socket.t()) :: Phoenix.LiveView.Socket.t()
  def stash(%{assigns: %{live_action: :none}} = socket), do: socket
  def stash(socket), do: LiveStash.stash(socket)
end
