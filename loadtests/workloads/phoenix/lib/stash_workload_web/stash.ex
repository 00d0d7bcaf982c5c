defmodule StashWorkloadWeb.Stash do
  @moduledoc """
  LiveStash for a LiveView whose adapter is its live action: `:none` does without.

  `use LiveStash` fixes adapter and TTL when the module is compiled. Here both come from the
  route and the environment, so the hook calls `LiveStash.init_stash/3` itself, as
  `use LiveStash` does.
  """

  @stored_keys [:count, :payload]

  @adapters %{
    ets: LiveStash.Adapters.ETS,
    browser_memory: LiveStash.Adapters.BrowserMemory,
    redis: LiveStash.Adapters.Redis,
    mnesia: LiveStash.Adapters.Mnesia
  }

  @doc "The LiveView `on_mount` callback."
  def on_mount(:default, _params, _session, %{assigns: %{live_action: :none}} = socket) do
    {:cont, socket}
  end

  def on_mount(:default, _params, session, socket) do
    {:cont, LiveStash.init_stash(socket, session, options(socket.assigns.live_action))}
  end

  @doc "Whether this release was started with the adapter that `name` needs."
  @spec active?(String.t()) :: boolean()
  def active?("none"), do: true

  def active?(name) do
    adapter = Application.fetch_env!(:stash_workload, :stash_adapter)

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

  defp options(action) do
    [
      adapter: Map.fetch!(@adapters, action),
      stored_keys: @stored_keys,
      ttl: Application.fetch_env!(:stash_workload, :stash_ttl)
    ] ++ adapter_options(action)
  end

  defp adapter_options(:browser_memory), do: [security_mode: :sign]
  defp adapter_options(_action), do: []
end
