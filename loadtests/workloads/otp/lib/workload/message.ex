defmodule Workload.Message do
  @moduledoc """
  One text frame of the Phoenix socket protocol, version 2.0.0: `[join_ref, ref, topic, event, payload]` as JSON.
  """

  @enforce_keys [:topic, :event]
  defstruct [:join_ref, :ref, :topic, :event, payload: %{}]

  @type t :: %__MODULE__{
          join_ref: String.t() | nil,
          ref: String.t() | nil,
          topic: String.t(),
          event: String.t(),
          payload: map()
        }

  @doc "Reads a frame a client sent."
  @spec decode(binary()) :: {:ok, t()} | :error
  def decode(text) do
    case JSON.decode(text) do
      {:ok, [join_ref, ref, topic, event, payload | _rest]} when is_binary(topic) and is_binary(event) ->
        {:ok, %__MODULE__{join_ref: join_ref, ref: ref, topic: topic, event: event, payload: payload}}

      _other ->
        :error
    end
  end

  @doc "Writes a frame for a client."
  @spec encode(t()) :: iodata()
  def encode(%__MODULE__{} = message) do
    JSON.encode_to_iodata!([message.join_ref, message.ref, message.topic, message.event, message.payload])
  end

  @doc "The answer to a client's message."
  @spec reply(t(), :ok | :error, map()) :: t()
  def reply(%__MODULE__{} = message, status, response) do
    %{message | event: "phx_reply", payload: %{status: status, response: response}}
  end
end
