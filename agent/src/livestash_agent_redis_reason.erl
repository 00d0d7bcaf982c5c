%% What is wrong with Redis, and what should be changed? One sentence for each failure, without any secret.
-module(livestash_agent_redis_reason).

-export([sentence/2]).

-export_type([failure/0]).

%% What a command of the check was for.
-type step() :: login | database | stash.
-type failure() ::
    {connect, Posix :: atom()}
    | {tls, Reason :: term()}
    | no_tls
    | no_authorities
    | closed
    | silent
    | speaks_tls
    | not_redis
    | {refused, step(), Answer :: binary()}.

%% Bytes of Redis's own words that are repeated.
-define(QUOTED, 200).

-spec sentence(failure(), livestash_agent_redis_url:target()) -> string().
sentence(Failure, #{host := Host, port := Port} = Target) ->
    lists:flatten(["Redis at ", where(Host), $:, integer_to_list(Port), $\s, what(Failure, Target), $.]).

where(Host) ->
    case lists:member($:, Host) of
        true -> [$[, Host, $]];
        false -> Host
    end.

what({connect, econnrefused}, _Target) ->
    "refuses connections: start it, or correct host and port";
what({connect, nxdomain}, _Target) ->
    "cannot be found, because DNS does not know the host: correct it, or create its Service";
what({connect, timeout}, _Target) ->
    "cannot be reached within 2 seconds: correct host and port, or let network policies and firewalls admit this pod";
what({connect, Posix}, _Target) ->
    ["cannot be connected (", atom_to_list(Posix), "): correct host and port, or the network"];
what(closed, #{tls := false}) ->
    "closes the connection without an answer: if this is its TLS port, write rediss:// in the URL; else look at its log";
what(closed, _Target) ->
    "closes the connection without an answer: look at its log";
what(silent, _Target) ->
    "accepts connections but does not answer within 2 seconds: look at its load and its log";
what(speaks_tls, _Target) ->
    "speaks TLS on this port: write rediss:// in the URL";
what(not_redis, _Target) ->
    "does not answer like Redis: correct host and port";
what(no_tls, _Target) ->
    "is to be reached over TLS, but this release runs without Erlang's ssl: add :ssl to its extra_applications";
what(no_authorities, _Target) ->
    "cannot be verified, because this image has no CA certificates: install ca-certificates, or give Redis's CA";
what({tls, Reason}, #{host := Host}) ->
    tls(Reason, Host);
what({refused, Step, Answer}, Target) ->
    refused(Step, Answer, Target).

tls({tls_alert, {Alert, Text}}, Host) ->
    case {Alert, string:find(Text, "hostname_check_failed")} of
        {_, Found} when Found =/= nomatch ->
            ["has a certificate for other names than ", Host, ": write one of its names in the URL, or reissue it"];
        _ ->
            alert(Alert)
    end;
tls({options, _}, _Host) ->
    "cannot be verified, because the file in LIVE_STASH_REDIS_CACERTFILE cannot be read: correct Redis's CA";
tls(Reason, _Host) when Reason =:= timeout; Reason =:= closed; Reason =:= econnreset; Reason =:= epipe ->
    no_handshake();
tls(_Reason, _Host) ->
    "cannot be reached over TLS: look at its log".

alert(Alert) when Alert =:= unknown_ca; Alert =:= bad_certificate ->
    "has a certificate that no known CA has signed: give the CA that signed it";
alert(certificate_expired) ->
    "has a certificate that is expired or not yet valid: renew it, or correct the clocks";
alert(certificate_required) ->
    "asks for a client certificate, which LiveStash does not send: set tls-auth-clients no in Redis";
alert(Alert) when Alert =:= unexpected_message; Alert =:= decode_error; Alert =:= record_overflow ->
    no_handshake();
alert(Alert) ->
    ["cannot agree on TLS with this pod (", atom_to_list(Alert), "): look at its certificate and its TLS versions"].

no_handshake() ->
    "does not answer in TLS: if this is its port without TLS, write redis:// in the URL; else look at its log".

%% Before version 7 Redis wraps what a command in a script has answered into an error of its own, so its words are
%% looked for everywhere.
refused(Step, Answer, #{database := Database} = Target) ->
    case [Words || {Marks, Words} <- refusals(Step, Database), binary:match(Answer, Marks) =/= nomatch] of
        [Words | _] -> Words;
        [] -> unknown(Step, Answer, Target)
    end.

refusals(Step, Database) ->
    [
        {[<<"WRONGPASS">>, <<"invalid password">>], "refuses the user or the password: correct them in the URL"},
        {[<<"without any password configured">>, <<"no password is set">>],
            "has no password, but the URL has one: remove it there, or set it in Redis"},
        {[<<"for 'auth' command">>], "knows no users, as before version 6: leave the user out of the URL"},
        {[<<"NOAUTH">>], "asks for a password: add it to the URL"},
        {[<<"NOPERM">>, <<"ACL failure">>, <<"can't run this command">>], not_permitted(Step)},
        {[<<"READONLY">>, <<"MASTERDOWN">>], "is a read-only replica: let the URL name the master"},
        {[<<"OOM ">>],
            "is out of memory: give it more (maxmemory), or let it evict what expires first (maxmemory-policy volatile-ttl)"},
        {[<<"LOADING">>], "is still loading its data: wait until it is done"},
        {[<<"MISCONF">>], "takes no writes, because it cannot write to its disk: look at its volume and its log"},
        {[<<"NOREPLICAS">>], "takes no writes, because too few replicas are connected: repair them"},
        {[<<"CLUSTERDOWN">>, <<"MOVED ">>, <<"ASK ">>, <<"cluster mode">>],
            "runs in cluster mode, which LiveStash does not support: use one without cluster-enabled"},
        {[<<"DB index">>],
            ["has no database ", io_lib:format("~w", [Database]), ": use 0, or raise `databases` in Redis"]},
        {[<<"max number of clients">>], "takes no more clients: raise its maxclients, or find out who holds them"},
        {[<<"DENIED">>], "runs in protected mode: give it a password"}
    ].

not_permitted(database) ->
    "does not permit this user to choose a database: leave the database out of the URL, or allow the user SELECT";
not_permitted(_Step) ->
    "does not permit this user what LiveStash does: allow it EVAL, EVALSHA, HGET, HSET, EXPIRE and DEL on the keys "
    "live_stash:*".

%% Redis repeats arguments that it does not understand, or their beginning.
unknown(login, _Answer, _Target) ->
    "refuses the login: look at its log";
unknown(_Step, Answer, #{login := Login}) ->
    Hidden = lists:foldl(fun hide/2, Answer, Login),
    ["refuses what LiveStash does, a script that writes: \"", quoted(Hidden), $"].

hide(<<>>, Text) -> Text;
hide(Secret, Text) -> binary:replace(Text, Secret, <<"***">>, [global]).

quoted(Text) ->
    [Byte || <<Byte>> <= binary:part(Text, 0, min(byte_size(Text), ?QUOTED)), Byte >= $\s, Byte < 127].
