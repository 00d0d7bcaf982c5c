defmodule StashWorkloadWeb.PayloadOnPageTest do
  # It changes what all pages read.
  use ExUnit.Case, async: false

  import Phoenix.ConnTest

  @endpoint StashWorkloadWeb.Endpoint

  test "the page shows what it stashes when it is told to" do
    refute page() =~ "field_001"

    Application.put_env(:stash_workload, :payload_on_page, true)
    on_exit(fn -> Application.put_env(:stash_workload, :payload_on_page, false) end)

    # One field a line, as inspect writes it, and no field left out.
    assert page() =~ "&quot;field_150&quot; =&gt; &quot;value_150_xxxxxxxx&quot;"
    assert length(String.split(page(), "\n    &quot;field_")) == 151
  end

  defp page, do: build_conn() |> get("/stash/ets") |> html_response(200)
end
