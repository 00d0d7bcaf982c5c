%% How late is it, and how much time is left? In milliseconds of the VM's monotonic clock, which nobody sets.
-module(livestash_agent_clock).

-export([ms/0, left/1]).

%% Only good to be compared with what this gave at another moment in the same VM.
-spec ms() -> integer().
ms() ->
    erlang:monotonic_time(millisecond).

%% How long it is until then; nothing when that is over.
-spec left(Deadline :: integer()) -> non_neg_integer().
left(Deadline) ->
    max(0, Deadline - ms()).
