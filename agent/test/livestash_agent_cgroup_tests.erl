%% Is what the node pays for a pod read rightly, whatever kind of control groups the node has?
-module(livestash_agent_cgroup_tests).

-include_lib("eunit/include/eunit.hrl").

-import(livestash_agent_cgroup, [container/2, helper/1]).

-define(V2, [{"memory.current", "5000\n"}, {"memory.stat", "anon 3000\ninactive_file 1500\nactive_file 500\n"},
    {"cpu.stat", "usage_usec 2500000\nuser_usec 2000000\n"}, {"cgroup.events", "populated 1\nfrozen 0\n"}]).
-define(V1, [{"memory.usage_in_bytes", "7000\n"}, {"memory.stat", "inactive_file 1\ntotal_inactive_file 3000\n"}]).

%% The usual container sees its own group as the root.
version_2_test() ->
    Mount = mount(v2, [{"", ?V2}]),
    ?assertEqual(#{memory => 3500, cpu => 2.5}, container(Mount, <<"0::/\n">>)),
    %% The path is the node's, and what is mounted the container's own.
    ?assertEqual(#{memory => 3500, cpu => 2.5}, container(Mount, <<"0::/kubepods/pod1/c1\n">>)).

%% A container that shares the node's view must not take the whole node for itself.
version_2_of_the_node_test() ->
    Node = [{"memory.stat", "inactive_file 1500\n"}, {"cpu.stat", "usage_usec 99000000\n"}],
    Mount = mount(v2_node, [{"", Node}, {"kubepods/pod1/c1", ?V2}]),
    ?assertEqual(#{memory => 3500, cpu => 2.5}, container(Mount, <<"0::/kubepods/pod1/c1\n">>)),
    ?assertEqual(#{}, container(Mount, <<"0::/\n">>)).

version_1_test() ->
    Own = <<"11:memory:/kubepods/pod1/c1\n4:cpu,cpuacct:/kubepods/pod1/c1\n0::/\n">>,
    [
        begin
            Mount = mount(Controller, [{"memory", ?V1}, {Controller, [{"cpuacct.usage", "1250000000\n"}]}]),
            ?assertEqual({Controller, #{memory => 4000, cpu => 1.25}}, {Controller, container(Mount, Own)})
        end
     || Controller <- ["cpuacct", "cpu,cpuacct", "cpuacct,cpu"]
    ].

version_1_of_the_node_test() ->
    Node = [{"release_agent", ""}],
    Mount = mount(v1_node, [
        {"memory", Node ++ ?V1}, {"memory/kubepods/c1", [{"memory.usage_in_bytes", "9000\n"}, {"memory.stat", "total_inactive_file 2000\n"}]},
        {"cpuacct", Node ++ [{"cpuacct.usage", "9000000000\n"}]}
    ]),
    ?assertEqual(#{memory => 7000}, container(Mount, <<"4:memory:/kubepods/c1\n2:cpuacct:/\n">>)).

%% More than the kernel counts in all is never droppable, and what cannot be read is not there.
odd_test() ->
    Mount = mount(odd, [{"", [{"memory.current", "10\n"}, {"memory.stat", "inactive_file 11\n"}, {"cpu.stat", "nr_periods 5\n"}, {"cgroup.events", ""}]}]),
    ?assertEqual(#{memory => 0}, container(Mount, <<"0::/\n">>)),
    ?assertEqual(#{}, container("/nowhere", <<>>)),
    ?assertEqual(#{}, container("/nowhere", <<"what:is:this:line\nno\n">>)).

helper_test() ->
    Folder = mount(helper, [{"", [{"usage", "3145728 1500000\n"}, {"half", "3145728"}, {"words", "a b\n"}]}]),
    ?assertEqual(#{memory => 3145728, cpu => 1.5}, helper(filename:join(Folder, "usage"))),
    [?assertEqual(#{}, helper(filename:join(Folder, Name))) || Name <- ["half", "words", "absent"]].

mount(Name, Folders) ->
    Mount = filename:join([os:getenv("TESTS"), "cgroup", Name]),
    [
        begin
            File = filename:join([Mount, Folder, Base]),
            ok = filelib:ensure_dir(File),
            ok = file:write_file(File, Text)
        end
     || {Folder, Files} <- Folders, {Base, Text} <- Files
    ],
    Mount.
