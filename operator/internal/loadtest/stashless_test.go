package loadtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// requestsRun and roomsRun are the runs whose reports are in testdata, as k6 1.8.1 left them: 5 s against loadtests/rivals/json-go and
// chat-go, two runners each.
func requestsRun() Run {
	return Run{
		Name: "api-01-none", Scenario: v1alpha1.ScenarioRequests, Adapter: v1alpha1.AdapterNone, Users: 4, Runners: 2, Duration: 5 * time.Second,
		Requests: &v1alpha1.BenchmarkRequests{Method: "POST", Path: "/api/sum"},
	}
}

func roomsRun() Run {
	return Run{
		Name: "chat-01-none", Scenario: v1alpha1.ScenarioRooms, Adapter: v1alpha1.AdapterNone, Users: 20, Runners: 2, Duration: 5 * time.Second, Ramp: time.Second,
		Rooms:  &v1alpha1.BenchmarkRooms{Size: 5, Speakers: ptr.To[int32](2), Every: "200ms-600ms", Bytes: 64},
		Server: &v1alpha1.BenchmarkServer{Image: "chat", Protocol: v1alpha1.ProtocolWebSocket},
	}
}

func TestPlanOfRequests(t *testing.T) {
	asked := &v1alpha1.BenchmarkRequests{Method: "POST", Path: "/api/sum"}
	cases := map[string]struct {
		size        v1alpha1.BenchmarkRun
		parallelism *int32
		want        Run
		load        string
	}{
		"closed": {
			size: v1alpha1.BenchmarkRun{Connections: 12},
			want: Run{Users: 12, Runners: 1, Duration: time.Minute, Deadline: 11 * time.Minute}, load: "12 connections",
		},
		"open": {
			size: v1alpha1.BenchmarkRun{Rate: 500, Duration: duration(30 * time.Second)},
			want: Run{Users: 100, Rate: 500, Runners: 1, Duration: 30 * time.Second, Deadline: 10*time.Minute + 30*time.Second}, load: "500 requests a second on 100 connections",
		},
		"each runner has as many as the others": {
			size: v1alpha1.BenchmarkRun{Connections: 10}, parallelism: ptr.To[int32](4),
			want: Run{Users: 12, Runners: 4, Duration: time.Minute, Deadline: 11 * time.Minute}, load: "12 connections",
		},
		"more than one runner has descriptors for": {
			size: v1alpha1.BenchmarkRun{Connections: 19501},
			want: Run{Users: 19502, Runners: 2, Duration: time.Minute, Deadline: 11 * time.Minute}, load: "19502 connections",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			runs := Plan(benchmarkOf(v1alpha1.LiveStashBenchmarkSpec{
				Scenario: v1alpha1.ScenarioRequests, Parallelism: c.parallelism, Matrix: &v1alpha1.BenchmarkMatrix{Runs: []v1alpha1.BenchmarkRun{c.size}},
			}))
			c.want.Name, c.want.Scenario, c.want.Variant, c.want.Adapter, c.want.Round, c.want.Requests =
				"shop-01-none", v1alpha1.ScenarioRequests, "None", v1alpha1.AdapterNone, 1, asked
			if diff := cmp.Diff([]Run{c.want}, runs); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if load := runs[0].Load(); load != c.load {
				t.Errorf("the load is %q, want %q", load, c.load)
			}
		})
	}
}

// Rooms are dealt out whole: no runner gets more of them than it has descriptors for, however they are dealt out.
func TestPlanOfRooms(t *testing.T) {
	for _, c := range []struct{ size, users, runners int32 }{
		{50, 2500, 1}, {50, 19500, 1}, {50, 19550, 2}, {10000, 30000, 3}, {19500, 39000, 2}, {9750, 39000, 2}, {7000, 21000, 2}, {1, 19501, 2},
	} {
		run := Plan(benchmarkOf(v1alpha1.LiveStashBenchmarkSpec{
			Scenario: v1alpha1.ScenarioRooms, Rooms: &v1alpha1.BenchmarkRooms{Size: c.size},
			Matrix: &v1alpha1.BenchmarkMatrix{Runs: []v1alpha1.BenchmarkRun{{Users: c.users}}},
		}))[0]
		if run.Runners != c.runners {
			t.Errorf("%d users in rooms of %d have %d runners, want %d", c.users, c.size, run.Runners, c.runners)
		}
		if most := ceilDiv(c.users/c.size, run.Runners) * c.size; most > usersPerRunner {
			t.Errorf("%d users in rooms of %d: a runner has %d of them", c.users, c.size, most)
		}
		want := &v1alpha1.BenchmarkRooms{Size: c.size, Speakers: ptr.To(c.size), Every: "10s-60s", Bytes: 64}
		if diff := cmp.Diff(want, run.Rooms); diff != "" || run.Duration != 5*time.Minute || run.Ramp != 75*time.Second {
			t.Errorf("%s, with a ramp of %s: %s", run.Duration, run.Ramp, diff)
		}
	}
}

func TestOptionsOfRequestsAndRooms(t *testing.T) {
	limits := v1alpha1.BenchmarkThresholds{MinRecovered: "0.9", MaxWrong: ptr.To[int64](2), MaxFailed: "0.5", MaxClientDelay: duration(time.Second)}
	shared := map[string]string{"TESTID": "test", "BASE_URLS": "http://a", "MAX_FAILED": "0.5", "MAX_CLIENT_DELAY": "1s"}
	withBody := requestsRun()
	withBody.Rate, withBody.Requests = 500, &v1alpha1.BenchmarkRequests{Method: "PUT", Path: "/carts", Body: `{"n": {1..9}}`}
	for name, c := range map[string]struct {
		run  Run
		want map[string]string
	}{
		"requests": {requestsRun(), map[string]string{"CONNECTIONS": "4", "RATE": "0", "DURATION": "5s", "METHOD": "POST", "REQUEST_PATH": "/api/sum"}},
		"requests of one's own": {withBody, map[string]string{
			"CONNECTIONS": "4", "RATE": "500", "DURATION": "5s", "METHOD": "PUT", "REQUEST_PATH": "/carts", "BODY": `{"n": {1..9}}`,
		}},
		"rooms": {roomsRun(), map[string]string{
			"USERS": "20", "ROOM_SIZE": "5", "PROTOCOL": "websocket", "SPEAKERS": "2", "EVERY": "200ms-600ms", "BYTES": "64", "DURATION": "5s", "RAMP": "1s",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for _, option := range c.run.Options("test", []string{"http://a"}, limits) {
				got[option.Name] = option.Value
			}
			for option, value := range shared {
				c.want[option] = value
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestJudgeRequestsAndRooms(t *testing.T) {
	share := func(yes, no int) map[string]any { return map[string]any{"yes": yes, "no": no} }
	slow := map[string]any{"count": 100, "p99": 250.0}
	open := func(run Run) Run { run.Rate = 500; return run }
	request := v1alpha1.BenchmarkThresholds{P99: &v1alpha1.BenchmarkDurations{Request: duration(time.Millisecond)}}
	delivery := v1alpha1.BenchmarkThresholds{P99: &v1alpha1.BenchmarkDurations{Delivery: duration(time.Millisecond)}}
	requestsIn := v1alpha1.BenchmarkThresholds{P99: &v1alpha1.BenchmarkDurations{Request: duration(time.Minute)}}
	deliveriesIn := v1alpha1.BenchmarkThresholds{MaxFailed: "0.5", P99: &v1alpha1.BenchmarkDurations{Delivery: duration(time.Minute)}}
	collected := v1alpha1.BenchmarkThresholds{MinCollections: ptr.To(int32(40))}
	phoenix := map[string]any{"protocol": "phoenix"}
	roomsOfFleet := func() Run { run := roomsRun(); run.Server = nil; return run }
	cases := map[string]struct {
		run     Run
		limits  v1alpha1.BenchmarkThresholds
		changes map[string]any
		// collections are those of the whole fleet.
		collections *float64
		verdict     v1alpha1.BenchmarkVerdict
		says        []string
		notes       string
	}{
		"requests, all well": {run: requestsRun(), verdict: v1alpha1.VerdictPassed},
		"rooms, all well":    {run: roomsRun(), verdict: v1alpha1.VerdictPassed},

		"requests that failed": {
			run: requestsRun(), changes: map[string]any{"failed": share(900, 7000), "error": 900, "errors": map[string]int{"status_500": 900}},
			verdict: v1alpha1.VerdictFailed, says: []string{"maxFailed: ", "requests failed (1800 errors: status_500 1800), at most 1 % may"},
		},
		"a wrong sum": {
			run: requestsRun(), changes: map[string]any{"wrong": 1, "failed": share(1, 8000)},
			verdict: v1alpha1.VerdictFailed, says: []string{"wrong: 2 of 16002 answers were wrong, none may be"},
		},
		"no good answer at all": {
			run: requestsRun(), changes: map[string]any{"failed": share(10, 0), "requests": 10, "error": 10, "errors": map[string]int{"status_404": 10}},
			verdict: v1alpha1.VerdictErrored, says: []string{"No request got a good answer: 20 were sent, and 20 errors: status_404 20."},
		},
		"slow answers": {run: requestsRun(), limits: request, verdict: v1alpha1.VerdictFailed, says: []string{"p99.request: at least "}},
		"another request": {
			run: requestsRun(), changes: map[string]any{"path": "/"}, verdict: v1alpha1.VerdictErrored, says: []string{"ran another test than it should have: POST /"},
		},
		"another scenario": {
			run: requestsRun(), changes: map[string]any{"scenario": "rooms"}, verdict: v1alpha1.VerdictErrored, says: []string{"ran the scenario rooms instead of requests"},
		},
		"a rate that the server does not take": {
			run: open(requestsRun()), changes: map[string]any{"rate": 500, "unsent": 300, "failed": share(0, 950)},
			verdict: v1alpha1.VerdictPassed, notes: "600 requests were due and not sent when the run ended, because all connections waited for answers. Of 500 requests a second that were due 380.0 were answered well.",
		},
		"a rate that the client does not make": {
			run: open(requestsRun()), changes: map[string]any{"rate": 500, "unsent": 300, "failed": share(0, 950), "client_delay": slow},
			verdict: v1alpha1.VerdictErrored, says: []string{"The client was the bottleneck", "Of 500 requests a second that were due 380.0 were answered well."},
		},
		"quick answers of a rate that the server does not take": {
			run: open(requestsRun()), limits: requestsIn, changes: map[string]any{"rate": 500, "unsent": 300, "failed": share(0, 950)},
			verdict: v1alpha1.VerdictFailed, says: []string{"p99.request: more than 1 % came to no good end, at most 60000.0 ms is allowed"},
		},
		"so few without an answer that they may be chance": {
			run: open(requestsRun()), limits: requestsIn, changes: map[string]any{"rate": 500, "unsent": 10, "failed": share(0, 950)},
			verdict: v1alpha1.VerdictPassed, notes: "20 requests were due and not sent when the run ended, because all connections waited for answers. Of 500 requests a second that were due 380.0 were answered well.",
		},
		"quick deliveries of few messages": {
			run: roomsRun(), limits: deliveriesIn, changes: map[string]any{"failed": share(8, 30)},
			verdict: v1alpha1.VerdictFailed, says: []string{"p99.delivery: more than 1 % came to no good end"},
		},
		"connections without an answer": {
			run: requestsRun(), changes: map[string]any{"connected": 1},
			verdict: v1alpha1.VerdictFailed, says: []string{"maxFailed: 2 connections never got a good answer, with 4 connections at most 0 may"},
		},
		"connections that have no turn": {
			run:     func() Run { run := requestsRun(); run.Users, run.Rate = 100, 1; return run }(),
			changes: map[string]any{"connections_wanted": 100, "planned": 50, "rate": 1, "requests": 3, "connected": 3, "failed": share(0, 3)}, verdict: v1alpha1.VerdictPassed,
		},
		"a script that counts no connections": {run: requestsRun(), changes: map[string]any{"connected": 0}, verdict: v1alpha1.VerdictPassed},

		"messages that did not arrive": {
			run: roomsRun(), changes: map[string]any{"failed": share(8, 30)}, verdict: v1alpha1.VerdictFailed,
			says: []string{"maxFailed: 21.05 % of 76 messages failed"},
		},
		"heard twice, and in another room": {
			run: roomsRun(), changes: map[string]any{"duplicates": 1, "misdelivered": 2}, verdict: v1alpha1.VerdictFailed,
			says: []string{"duplicates: 2 messages were heard twice, none may be", "misdelivered: 4 messages were heard in another room, or not whole, none may be (two tests at once hear each other's rooms)"},
		},
		"members who were never there": {
			run: roomsRun(), changes: map[string]any{"connected": 9, "connect_failed": 3, "dropped": 2}, verdict: v1alpha1.VerdictFailed,
			says: []string{
				"maxFailed: 2 users were never in their room, with 20 users at most 0 may be", "4 connections were ended by the server", "6 attempts to come into a room failed",
			},
		},
		"as many as may be": {
			run: roomsRun(), limits: v1alpha1.BenchmarkThresholds{MaxFailed: "0.3"}, changes: map[string]any{"connected": 9, "connect_failed": 3, "dropped": 2}, verdict: v1alpha1.VerdictPassed,
		},
		"nothing was said": {
			run: roomsRun(), changes: map[string]any{"failed": share(0, 0), "messages": 0, "connected": 0}, verdict: v1alpha1.VerdictErrored,
			says: []string{"Nothing was said: 0 of 20 users were in their rooms, and no error was seen. See whether the rooms of chat speak WebSocket, which server.protocol says."},
		},
		"garbage collected often enough": {run: roomsOfFleet(), changes: phoenix, limits: collected, collections: ptr.To(800.0), verdict: v1alpha1.VerdictPassed},
		"garbage collected too seldom": {
			run: roomsOfFleet(), changes: phoenix, limits: collected, collections: ptr.To(799.0), verdict: v1alpha1.VerdictErrored,
			says: []string{"thresholds.minCollections: garbage was collected 39.9 times for each user, at least 40 are needed: let the run last longer", "There are 3 samples of 60."},
		},
		"garbage collected too seldom, and few heard anything": {
			run: roomsOfFleet(), changes: map[string]any{"protocol": "phoenix", "failed": share(8, 30)}, limits: collected, collections: ptr.To(1.0),
			verdict: v1alpha1.VerdictFailed, says: []string{"maxFailed: 21.05 % of 76 messages failed"},
		},
		"garbage that nobody counted": {
			run: roomsOfFleet(), changes: phoenix, limits: collected, verdict: v1alpha1.VerdictErrored, says: []string{"thresholds.minCollections cannot be judged", "There are 3 samples of 60."},
		},
		"a server has no collector that tells": {run: roomsRun(), limits: collected, verdict: v1alpha1.VerdictPassed},
		"slow deliveries":                      {run: roomsRun(), limits: delivery, verdict: v1alpha1.VerdictFailed, says: []string{"p99.delivery: at least "}},
		"other rooms": {
			run: roomsRun(), changes: map[string]any{"room_size": 4}, verdict: v1alpha1.VerdictErrored,
			says: []string{"ran another test than it should have: 20 users in rooms of 4, 2 of whom say 64 bytes"},
		},
		"a server that speaks something else": {
			run: roomsRun(), changes: map[string]any{"problem": "There is nothing to test: no WebSocket."}, verdict: v1alpha1.VerdictErrored,
			says: []string{"ran nothing: There is nothing to test: no WebSocket. See whether the rooms of chat speak WebSocket, which server.protocol says."},
		},
		"another protocol": {
			run: roomsRun(), changes: map[string]any{"protocol": "phoenix"}, verdict: v1alpha1.VerdictErrored,
			says: []string{"ran another test than it should have: it spoke phoenix instead of websocket"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			file, testID := "requests", "requests"
			if c.run.Scenario == v1alpha1.ScenarioRooms {
				file, testID = "rooms", "rooms"
			}
			var ends []RunnerEnd
			for number := range 2 {
				message := with(t, captured(t, fmt.Sprintf("%s-%d.json", file, number)), c.changes)
				ends = append(ends, RunnerEnd{Ended: true, Message: message})
			}
			judged := Judge(c.run, testID, c.limits, ends, Fleet{Collections: c.collections, Note: "There are 3 samples of 60."})
			if judged.Verdict != c.verdict || judged.Note != c.notes {
				t.Errorf("%s because %q, noted %q; want %s, noted %q", judged.Verdict, judged.Message, judged.Note, c.verdict, c.notes)
			}
			for _, part := range c.says {
				if !strings.Contains(judged.Message, part) {
					t.Errorf("the message is %q, without %q", judged.Message, part)
				}
			}
		})
	}
}

// A row says how much came of the load, and how soon; what a client that was the bottleneck took is left out.
func TestHeadlinesOfRequestsAndRooms(t *testing.T) {
	for file, run := range map[string]Run{"requests": requestsRun(), "rooms": roomsRun()} {
		var reports []RunnerReport
		for number := range 2 {
			read, err := ParseRunnerReport(captured(t, fmt.Sprintf("%s-%d.json", file, number)))
			if err != nil {
				t.Fatal(err)
			}
			reports = append(reports, read)
		}
		scenario := ScenarioOf(run.Scenario)
		result := Merge(scenario, reports)
		var row, late v1alpha1.BenchmarkRunStatus
		scenario.Headline(run, result, true, &row)
		scenario.Headline(run, result, false, &late)
		want := map[string]string{"requests": fmt.Sprintf("%.1f", float64(result.Failed.No)/5), "rooms": "98.8"}[file] // 395 heard in 4 s
		if row.PerSecond != want || row.AnswerP95 == nil || late.PerSecond != want || late.AnswerP95 != nil || row.Recovered != "" || row.Lost != nil {
			t.Errorf("%s: the row is %+v, and of a late client %+v; want %s a second", file, row, late, want)
		}
	}
}
