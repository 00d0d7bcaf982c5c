%% What happens on SIGTERM? The drain instead of an immediate stop, once. All other signals do what they always did.
-module(livestash_agent_signal).

-behaviour(gen_event).

-export([install/0]).
-export([init/1, handle_event/2, handle_call/2]).

%% The runtime's own, which know nothing of SIGTERM.
-define(HARMLESS, [prim_tty_sighandler]).

-record(state, {
    %% The state of the runtime's own handler, or none where the application had replaced that one.
    original :: {some, term()} | none,
    draining = false :: boolean()
}).

%% Puts this handler in the place of the runtime's own, unless it is there already. Nobody supervises it on purpose:
%% it has to end the VM properly also when the rest of the agent is gone.
-spec install() -> ok.
install() ->
    case lists:member(?MODULE, gen_event:which_handlers(erl_signal_server)) of
        true ->
            ok;
        false ->
            ok = gen_event:swap_handler(erl_signal_server, {erl_signal_handler, []}, {?MODULE, []}),
            warn(gen_event:which_handlers(erl_signal_server) -- [?MODULE | ?HARMLESS])
    end.

warn([]) ->
    ok;
warn(Others) ->
    logger:warning(
        "livestash agent: the application handles signals itself (~tp); if that stops the node on SIGTERM, sessions "
        "are lost that the drain would have handed over.",
        [Others]
    ).

%% The second element is what the swapped handler left, and error when there was none.
-spec init({[], term()}) -> {ok, #state{}}.
init({[], error}) ->
    {ok, #state{original = none}};
init({[], _Left}) ->
    {ok, State} = erl_signal_handler:init([]),
    {ok, #state{original = {some, State}}}.

-spec handle_event(atom(), #state{}) -> {ok, #state{}}.
handle_event(sigterm, State = #state{draining = true}) ->
    {ok, State};
handle_event(sigterm, State) ->
    case init:get_status() of
        {stopping, _} -> ok;
        _ -> livestash_agent_drain:start()
    end,
    {ok, State#state{draining = true}};
handle_event(Signal, State = #state{original = {some, Original}}) ->
    {ok, Changed} = erl_signal_handler:handle_event(Signal, Original),
    {ok, State#state{original = {some, Changed}}};
handle_event(_Signal, State) ->
    {ok, State}.

-spec handle_call(term(), #state{}) -> {ok, ok, #state{}}.
handle_call(_Request, State) ->
    {ok, ok, State}.
