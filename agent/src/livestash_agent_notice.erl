%% Has this pod been told to stop, though no SIGTERM came in here? One that comes before the VM handles signals is lost:
%% process 1 of a container has no other answer to it. And a shell that runs the release does not pass it on. The helper
%% beside the application gets one too, and leaves a file.
-module(livestash_agent_notice).

-behaviour(gen_server).

-export([start_link/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

%% Milliseconds between two looks.
-define(INTERVAL, 1000).

-spec start_link() -> {ok, pid()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% The state is the file's name: beside the folder of the agent's code.
-spec init([]) -> {ok, file:filename()}.
init([]) ->
    process_flag(max_heap_size, livestash_agent:max_heap_size()),
    self() ! look,
    {ok, filename:join(filename:dirname(filename:dirname(code:which(?MODULE))), "stopping")}.

-spec handle_call(term(), gen_server:from(), file:filename()) -> {reply, ok, file:filename()}.
handle_call(_Request, _From, File) ->
    {reply, ok, File}.

-spec handle_cast(term(), file:filename()) -> {noreply, file:filename()}.
handle_cast(_Message, File) ->
    {noreply, File}.

%% As if the signal had come, for whoever handles signals. The agent's own handler drains once.
-spec handle_info(look | term(), file:filename()) -> {noreply, file:filename()}.
handle_info(look, File) ->
    case file:read_file_info(File, [raw]) of
        {ok, _Info} -> gen_event:notify(erl_signal_server, sigterm);
        {error, _Reason} -> erlang:send_after(?INTERVAL, self(), look)
    end,
    {noreply, File};
handle_info(_Message, File) ->
    {noreply, File}.
