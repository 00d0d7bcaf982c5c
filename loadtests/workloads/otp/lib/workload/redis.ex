defmodule Workload.Redis do
  @moduledoc """
  One connection to Redis, which all processes of the node share. It behaves as LiveStash's does, which is Redix':

  - it is made after the start, and made anew when it has ended: after half a second, and if that fails after ever longer
    times, up to 30 s. So nothing here needs Redis to be there.
  - while there is none, every command fails at once; while it is being made, commands wait.
  - a login that Redis refuses ends the process. Its supervisor will try again and soon give up.

  Unlike Redix', it is also given up when an answer takes longer than 2 s, so that a frozen Redis does not stop pages for long.
  """

  use GenServer

  require Logger

  alias Workload.Redis.{Protocol, Url}

  # The longest wait for a connection with its login, and for an answer.
  @patience_ms 2_000
  @first_pause_ms 500
  @longest_pause_ms 30_000

  @typedoc "Why a command has no answer."
  @type failure :: :closed | :timeout | :unknown_answer | :inet.posix() | term()

  # waiting: who asked, in the order of the answers to come. pause: how long to wait after the next failure to connect.
  defstruct [:url, :socket, received: "", waiting: :queue.new(), pause: @first_pause_ms]

  @doc "Starts a connection that is registered under a name."
  @spec start_link({Url.t(), atom()}) :: GenServer.on_start()
  def start_link({%Url{} = url, name}), do: GenServer.start_link(__MODULE__, url, name: name)

  @doc "Sends a command. An error is what Redis says as text, or why there is no answer."
  @spec command(atom(), [binary()]) :: Protocol.answer() | {:error, failure()}
  def command(name, command) do
    # The connection answers in bounded time, whatever Redis does.
    GenServer.call(name, {:command, command}, :infinity)
  catch
    :exit, _gone -> {:error, :closed}
  end

  @doc "Runs a Lua script by its hash, and sends it along when Redis does not know it."
  @spec script(atom(), String.t(), [binary()], [binary()]) :: Protocol.answer() | {:error, failure()}
  def script(name, script, keys, arguments) do
    hash = Base.encode16(:crypto.hash(:sha, script), case: :lower)
    arguments = [Integer.to_string(length(keys))] ++ keys ++ arguments

    case command(name, ["EVALSHA", hash | arguments]) do
      {:error, "NOSCRIPT" <> _} -> command(name, ["EVAL", script | arguments])
      answer -> answer
    end
  end

  @impl true
  def init(url), do: {:ok, %__MODULE__{url: url}, {:continue, :connect}}

  @impl true
  def handle_continue(:connect, state), do: connect(state)

  @impl true
  def handle_call({:command, _command}, _from, %{socket: nil} = state), do: {:reply, {:error, :closed}, state}

  def handle_call({:command, command}, from, state) do
    id = make_ref()
    state = %{state | waiting: :queue.in({id, from}, state.waiting)}

    case send_to(state.socket, command) do
      :ok ->
        Process.send_after(self(), {:overdue, id}, @patience_ms)
        {:noreply, state}

      {:error, reason} ->
        {:noreply, lost(state, reason)}
    end
  end

  @impl true
  def handle_info(:connect, state), do: connect(state)

  def handle_info({_tcp_or_ssl, raw, bytes}, %{socket: {transport, raw}} = state) when is_binary(bytes) do
    _closed_is_told = activate({transport, raw})
    {:noreply, answer(%{state | received: state.received <> bytes})}
  end

  def handle_info({closed, raw}, %{socket: {_transport, raw}} = state) when closed in [:tcp_closed, :ssl_closed] do
    {:noreply, lost(state, :closed)}
  end

  def handle_info({error, raw, reason}, %{socket: {_transport, raw}} = state) when error in [:tcp_error, :ssl_error] do
    {:noreply, lost(state, reason)}
  end

  def handle_info({:overdue, id}, state) do
    overdue? = :queue.any(fn {waiting, _from} -> waiting == id end, state.waiting)
    {:noreply, if(overdue?, do: lost(state, :timeout), else: state)}
  end

  # What an earlier socket had to say.
  def handle_info(_other, state), do: {:noreply, state}

  defp connect(state) do
    deadline = now() + @patience_ms

    with {:ok, socket} <- open(state.url, deadline),
         :ok <- log_in(socket, state.url, deadline),
         :ok <- activate(socket) do
      {:noreply, %{state | socket: socket, pause: @first_pause_ms}}
    else
      {:refused, sentence} ->
        Logger.error("Redis at #{at(state.url)} refuses the login: #{sentence}")
        {:stop, :refused, state}

      {:error, reason} ->
        {:noreply, lost(state, reason)}
    end
  end

  defp open(%{tls: nil} = url, deadline), do: open(:gen_tcp, url, [], deadline)
  defp open(%{tls: options} = url, deadline), do: open(:ssl, url, options, deadline)

  defp open(transport, url, options, deadline) do
    options = [:binary, active: false, nodelay: true, send_timeout: @patience_ms, send_timeout_close: true] ++ options

    with {:ok, raw} <- transport.connect(to_charlist(url.host), url.port, options, left(deadline)),
         do: {:ok, {transport, raw}}
  end

  defp log_in(socket, url, deadline) do
    Enum.reduce_while(login(url) ++ selection(url), :ok, fn command, :ok ->
      case ask(socket, command, deadline) do
        {:ok, "OK"} ->
          {:cont, :ok}

        {:error, sentence} when is_binary(sentence) ->
          close(socket)
          {:halt, {:refused, sentence}}

        {:error, reason} ->
          close(socket)
          {:halt, {:error, reason}}
      end
    end)
  end

  defp login(%{password: nil}), do: []
  defp login(%{username: nil, password: password}), do: [["AUTH", password]]
  defp login(%{username: username, password: password}), do: [["AUTH", username, password]]

  defp selection(%{database: nil}), do: []
  defp selection(%{database: number}), do: [["SELECT", Integer.to_string(number)]]

  # A command on a socket that nobody else uses yet.
  defp ask(socket, command, deadline) do
    with :ok <- send_to(socket, command), do: receive_answer(socket, "", deadline)
  end

  defp receive_answer({transport, raw} = socket, received, deadline) do
    case Protocol.parse(received) do
      {answer, ""} ->
        answer

      :incomplete ->
        with {:ok, bytes} <- transport.recv(raw, 0, left(deadline)),
             do: receive_answer(socket, received <> bytes, deadline)

      _no_answer_to_this ->
        {:error, :unknown_answer}
    end
  end

  defp answer(state) do
    case {Protocol.parse(state.received), :queue.out(state.waiting)} do
      {{answer, rest}, {{:value, {_id, from}}, waiting}} ->
        GenServer.reply(from, answer)
        answer(%{state | received: rest, waiting: waiting})

      {:incomplete, _waiting} ->
        state

      _nobody_asked_for_this ->
        lost(state, :unknown_answer)
    end
  end

  # Who waits gets no answer any more: what was sent may have been done or not.
  defp lost(state, reason) do
    Logger.error("No connection to Redis at #{at(state.url)} (#{inspect(reason)}); next attempt in #{state.pause} ms.")
    close(state.socket)
    for {_id, from} <- :queue.to_list(state.waiting), do: GenServer.reply(from, {:error, reason})
    Process.send_after(self(), :connect, state.pause)
    longer = min(div(state.pause * 3, 2), @longest_pause_ms)
    %{state | socket: nil, received: "", waiting: :queue.new(), pause: longer}
  end

  defp send_to({transport, raw}, command), do: transport.send(raw, Protocol.pack(command))

  defp activate({:gen_tcp, raw}), do: :inet.setopts(raw, active: :once)
  defp activate({:ssl, raw}), do: :ssl.setopts(raw, active: :once)

  defp close(nil), do: :ok
  defp close({transport, raw}), do: transport.close(raw)

  defp at(url), do: "#{url.host}:#{url.port}"
  defp left(deadline), do: max(deadline - now(), 0)
  defp now, do: System.monotonic_time(:millisecond)
end
