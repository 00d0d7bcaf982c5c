defmodule :telemetry do
  @moduledoc """
  Stands in for the library of this name, which LiveView brings along: the part of it by which code that is loaded into the
  release hears of pages.
  """

  @type event :: [atom()]
  @type handler :: (event(), map(), map(), term() -> term())

  @doc "Has a function called whenever one of the events is executed, in the process that executes it."
  @spec attach_many(term(), [event()], handler(), term()) :: :ok | {:error, :already_exists}
  def attach_many(id, events, function, config) do
    if is_map_key(handlers(), id),
      do: {:error, :already_exists},
      else: :persistent_term.put(__MODULE__, Map.put(handlers(), id, {events, function, config}))
  end

  @doc "Calls the functions that are attached to an event. One that fails is called no more."
  @spec execute(event(), map(), map()) :: :ok
  def execute(event, measurements, metadata) do
    for {id, {events, function, config}} <- handlers(), event in events do
      try do
        function.(event, measurements, metadata, config)
      catch
        _kind, _reason -> :persistent_term.put(__MODULE__, Map.delete(handlers(), id))
      end
    end

    :ok
  end

  defp handlers, do: :persistent_term.get(__MODULE__, %{})
end
