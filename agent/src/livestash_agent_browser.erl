%% How large do the stashes get that browsers carry? They never rest on this node, so the agent listens to the events
%% that LiveView pushes, through telemetry, where the application has it.
-module(livestash_agent_browser).

-export([attach/0, largest/0, handle/4]).

%% After rendering, all that will be pushed is known; the other event is for changes that render nothing.
-define(EVENTS, [
    [phoenix, live_view, render, stop],
    [phoenix, live_view, handle_event, stop]
]).

%% Listens, when the adapter is BrowserMemory and telemetry is there. Attaching a second time changes nothing.
-spec attach() -> ok.
attach() ->
    case livestash_agent_config:get(adapter) =:= browser_memory andalso erlang:module_loaded(telemetry) of
        true ->
            _ = telemetry:attach_many(?MODULE, ?EVENTS, fun ?MODULE:handle/4, cell()),
            ok;
        false ->
            ok
    end.

%% Bytes of the largest token seen since the VM started, 0 when none was.
-spec largest() -> non_neg_integer().
largest() ->
    case persistent_term:get(?MODULE, undefined) of
        undefined -> 0;
        Cell -> atomics:get(Cell, 1)
    end.

%% Runs in the LiveView's process, so it looks at sizes only, and no shape of the socket makes it fail.
-spec handle([atom()], map(), map(), atomics:atomics_ref()) -> ok.
handle(_Event, _Measurements, #{socket := #{private := #{live_temp := #{push_events := Events}}}}, Cell) ->
    look(Events, Cell);
handle(_Event, _Measurements, _Metadata, _Cell) ->
    ok.

look([[<<"live-stash:stash-state">>, #{<<"assigns">> := Token} | _] | Events], Cell) when is_binary(Token) ->
    raise(Cell, byte_size(Token)),
    look(Events, Cell);
look([_Event | Events], Cell) ->
    look(Events, Cell);
look(_End, _Cell) ->
    ok.

raise(Cell, Size) ->
    Largest = atomics:get(Cell, 1),
    case Size > Largest andalso atomics:compare_exchange(Cell, 1, Largest, Size) of
        Other when is_integer(Other) -> raise(Cell, Size);
        _ -> ok
    end.

cell() ->
    case persistent_term:get(?MODULE, undefined) of
        undefined ->
            Cell = atomics:new(1, []),
            persistent_term:put(?MODULE, Cell),
            Cell;
        Cell ->
            Cell
    end.
