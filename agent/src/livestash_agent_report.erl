%% What did the drain do? Writes it where Kubernetes reads a container's termination message, for the operator.
-module(livestash_agent_report).

-export([write/1]).

-export_type([report/0]).

-type report() :: #{
    %% Stashes on this node when the drain began.
    sessions_before := non_neg_integer(),
    sockets_closed := non_neg_integer(),
    %% Rows moved to peers; those that returning clients pulled are neither here nor in the next.
    handed_off := non_neg_integer(),
    %% Those of the rows moved that are of another version of the application, whose pages may not be given them back.
    other_version := non_neg_integer(),
    not_handed_off := non_neg_integer(),
    %% One sentence, empty when nothing was left.
    reason := unicode:chardata(),
    milliseconds := non_neg_integer()
}.

%% In characters. Kubernetes cuts the message at 4 KiB, which must not happen in the middle of the JSON.
-define(MAX_REASON, 400).

%% Writes the report to /dev/termination-log, or to LIVESTASH_TERMINATION_LOG. One log line when that is impossible.
-spec write(report()) -> ok.
write(Report) ->
    File = os:getenv("LIVESTASH_TERMINATION_LOG", "/dev/termination-log"),
    case file:write_file(File, encode(Report)) of
        ok ->
            ok;
        {error, Reason} ->
            logger:warning("livestash agent: the drain's report could not be written to ~ts: ~ts.", [
                File, file:format_error(Reason)
            ])
    end.

encode(Report) ->
    #{
        sessions_before := Before,
        sockets_closed := Closed,
        handed_off := HandedOff,
        other_version := OtherVersion,
        not_handed_off := Left,
        reason := Reason,
        milliseconds := Milliseconds
    } = Report,
    livestash_agent_json:encode(
        {object, [
            {livestash, 1},
            {sessionsBefore, Before},
            {socketsClosed, Closed},
            {handedOff, HandedOff},
            {otherVersion, OtherVersion},
            {notHandedOff, Left},
            {largestStashBytes, livestash_agent_browser:largest()},
            {reason, string:slice(Reason, 0, ?MAX_REASON)},
            {seconds, Milliseconds div 100 / 10}
        ]}
    ).
