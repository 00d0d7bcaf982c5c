package e2e

import (
	"math"
	"testing"

	"github.com/livestash-dev/livestash/test/overhead/vm"
)

// vm is what a pod's virtual machine says of itself. Its stashes are removed.
func (s space) vm(pod string) vm.Figures {
	s.t.Helper()
	out, err := s.kubectl("", "exec", pod, "-c", "app", "--", "bin/workload", "rpc", vm.Expression)
	if err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	figures, err := vm.Parse(out)
	if err != nil {
		s.t.Fatal(err)
	}
	return figures
}

// leastMemory is the smallest memory of all pods in a few looks: what one request or one timer holds for a moment is in some of them only.
func (s space) leastMemory(pods ...string) int64 {
	least := int64(math.MaxInt64)
	for range 3 {
		for _, pod := range pods {
			least = min(least, s.vm(pod).Total)
		}
	}
	return least
}

// What the agent adds to a virtual machine, as far as that can be told on a machine with other work to do: memory and
// reductions. `make bench-overhead` measures CPU time, too.
func TestAgentOverhead(t *testing.T) {
	const (
		mostMemory = 3 << 20
		// mostShare is the percentage of the reductions under load. The load is small: a bigger one has a smaller share.
		mostShare = 3
	)
	s := newSpace(t, "overhead")
	s.apply("adapter: ETS\nreplicas: 2")
	s.settled()
	memory := s.leastMemory("shop-0", "shop-1")
	with := s.vm("shop-0")
	s.load("ets")
	after := s.vm("shop-0")
	s.apply("adapter: ETS\nreplicas: 2\nagent: {enabled: false}")
	s.settled()
	without := s.vm("shop-0")

	if without.AgentMemory != 0 || with.AgentMemory == 0 {
		t.Fatalf("the agent's processes have %d bytes with the agent and %d without", with.AgentMemory, without.AgentMemory)
	}
	memoryWithout := s.leastMemory("shop-0", "shop-1")
	t.Logf("bytes with the agent %d, without %d", memory, memoryWithout)
	if added := memory - memoryWithout; added > mostMemory {
		t.Errorf("the agent adds %d bytes, at most %d: with it %+v, without it %+v", added, mostMemory, with, without)
	}
	all, agent := after.ReductionsBefore-with.ReductionsAfter, after.AgentReductions-with.AgentReductions
	t.Logf("the agent's processes took %d of %d reductions", agent, all)
	if agent <= 0 || agent*100 > all*mostShare {
		t.Errorf("the agent's processes took %d of %d reductions, at most %d %%", agent, all, mostShare)
	}
}
