%% What does /metrics say? LiveStash's own metrics and the VM's, as Prometheus text. Nothing here grows with the number
%% of processes or stashes.
-module(livestash_agent_metrics).

-export([text/0, render/1]).

-export_type([family/0]).

-type labels() :: [{atom(), atom() | unicode:chardata()}].
%% One number, or one for each set of labels. A family without numbers is left out.
-type family() ::
    {Name :: iodata(), gauge | counter, Help :: iodata(), number() | [{labels(), number()}]}.

%% In Prometheus' text format, version 0.0.4.
-spec text() -> iodata().
text() ->
    render(livestash() ++ livestash_agent_cgroup:metrics() ++ livestash_agent_vm:metrics() ++ livestash_agent_dist:metrics()).

livestash() ->
    {Stashes, Bytes} = livestash_agent_store:size(),
    #{sockets := Sockets} = Counts = livestash_agent_network:counts(),
    #{connected := Connected, missing := Missing} = livestash_agent_mesh:peers(),
    Counters = #{drains := Drains, sockets_closed := Closed, splits := Splits, reunited_rows := Reunited, owners_restored := Restored} = livestash_agent_state:counters(),
    [
        {"livestash_agent_info", gauge, "The agent, the VM and the adapter.", [
            {
                [
                    {version, livestash_agent:version()},
                    {otp, erlang:system_info(otp_release)},
                    {adapter, livestash_agent_config:get(adapter)}
                ],
                1
            }
        ]},
        {"livestash_stashes", gauge, "Stashes in this node's table.", Stashes},
        {"livestash_stash_bytes", gauge, "Bytes of this node's table of stashes.", Bytes},
        {"livestash_largest_stash_bytes", gauge, "Largest BrowserMemory stash seen.", livestash_agent_browser:largest()},
        {"livestash_handoffs_total", counter, "Stashes handed over when a node drained.", [
            {[{result, sent}], maps:get(handoffs_sent, Counters)},
            {[{result, received}], maps:get(handoffs_received, Counters)},
            {[{result, failed}], maps:get(handoffs_failed, Counters)}
        ]},
        {"livestash_drains_total", counter, "Drains begun.", Drains},
        {"livestash_draining", gauge, "1 while this node drains.", boolean(livestash_agent_state:draining())},
        {"livestash_sockets", gauge, "TCP connections of clients to the application's port.", Sockets},
        {"livestash_sockets_closed_total", counter, "Sockets closed by drains.", Closed},
        {"livestash_splits_total", counter, "Network splits that ended.", Splits},
        {"livestash_reunited_rows_total", counter, "Stashes that differed after a split and were repaired.", Reunited},
        {"livestash_owners_restored_total", counter, "Stashes given back to the page that its user sees.", Restored},
        {"livestash_peers", gauge, "Peers that DNS names.", [
            {[{state, connected}], length(Connected)}, {[{state, missing}], length(Missing)}
        ]},
        {"livestash_network_bytes_total", counter, "Bytes moved, apart by what for; http is all the rest.", [
            {[{kind, Kind}, {direction, Direction}], element(Position, maps:get(Kind, Counts))}
         || Kind <- [http, distribution, redis], {Direction, Position} <- [{in, 1}, {out, 2}]
        ]},
        {"livestash_cpu_seconds_total", counter, "CPU seconds of the VM's process.", livestash_agent_vm:cpu_seconds()},
        {"livestash_memory_limit_bytes", gauge, "Bytes that the container may use. Absent without a limit.", livestash_agent_vm:memory_limit()}
    ] ++ returns(livestash_agent_config:get(adapter), Counters) ++ store(livestash_agent_config:get(adapter)) ++
        shadows(livestash_agent_shadow:is_on(), Counters).

%% Nothing where there is no stash to come back to.
returns(none, _Counters) ->
    [];
returns(_Adapter, #{returns_recovered := Recovered, returns_not_recovered := NotRecovered}) ->
    [
        {"livestash_returns_total", counter, "Users who came back, by whether they found their stash.", [
            {[{recovered, yes}], Recovered}, {[{recovered, no}], NotRecovered}
        ]}
    ].

%% Nothing where there is no store that could be missing.
store(Adapter) when Adapter =:= none; Adapter =:= browser_memory ->
    [];
store(_Adapter) ->
    {Ready, _Reason} = livestash_agent_store:ready(),
    [
        {"livestash_store_up", gauge, "1 while the adapter's store is there.", boolean(Ready)},
        {"livestash_store_check_seconds", gauge, "Round trip of the last check of Redis.", round_trip()}
    ].

%% Nothing where nobody asked for copies.
shadows(false, _Counters) ->
    [];
shadows(true, #{shadows_promoted := Promoted, shadows_refused := Refused}) ->
    {Rows, Bytes} = livestash_agent_shadow_store:size(),
    #{lag := Lag} = livestash_agent_shadow:status(),
    [
        {"livestash_shadows", gauge, "Copies of other nodes' stashes on this node.", Rows},
        {"livestash_shadow_bytes", gauge, "Bytes of these copies.", Bytes},
        {"livestash_shadow_lag_seconds", gauge, "For how long a stash of this node has waited to be copied.", Lag / 1000},
        {"livestash_shadows_promoted_total", counter, "Stashes of lost nodes that this node took over.", Promoted},
        {"livestash_shadows_refused_total", counter, "Copies for which this node had no room.", Refused}
    ].

%% No number but that of an answer.
round_trip() ->
    case livestash_agent_redis:round_trip() of
        undefined -> [];
        Seconds -> Seconds
    end.

boolean(true) -> 1;
boolean(false) -> 0.

-spec render([family()]) -> iodata().
render(Families) ->
    [family(Family) || {_Name, _Type, _Help, Values} = Family <- Families, Values =/= []].

family({Name, Type, Help, Values}) ->
    [
        ["# TYPE ", Name, $\s, atom_to_binary(Type), "\n# HELP ", Name, $\s, Help, $\n]
        | case is_list(Values) of
            true -> [[Name, ${, labels(Labels), "} ", number(Value), $\n] || {Labels, Value} <- Values];
            false -> [Name, $\s, number(Values), $\n]
        end
    ].

labels(Labels) ->
    lists:join($,, [[atom_to_binary(Name), "=\"", escape(text(Value)), $"] || {Name, Value} <- Labels]).

text(Atom) when is_atom(Atom) -> atom_to_binary(Atom);
text(Text) -> unicode:characters_to_binary(Text).

escape(Text) ->
    [escape_character(Character) || <<Character>> <= Text].

escape_character($\\) -> "\\\\";
escape_character($") -> "\\\"";
escape_character($\n) -> "\\n";
escape_character(Character) -> Character.

number(Integer) when is_integer(Integer) -> integer_to_binary(Integer);
number(Float) -> float_to_binary(Float, [short]).
