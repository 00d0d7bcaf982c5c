// Command bench measures what a user costs k6: a scenario with one VU for each user against the same scenario with many users in one
// VU; or, with -against, the client of another working copy against this one. Both run on this machine, in turns, against a server of
// this program, so only their ratios mean something.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/livestash-dev/livestash/loadtests/k6/test/faultserver"
)

// What many users per VU may cost, as a share of what one VU for each costs.
const (
	mostMemory = 1.0 / 3
	mostCPU    = 1.0
)

type options struct {
	k6, scenario, against string
	users, rounds         int
	perVU                 int
	duration, ttl         time.Duration
	bases                 []string
}

// form is one of the two that are compared.
type form struct {
	name, scenario string
	perVU          int
}

// cost is what one run took.
type cost struct {
	memory int64         // peak resident bytes
	cpu    time.Duration // user and system
	cycles int
	p50    float64 // ms, reconnect
	p99    float64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var o options
	flag.StringVar(&o.k6, "k6", "../../../bin/k6", "k6 to measure")
	flag.StringVar(&o.scenario, "scenario", "../scenarios/reconnect.js", "scenario to run")
	flag.StringVar(&o.against, "against", "", "scenario of another working copy, to be compared with instead of one VU for each user")
	flag.DurationVar(&o.ttl, "ttl", time.Minute, "TTL that the scenario is told")
	flag.IntVar(&o.users, "users", 500, "users")
	flag.IntVar(&o.perVU, "users-per-vu", 100, "users per VU of the form that is compared with one VU for each")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds, each with a run of both forms")
	flag.DurationVar(&o.duration, "duration", 30*time.Second, "length of a run")
	flag.Parse()
	server := faultserver.New(faultserver.None)
	defer func() { _ = server.Close() }()
	for _, host := range []string{"127.0.0.1", "127.0.0.2"} {
		base, err := server.Listen(host)
		if err != nil {
			return err
		}
		o.bases = append(o.bases, base)
	}
	return o.compare(ctx)
}

func (o options) compare(ctx context.Context) error {
	before, after := form{"1 per VU", o.scenario, 1}, form{strconv.Itoa(o.perVU) + " per VU", o.scenario, o.perVU}
	if o.against != "" {
		before, after = form{"against", o.against, o.perVU}, form{"this one", o.scenario, o.perVU}
	}
	rest, err := o.measure(ctx, form{scenario: o.scenario, perVU: 1}, 1)
	if err != nil {
		return err
	}
	fmt.Printf("%d users, %s each run; k6 with one user takes %.0f MiB\n\n", o.users, o.duration, mib(rest.memory))
	fmt.Printf("%-8s%-22s%12s%16s%10s%10s%16s%10s%10s\n", "round", "form", "peak MiB", "KiB per user", "cycles", "CPU s", "CPU ms/cycle", "p50 ms", "p99 ms")
	var memory, cpu []float64
	for round := range o.rounds {
		forms := []form{before, after}
		costs := map[form]cost{}
		if round%2 == 1 {
			slices.Reverse(forms)
		}
		for _, f := range forms {
			c, err := o.measure(ctx, f, o.users)
			if err != nil {
				return err
			}
			costs[f] = c
			fmt.Printf("%-8d%-22s%12.0f%16.0f%10d%10.2f%16.2f%10.1f%10.1f\n", round+1, f.name,
				mib(c.memory), o.perUser(c, rest)/1024, c.cycles, c.cpu.Seconds(), c.perCycle(), c.p50, c.p99)
		}
		memory = append(memory, o.perUser(costs[after], rest)/o.perUser(costs[before], rest))
		cpu = append(cpu, costs[after].perCycle()/costs[before].perCycle())
	}
	fmt.Printf("\n%s to %s: memory per user %s, CPU per cycle %s (median, least to most)\n", after.name, before.name, ratio(memory), ratio(cpu))
	if o.against == "" && (median(memory) > mostMemory || median(cpu) > mostCPU) {
		return fmt.Errorf("many users per VU must take at most %.2f of the memory and %.2f of the CPU time of one VU for each", mostMemory, mostCPU)
	}
	return nil
}

// measure runs k6 once, to its end.
func (o options) measure(ctx context.Context, f form, users int) (cost, error) {
	ctx, cancel := context.WithTimeout(ctx, o.duration+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, o.k6, "run", "--quiet", "--no-usage-report", "--address", "", f.scenario)
	collector, err := collectorOf(f.scenario)
	if err != nil {
		return cost{}, err
	}
	cmd.Env = []string{collector, "PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(), "BASE_URLS=" + strings.Join(o.bases, ","),
		"USERS=" + strconv.Itoa(users), "USERS_PER_VU=" + strconv.Itoa(f.perVU), "TTL=" + o.ttl.String(), "DURATION=" + o.duration.String(),
		// so long that the costlier form does not want more CPU than a small machine has; a machine that is busy otherwise may be slow
		"PAUSE=4s", "TIMEOUT=1m", "MAX_FAILED=1", "MAX_CLIENT_DELAY=1m"}
	output, err := cmd.Output()
	if err != nil {
		table, _, _ := strings.Cut(string(output), "LIVESTASH_RESULT ")
		return cost{}, fmt.Errorf("%d users, %d per VU: k6: %w\n%s", users, f.perVU, err, table)
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return cost{}, errors.New("this system does not tell what a process used")
	}
	c := cost{memory: usage.Maxrss * 1024, cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	return c, c.read(string(output))
}

// collectorOf is what the image of a scenario tells Go's garbage collector.
func collectorOf(scenario string) (string, error) {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(scenario), "..", "Dockerfile"))
	if err != nil {
		return "", fmt.Errorf("the image of %s: %w", scenario, err)
	}
	if set := regexp.MustCompile(`\bGOGC=\w+`).Find(text); set != nil {
		return string(set), nil
	}
	return "GOGC=100", nil
}

// read reads the report in the output of k6.
func (c *cost) read(output string) error {
	_, line, found := strings.Cut(output, "LIVESTASH_RESULT ")
	if !found {
		return fmt.Errorf("k6 printed no report: %s", output)
	}
	var report struct {
		Passed    bool `json:"passed"`
		Cycles    int  `json:"cycles"`
		Durations map[string]struct {
			P50 float64 `json:"p50"`
			P99 float64 `json:"p99"`
		} `json:"durations"`
	}
	if err := json.NewDecoder(strings.NewReader(line)).Decode(&report); err != nil {
		return fmt.Errorf("the report of k6: %w", err)
	}
	if !report.Passed || report.Cycles == 0 {
		return fmt.Errorf("the test did not pass: %s", line)
	}
	c.cycles, c.p50, c.p99 = report.Cycles, report.Durations["reconnect"].P50, report.Durations["reconnect"].P99
	return nil
}

func (c cost) perCycle() float64 {
	return float64(c.cpu.Microseconds()) / 1000 / float64(c.cycles)
}

// perUser returns the bytes that a user adds to k6 itself.
func (o options) perUser(c, rest cost) float64 {
	return float64(c.memory-rest.memory) / float64(o.users)
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

func ratio(values []float64) string {
	return fmt.Sprintf("%.2f (%.2f to %.2f)", median(values), slices.Min(values), slices.Max(values))
}
