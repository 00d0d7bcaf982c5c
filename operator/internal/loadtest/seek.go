package loadtest

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

const (
	// mostUsers and mostConnections are what a run may have.
	mostUsers, mostConnections = 1_000_000, 100_000
	defaultFactor              = 2.0
	defaultP95                 = time.Second
)

// steps are the sizes of a matrix: those that it names, or those of a search, from the one that it names on.
func steps(spec *v1alpha1.LiveStashBenchmarkSpec) []v1alpha1.BenchmarkRun {
	seek := spec.Matrix.Seek
	if seek == nil || len(spec.Matrix.Runs) == 0 {
		return spec.Matrix.Runs
	}
	first, factor, runners := spec.Matrix.Runs[0], number(seek.Factor, defaultFactor), ptr.Deref(spec.Parallelism, 1)
	sizes := make([]v1alpha1.BenchmarkRun, 0, seek.Steps)
	least := int32(0)
	for step := range seek.Steps {
		times := math.Pow(factor, float64(step))
		size, fits := larger(spec, first, times, least)
		if !fits {
			break
		}
		sizes = append(sizes, size)
		// Runners have equally many connections, so there may be more of them than the step asks for.
		least = cmp.Or(size.Rate, ceilDiv(size.Connections, runners)*runners, size.Users) + 1
	}
	return sizes
}

// larger is a size so many times as large, rounded up, and at least so large: with a small factor the next one. It tells whether a run can be. As many
// users come in a second as with the first, so they take longer.
func larger(spec *v1alpha1.LiveStashBenchmarkSpec, first v1alpha1.BenchmarkRun, times float64, least int32) (size v1alpha1.BenchmarkRun, fits bool) {
	size = first
	many := func(of int32) float64 { return max(math.Ceil(float64(of)*times-1e-6), float64(least)) }
	switch {
	case first.Rate > 0:
		size.Rate = int32(min(many(first.Rate), mostUsers))
		return size, many(first.Rate) <= mostUsers
	case first.Connections > 0:
		size.Connections = int32(min(many(first.Connections), mostConnections))
		return size, many(first.Connections) <= mostConnections
	}
	room := float64(cmp.Or(ptr.Deref(spec.Rooms, v1alpha1.BenchmarkRooms{}).Size, defaultRoomSize))
	users := math.Ceil(many(first.Users)/room) * room
	size.Users = int32(min(users, mostUsers))
	duration := ptr.Deref(first.Duration, defaultDuration(defaultRoomsDuration)).Duration
	ramp := ptr.Deref(first.Ramp, defaultDuration(duration/4)).Duration
	longer := time.Duration(float64(ramp) * users / float64(first.Users)).Round(time.Second)
	size.Ramp, size.Duration = &metav1.Duration{Duration: longer}, &metav1.Duration{Duration: duration + longer - ramp}
	return size, users <= mostUsers
}

// Limits are the thresholds of a run: of a step those of the search besides.
func (r Run) Limits(limits v1alpha1.BenchmarkThresholds) v1alpha1.BenchmarkThresholds {
	if r.While != nil && r.While.Failed != "" {
		limits.MaxFailed = r.While.Failed
	}
	return limits
}

// sought says that a step took longer than it may. Empty: it did not, or nothing is sought.
func sought(run Run, result Result) string {
	if run.While == nil {
		return ""
	}
	name := report.DurationRequest
	if run.Scenario == v1alpha1.ScenarioRooms {
		name = report.DurationDelivery
	}
	most := ptr.Deref(run.While.P95, metav1.Duration{Duration: defaultP95}).Duration
	if !result.Counts.HasQuantile(name, 0.95) {
		return fmt.Sprintf("p95: more than 5 %% came to no good end, at most %s while the knee is sought", most)
	}
	measured := result.Durations[name]
	if measured.Count == 0 || measured.P95 <= most.Seconds()*millisecondsPerSecond {
		return ""
	}
	return fmt.Sprintf("p95 of %d: %s ms, at most %s while the knee is sought", measured.Count, strconv.FormatFloat(measured.P95, 'f', 1, 64), most)
}

// Beyond says why the run of a row is not made: its variant did not carry an earlier step, or cannot carry this one any more, whatever comes
// of its last rounds. Empty: it is to be made.
func Beyond(runs []Run, rows []v1alpha1.BenchmarkRunStatus, place int) string {
	one := runs[place]
	if one.While == nil || one.Warmup {
		return ""
	}
	// may is how many rounds of a step have held, or may yet.
	may, rounds, name := map[int]int{}, map[int]int{}, map[int]string{}
	for i, other := range runs {
		if other.Warmup || other.Variant != one.Variant || other.Step > one.Step {
			continue
		}
		rounds[other.Step]++
		name[other.Step] = cmp.Or(name[other.Step], other.Load())
		if i >= min(place, len(rows)) || rows[i].Verdict == v1alpha1.VerdictPassed {
			may[other.Step]++
		}
	}
	for step := range one.Step + 1 {
		if !report.Holds(may[step], rounds[step]) {
			return fmt.Sprintf("Not run: %s did not hold with %s.", one.Compared(), name[step])
		}
	}
	return ""
}
