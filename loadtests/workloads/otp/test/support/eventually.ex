defmodule Workload.Eventually do
  @moduledoc "Waits in tests for what other processes do in their own time."

  import ExUnit.Assertions

  @wait_ms 30_000

  @doc "Returns once the condition holds, and fails when it does not within 30 s. A condition that raises does not hold."
  def true?(condition, deadline \\ now() + @wait_ms) do
    cond do
      holds?(condition) -> :ok
      now() > deadline -> flunk("It did not happen within #{div(@wait_ms, 1000)} s.")
      true -> Process.sleep(20) && true?(condition, deadline)
    end
  end

  defp holds?(condition) do
    condition.()
  rescue
    _not_yet -> false
  catch
    _kind, _not_yet -> false
  end

  defp now, do: System.monotonic_time(:millisecond)
end
