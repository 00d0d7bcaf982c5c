package report

import "fmt"

// ceiling is what k6 itself does a second on one core, of messages up to so many bytes.
type ceiling struct {
	bytes     int
	perSecond float64
}

// deliveryCeilings by the protocol of the rooms, and requestCeiling of small requests: k6 1.8.1 against servers of its own, `make bench-k6-ceiling`,
// loadtests/k6/README.md#its-ceiling. Cores differ: they say how near a run came, not where k6 ends.
var deliveryCeilings = map[string][]ceiling{
	protocolPhoenix: {{64, 24_220}, {1024, 25_386}, {10_240, 13_330}},
	"WebSocket":     {{64, 44_419}, {1024, 24_923}, {10_240, 14_549}},
	"ActionCable":   {{64, 48_888}, {1024, 26_741}, {10_240, 13_796}},
}

const (
	requestCeiling = 4588
	// protocolPhoenix is what fleets speak.
	protocolPhoenix = "Phoenix"
	// muchOfACore is the part of its ceiling from which on k6 may be what is measured.
	muchOfACore = 0.5
)

// deliveryCeilingOf is that of a run of Rooms. Messages longer than what was measured have none.
func deliveryCeilingOf(spec Spec, run Run) (float64, bool) {
	protocol := protocolPhoenix
	for _, variant := range spec.Variants {
		if variant.Name == run.variant() && variant.Server != nil {
			protocol = variant.Server.Protocol
		}
	}
	for _, measured := range deliveryCeilings[protocol] {
		if spec.MessageBytes > 0 && spec.MessageBytes <= measured.bytes {
			return measured.perSecond, true
		}
	}
	return 0, false
}

func requestCeilingOf(Spec, Run) (float64, bool) { return requestCeiling, true }

// made is what k6 makes in a scenario, so many a second. The zero value: nothing that was measured.
type made struct {
	// name of several of them.
	name      string
	perSecond func(Run) (float64, bool)
	// ceiling is what k6 can make of them a second on one core.
	ceiling func(Spec, Run) (float64, bool)
}

// nearestCeiling says in words how near the runners came to what k6 itself can do, in the run in which they came nearest. Empty where that was not
// measured.
func nearestCeiling(r Report) string {
	made := layoutOf(r.Spec).made
	var each, most float64
	for _, run := range r.Runs {
		if !run.sound() || run.Runners == 0 || made.name == "" {
			continue
		}
		perSecond, told := made.perSecond(run)
		perCore, measured := made.ceiling(r.Spec, run)
		if told && measured && (most == 0 || perSecond/float64(run.Runners)/perCore > each/most) {
			each, most = perSecond/float64(run.Runners), perCore
		}
	}
	if most == 0 {
		return ""
	}
	words := fmt.Sprintf("%s %s a second for each runner in the busiest run, %.0f %% of the %s that k6 was measured to make on one core (loadtests/k6/README.md)",
		significant(each), made.name, 100*each/most, significant(most))
	if each >= muchOfACore*most {
		words += ": take more runners, with a core for each, or it may be k6 that was measured"
	}
	return words
}
