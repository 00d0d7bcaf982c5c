%% What has still to be compared after network splits, and when? Each pass over the stashes repairs what differs; it is over when
%% one of them, begun after the last split, finds nothing.
-module(livestash_agent_comparison).

-export([new/0, differ/1, is_over/1, is_due/1, next_pass/1, passed/2, whole/1]).

-export_type([comparison/0, pass/0]).

-opaque comparison() :: #{
    %% How often copies were found to differ, and up to which of these times they have been compared.
    splits := non_neg_integer(),
    compared := non_neg_integer(),
    %% Since the last of these times; when the next one is due; the rows that were repaired, and what hindered the last pass.
    passes := non_neg_integer(),
    next := integer(),
    rows := non_neg_integer(),
    trouble := iodata()
}.
%% Splits: those before the pass, for which it answers. Patient: whether it waits for nodes that are just joining.
-type pass() :: {Splits :: non_neg_integer(), Patient :: boolean()}.

%% Milliseconds: the pause grows by this from pass to pass.
-define(PAUSE, 1000).
-define(MAX_PAUSE, 30000).
%% After so many passes a node whose store is not there is no longer waited for.
-define(PATIENT, 8).
-define(MAX_PASSES, 30).

-spec new() -> comparison().
new() ->
    #{splits => 0, compared => 0, passes => 0, next => livestash_agent_clock:ms(), rows => 0, trouble => ""}.

%% Copies may differ from now on.
-spec differ(comparison()) -> comparison().
differ(#{splits := Splits} = Comparison) ->
    Comparison#{splits := Splits + 1, passes := 0, next := livestash_agent_clock:ms()}.

-spec is_over(comparison()) -> boolean().
is_over(#{splits := Splits, compared := Compared}) ->
    Splits =:= Compared.

-spec is_due(comparison()) -> boolean().
is_due(#{passes := Passes, next := Next} = Comparison) ->
    not is_over(Comparison) andalso Passes < ?MAX_PASSES andalso livestash_agent_clock:left(Next) =:= 0.

-spec next_pass(comparison()) -> pass().
next_pass(#{splits := Splits, passes := Passes}) ->
    {Splits, Passes < ?PATIENT}.

%% A pass is over. One that failed answers for no split.
-spec passed({Splits :: non_neg_integer(), livestash_agent_copies:result()}, comparison()) -> comparison().
passed({Splits, {0, ""}}, #{rows := Rows, splits := Splits} = Comparison) ->
    logger:notice("livestash agent: the stashes are whole after a network split; ~b were repaired.", [Rows]),
    Comparison#{compared := Splits, rows := 0, trouble := ""};
passed({_Splits, {Repaired, Trouble}}, #{rows := Rows, passes := Passes, trouble := Before} = Comparison) ->
    [
        logger:notice("livestash agent: the stashes cannot be compared yet: ~ts", [Trouble])
     || Trouble =/= "", lists:flatten(Trouble) =/= lists:flatten(Before)
    ],
    [
        logger:warning("livestash agent: comparing the stashes after a network split was given up: ~ts", [Trouble])
     || Passes + 1 =:= ?MAX_PASSES
    ],
    Comparison#{
        rows := Rows + Repaired,
        trouble := Trouble,
        passes := Passes + 1,
        next := livestash_agent_clock:ms() + min(?MAX_PAUSE, Passes * ?PAUSE)
    }.

%% Whether the copies are one, and if not, a sentence that says so.
-spec whole(comparison()) -> {boolean(), iodata()}.
whole(#{splits := Splits, compared := Splits}) ->
    {true, ""};
whole(#{passes := Passes, trouble := Trouble}) when Passes >= ?MAX_PASSES ->
    {false, ["Copies of stashes may differ after a network split, and comparing them was given up: ", Trouble]};
whole(#{passes := Passes, rows := Rows, trouble := Trouble}) when Passes > 0 ->
    So = ["Copies of stashes may differ after a network split; being repaired: ", integer_to_list(Rows), " so far."],
    {false, So ++ [[" ", Trouble] || Trouble =/= ""]};
whole(_Comparison) ->
    {false, "Copies of stashes may differ after a network split; being compared."}.
