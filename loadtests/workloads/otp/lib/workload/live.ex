defmodule Workload.Live do
  @moduledoc """
  The server's process behind one open page: what a LiveView with `use LiveStash` is in a Phoenix application.

  It holds a counter and the payload. The event `stash` raises the counter and stashes both. On a reconnect the
  page shows `recovered` and the stashed counter, or why there is none.
  """

  use GenServer

  alias Workload.{Channel, Config, Message, Page, Payload, Stash}

  @doc "What a new user's page shows of what it stashes; nil when it shows nothing of that."
  @spec stashed_at_first() :: nil | map()
  def stashed_at_first, do: shown(new(Config.get()))

  @impl true
  def init(join), do: {:ok, join, {:continue, :join}}

  @impl true
  def handle_continue(:join, join) do
    case authorize(join.message, join.session) do
      {:ok, adapter, params} ->
        Process.monitor(join.socket)
        :telemetry.execute([:phoenix, :live_view, :mount, :start], %{}, %{socket: %{transport_pid: join.socket}})
        {state, events} = mount(adapter, params, join.socket)
        :telemetry.execute([:phoenix, :live_view, :mount, :stop], %{}, %{socket: socket(state)})
        rendered = with_events(Page.rendered(view(state)), events)
        :telemetry.execute([:phoenix, :live_view, :render, :stop], %{}, %{socket: socket(state)})
        Channel.answer(join, {:ok, %{liveview_version: "1.2.10", rendered: rendered}})
        {:noreply, state}

      {:error, reason} ->
        Channel.answer(join, {:error, %{reason: reason}})
        {:stop, :shutdown, join}
    end
  end

  @impl true
  def handle_info(%Message{event: "event", payload: %{"event" => "stash"}} = message, state) do
    changed = put_in(state.assigns.count, state.assigns.count + 1)
    {stash, events} = Stash.stash(state.module, state.stash, changed.assigns)
    state_after = %{changed | stash: stash}
    :telemetry.execute([:phoenix, :live_view, :handle_event, :stop], %{}, %{socket: socket(state_after)})
    diff = with_events(Page.diff(view(state), view(state_after)), events)
    :telemetry.execute([:phoenix, :live_view, :render, :stop], %{}, %{socket: socket(state_after)})
    Channel.push(state.socket, Message.reply(message, :ok, %{diff: diff}))
    {:noreply, state_after}
  end

  def handle_info(%Message{event: "phx_leave"} = message, state) do
    send(state.socket, {:closed, self()})
    Channel.push(state.socket, Message.reply(message, :ok, %{}))
    {:stop, {:shutdown, :left}, state}
  end

  # A LiveView crashes on an event it has no clause for, and the client is told phx_error. So does this one, quietly.
  def handle_info(%Message{event: "event"}, state), do: {:stop, {:shutdown, :unknown_event}, state}

  def handle_info({:stash, message}, state) do
    state.module.handle_info(message, state.stash)
    {:noreply, state}
  end

  def handle_info({:DOWN, _monitor, :process, socket, _reason}, %{socket: socket} = state) do
    {:stop, {:shutdown, :closed}, state}
  end

  # Messages that are no events, and answers that came after their remote call had failed.
  def handle_info(_other, state), do: {:noreply, state}

  # What LiveView checks before it mounts: the page's tokens belong together, the browser has the session of the page,
  # and the address leads to a page. The address also says which adapter is meant.
  defp authorize(%Message{topic: "lv:" <> id, payload: payload}, session) do
    with {:ok, %{id: ^id}} <- Page.verify_session(payload["session"]),
         :ok <- verify_static(payload["static"], id),
         true <- session != nil do
      route(payload)
    else
      _other -> {:error, "stale"}
    end
  end

  defp verify_static(nil, _id), do: :ok

  defp verify_static(token, id) do
    with {:ok, %{id: ^id}} <- Page.verify_static(token), do: :ok
  end

  defp route(%{"url" => url, "params" => params}) when is_binary(url) and is_map(params) do
    path = URI.parse(url).path

    case Enum.find(Config.get().adapters, &(Page.path(&1) == path)) do
      nil -> {:error, "unauthorized"}
      adapter -> {:ok, adapter, params}
    end
  end

  # LiveView's process crashes on these, and this is what the socket makes of it.
  defp route(_payload), do: {:error, "join crashed"}

  defp mount(adapter, params, socket) do
    module = Stash.module(adapter)
    config = Config.get()
    {stash, events} = Stash.init(module, params, config.ttl)
    {status, recovered, stash, more} = Stash.recover(module, stash)

    state = %{
      socket: socket,
      adapter: adapter,
      module: module,
      stash: stash,
      status: status,
      assigns: Map.merge(new(config), recovered)
    }

    {state, events ++ more}
  end

  # What others see of a LiveView's socket: its module, which connection it belongs to, and LiveStash's context.
  defp socket(state), do: %{view: __MODULE__, transport_pid: state.socket, private: private(state.adapter, state.stash)}

  defp private(:none, _stash), do: %{}

  defp private(_adapter, stash) do
    context = %{
      id: stash.id,
      secret: Stash.secret(),
      ttl: stash.ttl,
      reconnected?: stash.reconnected?,
      stash_fingerprint: stash.fingerprint,
      version: Config.get().stash_version
    }

    %{live_stash_context: context}
  end

  defp view(state) do
    %{status: state.status, count: state.assigns.count, adapter: state.adapter, stashed: shown(state.assigns)}
  end

  defp new(config), do: %{count: 0, payload: Payload.new(config.payload_keys)}

  defp shown(assigns), do: if(Config.get().payload_on_page, do: assigns)

  defp with_events(diff, []), do: diff
  defp with_events(diff, events), do: Map.put(diff, "e", Enum.map(events, fn {name, detail} -> [name, detail] end))
end
