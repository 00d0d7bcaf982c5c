%% Will this node's LiveStash understand a row of another node? Another release of the library may keep rows of another
%% shape, which it can neither read nor delete here. Another release of the application may have another `version` in
%% its pages, and LiveStash deletes what an older one has stashed instead of giving it back.
-module(livestash_agent_shape).

-export([known/1, fits/2]).
-export([saw_version/1]).

-export_type([known/0, fit/0]).

%% How many elements a row has, and the first of them, which names the record.
-type shape() :: {Arity :: non_neg_integer(), Tag :: term()}.
%% The shapes of rows that processes of this node have written, and the versions that pages of this node ask for. Empty
%% where nobody knows.
-type known() :: #{shapes := [shape()], versions := [term()]}.
%% other_version: it can be read, but is given back to no page that this node knows.
-type fit() :: yes | other_version | other_shape.

%% The one shape of which this module knows where it keeps owner and version.
-define(SHAPE, {6, state}).
-define(TAG, 1).
-define(OWNER, 3).
-define(VERSION, 6).
%% Rows that are looked at, in no order; of none more than two elements are copied.
-define(SAMPLE, 500).
%% An application has a few versions. One that makes a new one for each page gets no word of them.
-define(MAX_VERSIONS, 32).

shape({}) -> {0, none};
shape(Row) -> {tuple_size(Row), element(?TAG, Row)}.

%% What fits here. For each batch of rows anew, as pages come and go.
-spec known(atom()) -> known().
known(Table) ->
    #{shapes => lists:usort(own_shapes(Table)), versions => versions()}.

-spec fits(tuple(), known()) -> fit().
fits(Row, #{shapes := Shapes, versions := Versions}) ->
    case {Shapes =:= [] orelse lists:member(shape(Row), Shapes), shape(Row)} of
        {false, _} -> other_shape;
        {true, ?SHAPE} -> fits_version(element(?VERSION, Row), Versions);
        {true, _} -> yes
    end.

%% Compared as LiveStash does it: 1 is 1.0.
fits_version(_Version, []) -> yes;
fits_version(Version, Versions) ->
    case lists:any(fun(Other) -> Other == Version end, Versions) of
        true -> yes;
        false -> other_version
    end.

%% A page of this node has mounted, which gives back stashes of this version only.
-spec saw_version(term()) -> ok.
saw_version(Version) ->
    Versions = persistent_term:get(?MODULE, []),
    case lists:member(Version, Versions) orelse length(Versions) > ?MAX_VERSIONS of
        true -> ok;
        false -> persistent_term:put(?MODULE, [Version | Versions])
    end.

%% More than fit: not all are known.
versions() ->
    case persistent_term:get(?MODULE, []) of
        Versions when length(Versions) =< ?MAX_VERSIONS -> Versions;
        _TooMany -> []
    end.

%% Rows that came from another node have their owner there, so they say nothing of this node's LiveStash. Where the owner
%% is not known to stand, every row counts.
own_shapes(Table) ->
    case ets:select(Table, livestash_agent_row:elements([size, ?TAG, ?OWNER]), ?SAMPLE) of
        {Found, _Continuation} -> [{Arity, Tag} || {Arity, Tag, Owner} <- Found, is_own(Owner)];
        '$end_of_table' -> []
    end.

%% A process of an earlier life of this node looks like one of this VM, but is another one than that.
is_own(Owner) ->
    is_pid(Owner) andalso node(Owner) =:= node() andalso Owner =:= list_to_pid(pid_to_list(Owner)).
