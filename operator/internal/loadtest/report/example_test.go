package report_test

import (
	"fmt"
	"math"
	"time"

	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

var start = time.Date(2026, 11, 20, 9, 30, 0, 0, time.UTC)

// adapters with what each adds in the made-up reports: a factor for memory and CPU, and which bytes it moves.
var adapters = []struct {
	name         string
	memory, cpu  float64
	nodes, redis float64
	ms           float64
}{
	{"None", 1, 1, 0, 0, 4.1},
	{"ETS", 1.12, 1.04, 3e5, 0, 4.6},
	{"BrowserMemory", 1.01, 1.06, 0, 0, 4.3},
	{"Redis", 1.03, 1.22, 0, 4e5, 5.2},
	{"Mnesia", 1.31, 1.35, 9e5, 0, 6.4},
}

// example is a report of runs with a number of points in each series: all adapters under each load. The figures are made
// up, and the same each time.
func example(points int, loads ...[2]int) report.Report {
	r := report.Report{
		SchemaVersion: report.SchemaVersion,
		Name:          "weekly",
		Namespace:     "shop",
		Spec: report.Spec{
			Preset: "livestash-2026", Scale: 1, Scenario: "Visits", Target: "template", Routing: "RoundRobin", Runner: "Job", PayloadKeys: 150, PayloadOnPage: "Shown",
			Thresholds: map[string]string{"minRecovered": "0.99", "maxWrong": "0", "maxFailed": "0.01"},
		},
		StartedAt:  start,
		FinishedAt: start.Add(95 * time.Minute),
		Verdict:    report.VerdictPassed,
		Machine:    report.Machine{Nodes: []report.Node{{Name: "node-1", CPU: 8, Memory: 32 << 30, Kubelet: "v1.36.3"}}},
		Versions: report.Versions{
			Operator: "0.1.0", K6Image: "ghcr.io/livestash-dev/livestash-k6:0.1.0",
			FleetImage: "ghcr.io/livestash-dev/livestash-workload-phoenix:0.1.0", Kubernetes: "v1.36.3",
		},
	}
	at := start
	for _, load := range loads {
		for i, a := range adapters {
			users, ttl := load[0], load[1]
			length := time.Duration(3*ttl) * time.Second
			run := report.Run{
				Name: fmt.Sprintf("weekly-%02d-%s", len(r.Runs)+1, a.name), Adapter: a.name, Users: users,
				TTLSeconds: float64(ttl), DurationSeconds: float64(3 * ttl), RampSeconds: float64(ttl) * 0.75,
				Replicas: 2, Runners: 1 + users/19500, Verdict: report.VerdictPassed, StartedAt: at, FinishedAt: at.Add(length),
				Counts: &report.Counts{Of: map[string]int64{
					report.CountPlanned: int64(users), report.CountConnected: int64(users), report.CountCycles: int64(4 * users),
					report.CountRecovered: int64(users), report.CountLateNotRecovered: int64(users) / 2,
				}},
				Durations: durations(a.ms, int64(users)),
				Samples:   samples(points, float64(3*ttl), float64(users), i),
			}
			if a.name == "None" {
				run.Counts.Of[report.CountRecovered], run.Counts.Of[report.CountNotRecovered] = 0, 0
			}
			at = at.Add(length + 10*time.Second)
			r.Runs = append(r.Runs, run)
		}
	}
	return r
}

func durations(ms float64, count int64) map[string]report.Duration {
	all := map[string]report.Duration{}
	for name, factor := range map[string]float64{"first_render": 4, "join": 1, "stash": 0.4, "reconnect": 2.5, "rejoin": 0.9, "late_rejoin": 0.9, "any_rejoin": 0.9} {
		all[name] = report.Duration{
			Count: count, Min: ms * factor / 3, P50: ms * factor, P95: ms * factor * 1.7, P99: ms * factor * 2.9, Max: ms * factor * 9,
			ErrorBound: 0.011, RankBound: 0.001,
		}
	}
	return all
}

func samples(points int, seconds, users float64, adapter int) map[string]report.Series {
	a := adapters[adapter]
	series := func(unit string, base, height float64) report.Series {
		s := report.Series{Unit: unit}
		for i := range points {
			x := float64(i) / float64(max(1, points-1))
			wave := math.Min(1, 3*x) * (0.8 + 0.2*math.Sin(9*x+float64(adapter)/3))
			v := base + height*wave
			s.Points = append(s.Points, [2]float64{math.Round(x*seconds*1000) / 1000, v})
			s.Peak = math.Max(s.Peak, v)
		}
		if unit == "bytes/s" || unit == "cores" {
			total := height * seconds * 0.7
			s.Total = &total
			calmer := 0.9 * s.Peak
			s.PeakMinute = &calmer
		}
		return s
	}
	all := map[string]report.Series{
		report.SeriesProcesses:       series("1", 900, users*1.3),
		report.SeriesMemory:          series("bytes", 9e7, users*31e3*a.memory),
		report.SeriesMemoryProcesses: series("bytes", 2e7, users*17e3),
		report.SeriesMemoryBinary:    series("bytes", 2e6, users*4e3*a.cpu),
		report.SeriesMemoryETS:       series("bytes", 2e6, users*6e3*(a.memory-1)),
		report.SeriesHTTPIn:          series("bytes/s", 0, users*80*a.cpu),
		report.SeriesHTTPOut:         series("bytes/s", 0, users*300*a.cpu),
		report.SeriesDistributionIn:  series("bytes/s", 200, a.nodes*users/1000),
		report.SeriesDistributionOut: series("bytes/s", 200, a.nodes*users/1000),
		report.SeriesRedisIn:         series("bytes/s", 0, a.redis*users/1000),
		report.SeriesRedisOut:        series("bytes/s", 0, a.redis*users/500),
		report.SeriesCPU:             series("cores", 0.02, users/6000*a.cpu),
		report.SeriesPodMemory:       series("bytes", 1.2e8, users*36e3*a.memory),
		report.SeriesPodCPU:          series("cores", 0.03, users/5500*a.cpu),
	}
	if a.name == "ETS" || a.name == "Mnesia" {
		all[report.SeriesStashes] = series("1", 0, users*1.4)
		all[report.SeriesStashBytes] = series("bytes", 1e4, users*6e3*(a.memory-1))
	}
	return all
}

// published is the published matrix: users, and TTL in seconds.
var published = [][2]int{{1000, 60}, {5000, 60}, {10000, 60}, {17000, 60}, {25000, 60}, {25000, 300}, {25000, 900}}

// mixed has a run of each verdict, words that mean something in HTML and Markdown, and one run that has not ended.
func mixed() report.Report {
	r := example(20, [2]int{1000, 60}, [2]int{300, 15})
	r.Verdict = report.VerdictErrored
	failed, errored, open := &r.Runs[3], &r.Runs[4], &r.Runs[9]
	failed.Verdict = report.VerdictFailed
	failed.Message = "minRecovered 0.99: 912 of 1,000 returns recovered (0.912)"
	failed.Counts.Of[report.CountRecovered], failed.Counts.Of[report.CountNotRecovered] = 912, 88
	failed.Counts.Of[report.CountError], failed.Counts.Errors = 14, map[string]int64{"timeout": 11, "closed": 3}
	errored.Verdict = report.VerdictErrored
	errored.Message = `The script does not start: SyntaxError: <script>alert("x")</script> & a | pipe in *visits_js*`
	errored.Counts, errored.Durations = nil, nil
	open.Verdict, open.Counts, open.Durations, open.Samples = "", nil, nil, nil
	return r
}
