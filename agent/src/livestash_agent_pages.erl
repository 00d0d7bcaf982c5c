%% Under which keys do the pages of this node stash in Redis or Mnesia, and how long do stashes in Redis live once a drain has
%% closed their sockets? A key is made of what only the page knows, and Redis cannot be asked for it: its user need not be
%% allowed to look for keys. So each page says its key itself, in LiveView's telemetry: no page is ever asked, and none waits.
-module(livestash_agent_pages).

-behaviour(gen_server).

-export([start_link/0, attach/0, handle/4, alive/0, had/2, raise/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% After mounting a page has its stash's id. It may get another one later, when it resets the stash while Redis is away, and
%% then renders.
-define(EVENTS, [
    [phoenix, live_view, mount, stop],
    [phoenix, live_view, render, stop]
]).
%% Milliseconds between two looks for pages that are gone.
-define(SWEEP, 15000).
%% Bytes of an id. A browser brings it along, so it may be anything.
-define(MAX_ID, 1024).
%% Stashes that Redis is told of in one command: so many take it less than a millisecond.
-define(BATCH, 100).
%% Milliseconds for telling Redis of all of them.
-define(LIMIT, 10000).
%% How much longer before the attempt is ended from outside.
-define(SLACK, 500).
%% Only what the page of this node still owns: whoever has come back has the TTL of the page that it came back to. The commands
%% are those that LiveStash needs itself. LiveStash renews a stash for its TTL, so nothing as long as that is less.
-define(SCRIPT, <<
    "local raised, bytes = 0, 0 "
    "for i, key in ipairs(KEYS) do "
    "if redis.call('HGET', key, 'owner_id') == ARGV[2 * i - 1] then "
    "raised = raised + redis.call('EXPIRE', key, ARGV[2 * i]) "
    "bytes = bytes + #(redis.call('HGET', key, 'payload') or '') end end "
    "return {raised, bytes}"
>>).

%% mark: of the id and the secret that the key was made of. key: of the stash, as LiveStash has it in Mnesia; in Redis, something stands before it.
%% had: whether the page has stashed or recovered something, and so has been the stash's owner.
-record(page, {
    pid :: pid(),
    mark :: non_neg_integer(),
    key :: binary(),
    had :: boolean(),
    %% Seconds.
    ttl :: pos_integer()
}).

-spec start_link() -> {ok, pid()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% Listens, when telemetry is there. Attaching a second time changes nothing.
-spec attach() -> ok.
attach() ->
    _ = erlang:module_loaded(telemetry) andalso telemetry:attach_many(?MODULE, ?EVENTS, fun ?MODULE:handle/4, []),
    ok.

-spec init([]) -> {ok, undefined}.
init([]) ->
    ?MODULE = ets:new(?MODULE, [named_table, public, {keypos, #page.pid}, {write_concurrency, true}]),
    ok = attach(),
    {ok, sweep_later()}.

-spec handle_call(term(), gen_server:from(), undefined) -> {reply, ok, undefined}.
handle_call(_Question, _From, State) ->
    {reply, ok, State}.

-spec handle_cast(term(), undefined) -> {noreply, undefined}.
handle_cast(_Message, State) ->
    {noreply, State}.

%% What a drain has ended is needed after it.
-spec handle_info(term(), undefined) -> {noreply, undefined}.
handle_info(sweep, _State) ->
    livestash_agent_state:draining() orelse sweep(),
    {noreply, sweep_later()};
handle_info(_Message, State) ->
    {noreply, State}.

sweep_later() ->
    _ = erlang:send_after(?SWEEP, self(), sweep),
    undefined.

sweep() ->
    [ets:delete(?MODULE, Pid) || #page{pid = Pid} <- pages(fun(Pid) -> not is_process_alive(Pid) end)].

%% Runs in the LiveView's process: a look into the table, and only after mounting, or with a new id, a hash of some dozen
%% bytes and a write. A page that is rendered for a request without a socket has nothing to keep. No shape of the socket
%% makes it fail, and neither does a table that is gone because the agent has ended, or a release without crypto.
-spec handle([atom()], map(), map(), []) -> ok.
handle(_Event, _Measurements, #{socket := #{transport_pid := Transport, private := #{live_stash_context := Context}}}, []) when
    is_pid(Transport)
->
    remember(Context);
handle(_Event, _Measurements, _Metadata, []) ->
    ok.

remember(#{id := Id, secret := Secret, ttl := Ttl} = Context) when
    is_binary(Id), byte_size(Id) =< ?MAX_ID, is_binary(Secret), is_integer(Ttl), Ttl > 0
->
    Had = is_binary(maps:get(stash_fingerprint, Context, nil)),
    Mark = erlang:phash2({Id, Secret}),
    try
        is_known(self(), Mark, Had) orelse
            ets:insert(?MODULE, #page{pid = self(), mark = Mark, key = key(Id, Secret), had = Had, ttl = Ttl}),
        ok
    catch
        error:_ -> ok
    end;
remember(_Context) ->
    ok.

%% Who has had the stash will always have had it.
is_known(Pid, Mark, Had) ->
    case ets:lookup(?MODULE, Pid) of
        [#page{mark = Mark, had = Known}] -> Known orelse not Had;
        _ -> false
    end.

%% As LiveStash makes it.
key(Id, Secret) ->
    string:trim(base64:encode(crypto:hash(sha256, [Id, Secret])), trailing, "=").

%% Calls the function with the pages that have been the owners of stashes, and with these stashes' keys: so many at once at most.
-spec had(fun(([{pid(), Key :: binary()}]) -> Found), AtOnce :: pos_integer()) -> [Found].
had(Fun, AtOnce) ->
    had_on(ets:select(?MODULE, [{#page{pid = '$1', key = '$2', had = true, _ = '_'}, [], [{{'$1', '$2'}}]}], AtOnce), Fun).

had_on('$end_of_table', _Fun) -> [];
had_on({Pages, Continuation}, Fun) -> [Fun(Pages) | had_on(ets:select(Continuation), Fun)].

%% The pages that live and are known to stash.
-spec alive() -> [pid()].
alive() ->
    [Pid || #page{pid = Pid} <- pages(fun is_process_alive/1)].

pages(Which) ->
    Add = fun(#page{pid = Pid} = Page, Pages) -> [Page || Which(Pid)] ++ Pages end,
    case ets:whereis(?MODULE) of
        undefined -> [];
        Table -> ets:foldl(Add, [], Table)
    end.

%% Gives more time to the stashes of the pages that are kept, as long as these take less than a pod's share and until the
%% deadline, in monotonic milliseconds, or some seconds at most. Returns how many stashes.
-spec raise(livestash_agent_handoff:keep(), Deadline :: integer()) -> non_neg_integer().
raise(none, _Deadline) ->
    0;
raise({IsKept, Until}, Deadline) ->
    raise(pages(IsKept), Until, min(Deadline, livestash_agent_clock:ms() + ?LIMIT)).

raise([], _Until, _Deadline) ->
    0;
raise(Pages, Until, Deadline) ->
    Seconds = Until - os:system_time(second),
    Share = livestash_agent_config:get(drain_keep_bytes),
    HasRoom = fun([_Raised, Bytes]) -> Bytes < Share end,
    Work = fun() -> livestash_agent_redis_connection:sums(commands(Pages, Seconds), [0, 0], HasRoom, Deadline) end,
    Failed = {[0, 0], "It failed, or took too long."},
    Limit = livestash_agent_clock:left(Deadline) + ?SLACK,
    [{[Raised, _Bytes], Reason}] = livestash_agent_tasks:answers([{Work, Failed}], Limit),
    tell(Raised, length(Pages), Reason),
    Raised.

tell(Raised, _Pages, "") ->
    logger:notice("livestash agent: ~b stashes in Redis of sockets that were closed are kept for longer.", [Raised]);
tell(Raised, Pages, Reason) ->
    logger:warning("livestash agent: ~b stashes in Redis of ~b sockets that were closed are kept for longer. ~ts", [
        Raised, Pages, Reason
    ]).

commands([], _Seconds) ->
    [];
commands(Pages, Seconds) ->
    {Batch, Rest} = lists:split(min(?BATCH, length(Pages)), Pages),
    [command(Batch, Seconds) | commands(Rest, Seconds)].

%% As LiveStash writes key and owner.
command(Pages, Seconds) ->
    Keys = [<<"live_stash:", Key/binary>> || #page{key = Key} <- Pages],
    Arguments = [
        [term_to_binary(Pid), integer_to_binary(max(Seconds, Ttl))]
     || #page{pid = Pid, ttl = Ttl} <- Pages
    ],
    [<<"EVAL">>, ?SCRIPT, integer_to_binary(length(Pages)) | Keys ++ lists:append(Arguments)].
