defmodule Workload.PageTest do
  # It changes the configuration that all pages read.
  use ExUnit.Case, async: false

  alias Workload.{Client, Config, Page}

  @hidden %{status: :new, count: 0, adapter: :ets, stashed: nil}
  @shown %{@hidden | stashed: %{count: 0, payload: %{"a" => "<b>"}}}

  test "shows nothing of what it stashes unless it is told to" do
    assert %{"p" => %{"0" => statics}} = rendered = Page.rendered(@hidden)
    assert {length(statics), Map.has_key?(rendered, "4")} == {5, false}
    assert Page.diff(@hidden, %{@hidden | count: 1}) == %{"1" => "1"}
  end

  test "shows it escaped, and anew when it changes" do
    assert %{"4" => text, "p" => %{"0" => statics}} = Page.rendered(@shown)
    assert length(statics) == 6
    assert text == "%{count: 0, payload: %{&quot;a&quot; =&gt; &quot;&lt;b&gt;&quot;}}"
    assert Page.diff(@shown, @shown) == %{}

    assert Page.diff(@shown, %{@shown | count: 1, stashed: %{count: 1}}) == %{"1" => "1", "4" => "%{count: 1}"}
  end

  test "is sent with all of it at first, in the join and with each stash" do
    config = Config.get()
    Config.put(%{config | payload_on_page: true})
    on_exit(fn -> Config.put(config) end)

    assert Page.html(:ets, "csrf", Workload.Live.stashed_at_first()) =~ "<pre>%{\n"
    {client, %{"rendered" => %{"4" => joined}}} = Client.visit(Client.open("/stash/ets"))
    assert %{"response" => %{"diff" => %{"1" => "1", "4" => stashed}}} = Client.click(client, "stash")

    for text <- [joined, stashed] do
      assert length(String.split(text, "field_")) == 151
      assert byte_size(text) in 9_000..10_000
    end
  end
end
