%% How do several things happen at once, none of them for longer than a limit? A call to a frozen peer can block its
%% caller even where the call itself has a timeout (a full connection suspends the sender), so each runs in a process
%% that is killed when the time is over.
-module(livestash_agent_tasks).

-export([run/2, answers/2, start/4, ask/3]).

-export_type([outcome/1]).

%% Milliseconds.
-define(ASK, 2000).

-type outcome(Result) :: {ok, Result} | {error, Reason :: term()}.

%% Runs the functions, each in a process of its own, and gives their outcomes in the same order. One that fails has
%% the outcome error with what it raised; one that takes longer than Limit milliseconds is killed and has
%% {error, timeout}.
-spec run([{Tag, fun(() -> Result)}], Limit :: non_neg_integer()) -> [{Tag, outcome(Result)}].
run(Tasks, Limit) ->
    run(Tasks, Limit, []).

run(Tasks, Limit, Options) ->
    Deadline = livestash_agent_clock:ms() + Limit,
    Start = fun(Work) -> spawn_opt(fun() -> exit({?MODULE, outcome(Work)}) end, [monitor | Options]) end,
    Started = [{Tag, Start(Work)} || {Tag, Work} <- Tasks],
    [{Tag, await(Process, Deadline)} || {Tag, Process} <- Started].

%% Runs the functions like run/2 and gives what each said, or, where one failed or took longer, what stands beside it. Questions of somebody who comes
%% before the application's work do so as well.
-spec answers([{fun(() -> Answer), Otherwise :: Answer}], Limit :: non_neg_integer()) -> [Answer].
answers(Questions, Limit) ->
    {priority, Priority} = process_info(self(), priority),
    [
        case Outcome of
            {ok, Answer} -> Answer;
            {error, _Reason} -> Otherwise
        end
     || {Otherwise, Outcome} <- run([{Otherwise, Work} || {Work, Otherwise} <- Questions], Limit, [{priority, Priority}])
    ].

%% What a server of this node says to a question, or something else while it does not answer, or is not there.
-spec ask(atom(), term(), Otherwise :: term()) -> term().
ask(Server, Question, Otherwise) ->
    try
        gen_server:call(Server, Question, ?ASK)
    catch
        exit:_ -> Otherwise
    end.

%% For a server that must not wait: starts a function in a process of its own, unless one of that name is among those that
%% run. The caller keeps Running, a map of monitors to names, and gets {'DOWN', Monitor, process, Pid, {done, Outcome}}.
-spec start(What, fun(() -> term()), [{priority, low | high}], #{reference() => What}) -> #{reference() => What}.
start(What, Work, Options, Running) ->
    case lists:member(What, maps:values(Running)) of
        true ->
            Running;
        false ->
            {_Pid, Monitor} = spawn_opt(fun() -> exit({done, outcome(Work)}) end, [monitor | Options]),
            Running#{Monitor => What}
    end.

%% Caught here, because a process that dies by an error would also write it to the log.
outcome(Work) ->
    try
        {ok, Work()}
    catch
        _:Reason -> {error, Reason}
    end.

await({Pid, Monitor}, Deadline) ->
    receive
        {'DOWN', Monitor, process, Pid, Reason} -> outcome_of(Reason)
    after livestash_agent_clock:left(Deadline) ->
        exit(Pid, kill),
        receive
            {'DOWN', Monitor, process, Pid, Reason} -> outcome_of(Reason)
        end
    end.

outcome_of({?MODULE, Outcome}) -> Outcome;
outcome_of(killed) -> {error, timeout};
outcome_of(Reason) -> {error, Reason}.
