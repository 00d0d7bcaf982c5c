defmodule Workload.Client do
  @moduledoc """
  A browser for the tests: HTTP and WebSocket by hand over gen_tcp, so that what is checked is bytes and not a library.
  """

  import Bitwise

  @timeout 5_000

  defstruct [:tcp, :page, ref: 0]

  @doc "Loads a page. Returns what a browser keeps of it."
  def open(path, port \\ Workload.Endpoint.port(), cookie \\ nil) do
    headers = if cookie, do: [{"cookie", cookie}], else: []
    %{status: 200, headers: reply_headers, body: body} = request("GET", path, "", headers, port)

    %{
      port: port,
      path: path,
      set_cookie: reply_headers["set-cookie"],
      cookie: cookie || reply_headers["set-cookie"] |> String.split(";") |> hd(),
      csrf: capture(body, ~r/name="csrf-token" content="([^"]+)"/),
      topic: "lv:" <> capture(body, ~r/<div id="(phx-[^"]+)" data-phx-main /),
      session: capture(body, ~r/data-phx-session="([^"]+)"/),
      static: capture(body, ~r/data-phx-static="([^"]+)"/)
    }
  end

  @doc "One HTTP request on a connection of its own."
  def request(method, path, body \\ "", headers \\ [], port \\ Workload.Endpoint.port()) do
    headers = [{"content-length", byte_size(body)}, {"connection", "close"} | headers]
    tcp = connect_tcp(port)
    :ok = :gen_tcp.send(tcp, [head("#{method} #{path}", headers), body])
    {status, headers, rest} = read_head(tcp, "")
    length = String.to_integer(headers["content-length"] || "0")
    body = read(tcp, rest, length)
    :gen_tcp.close(tcp)
    %{status: status, headers: headers, body: body}
  end

  @doc "Opens the WebSocket of a page. Returns a client, or the HTTP status of the refusal."
  def connect(page, options \\ []) do
    path = Keyword.get(options, :path, "/live/websocket")
    query = Keyword.get(options, :query, %{"_csrf_token" => page.csrf, "vsn" => "2.0.0"})
    cookie = Keyword.get(options, :cookie, page.cookie)
    key = Base.encode64(:crypto.strong_rand_bytes(16))

    headers =
      [{"upgrade", "websocket"}, {"connection", "Upgrade"}, {"sec-websocket-version", 13}, {"sec-websocket-key", key}] ++
        if(cookie, do: [{"cookie", cookie}], else: []) ++
        if(options[:origin], do: [{"origin", options[:origin]}], else: [])

    tcp = connect_tcp(page.port)
    :ok = :gen_tcp.send(tcp, head("GET #{path}?#{URI.encode_query(query)}", headers))

    case read_head(tcp, "") do
      {101, %{"sec-websocket-accept" => accept}, ""} ->
        ^accept = Base.encode64(:crypto.hash(:sha, key <> "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
        %__MODULE__{tcp: tcp, page: page}

      {status, _headers, _body} ->
        :gen_tcp.close(tcp)
        status
    end
  end

  @doc "Joins the page's topic as phoenix_live_view.js does. Returns the reply's payload."
  def join(client, params \\ %{}, changes \\ %{}) do
    page = client.page

    params =
      Map.merge(%{"_csrf_token" => page.csrf, "_mounts" => 0, "_mount_attempts" => 0, "liveStash" => %{}}, params)

    payload =
      Map.merge(
        %{
          "url" => "http://127.0.0.1:#{page.port}#{page.path}",
          "params" => params,
          "session" => page.session,
          "static" => page.static,
          "sticky" => false
        },
        changes
      )

    call(client, "4", page.topic, "phx_join", payload)
  end

  @doc "Connects and joins in one go. Returns the client and the join's response."
  def visit(page, params \\ %{}) do
    client = connect(page)
    %{"status" => "ok", "response" => response} = join(client, params)
    {client, response}
  end

  @doc "Sends a click and returns the reply's payload."
  def click(client, event) do
    call(client, "4", client.page.topic, "event", %{"type" => "click", "event" => event, "value" => %{}})
  end

  @doc "Sends a message and returns the payload of its reply, which must be the next frame."
  def call(client, join_ref, topic, event, payload) do
    ref = Integer.to_string(System.unique_integer([:positive]))
    send_json(client, [join_ref, ref, topic, event, payload])
    [^join_ref, ^ref, ^topic, "phx_reply", payload] = receive_json(client)
    payload
  end

  def send_json(client, term), do: send_frame(client, 1, JSON.encode!(term))

  @doc "Sends one masked frame, as clients must."
  def send_frame(client, opcode, data) do
    mask = :crypto.strong_rand_bytes(4)
    size = byte_size(data)

    length =
      cond do
        size < 126 -> <<size ||| 128>>
        size < 65_536 -> <<126 ||| 128, size::16>>
        true -> <<127 ||| 128, size::64>>
      end

    pad = :binary.copy(mask, div(size, 4) + 1) |> binary_part(0, size)
    :ok = :gen_tcp.send(client.tcp, [<<opcode ||| 128>>, length, mask, :crypto.exor(data, pad)])
  end

  def receive_json(client) do
    {:text, text} = receive_frame(client)
    JSON.decode!(text)
  end

  @doc "The next frame: `{:text, data}`, `{:pong, data}`, `{:close, code}`, or :nothing within `timeout` ms."
  def receive_frame(client, timeout \\ @timeout) do
    case :gen_tcp.recv(client.tcp, 2, timeout) do
      {:ok, <<1::1, _::3, opcode::4, 0::1, length::7>>} ->
        {name(opcode), read(client.tcp, "", full_length(client.tcp, length))} |> close_code()

      {:error, :timeout} ->
        :nothing
    end
  end

  def close(client), do: :gen_tcp.close(client.tcp)

  @doc "The detail of a pushed event in a `rendered` or a `diff`, or nil."
  def event(rendered, name), do: Enum.find_value(rendered["e"] || [], fn [n, detail] -> if n == name, do: detail end)

  defp close_code({:close, <<code::16, _reason::binary>>}), do: {:close, code}
  defp close_code(frame), do: frame

  defp name(1), do: :text
  defp name(8), do: :close
  defp name(10), do: :pong

  defp full_length(tcp, 126), do: :binary.decode_unsigned(read(tcp, "", 2))
  defp full_length(tcp, 127), do: :binary.decode_unsigned(read(tcp, "", 8))
  defp full_length(_tcp, length), do: length

  defp connect_tcp(port) do
    {:ok, tcp} = :gen_tcp.connect({127, 0, 0, 1}, port, [:binary, active: false])
    tcp
  end

  defp head(request, headers) do
    [request, " HTTP/1.1\r\nhost: 127.0.0.1\r\n", for({k, v} <- headers, do: "#{k}: #{v}\r\n"), "\r\n"]
  end

  defp read_head(tcp, got) do
    case String.split(got, "\r\n\r\n", parts: 2) do
      [head, rest] ->
        ["HTTP/1.1 " <> <<status::binary-3>> <> _ | lines] = String.split(head, "\r\n")
        headers = for line <- lines, into: %{}, do: line |> String.split(": ", parts: 2) |> List.to_tuple()
        {String.to_integer(status), headers, rest}

      [_part] ->
        {:ok, more} = :gen_tcp.recv(tcp, 0, @timeout)
        read_head(tcp, got <> more)
    end
  end

  defp read(_tcp, got, length) when byte_size(got) >= length, do: got

  defp read(tcp, got, length) do
    {:ok, more} = :gen_tcp.recv(tcp, length - byte_size(got), @timeout)
    got <> more
  end

  defp capture(body, regex), do: Regex.run(regex, body) |> Enum.at(1)
end
