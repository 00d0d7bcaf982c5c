defmodule StashWorkloadWeb.SumController do
  @moduledoc """
  The smallest JSON request, to compare with what a LiveView costs: `/api/sum?a=1&b=2`.
  """
  use StashWorkloadWeb, :controller

  def show(conn, params) do
    with {:ok, a} <- integer(params["a"]),
         {:ok, b} <- integer(params["b"]) do
      json(conn, %{sum: a + b})
    else
      :error ->
        conn
        |> put_status(:bad_request)
        |> json(%{error: "a and b must be integers"})
    end
  end

  defp integer(text) when is_binary(text) do
    case Integer.parse(text) do
      {number, ""} -> {:ok, number}
      _ -> :error
    end
  end

  defp integer(_other), do: :error
end
