%% How is a term written as JSON? OTP 25 has no json module.
-module(livestash_agent_json).

-export([encode/1]).

-export_type([value/0]).

%% Atoms other than true and false are strings, and so is a list: an array is marked as such.
-type value() ::
    boolean() | number() | atom() | unicode:chardata() | {array, [value()]} | {object, [{atom(), value()}]}.

%% An object keeps the order of its pairs.
-spec encode(value()) -> iodata().
encode(true) -> <<"true">>;
encode(false) -> <<"false">>;
encode(Number) when is_integer(Number) -> integer_to_binary(Number);
encode(Number) when is_float(Number) -> float_to_binary(Number, [short]);
encode(Atom) when is_atom(Atom) -> string(atom_to_binary(Atom));
encode({object, Pairs}) -> [${, lists:join($,, [[encode(Name), $:, encode(Value)] || {Name, Value} <- Pairs]), $}];
encode({array, Values}) -> [$[, lists:join($,, [encode(Value) || Value <- Values]), $]];
encode(Text) -> string(unicode:characters_to_binary(Text)).

string(Binary) ->
    [$", [escape(Character) || <<Character/utf8>> <= Binary], $"].

escape($") -> <<"\\\"">>;
escape($\\) -> <<"\\\\">>;
escape(Character) when Character < 32 -> io_lib:format("\\u~4.16.0b", [Character]);
escape(Character) -> <<Character/utf8>>.
