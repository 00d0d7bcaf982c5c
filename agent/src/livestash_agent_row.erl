%% What is in a row of LiveStash's tables? Rows are opaque tuples: the first process in one is taken for its owner, the
%% page that wrote it, and an integer right behind the owner for the end of the row's time, in unix seconds. So it is with
%% ETS and with Mnesia. A row without these is moved like any other, and ranks below all that have them.
-module(livestash_agent_row).

-export([owner/1, owner_position/1, owner_position_in/1, lives/1, until/1, until_position/1, keep/2, timeless/1, timed/2, content/1, number/1]).
-export([identity/2, same/3, exactly/2, elements/1, delete/2]).

-export_type([identity/0]).

-type identity() :: {Key :: term(), Version :: pid() | non_neg_integer()}.

%% Elements of the longest row that is usual: LiveStash's have five and six.
-define(USUAL, 8).

%% The page whose stash a row is.
-spec owner(tuple()) -> pid() | none.
owner(Row) ->
    case owner_position(Row) of
        none -> none;
        Position -> element(Position, Row)
    end.

%% Where a row has its page.
-spec owner_position(tuple()) -> pos_integer() | none.
owner_position(Row) ->
    owner_position(Row, 1).

%% Where the rows of a table have their page. None when it is empty.
-spec owner_position_in(atom()) -> pos_integer() | none.
owner_position_in(Table) ->
    case ets:match_object(Table, '_', 1) of
        {[Row], _} -> owner_position(Row);
        '$end_of_table' -> none
    end.

%% Whether its page is a process of this node that is alive, and may write it again.
-spec lives(tuple()) -> boolean().
lives(Row) ->
    Owner = owner(Row),
    is_pid(Owner) andalso node(Owner) =:= node() andalso is_process_alive(Owner).

%% When the row's time ends, in unix seconds: its page writes this anew with each stash, and while it lives.
-spec until(tuple()) -> integer() | none.
until(Row) ->
    case until_position(Row) of
        none -> none;
        Position -> element(Position, Row)
    end.

%% The row, to live at least until the given unix second, where it says how long it lives.
-spec keep(tuple(), integer()) -> tuple().
keep(Row, Until) ->
    case until_position(Row) of
        none -> Row;
        Position -> setelement(Position, Row, max(Until, element(Position, Row)))
    end.

%% The row without the end of its time, and with it again.
-spec timeless(tuple()) -> tuple().
timeless(Row) ->
    timed(Row, 0).

-spec timed(tuple(), integer() | none) -> tuple().
timed(Row, Until) ->
    case until_position(Row) of
        none -> Row;
        Position -> setelement(Position, Row, Until)
    end.

%% What its page has stashed: the row without its page and the end of its time.
-spec content(tuple()) -> tuple().
content(Row) ->
    case owner_position(Row) of
        none -> Row;
        Position -> setelement(Position, timeless(Row), none)
    end.

%% What says whether a row with the key at this position is still the same: with its owner dead nobody writes it, and
%% whoever takes it over is another owner. Of a row without an owner, a number for all it says.
-spec identity(tuple(), pos_integer()) -> identity().
identity(Row, KeyPosition) ->
    {element(KeyPosition, Row), version(owner(Row), Row)}.

version(none, Row) -> number(Row);
version(Owner, _Row) -> Owner.

%% A number for all that a row says. Two rows with the same number are taken for equal.
-spec number(tuple()) -> non_neg_integer().
number(Row) ->
    erlang:phash2(Row, 1 bsl 32).

%% A match specification for the row of that identity. None when the row is another one by now.
-spec same(identity(), tuple(), pos_integer()) -> ets:match_spec() | none.
same({Key, Version}, Row, KeyPosition) ->
    case version(owner(Row), Row) of
        Version when is_pid(Version) ->
            Guards = [{'=:=', {element, Position, '$_'}, {const, Term}} || {Position, Term} <- [
                {KeyPosition, Key}, {owner_position(Row), Version}
            ]],
            matching(Row, KeyPosition, Guards);
        Version ->
            exactly(Row, KeyPosition);
        _ ->
            none
    end.

%% A match specification for this very row.
-spec exactly(tuple(), pos_integer()) -> ets:match_spec().
exactly(Row, KeyPosition) ->
    matching(Row, KeyPosition, [{'=:=', '$_', {const, Row}}]).

%% A match specification for what all rows have at these positions: a term for one, a tuple for several, with none where the position is none, and the
%% row's length for size. An element of '$_' is taken from a copy of the whole row. That takes time, and a chunk of large stashes would end a process that
%% may only have so much memory. So there is a pattern for each usual length, and only longer rows are copied. A guard that does not hold would make that
%% copy of a row of usual length, too: whoever wants some of the rows looks at what they have.
-spec elements([pos_integer() | size | none, ...]) -> ets:match_spec().
elements(Positions) ->
    Named = lists:usort([Each || Each <- Positions, is_integer(Each)]),
    Variables = lists:zip(Named, lists:sublist(['$1', '$2', '$3'], length(Named))),
    Least = lists:max(Named),
    [usual(Arity, Variables, Positions) || Arity <- lists:seq(1, ?USUAL), Arity >= Least] ++ [longer(Least, Positions)].

usual(Arity, Variables, Positions) ->
    Pattern = lists:foldl(fun({Each, Variable}, Row) -> setelement(Each, Row, Variable) end, erlang:make_tuple(Arity, '_'), Variables),
    Value = fun
        (none) -> none;
        (size) -> Arity;
        (Position) -> proplists:get_value(Position, Variables)
    end,
    {Pattern, [], body(Positions, Value)}.

longer(Least, Positions) ->
    Value = fun
        (none) -> none;
        (size) -> {size, '$_'};
        (Position) -> {element, Position, '$_'}
    end,
    {'_', [{'>=', {size, '$_'}, Least}], body(Positions, Value)}.

body([Position], Value) -> [Value(Position)];
body(Positions, Value) -> [{list_to_tuple(lists:map(Value, Positions))}].

%% The pattern has the key, so that no other row is looked at. All else is compared as constants, because atoms such as '_'
%% in a row would be wildcards in a pattern.
matching(Row, KeyPosition, Guards) ->
    [{setelement(KeyPosition, erlang:make_tuple(tuple_size(Row), '_'), element(KeyPosition, Row)), Guards, [true]}].

%% Deletes the row of that identity. Returns whether it was still there.
-spec delete(atom(), identity()) -> boolean().
delete(Table, {Key, _Version} = Identity) ->
    case ets:lookup(Table, Key) of
        [Row] -> delete_same(Table, same(Identity, Row, ets:info(Table, keypos)));
        [] -> false
    end.

delete_same(_Table, none) -> false;
delete_same(Table, Same) -> ets:select_delete(Table, Same) =:= 1.

%% Where a row has the end of its time.
-spec until_position(tuple()) -> pos_integer() | none.
until_position(Row) ->
    case owner_position(Row) of
        Position when is_integer(Position), Position < tuple_size(Row), is_integer(element(Position + 1, Row)) -> Position + 1;
        _ -> none
    end.

owner_position(Row, Position) when Position > tuple_size(Row) -> none;
owner_position(Row, Position) when is_pid(element(Position, Row)) -> Position;
owner_position(Row, Position) -> owner_position(Row, Position + 1).
