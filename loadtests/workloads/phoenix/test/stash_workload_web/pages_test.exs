defmodule StashWorkloadWeb.PagesTest do
  use ExUnit.Case, async: true

  import Phoenix.ConnTest
  import Plug.Conn, only: [put_req_header: 3]

  @endpoint StashWorkloadWeb.Endpoint

  for adapter <- ~w(none ets) do
    test "the #{adapter} page starts at 0 as a new user" do
      page = build_conn() |> get("/stash/#{unquote(adapter)}") |> html_response(200)

      assert page =~ ~s(<output id="status">new</output>)
      assert page =~ ~s(<output id="count">0</output>)
      assert page =~ "data-phx-session"
      assert page =~ ~s(name="csrf-token")
    end
  end

  # The default adapter is ETS, so no other is active here.
  for adapter <- ~w(browser_memory redis mnesia) do
    test "the #{adapter} page is not found without its adapter" do
      assert build_conn() |> get("/stash/#{unquote(adapter)}") |> text_response(404) =~
               "LIVE_STASH_ADAPTER=#{unquote(adapter)}"
    end
  end

  test "the browser's scripts are served" do
    for path <- ~w(/assets/app.js /vendor/phoenix.min.js /vendor/phoenix_live_view.min.js
                   /vendor/live-stash.js) do
      conn = get(build_conn(), path)

      assert {path, 200} == {path, conn.status}
      assert [type] = Plug.Conn.get_resp_header(conn, "content-type")
      assert type =~ "text/javascript"
    end
  end

  test "health and sum answer without a session" do
    health = get(build_conn(), "/healthz")
    sum = sum(~s({"a":40,"b":2}))

    assert text_response(health, 200) == "ok"
    assert json_response(sum, 200) == %{"result" => 42}
    assert Plug.Conn.get_resp_header(health, "set-cookie") == []
    assert Plug.Conn.get_resp_header(sum, "set-cookie") == []
  end

  test "sum refuses what is not an integer" do
    for body <- [
          "",
          "{}",
          "[1,2]",
          ~s({"a":1}),
          ~s({"a":1,"b":"x"}),
          ~s({"a":1,"b":2.5}),
          ~s({"a":[],"b":2})
        ] do
      assert {body, json_response(sum(body), 400)} ==
               {body, %{"error" => "a and b must be integers"}}
    end
  end

  test "sum refuses what is no JSON" do
    assert_error_sent 400, fn -> sum("a=1") end
  end

  defp sum(body) do
    build_conn()
    |> put_req_header("content-type", "application/json")
    |> post("/api/sum", body)
  end
end
