%% Does the fleet's Redis store answer? Asks it as LiveStash would, over a connection of its own, every few seconds. All
%% that can block, fail or grow is in the connection's process, which is ended when it takes too long.
-module(livestash_agent_redis).

-behaviour(gen_server).

-export([start_link/0, ready/0, has_answered/0, round_trip/0, port/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% Milliseconds until the next check, after one that Redis has answered and after one that has failed.
-define(PAUSE, 5000).
-define(RETRY, 1000).
%% Milliseconds for a whole check: more than the limits of its steps together.
-define(LIMIT, 12000).

-spec start_link() -> {ok, pid()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Whether Redis has answered the last check, and if not, a sentence that says why.
-spec ready() -> {boolean(), string()}.
ready() ->
    livestash_agent_tasks:ask(?MODULE, ready, {false, "Redis is not being checked."}).

%% Whether Redis has ever answered in the life of this VM.
-spec has_answered() -> boolean().
has_answered() ->
    #{store_answers := Answers} = livestash_agent_state:counters(),
    Answers > 0.

%% Seconds that the last check took; `undefined` while Redis does not answer.
-spec round_trip() -> float() | undefined.
round_trip() ->
    livestash_agent_tasks:ask(?MODULE, round_trip, undefined).

%% The socket of the agent's own connection; `undefined` while there is none.
-spec port() -> port() | undefined.
port() ->
    livestash_agent_tasks:ask(?MODULE, port, undefined).

%% timer: of the next check, or of the one that runs.
-spec init([]) -> {ok, map()}.
init([]) ->
    process_flag(trap_exit, true),
    process_flag(max_heap_size, livestash_agent:max_heap_size()),
    process_flag(priority, high),
    {ok, #{
        connection => undefined,
        port => undefined,
        timer => erlang:start_timer(0, self(), check),
        ready => undefined,
        round_trip => undefined
    }}.

-spec handle_call(ready | round_trip | port, gen_server:from(), map()) -> {reply, term(), map()}.
handle_call(ready, _From, #{ready := undefined} = State) ->
    {reply, {false, "Redis has not been asked yet."}, State};
handle_call(Question, _From, State) ->
    {reply, maps:get(Question, State), State}.

-spec handle_cast(term(), map()) -> {noreply, map()}.
handle_cast(_Message, State) ->
    {noreply, State}.

-spec handle_info(term(), map()) -> {noreply, map()}.
handle_info({timeout, Timer, check}, #{timer := Timer, connection := Connection} = State) ->
    {noreply, check(Connection, State)};
handle_info({timeout, Timer, give_up}, #{timer := Timer, connection := Connection} = State) ->
    exit(Connection, kill),
    {noreply, State};
handle_info({Connection, {port, Port}}, #{connection := Connection} = State) ->
    {noreply, State#{port := Port}};
handle_info({Connection, {answered, Microseconds}}, #{connection := Connection} = State) ->
    ok = livestash_agent_state:count(store_answers, 1),
    {noreply, answered({true, ""}, Microseconds / 1000000, next(check, ?PAUSE, State))};
handle_info({'EXIT', Connection, Ending}, #{connection := Connection} = State) ->
    {noreply, ended(Ending, State#{connection := undefined, port := undefined})};
handle_info(_Message, State) ->
    {noreply, State}.

check(undefined, State) ->
    Connection = livestash_agent_redis_connection:start_link(),
    check(Connection, State#{connection := Connection});
check(Connection, State) ->
    ok = livestash_agent_redis_connection:check(Connection),
    next(give_up, ?LIMIT, State).

ended(stale, State) ->
    next(check, 0, State);
ended({failed, Sentence}, State) ->
    answered({false, Sentence}, undefined, next(check, ?RETRY, State));
ended(_Killed, State) ->
    Sentence = "The check of Redis was given up: it took more than 12 seconds, or too much memory.",
    ended({failed, Sentence}, State).

answered(Ready, RoundTrip, #{ready := Before} = State) ->
    ok = tell(Before, Ready),
    State#{ready := Ready, round_trip := RoundTrip}.

%% One line when it begins, and one when it is over.
tell({false, _}, {false, _}) -> ok;
tell(_, {false, Sentence}) -> logger:warning("livestash agent: ~ts", [Sentence]);
tell({false, _}, {true, _}) -> logger:notice("livestash agent: Redis answers again.");
tell(_, {true, _}) -> ok.

next(What, Milliseconds, #{timer := Timer} = State) ->
    _ = erlang:cancel_timer(Timer),
    State#{timer := erlang:start_timer(Milliseconds, self(), What)}.
