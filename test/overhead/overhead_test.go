package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/livestash-dev/livestash/test/overhead/vm"
)

// example is one fleet: 100 cycles, each for 2 ms of CPU time and 3,000 reductions, and an agent with its share of those.
func example(idle time.Duration, megabytes, agentReductions int64) figures {
	begin := vm.Figures{Total: megabytes << 20, ReductionsBefore: 1, ReductionsAfter: 1000}
	end := vm.Figures{Total: (megabytes + 1) << 20, ReductionsBefore: 1000 + 150_000, AgentReductions: agentReductions}
	return figures{
		idle:     spent{wall: 30 * time.Second, beam: idle, probe: idle},
		load:     spent{wall: 70 * time.Second, beam: 200 * time.Millisecond},
		duration: time.Minute,
		cycles:   100,
		settled:  look{vms: []vm.Figures{{}, {}}},
		before:   look{vms: []vm.Figures{begin, begin}, resident: []int64{100 << 20, 102 << 20}, probe: []int64{4 << 20}},
		after:    look{vms: []vm.Figures{end, end}},
	}
}

func TestSummarize(t *testing.T) {
	s := summarize([]round{
		{without: example(30*time.Millisecond, 60, 0), with: example(60*time.Millisecond, 61, 1500)},
		{without: example(30*time.Millisecond, 62, 0), with: example(120*time.Millisecond, 63, 1500)},
		{without: example(30*time.Millisecond, 64, 0), with: example(90*time.Millisecond, 66, 1500)},
	})
	for name, c := range map[string]struct{ got, want float64 }{
		"idle CPU without":            {s.IdleCPU.Without, 0.05},
		"idle CPU with":               {s.IdleCPU.With, 0.15},
		"median of the differences":   {s.IdleCPU.Difference.Median, 0.1},
		"first quartile of those":     {s.IdleCPU.Difference.Low, 0.075},
		"CPU of a cycle":              {s.CycleCPU.With, 2},
		"its ratio":                   {s.CycleRatio.Median, 1},
		"CPU under load":              {s.LoadCPU.With, 0.167},
		"reductions of a cycle":       {s.CycleReductions.With, 3},
		"agent's share of them":       {s.AgentReductions, 1},
		"memory":                      {s.IdleMemory.With, 63},
		"difference of memory":        {s.IdleMemory.Difference.Median, 1},
		"memory after the load":       {s.LoadMemory.With, 64},
		"mean of the resident memory": {s.Resident.With, 101},
		"CPU of the other program":    {s.ProbeCPU, 0.15},
		"memory of that":              {s.ProbeMemory, 4},
	} {
		if diff := c.got - c.want; diff > 0.001 || diff < -0.001 {
			t.Errorf("%s is %v, want %v", name, c.got, c.want)
		}
	}
	if broken := s.brokenBounds(); len(broken) > 0 {
		t.Errorf("broken bounds: %q", broken)
	}
}

func TestBrokenBounds(t *testing.T) {
	for name, c := range map[string]struct {
		with figures
		says string
	}{
		"a core without users": {example(30*time.Second*2, 60, 0), "CPU without users: 99.95 % of a core, at most 1"},
		"all reductions":       {example(30*time.Millisecond, 60, 150_000), "share of the reductions under load: 100.00 %, at most 1"},
		"4 MiB":                {example(30*time.Millisecond, 64, 0), "memory before the load test: 4.00 MiB, at most 3"},
	} {
		t.Run(name, func(t *testing.T) {
			s := summarize([]round{{without: example(30*time.Millisecond, 60, 0), with: c.with}})
			if broken := strings.Join(s.brokenBounds(), "; "); !strings.Contains(broken, c.says) {
				t.Errorf("broken bounds are %q, want %q", broken, c.says)
			}
		})
	}
}

func TestCycles(t *testing.T) {
	if got, err := cycles("a table\nLIVESTASH_RESULT {\"passed\":true,\"cycles\":7}\n"); got != 7 || err != nil {
		t.Errorf("got %d, %v", got, err)
	}
	for _, logs := range []string{"", "LIVESTASH_RESULT {", "LIVESTASH_RESULT {\"passed\":false,\"cycles\":7}", "LIVESTASH_RESULT {\"passed\":true}"} {
		if got, err := cycles(logs); err == nil {
			t.Errorf("%q was read as %d cycles", logs, got)
		}
	}
}

// TestProcess measures this very process.
func TestProcess(t *testing.T) {
	self := process(os.Getpid())
	before, err := self.cpu()
	if err != nil {
		t.Fatal(err)
	}
	for range 100_000_000 {
	}
	after, err := self.cpu()
	if err != nil || after <= before {
		t.Errorf("CPU time went from %s to %s, %v", before, after, err)
	}
	if resident, err := self.resident(); err != nil || resident < 1<<20 {
		t.Errorf("resident are %d bytes, %v", resident, err)
	}
	if _, err := process(1 << 30).cpu(); err == nil {
		t.Error("a process that does not exist has CPU time")
	}
}
