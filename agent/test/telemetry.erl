%% Stands in for the library of this name: the part of it that the agent uses.
-module(telemetry).

-export([attach_many/4, execute/3, handlers/1]).

attach_many(Id, Events, Function, Config) ->
    Handlers = persistent_term:get(?MODULE, #{}),
    case is_map_key(Id, Handlers) of
        true -> {error, already_exists};
        false -> persistent_term:put(?MODULE, Handlers#{Id => {Events, Function, Config}})
    end.

execute(Event, Measurements, Metadata) ->
    [Function(Event, Measurements, Metadata, Config) || {Function, Config} <- attached(Event)],
    ok.

%% How many handlers an event has.
handlers(Event) ->
    length(attached(Event)).

attached(Event) ->
    Handlers = maps:values(persistent_term:get(?MODULE, #{})),
    [{Function, Config} || {Events, Function, Config} <- Handlers, lists:member(Event, Events)].
