%% Where is Redis, and how does one log in there? Takes what Redix takes, and gives it the same meaning.
-module(livestash_agent_redis_url).

-export([parse/1]).

-export_type([target/0]).

%% login: the arguments of AUTH, none when the URL has no password. database: `undefined` where the URL names none.
-type target() :: #{
    tls := boolean(),
    host := string(),
    port := inet:port_number(),
    login := [binary()],
    database := non_neg_integer() | undefined
}.

-define(DEFAULT_PORT, 6379).
%% An @ after the host means that a character of the password has ended the authority: what looks like the host is then a
%% piece of the password.
-define(SHAPE,
    "^(redis|rediss|valkey)://(?:([^/?#]*)@)?(\\[[0-9a-f:.]+\\]|[0-9a-z._-]+)(?::([0-9]{0,5}))?"
    "(?:/(?:([0-9]{1,9})(?:/[^?#@]*)?)?)?(?:[?#][^@]*)?$"
).

%% The target, or a sentence that says what is wrong with the URL and repeats nothing of it.
-spec parse(string() | undefined) -> {ok, target()} | {error, string()}.
parse(undefined) ->
    {error, "LIVE_STASH_REDIS_URL is not set: the pod needs it to find Redis."};
parse(Url) ->
    case re:run(encoded(Url), ?SHAPE, [caseless, dollar_endonly, {capture, all_but_first, binary}]) of
        {match, Parts} -> target(Parts ++ lists:duplicate(5 - length(Parts), <<>>));
        nomatch -> malformed()
    end.

%% What a Secret holds need not be UTF-8.
encoded(Url) ->
    case unicode:characters_to_binary(Url) of
        Bytes when is_binary(Bytes) -> Bytes;
        _ -> <<>>
    end.

target([Scheme, UserInfo, Host, Port, Database]) ->
    case {login(binary:split(UserInfo, <<":">>)), number(Port, ?DEFAULT_PORT)} of
        {{ok, Login}, Number} when Number > 0, Number < 65536 ->
            {ok, #{
                tls => string:lowercase(Scheme) =:= <<"rediss">>,
                host => string:trim(binary_to_list(Host), both, "[]"),
                port => Number,
                login => Login,
                database => number(Database, undefined)
            }};
        {user_only, _Number} ->
            {error,
                "LIVE_STASH_REDIS_URL has a user without a password: write redis://:PASSWORD@HOST or "
                "redis://USER:PASSWORD@HOST."};
        _ ->
            malformed()
    end.

malformed() ->
    {error,
        "LIVE_STASH_REDIS_URL cannot be read: write redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], or rediss:// for TLS, "
        "without blanks or a line end, and percent-encode special characters in the user and the password."}.

login([<<>>]) -> {ok, []};
login([_User]) -> user_only;
login([<<>>, Password]) -> decoded([Password]);
login([User, Password]) -> decoded([User, Password]).

decoded(Texts) ->
    try
        {ok, [list_to_binary(decode(binary_to_list(Text))) || Text <- Texts]}
    catch
        error:_ -> error
    end.

decode([$%, High, Low | Rest]) -> [binary:decode_hex(<<High, Low>>) | decode(Rest)];
decode([Byte | Rest]) when Byte =/= $% -> [Byte | decode(Rest)];
decode([]) -> [].

number(<<>>, Default) -> Default;
number(Digits, _Default) -> binary_to_integer(Digits).
