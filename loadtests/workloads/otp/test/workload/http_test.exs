defmodule Workload.HTTPTest do
  use ExUnit.Case

  alias Workload.Client

  test "healthz answers" do
    assert %{status: 200, body: "ok"} = Client.request("GET", "/healthz")
  end

  test "the sum of two integers" do
    no_integers = %{"error" => "a and b must be integers"}

    for {body, status, answer} <- [
          {~s({"a":1,"b":2}), 200, %{"result" => 3}},
          {~s({"a":0,"b":-5,"c":[]}), 200, %{"result" => -5}},
          {~s({"a":1.5,"b":2}), 400, no_integers},
          {~s({"a":"1","b":2}), 400, no_integers},
          {~s({"a":1}), 400, no_integers},
          {~s([1,2]), 400, no_integers},
          {"a=1&b=2", 400, no_integers},
          {"", 400, no_integers},
          {String.duplicate("x", 100_000), 413, %{"error" => "the body must have at most 1024 bytes"}}
        ] do
      reply = Client.request("POST", "/api/sum", body, [{"content-type", "application/json"}])
      assert {body, status, answer} == {body, reply.status, JSON.decode!(reply.body)}
    end

    assert %{status: 405, body: "GET is not allowed here."} = Client.request("GET", "/api/sum")
  end

  test "the front page links to every adapter's page, and each page exists" do
    %{status: 200, body: body} = Client.request("GET", "/")
    paths = Regex.scan(~r/href="(\/[^"]+)"/, body) |> Enum.map(&List.last/1)
    assert paths == ["/stash/none", "/stash/ets", "/stash/browser_memory", "/stash/redis", "/stash/mnesia"]
    for path <- paths, do: assert(%{status: 200} = Client.request("GET", path))

    assert %{status: 200, headers: %{"content-type" => "text/javascript" <> _}} =
             Client.request("GET", "/assets/live.js")
  end

  test "unknown adapters, addresses and methods are refused with a sentence" do
    assert %{status: 404, body: "There is no adapter of that name" <> _} = Client.request("GET", "/stash/files")
    assert %{status: 404, body: "There is nothing at /nowhere."} = Client.request("GET", "/nowhere")
    assert %{status: 405} = Client.request("POST", "/stash/ets")
  end

  test "an adapter that is not started is named" do
    assert Workload.Stash.started("ets", [:none]) ==
             {:error, "The adapter ets is not started; LIVE_STASH_ADAPTER started none."}
  end

  test "request lines are refused where Bandit refuses them" do
    # "GET /healthz?" and " HTTP/1.1" are 22 bytes.
    assert %{status: 200} = Client.request("GET", "/healthz?" <> String.duplicate("x", 10_000 - 22))
    assert %{status: 414} = Client.request("GET", "/healthz?" <> String.duplicate("x", 10_001 - 22))
  end
end
