package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/livestash-dev/livestash/test/internal/browser"
	"github.com/livestash-dev/livestash/test/internal/fleet"
	"github.com/livestash-dev/livestash/test/soak/eventlog"
	"github.com/livestash-dev/livestash/test/soak/ledger"
	"github.com/livestash-dev/livestash/test/soak/schedule"
	"github.com/livestash-dev/livestash/test/soak/users"
)

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		args string
		fine bool
	}{
		"nothing":                {"", true},
		"all":                    {"-adapters=ETS,Redis -users=60 -pods=2 -minutes=0.5 -seed=3 -faults=on -tls -persistence=off -workload=phoenix -together", true},
		"an unknown adapter":     {"-adapters=Memcached", false},
		"no adapter":             {"-adapters=", false},
		"no users":               {"-users=0", false},
		"too many users":         {"-users=100000", false},
		"too many pods":          {"-pods=40", false},
		"no time":                {"-minutes=0", false},
		"too long":               {"-minutes=1000", false},
		"faults that may be had": {"-faults=maybe", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CLUSTER", "local")
			o, err := parse(strings.Fields(c.args))
			if (err == nil) != c.fine {
				t.Fatalf("the error is %v", err)
			}
			if err == nil && o.seed == 0 {
				t.Error("there is no seed")
			}
		})
	}
	t.Setenv("CLUSTER", "kind")
	if _, err := parse([]string{"-faults=on"}); err == nil {
		t.Error("faults are taken where the pods' processes are not on this machine")
	}
}

// Whatever a schedule can hold can be done.
func TestEveryKindHasAnAction(t *testing.T) {
	steps := schedule.New(schedule.Config{Seed: 1, Length: 10 * time.Hour, Pods: 3, Redis: true, Persistent: true, TLS: true, Faults: true})
	for _, step := range steps {
		if actions[step.Kind] == nil {
			t.Errorf("nobody knows how to do %s", step)
		}
	}
}

func at(seconds int) time.Time { return time.Unix(int64(1000+seconds), 0).UTC() }

// soaked is a run in which shop-1 was killed, and a kill of shop-2 came to nothing.
func soaked() *soak {
	event := func(kind schedule.Kind, start int, pods ...string) eventlog.Event {
		return eventlog.Event{Kind: kind, Pods: pods, Start: at(start), End: at(start)}
	}
	return &soak{
		options: options{workload: "otp", users: 9, pods: 3, seed: 7, minutes: 1}, began: at(0),
		pods: &podLog{restarts: map[types.UID]int32{}},
		done: []*done{
			{Event: event(schedule.Kill, 20, "shop-1"), what: "kill 1"},
			{Event: event(schedule.Kill, 30, "shop-2"), what: "kill 2", err: begun(errors.New("there is no shop-2"))},
			{Event: event(schedule.DeleteAll, 40), what: "delete-all"},
		},
	}
}

func fleetOf(adapter string) *fleet.Fleet { return &fleet.Fleet{Adapter: adapter} }

func found(verdict ledger.Verdict, home string) ledger.Return {
	return ledger.Return{Verdict: verdict, At: at(50), Status: "not_found", Node: "shop@shop-0.x", Last: ledger.Stash{Version: 3, Node: "shop@" + home + ".x", At: at(10)}}
}

func TestResult(t *testing.T) {
	for name, c := range map[string]struct {
		findings    []ledger.Return
		more        int
		notBack     int
		unsettled   error
		unexplained int
		failed      bool
	}{
		"nothing to explain":                        {},
		"lost with the pod that was killed":         {findings: []ledger.Return{found(ledger.Lost, "shop-1")}},
		"lost with the pod that was not":            {findings: []ledger.Return{found(ledger.Lost, "shop-2")}, unexplained: 1, failed: true},
		"lost when all pods were deleted":           {findings: []ledger.Return{found(ledger.Lost, "shop-0")}, unexplained: 1, failed: true},
		"stale":                                     {findings: []ledger.Return{found(ledger.Stale, "shop-1")}, unexplained: 1, failed: true},
		"more than can be told":                     {more: 4, unexplained: 4, failed: true},
		"a user who is not back":                    {notBack: 1, unexplained: 1, failed: true},
		"a fleet that does not settle":              {unsettled: errors.New("pod shop-0 is not ready"), failed: true},
		"one that is explained and one that is not": {findings: []ledger.Return{found(ledger.Lost, "shop-1"), found(ledger.Lost, "shop-2")}, unexplained: 1, failed: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := soaked()
			s.Fleet = fleetOf("ETS")
			r := s.result(users.Report{Verdicts: map[ledger.Verdict]int{}, Findings: c.findings, MoreFindings: c.more}, c.notBack, c.unsettled)
			if r.Unexplained != c.unexplained || r.failed() != c.failed {
				t.Errorf("%d are unexplained, failed is %t", r.Unexplained, r.failed())
			}
			var out bytes.Buffer
			if err := r.print(&out); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(out.String(), "FAILED") != c.failed {
				t.Errorf("what is printed:\n%s", out.String())
			}
		})
	}
}

func TestLastLine(t *testing.T) {
	s := soaked()
	s.Fleet = fleetOf("Redis")
	r := s.result(users.Report{
		Stashes: 100, Returns: 20, Times: &browser.Times{P50: 1, P99: 2, Max: 3},
		Verdicts: map[ledger.Verdict]int{ledger.Recovered: 17, ledger.Newer: 1, ledger.Stale: 2, ledger.Lost: 1},
	}, 0, nil)
	var out bytes.Buffer
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	var got map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"adapter": "Redis", "workload": "otp", "pods": 3., "users": 9., "seed": 7., "minutes": 1., "faults": false, "shadow": false, "events": 3., "stashes": 100.,
		"returns": 20., "newer": 1., "stale": 2., "lost": 1., "unexplained": 0., "outage_s": 0., "p50_ms": 1., "p99_ms": 2.,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the last line differs (-want +got):\n%s", diff)
	}
}

func TestMoments(t *testing.T) {
	var findings []finding
	for _, second := range []int{50, 10, 11, 30, 13} {
		findings = append(findings, finding{Return: ledger.Return{At: at(second)}})
	}
	var got []int
	for _, moment := range moments(findings) {
		got = append(got, len(moment))
	}
	if diff := cmp.Diff([]int{3, 1, 1}, got); diff != "" {
		t.Errorf("the moments differ (-want +got):\n%s", diff)
	}
}

// What happened shortly before a moment is told with it.
func TestBefore(t *testing.T) {
	r := soaked().done
	for second, want := range map[int]string{
		10: "nothing",
		25: "kill 1 (5 s)",
		45: "kill 1 (25 s), kill 2 (15 s), delete-all (5 s)",
		90: "nothing",
	} {
		if got := (&result{done: r}).before(at(second)); got != want {
			t.Errorf("before %d s there was %s, want %s", second, got, want)
		}
	}
}

// A fleet's numbers begin at 0 and at 1 in turn, and steps are planned for any.
func TestNamed(t *testing.T) {
	l := &podLog{ready: map[string]bool{"shop-1": true, "shop-2": false, "shop-3": true}}
	for _, c := range []struct {
		places []int
		want   []string
	}{
		{[]int{0}, []string{"shop-1"}},
		{[]int{2, 0}, []string{"shop-3", "shop-1"}},
		{[]int{4, 3}, []string{"shop-3", "shop-2"}},
	} {
		if diff := cmp.Diff(c.want, l.named(c.places)); diff != "" {
			t.Errorf("places %v (-want +got):\n%s", c.places, diff)
		}
	}
	if names := (&podLog{}).named([]int{1}); len(names) != 1 || names[0] == "" {
		t.Errorf("without pods the names are %q", names)
	}
}

// A pod that was told to stop may serve on for long, and its stashes are on the move until it is gone.
func TestWhenPodsMove(t *testing.T) {
	l := &podLog{ready: map[string]bool{}, stopping: map[types.UID]int{}, restarts: map[types.UID]int32{}}
	pod := func(uid types.UID, told bool) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "shop-" + string(uid), UID: uid}}
		if told {
			p.DeletionTimestamp = &metav1.Time{}
		}
		return p
	}
	l.see(pod("0", false), false)
	l.see(pod("1", true), false)
	l.see(pod("2", true), false)
	l.see(pod("1", true), false)
	l.see(pod("1", true), true)
	// Of one that vanished no more is known than that.
	l.see(pod("3", false), true)
	var said []string
	for _, m := range l.moves {
		said = append(said, fmt.Sprintf("%s %t %t", m.Pod, m.End.IsZero(), m.End.Before(m.At)))
	}
	if want := []string{"shop-1 false false", "shop-2 true true", "shop-3 false false"}; !slices.Equal(said, want) {
		t.Errorf("moved are %v, want %v", said, want)
	}
}
