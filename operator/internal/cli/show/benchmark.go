package show

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/cli/text"
)

// Benchmark is how far a load test is, and what came out.
type Benchmark struct {
	Name     string                        `json:"name"`
	Phase    v1alpha1.BenchmarkPhase       `json:"phase"`
	Progress string                        `json:"progress"`
	Verdict  v1alpha1.BenchmarkVerdict     `json:"verdict,omitempty"`
	TimeLeft *metav1.Duration              `json:"timeLeft,omitempty"`
	Runs     []v1alpha1.BenchmarkRunStatus `json:"runs,omitempty"`
	// Knees are what spec.matrix.seek has found, and Against is what came out of spec.thresholds.against. Empty without them, and while
	// runs are to come.
	Knees   []v1alpha1.BenchmarkKneeStatus   `json:"knees,omitempty"`
	Against *v1alpha1.BenchmarkAgainstStatus `json:"against,omitempty"`
	// Comparison is what came out of spec.compareWith. Nil without one, and while runs are to come.
	Comparison *v1alpha1.BenchmarkComparisonStatus `json:"comparison,omitempty"`
}

// BenchmarkOf is that of a LiveStashBenchmark.
func BenchmarkOf(b *v1alpha1.LiveStashBenchmark) Benchmark {
	s := b.Status
	return Benchmark{Name: b.Name, Phase: s.Phase, Progress: s.Progress, Verdict: s.Verdict, TimeLeft: s.TimeLeft, Runs: s.Runs, Knees: s.Knees, Against: s.Against, Comparison: s.Comparison}
}

// Line is how far it is, on one line.
func (b Benchmark) Line(paint text.Paint) string {
	over := 0
	at := ""
	for _, run := range b.Runs {
		switch run.Phase {
		case v1alpha1.RunFinished, v1alpha1.RunCooling:
			over++
		case v1alpha1.RunPreparing, v1alpha1.RunRunning:
			at = fmt.Sprintf("  %s: %s", text.Safe(run.Name), run.Phase)
		default:
		}
	}
	phase := string(b.Phase)
	if phase == "" {
		phase = notSeen
	}
	return fmt.Sprintf("%s %d/%d runs  %s%s", paint.Bar(over, len(b.Runs), barWidth), over, len(b.Runs), phase, at)
}

// Write draws the runs.
func (b Benchmark) Write(w io.Writer, paint text.Paint) error {
	stashless := slices.ContainsFunc(b.Runs, func(run v1alpha1.BenchmarkRunStatus) bool { return run.TTL.Duration == 0 })
	table := text.Table{Columns: []string{"RUN", "VARIANT", "USERS", "TTL", "VERDICT", "RECOVERED", "RECONNECT P95", "MESSAGE"}}
	if stashless {
		table.Columns = []string{"RUN", "VARIANT", "USERS", "RATE", "VERDICT", "PER SECOND", "ANSWER P95", "MESSAGE"}
	}
	for _, run := range b.Runs {
		cells := []text.Cell{text.Plain(run.Name), text.Plain(cmp.Or(run.Variant, string(run.Adapter))), text.Plain(run.Users)}
		if stashless {
			cells = append(cells, text.Plain(rate(run)), verdict(run.Verdict), text.Plain(run.PerSecond), text.Plain(long(run.AnswerP95)))
		} else {
			cells = append(cells, text.Plain(duration.HumanDuration(run.TTL.Duration)), verdict(run.Verdict), text.Plain(run.Recovered), text.Plain(long(run.ReconnectP95)))
		}
		table.Add(append(cells, text.Plain(run.Message))...)
	}
	if err := table.Write(w, paint); err != nil {
		return err
	}
	return b.writeOutcome(w)
}

// writeOutcome is what the runs came to together, a line each.
func (b Benchmark) writeOutcome(w io.Writer) error {
	say := func(v v1alpha1.BenchmarkVerdict, said string) error {
		_, err := fmt.Fprintf(w, "%s: %s\n", v, text.Safe(said))
		return err
	}
	var errs []error
	for _, knee := range b.Knees {
		errs = append(errs, say(knee.Verdict, cmp.Or(knee.Message, fmt.Sprintf("%s carries %d", knee.Variant, knee.Size))))
	}
	if a := b.Against; a != nil {
		errs = append(errs, say(a.Verdict, cmp.Or(a.Message, "Held against "+a.Baseline+": all limits hold.")))
	}
	if c := b.Comparison; c != nil {
		errs = append(errs, say(c.Verdict, cmp.Or(c.Message, "Compared with "+c.ConfigMap+": all limits hold.")))
	}
	return errors.Join(errs...)
}

// rate is what is due a second; empty where nothing is.
func rate(run v1alpha1.BenchmarkRunStatus) string {
	if run.Rate == 0 {
		return ""
	}
	return fmt.Sprint(run.Rate)
}

// long is a time as people read it; empty when it is not known.
func long(d *metav1.Duration) string {
	if d == nil {
		return ""
	}
	return d.Duration.String()
}

func verdict(v v1alpha1.BenchmarkVerdict) text.Cell {
	switch v {
	case v1alpha1.VerdictPassed:
		return text.Cell{Text: string(v), Colour: text.Good}
	case "":
		return text.Plain("")
	default:
		return text.Cell{Text: string(v), Colour: text.Bad}
	}
}
