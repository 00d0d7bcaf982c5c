defmodule StashWorkloadWeb.SumController do
  @moduledoc """
  The smallest JSON request, to compare with what a LiveView costs: `{"a": 1, "b": 2}`.
  """
  use StashWorkloadWeb, :controller

  def create(conn, %{"a" => a, "b" => b}) when is_integer(a) and is_integer(b) do
    json(conn, %{result: a + b})
  end

  def create(conn, _params) do
    conn
    |> put_status(:bad_request)
    |> json(%{error: "a and b must be integers"})
  end
end
