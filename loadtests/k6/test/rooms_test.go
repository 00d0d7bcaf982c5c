package test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/livestash-dev/livestash/loadtests/k6/test/faultserver"
)

// roomsOutcome is a report of the scenario Rooms.
type roomsOutcome struct {
	outcome
	Protocol      string `json:"protocol"`
	Messages      int    `json:"messages"`
	Deliveries    int    `json:"deliveries"`
	Duplicates    int    `json:"duplicates"`
	Misdelivered  int    `json:"misdelivered"`
	Late          int    `json:"late_deliveries"`
	Undelivered   share  `json:"failed"`
	ConnectFailed int    `json:"connect_failed"`
}

type share struct {
	Yes int `json:"yes"`
	No  int `json:"no"`
}

var protocols = []string{"phoenix", "websocket", "action_cable"}

// runScenario runs a scenario and reads its report into out.
func runScenario(t *testing.T, name string, env map[string]string, out any) outcome {
	t.Helper()
	env[scenario] = name
	o := start(t, nil, env)
	_, line, found := strings.Cut(o.stdout, "LIVESTASH_RESULT ")
	if !found {
		t.Fatalf("no result line; exit code %d\n%s\n%s", o.exit, o.stdout, o.stderr)
	}
	if err := json.Unmarshal([]byte(strings.SplitN(line, "\n", 2)[0]), out); err != nil {
		t.Fatalf("result line: %v\n%s", err, line)
	}
	if o.took > length+slack {
		t.Errorf("the run took %s, more than %s", o.took, length+slack)
	}
	return o
}

// talk runs Rooms: four rooms of five, in two VUs.
func talk(t *testing.T, protocol string, bases []string, more map[string]string) roomsOutcome {
	t.Helper()
	env := map[string]string{"BASE_URLS": strings.Join(bases, ","), "PROTOCOL": protocol, "ROOM_SIZE": "5",
		"EVERY": "200ms-600ms"}
	for name, value := range more {
		env[name] = value
	}
	var out roomsOutcome
	o := runScenario(t, "rooms", env, &out)
	out.exit, out.took, out.stdout, out.stderr = o.exit, o.took, o.stdout, o.stderr
	if out.Passed != (out.exit == 0) {
		t.Errorf("passed is %v and the exit code %d", out.Passed, out.exit)
	}
	return out
}

func chat(t *testing.T, fault faultserver.Fault) (*faultserver.Rooms, []string) {
	t.Helper()
	s := faultserver.NewRooms(fault)
	t.Cleanup(func() { _ = s.Close() })
	var bases []string
	for _, host := range []string{"127.0.0.1", "127.0.0.2"} {
		base, err := s.Listen(host)
		if err != nil {
			t.Fatal(err)
		}
		bases = append(bases, base)
	}
	return s, bases
}

func TestRoomsThatWork(t *testing.T) {
	t.Parallel()
	for _, protocol := range protocols {
		// As Phoenix and Rails write their frames, and as others might: the same figures.
		for _, how := range []faultserver.Fault{faultserver.None, faultserver.Spaced} {
			t.Run(protocol+" "+string(how), func(t *testing.T) {
				t.Parallel()
				s, bases := chat(t, how)
				file := filepath.Join(t.TempDir(), "result.json")
				// Beyond the 4 KiB that k6 writes in one frame.
				out := talk(t, protocol, bases, map[string]string{"SUMMARY": file, "TIMEOUT": patience, "BYTES": "10240"})
				if !out.Passed || out.Error != 0 || out.Unfinished != 0 || out.Duplicates+out.Misdelivered+out.Late != 0 {
					t.Errorf("a chat that works did not pass: %+v", out)
				}
				if out.Planned != 20 || out.Connected != 20 || s.Largest.Load() != 5 {
					t.Errorf("planned %d, connected %d, at most %d in a room; want 20, 20, 5", out.Planned, out.Connected,
						s.Largest.Load())
				}
				// 20 speakers, 4.5 s, one message every 0.4 s: 225.
				if out.Messages < 100 || out.Messages > 300 || out.Undelivered != (share{No: out.Messages}) {
					t.Errorf("%d messages, %+v", out.Messages, out.Undelivered)
				}
				// The look before the start says nothing. On a busy machine members may come when others speak already,
				// and miss a few.
				if missed := 5*out.Messages - out.Deliveries; int64(out.Messages) != s.Said.Load() || missed < 0 || missed > 25 {
					t.Errorf("%d messages, of which the server has heard %d; %d deliveries, want five for each", out.Messages,
						s.Said.Load(), out.Deliveries)
				}
				checkDurations(t, out.outcome, map[string]int{"join": 20, "delivery": out.Messages})
				if out.ClientDelay.Count != out.Messages {
					t.Errorf("%d delays of the client, want one for each message", out.ClientDelay.Count)
				}
				// Each member of a room is at another server than the one beside them.
				if a, b := out.Connections[bases[0]], out.Connections[bases[1]]; a != 10 || b != 10 {
					t.Errorf("connections %v, want 10 to each server", out.Connections)
				}
				if n := s.Open.Load(); n != 0 {
					t.Errorf("%d WebSockets left open", n)
				}
				text, err := os.ReadFile(file)
				if err != nil || !strings.Contains(out.stdout, "LIVESTASH_RESULT "+strings.TrimSpace(string(text))) {
					t.Errorf("SUMMARY file (%v) differs from the result line: %s", err, text)
				}
			})
		}
	}
}

func TestRoomsThatGoWrong(t *testing.T) {
	t.Parallel()
	all := func(o roomsOutcome) bool { return o.Undelivered.Yes > 0 && o.Undelivered.No == 0 }
	for _, c := range []struct {
		fault     faultserver.Fault
		protocols []string
		// thresholds that must fail, and what else must be so
		failed []string
		so     func(roomsOutcome) bool
	}{
		{
			faultserver.LoseOne, protocols, []string{"failed rate<=0.01"},
			func(o roomsOutcome) bool { return all(o) && o.Deliveries > 4*o.Messages-20 },
		},
		{
			faultserver.Mute, protocols, []string{"failed rate<=0.01"},
			func(o roomsOutcome) bool { return all(o) && o.Deliveries == 0 && o.Error == 0 },
		},
		{
			faultserver.Belated, protocols, []string{"failed rate<=0.01"},
			func(o roomsOutcome) bool { return all(o) && o.Late > 0 },
		},
		{
			faultserver.Twice, protocols, []string{"duplicates count==0"},
			func(o roomsOutcome) bool { return o.Duplicates > 4*o.Messages && o.Undelivered.Yes == 0 },
		},
		{
			faultserver.Shortened, protocols, []string{"failed rate<=0.01", "misdelivered count==0"},
			func(o roomsOutcome) bool { return all(o) && o.Misdelivered > 0 },
		},
		{
			faultserver.EveryRoom, []string{"websocket"}, []string{"misdelivered count==0"},
			func(o roomsOutcome) bool { return o.Misdelivered > 10*o.Messages && o.Undelivered.Yes == 0 },
		},
		{faultserver.Noise, []string{"websocket"}, []string{"failed rate<=0.01", "misdelivered count==0"}, all},
		{
			faultserver.Noise, []string{"phoenix", "action_cable"}, []string{"dropped count<=0"},
			func(o roomsOutcome) bool { return o.Errors["bad_message"] > 0 },
		},
		{
			faultserver.RefuseMessage, []string{"phoenix"}, []string{"failed rate<=0.01"},
			func(o roomsOutcome) bool { return all(o) && o.Errors["refused"] == o.Messages },
		},
		{
			faultserver.DropSpeaker, protocols, []string{"dropped count<=0", "failed rate<=0.01"},
			func(o roomsOutcome) bool { return o.Errors["closed"] > 5 && o.Undelivered.No > o.Undelivered.Yes },
		},
		{
			faultserver.CrashRoom, []string{"phoenix"}, []string{"dropped count<=0", "failed rate<=0.01"},
			func(o roomsOutcome) bool { return o.Errors["crashed"] > 5 },
		},
		{
			faultserver.CrashRoom, []string{"websocket", "action_cable"}, []string{"dropped count<=0", "failed rate<=0.01"},
			func(o roomsOutcome) bool { return o.Errors["closed"] > 5 },
		},
	} {
		for _, protocol := range c.protocols {
			t.Run(string(c.fault)+" "+protocol, func(t *testing.T) {
				t.Parallel()
				s, bases := chat(t, c.fault)
				out := talk(t, protocol, bases, nil)
				if out.exit != thresholdsFailed {
					t.Errorf("exit code %d, want %d: %v", out.exit, thresholdsFailed, out.Failed)
				}
				for _, want := range c.failed {
					if !slices.Contains(out.Failed, want) {
						t.Errorf("failed thresholds %v lack %q", out.Failed, want)
					}
				}
				if !c.so(out) {
					t.Errorf("%s", out.stdout)
				}
				if n := s.Open.Load(); n != 0 {
					t.Errorf("%d WebSockets left open", n)
				}
			})
		}
	}
}

// With nobody who lets a member in there is nothing to test, and the report says why.
func TestRoomsNobodyGetsInto(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault    faultserver.Fault
		protocol string
		why      string
	}{
		{faultserver.RefuseJoin, "phoenix", "the join of room:look was refused"},
		{faultserver.RefuseJoin, "websocket", "bad handshake"},
		{faultserver.RefuseJoin, "action_cable", "was rejected"},
		{faultserver.SilentJoin, "phoenix", "phx_join on room:look: no answer after 1000 ms"},
		{faultserver.SilentJoin, "action_cable", "the subscription: no answer after 1000 ms"},
	} {
		t.Run(string(c.fault)+" "+c.protocol, func(t *testing.T) {
			t.Parallel()
			_, bases := chat(t, c.fault)
			out := talk(t, c.protocol, bases, nil)
			if out.exit != aborted || !strings.Contains(out.Problem, c.why) ||
				!strings.Contains(out.Problem, "PROTOCOL="+c.protocol) {
				t.Errorf("exit code %d, problem %q, want %d and %q", out.exit, out.Problem, aborted, c.why)
			}
		})
	}
}

// A room is in one runner: two of them have two rooms each, and hear nothing of each other.
func TestRoomsOfSeveralRunners(t *testing.T) {
	t.Parallel()
	s, bases := chat(t, faultserver.None)
	outs := make(chan roomsOutcome)
	for runner := range 2 {
		go func() {
			outs <- talk(t, "websocket", bases, map[string]string{"RUNNERS": "2", "RUNNER": strconv.Itoa(runner),
				"TIMEOUT": patience})
		}()
	}
	messages := 0
	for range 2 {
		out := <-outs
		if !out.Passed || out.Planned != 10 || out.Connected != 10 || out.Misdelivered != 0 {
			t.Errorf("a runner with half of the rooms did not pass: %s", out.stdout)
		}
		messages += out.Messages
	}
	if s.Largest.Load() != 5 || int64(messages) != s.Said.Load() {
		t.Errorf("at most %d in a room, want 5; %d messages and the server heard %d", s.Largest.Load(), messages,
			s.Said.Load())
	}
}

func TestBadRoomsOptions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, value, want string }{
		{"PROTOCOL", "mqtt", "PROTOCOL=mqtt: must be one of phoenix, websocket, action_cable."},
		{"USERS", "21", "USERS=21 are not whole rooms of ROOM_SIZE=5: set USERS to 20 or 25."},
		{"SPEAKERS", "6", "SPEAKERS=6 are more than a room has members, ROOM_SIZE=5: set SPEAKERS to 5 or less."},
		{"RUNNERS", "5", "RUNNERS=5 are more than there are rooms, 4, and a room is not divided: set RUNNERS to 4 or less."},
		{"FILE_DESCRIPTORS", "504",
			"A room of ROOM_SIZE=5 is larger than a runner, which has one clock for all its members and " +
				"FILE_DESCRIPTORS=504: set ROOM_SIZE to 4 or less."},
		{"FILE_DESCRIPTORS", "511",
			"4 rooms of 5 on 1 runner need 520 file descriptors each, and FILE_DESCRIPTORS=511: use 2 runners or more"},
		{"EVERY", "2s-1s", "EVERY=2s-1s: must be a duration above 0"},
		{"EVERY", "0s", "EVERY=0s: must be a duration above 0"},
		{"EVERY", "10s", "DURATION must be at least RAMP and the longest EVERY together"},
		{"BYTES", "31", "BYTES=31: must be a whole number, at least 32."},
		{"BYTES", "2000000", "BYTES=2000000: must be at most 1048576."},
		{"ROOM_PATH", "rooms", "ROOM_PATH=rooms: must be a path that starts with"},
		{"BASE_URLS", "", "BASE_URLS is missing"},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{scenario: "rooms", "BASE_URLS": "http://127.0.0.1:1", "ROOM_SIZE": "5", "EVERY": "1s",
				c.name: c.value}
			out := start(t, nil, env)
			if out.exit != scriptFailed || !strings.Contains(out.stderr, c.want) {
				t.Errorf("exit code %d, want %d and %q:\n%s", out.exit, scriptFailed, c.want, out.stderr)
			}
		})
	}
}

// rival builds a rival and starts it; it returns its base URL.
func rival(t *testing.T, name string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir = filepath.Join("..", "..", "rivals", name)
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", name, err, output)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	server := exec.CommandContext(t.Context(), program)
	server.Env = []string{"PORT=" + port}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	for range 100 {
		if c, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			_ = c.Close()
			return fmt.Sprintf("http://127.0.0.1:%s", port)
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("%s does not listen", name)
	return ""
}

// The real rival, with messages of the size of the published test.
func TestRoomsOfChatGo(t *testing.T) {
	t.Parallel()
	base := rival(t, "chat-go")
	for _, bytes := range []string{"32", "1024", "10240"} {
		out := talk(t, "websocket", []string{base}, map[string]string{"BYTES": bytes, "TIMEOUT": patience})
		if !out.Passed || out.Deliveries < 5*out.Messages-25 || out.Messages < 100 {
			t.Errorf("%s bytes: %s", bytes, out.stdout)
		}
	}
}

// The initializer of k6-operator archives a scenario and asks how many VUs it has, with the options of the runners.
func TestTheInitializerKnowsTheVUs(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"rooms": 4, "requests": 12} {
		archive := filepath.Join(t.TempDir(), name+".tar")
		output := ""
		for _, args := range [][]string{
			{"archive", "-O", archive, "../scenarios/" + name + ".js"},
			{"inspect", "--execution-requirements", archive},
		} {
			cmd := exec.CommandContext(t.Context(), k6(t), args...)
			cmd.Env = []string{"HOME=" + t.TempDir(), "K6_INCLUDE_SYSTEM_ENV_VARS=true", "BASE_URL=http://127.0.0.1:1",
				"RUNNERS=2", "USERS=400"}
			text, err := cmd.Output()
			if err != nil {
				t.Fatalf("k6 %v: %v", args, err)
			}
			output = string(text)
		}
		if !strings.Contains(output, fmt.Sprintf(`"maxVUs": %d`, want)) {
			t.Errorf("%s: %s, want %d VUs", name, output, want)
		}
	}
}
