%% What is in a row of LiveStash's tables? Rows are opaque tuples: the first process in one is taken for its owner, the
%% page that wrote it, and an integer right behind the owner for the end of the row's time, in unix seconds. So it is with
%% ETS and with Mnesia. A row without these is moved like any other, and ranks below all that have them.
-module(livestash_agent_row).

-export([owner/1, until/1, keep/2]).

%% The page whose stash a row is.
-spec owner(tuple()) -> pid() | none.
owner(Row) ->
    case owner_position(Row, 1) of
        none -> none;
        Position -> element(Position, Row)
    end.

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

until_position(Row) ->
    case owner_position(Row, 1) of
        Position when is_integer(Position), Position < tuple_size(Row), is_integer(element(Position + 1, Row)) -> Position + 1;
        _ -> none
    end.

owner_position(Row, Position) when Position > tuple_size(Row) -> none;
owner_position(Row, Position) when is_pid(element(Position, Row)) -> Position;
owner_position(Row, Position) -> owner_position(Row, Position + 1).
