package loadtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
	"github.com/livestash-dev/livestash/operator/internal/plausible"
)

// keptPoints is at how many points a series is thinned to half of them.
const keptPoints = 2 * report.MaxPoints

// An answer comes every 5 s, if all is well. Two that are more than mostUnseen seconds apart have a gap between them. At either end of a run a tenth
// of it may be missing: leastEdge seconds in any run, and at most mostEdge, which is what a restart of the operator may lose. Of what is between,
// leastSeen must have been seen.
const (
	mostUnseen          = 15.0
	leastEdge, mostEdge = 10.0, 45.0
	leastSeen           = 0.75
	// rounding is by how many seconds a sum of differences may be larger than the difference of the whole.
	rounding = 0.001
)

// Rates over a minute are means between samples that are so many seconds apart; of the samples since, one in minuteStep is kept.
const (
	minute     = 60
	minuteStep = 5
	mostRecent = minute/minuteStep + 2
)

// Recorder collects what the agents of a fleet say during a run. It takes little room however long the run is, and can be
// kept as JSON, so that a restart of the operator loses no more than the time that it takes.
type Recorder struct {
	// StartedAt is where the series begin.
	StartedAt time.Time `json:"startedAt"`
	// Samples is how often the agents were asked, Incomplete how often one of them did not answer: those have no point.
	Samples    int `json:"samples"`
	Incomplete int `json:"incomplete,omitempty"`
	// From and To are when, in seconds after StartedAt, all agents answered for the first and for the last time. Nil: never. Seen is how many of
	// the seconds between were no gap.
	From *float64 `json:"from,omitempty"`
	To   *float64 `json:"to,omitempty"`
	Seen float64  `json:"seen,omitempty"`
	// Pods are the last answers.
	Pods map[string]Answer `json:"pods,omitempty"`
	// Tracks are the series so far.
	Tracks map[string]*track `json:"tracks,omitempty"`
}

// Answer is what one agent said, and when: a round of questions takes as long as its slowest agent, and a rate over the time between
// two rounds would be off by that.
type Answer struct {
	At      time.Time           `json:"at"`
	Metrics agentclient.Metrics `json:"metrics"`
}

// track is one series while it grows.
type track struct {
	Points [][2]float64 `json:"points,omitempty"`
	Peak   float64      `json:"peak"`
	Total  float64      `json:"total,omitempty"`
	// Recent are the totals of the last minute and when they were reached, PeakMinute the largest mean rate over one. It is nil before
	// there was a whole one.
	Recent     [][2]float64 `json:"recent,omitempty"`
	PeakMinute *float64     `json:"peakMinute,omitempty"`
}

// gauges are what the agents know at a moment. A figure that an agent does not tell is nil.
var gauges = map[string]struct {
	unit  string
	value func(*agentclient.Metrics) *float64
}{
	report.SeriesProcesses:       {"1", ofNode(func(m *agentclient.Metrics) *float64 { return &m.Processes })},
	report.SeriesMemory:          {"bytes", ofNode(func(m *agentclient.Metrics) *float64 { return &m.Memory })},
	report.SeriesMemoryProcesses: {"bytes", ofNode(func(m *agentclient.Metrics) *float64 { return &m.MemoryProcesses })},
	report.SeriesMemoryBinary:    {"bytes", ofNode(func(m *agentclient.Metrics) *float64 { return &m.MemoryBinary })},
	report.SeriesMemoryETS:       {"bytes", ofNode(func(m *agentclient.Metrics) *float64 { return &m.MemoryETS })},
	report.SeriesStashes:         {"1", ofNode(func(m *agentclient.Metrics) *float64 { return &m.Stashes })},
	report.SeriesStashBytes:      {"bytes", ofNode(func(m *agentclient.Metrics) *float64 { return &m.StashBytes })},
	report.SeriesPodMemory:       {"bytes", func(m *agentclient.Metrics) *float64 { return m.PodMemory }},
}

// counters are what the agents count from the start of their virtual machine.
var counters = map[string]struct {
	unit  string
	value func(*agentclient.Metrics) *float64
}{
	report.SeriesHTTPIn:          {"bytes/s", ofNode(func(m *agentclient.Metrics) *float64 { return &m.HTTPIn })},
	report.SeriesHTTPOut:         {"bytes/s", ofNode(func(m *agentclient.Metrics) *float64 { return &m.HTTPOut })},
	report.SeriesDistributionIn:  {"bytes/s", ofNode(func(m *agentclient.Metrics) *float64 { return &m.DistributionIn })},
	report.SeriesDistributionOut: {"bytes/s", ofNode(func(m *agentclient.Metrics) *float64 { return &m.DistributionOut })},
	report.SeriesRedisIn:         {"bytes/s", ofNode(func(m *agentclient.Metrics) *float64 { return &m.RedisIn })},
	report.SeriesRedisOut:        {"bytes/s", ofNode(func(m *agentclient.Metrics) *float64 { return &m.RedisOut })},
	report.SeriesCPU:             {"cores", ofNode(func(m *agentclient.Metrics) *float64 { return &m.CPUSeconds })},
	report.SeriesCollections:     {"1/s", ofNode(func(m *agentclient.Metrics) *float64 { return m.Collections })},
	report.SeriesPodCPU:          {"cores", func(m *agentclient.Metrics) *float64 { return m.PodCPUSeconds }},
}

// ofNode is a figure of the virtual machine, which a pod without an agent does not tell.
func ofNode(value func(*agentclient.Metrics) *float64) func(*agentclient.Metrics) *float64 {
	return func(m *agentclient.Metrics) *float64 {
		if m.PodOnly {
			return nil
		}
		return value(m)
	}
}

// NewRecorder begins the series of a run.
func NewRecorder(startedAt time.Time) *Recorder {
	return &Recorder{StartedAt: startedAt}
}

// ParseRecorder reads a recorder back that was kept as JSON. Between writing and reading anybody who may edit its ConfigMap can have changed
// it, so one with figures that cannot be is refused.
func ParseRecorder(text []byte) (*Recorder, error) {
	read := &Recorder{}
	if err := json.Unmarshal(text, read); err != nil {
		return nil, err
	}
	if read.Samples < 0 || read.Incomplete < 0 {
		return nil, fmt.Errorf("it has %d samples, %d of them incomplete", read.Samples, read.Incomplete)
	}
	from, to := ptr.Deref(read.From, 0), ptr.Deref(read.To, 0)
	if !plausible.Seconds(from) || !plausible.Seconds(to) || !plausible.Seconds(read.Seen) || from > to || read.Seen > to-from+rounding {
		return nil, fmt.Errorf("its samples are from %g to %g s, and %g s of that were seen", from, to, read.Seen)
	}
	for pod, said := range read.Pods {
		if err := said.Metrics.Check(); err != nil {
			return nil, fmt.Errorf("pod %q: %w", pod, err)
		}
	}
	for name, track := range read.Tracks {
		if err := track.check(name); err != nil {
			return nil, fmt.Errorf("series %q: %w", name, err)
		}
	}
	return read, nil
}

// check finds what no track can have.
func (t *track) check(name string) error {
	_, gauge := gauges[name]
	_, counter := counters[name]
	if t == nil || !gauge && !counter {
		return errors.New("there is no such series")
	}
	if len(t.Points) >= keptPoints {
		return fmt.Errorf("it has %d points", len(t.Points))
	}
	for _, point := range t.Points {
		if !plausible.Seconds(point[0]) || !plausible.Figure(point[1]) {
			return fmt.Errorf("it has a point at %g s of %g", point[0], point[1])
		}
	}
	if len(t.Recent) > mostRecent {
		return fmt.Errorf("it has %d totals of the last minute", len(t.Recent))
	}
	for _, point := range t.Recent {
		if !plausible.Seconds(point[0]) || !plausible.Figure(point[1]) {
			return fmt.Errorf("it has a total of %g at %g s", point[1], point[0])
		}
	}
	return plausible.Named{"peak": t.Peak, "total": t.Total, "peak over a minute": ptr.Deref(t.PeakMinute, 0)}.Check()
}

// Add takes what the agents of a fleet of so many pods said, by pod. A sum over some of the pods would look like a dip, so it
// is a point only when all of them answered; what is counted meanwhile is in the next one's total all the same.
func (r *Recorder) Add(pods int, said map[string]Answer) {
	if r.Tracks == nil {
		r.Tracks = map[string]*track{}
	}
	if r.Pods == nil {
		r.Pods = map[string]Answer{}
	}
	r.Samples++
	second := 0.0
	for _, answer := range said {
		second = max(second, answer.At.Sub(r.StartedAt).Seconds())
	}
	second = min(second, plausible.MostSeconds)
	begun := r.From != nil
	if len(said) == pods {
		r.see(second)
	} else {
		r.Incomplete++
	}
	for name, gauge := range gauges {
		if sum, told := sumOf(said, gauge.value); told == pods {
			r.track(name).add(second, sum)
		}
	}
	for name, counter := range counters {
		if rate, known := r.countAll(name, begun, said, counter.value); known == pods {
			r.track(name).add(second, rate)
		}
		if _, told := sumOf(said, counter.value); told == pods {
			r.track(name).overMinute(second)
		}
	}
	maps.Copy(r.Pods, said)
}

// countAll adds to a counter what it has grown by since the answers before, and returns its rate and of how many pods that is known. begun is whether all
// agents have answered before.
func (r *Recorder) countAll(name string, begun bool, said map[string]Answer, value func(*agentclient.Metrics) *float64) (rate float64, known int) {
	for pod, answer := range said {
		now := value(&answer.Metrics)
		if now == nil {
			continue
		}
		last, found := r.Pods[pod]
		if !found {
			if begun {
				// A pod that has come during the run: what it did before its first answer is the run's as well.
				r.track(name).count(*now)
			}
			continue
		}
		elapsed, before := answer.At.Sub(last.At).Seconds(), value(&last.Metrics)
		if elapsed <= 0 || before == nil {
			continue
		}
		grown := growthOf(*before, *now)
		r.track(name).count(grown)
		rate += grown / elapsed
		known++
	}
	return rate, known
}

// see notes that all agents answered.
func (r *Recorder) see(second float64) {
	if r.From == nil {
		r.From, r.To = &second, &second
		return
	}
	if since := second - *r.To; since > 0 {
		r.To = &second
		if since <= mostUnseen {
			r.Seen += since
		}
	}
}

// Sampled is for how many seconds all agents of the fleet told what they know, and whether that is a run of so many seconds from its beginning
// to its end, but for short gaps. What a pod that stays has counted is not lost in a gap, a peak may be.
func (r *Recorder) Sampled(run float64) (seconds float64, whole bool) {
	edge := max(leastEdge, min(mostEdge, run/10))
	if r.From == nil {
		return 0, run <= edge
	}
	return r.Seen, *r.From <= edge && *r.To >= run-edge && r.Seen >= leastSeen*(run-2*edge)
}

// sumOf adds up a figure of those who tell it, and says how many they are.
func sumOf(said map[string]Answer, figure func(*agentclient.Metrics) *float64) (sum float64, told int) {
	for _, answer := range said {
		if value := figure(&answer.Metrics); value != nil {
			sum += *value
			told++
		}
	}
	return sum, told
}

// Series are all series, thinned to what a report keeps. Empty when there was no point.
func (r *Recorder) Series() map[string]report.Series {
	series := map[string]report.Series{}
	for name, gauge := range gauges {
		if found := r.Tracks[name]; found != nil && len(found.Points) > 0 {
			series[name] = report.Series{Unit: gauge.unit, Points: thinned(found.Points), Peak: found.Peak}
		}
	}
	for name, counter := range counters {
		if found := r.Tracks[name]; found != nil && len(found.Points) > 0 {
			series[name] = report.Series{Unit: counter.unit, Points: thinned(found.Points), Peak: found.Peak, PeakMinute: found.PeakMinute, Total: r.Total(name)}
		}
	}
	return series
}

// Total is what one of the counters has counted so far. Nil: not all agents told it twice.
func (r *Recorder) Total(name string) *float64 {
	if found := r.Tracks[name]; found != nil && len(found.Points) > 0 {
		return ptr.To(found.Total)
	}
	return nil
}

func (r *Recorder) track(name string) *track {
	if r.Tracks[name] == nil {
		r.Tracks[name] = &track{}
	}
	return r.Tracks[name]
}

// count adds to what is counted. Sums of figures that are believed must be believed when they are read back.
func (t *track) count(grown float64) { t.Total = min(t.Total+grown, plausible.Most) }

func (t *track) add(second, value float64) {
	value = min(value, plausible.Most)
	t.Peak = max(t.Peak, value)
	t.Points = append(t.Points, [2]float64{second, value})
	if len(t.Points) >= keptPoints {
		t.Points = halved(t.Points)
	}
}

// overMinute takes note of the total at a second, and of the mean rate since the latest of those a minute ago.
func (t *track) overMinute(second float64) {
	for len(t.Recent) > 1 && second-t.Recent[1][0] >= minute {
		t.Recent = t.Recent[1:]
	}
	if len(t.Recent) > 0 {
		first := t.Recent[0]
		// After a gap the mean is over more than a minute, and no peak of one.
		if elapsed := second - first[0]; elapsed >= minute && elapsed <= minute+2*minuteStep {
			t.PeakMinute = ptr.To(max(ptr.Deref(t.PeakMinute, 0), (t.Total-first[1])/elapsed))
		}
		if second-t.Recent[len(t.Recent)-1][0] < minuteStep {
			return
		}
	}
	t.Recent = append(t.Recent, [2]float64{second, t.Total})
}

// growthOf is by how much a counter has grown. One that is smaller than before has begun again, with its virtual machine.
func growthOf(before, now float64) float64 {
	if now < before {
		return now
	}
	return now - before
}

// thinned is at most as many points as a report keeps.
func thinned(points [][2]float64) [][2]float64 {
	if len(points) > report.MaxPoints {
		return halved(points)
	}
	return points
}

// halved puts the mean in the place of each two points.
func halved(points [][2]float64) [][2]float64 {
	half := make([][2]float64, 0, (len(points)+1)/2)
	for i := 0; i+1 < len(points); i += 2 {
		a, b := points[i], points[i+1]
		half = append(half, [2]float64{(a[0] + b[0]) / 2, (a[1] + b[1]) / 2})
	}
	if len(points)%2 == 1 {
		half = append(half, points[len(points)-1])
	}
	return half
}
