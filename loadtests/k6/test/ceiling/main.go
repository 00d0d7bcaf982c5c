// Command ceiling measures what k6 itself can do: how many deliveries of Rooms and how many requests of Requests it
// takes a second for each core it is given. What a server is seen to do beyond a good part of that is k6's limit, not
// the server's.
//
// Two runs with the same connections differ in their load alone; what the second takes more of CPU time is the price of
// what it did more. CPU time depends much less than times do on what else a machine does.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/livestash-dev/livestash/loadtests/k6/test/faultserver"
)

// attempts is how often two runs are repeated that say nothing.
const attempts = 3

var errNothing = errors.New("say nothing")

// ceiling is something to measure: a scenario, its options, and those of the run with little and with more load.
type ceiling struct {
	name     string
	scenario string
	options  []string
	little   string
	more     string
}

// cost is what one run took, and what it did.
type cost struct {
	cpu  time.Duration // user and system
	done int
}

type options struct {
	k6       string
	rounds   int
	match    string
	duration time.Duration
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
	flag.IntVar(&o.rounds, "rounds", 3, "how often each is measured; the median is told, with the least and the most")
	flag.StringVar(&o.match, "match", "", "measure only those whose name contains this")
	flag.DurationVar(&o.duration, "duration", 10*time.Second, "length of a run")
	flag.Parse()
	rooms := faultserver.NewRooms(faultserver.None)
	defer func() { _ = rooms.Close() }()
	chat, err := rooms.Listen("127.0.0.1")
	if err != nil {
		return err
	}
	api := httptest.NewServer(http.HandlerFunc(sum))
	defer api.Close()
	fmt.Printf("%-46s%16s%28s\n", "", "a core can do", "CPU time of one (least, most)")
	for _, c := range all(chat, api.URL) {
		if !strings.Contains(c.name, o.match) {
			continue
		}
		var prices []time.Duration
		for range o.rounds {
			price, err := o.price(ctx, c)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			prices = append(prices, price)
		}
		slices.Sort(prices)
		median := (prices[(len(prices)-1)/2] + prices[len(prices)/2]) / 2
		fmt.Printf("%-46s%14.0f/s%14s (%s, %s)\n", c.name, float64(time.Second)/float64(median),
			median.Round(100*time.Nanosecond), prices[0].Round(100*time.Nanosecond),
			prices[len(prices)-1].Round(100*time.Nanosecond))
	}
	return nil
}

func all(chat, api string) []ceiling {
	var cs []ceiling
	for _, protocol := range []string{"phoenix", "websocket", "action_cable"} {
		for _, bytes := range []string{"64", "1024", "10240"} {
			cs = append(cs, ceiling{
				name:     fmt.Sprintf("deliveries, %s, %s bytes, rooms of 50", protocol, bytes),
				scenario: "rooms",
				options: []string{"BASE_URL=" + chat, "PROTOCOL=" + protocol, "BYTES=" + bytes, "USERS=200", "ROOM_SIZE=50",
					"EVERY=2s", "RAMP=1s"},
				little: "SPEAKERS=5", more: "SPEAKERS=50",
			})
		}
	}
	return append(cs, ceiling{
		name: "requests, POST /api/sum, 12 connections", scenario: "requests",
		options: []string{"BASE_URL=" + api, "CONNECTIONS=12"}, little: "RATE=50", more: "RATE=500",
	})
}

// price is the CPU time of one delivery, or one request. On a machine that stands still for seconds two runs may say
// nothing, and others have to.
func (o options) price(ctx context.Context, c ceiling) (time.Duration, error) {
	var price time.Duration
	var err error
	for range attempts {
		if price, err = o.compare(ctx, c); !errors.Is(err, errNothing) {
			break
		}
	}
	return price, err
}

func (o options) compare(ctx context.Context, c ceiling) (time.Duration, error) {
	little, err := o.measure(ctx, c, c.little)
	if err != nil {
		return 0, err
	}
	more, err := o.measure(ctx, c, c.more)
	if err != nil {
		return 0, err
	}
	if more.done <= little.done || more.cpu <= little.cpu {
		return 0, fmt.Errorf("%d in %s of CPU time against %d in %s %w: take a longer -duration", more.done, more.cpu,
			little.done, little.cpu, errNothing)
	}
	return (more.cpu - little.cpu) / time.Duration(more.done-little.done), nil
}

// measure runs k6 once, to its end.
func (o options) measure(ctx context.Context, c ceiling, load string) (cost, error) {
	ctx, cancel := context.WithTimeout(ctx, o.duration+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, o.k6, "run", "--quiet", "--no-usage-report", "--address", "",
		"../scenarios/"+c.scenario+".js")
	cmd.Env = slices.Concat([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir(),
		"DURATION=" + o.duration.String(),
		// What counts is what was done; a machine that is busy otherwise may be slow.
		"TIMEOUT=1m", "MAX_CLIENT_DELAY=10m", "MAX_FAILED=1", load}, c.options)
	output, err := cmd.Output()
	if err != nil {
		table, _, _ := strings.Cut(string(output), "LIVESTASH_RESULT ")
		return cost{}, fmt.Errorf("k6: %w\n%s", err, table)
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return cost{}, errors.New("this system does not tell what a process used")
	}
	_, line, _ := strings.Cut(string(output), "LIVESTASH_RESULT ")
	var report struct {
		Passed     bool `json:"passed"`
		Deliveries int  `json:"deliveries"`
		Requests   int  `json:"requests"`
	}
	if err := json.NewDecoder(strings.NewReader(line)).Decode(&report); err != nil {
		return cost{}, fmt.Errorf("the report of k6: %w", err)
	}
	if !report.Passed {
		return cost{}, fmt.Errorf("the test did not pass: %s", line)
	}
	return cost{time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), report.Deliveries + report.Requests}, nil
}

func sum(w http.ResponseWriter, r *http.Request) {
	var asked struct{ A, B int }
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, _ = fmt.Fprintf(w, `{"result":%d}`, asked.A+asked.B)
}
