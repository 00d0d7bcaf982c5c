package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// rows puts as many rows as told into the ETS table of a pod, as LiveStash would.
func (s space) rows(pod string, count int) {
	s.t.Helper()
	insert := fmt.Sprintf(`for i <- 1..%d, do: :ets.insert(:live_stash_server_storage, {:state, "%s-#{i}", self(), System.os_time(:second) + 600, %%{count: i}, nil})`, count, pod)
	if out, err := s.rpc(pod, "length("+insert+")"); err != nil || out != fmt.Sprint(count) {
		s.t.Fatalf("rows in %s: %s, %v", pod, out, err)
	}
}

// stashes waits until the status counts as many stashes, which it does once a minute.
func (s space) stashes(want int) {
	s.t.Helper()
	s.eventually(3*time.Minute, func() error {
		if got := s.must("", "get", "lsc", "shop", "-o", "jsonpath={.status.stashes}"); got != fmt.Sprint(want) {
			return fmt.Errorf("%s stashes, want %d", got, want)
		}
		return nil
	})
}

// What the agent is for, without a client: nothing that pods hold is lost when they are replaced or fewer, and who stops
// the fleet is told what goes with it.
func TestAgent(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "agent")
	s.apply("adapter: ETS\nreplicas: 3")
	s.settled()
	for _, kind := range []string{"Clustered", "StoreReady", "AgentHealthy"} {
		s.must("", "wait", "lsc/shop", "--for=condition="+kind, "--timeout=1m")
	}
	for _, pod := range []string{"shop-0", "shop-1", "shop-2"} {
		s.rows(pod, 100)
	}
	s.stashes(300)

	t.Run("a rollout loses nothing", func(t *testing.T) {
		s := s.in(t)
		s.apply(`adapter: ETS
replicas: 3
env: [{name: ROLLED, value: "1"}]`)
		s.settled()
		s.stashes(300)
		s.eventually(time.Minute, func() error {
			rollout := s.must("", "get", "lsc", "shop", "-o", "jsonpath={.status.rollouts[0].podsReported} {.status.rollouts[0].lost} {.status.rollouts[0].finished}")
			if fields := strings.Split(rollout, " "); fields[0] != "3" || fields[1] != "" || fields[2] == "" {
				return fmt.Errorf("the newest rollout: pods, lost, finished = %q", rollout)
			}
			return nil
		})
	})

	t.Run("fewer pods hold as many stashes", func(t *testing.T) {
		s := s.in(t)
		s.must("", "scale", "lsc/shop", "--replicas=2")
		s.settled()
		s.stashes(300)
	})

	t.Run("scaling to zero says what is lost, and waits for nothing", func(t *testing.T) {
		s := s.in(t)
		s.must("", "scale", "lsc/shop", "--replicas=0")
		// The pods' grace period is a minute.
		s.eventually(30*time.Second, func() error {
			if pods := s.must("", "get", "pods", "-l", "livestash.dev/cluster=shop", "-o", "name"); pods != "" {
				return fmt.Errorf("left: %s", pods)
			}
			return nil
		})
		s.eventually(time.Minute, func() error {
			events := s.must("", "get", "events.events.k8s.io", "-o", "jsonpath={range .items[?(@.reason==\"StashesLost\")]}{.note}{\"\\n\"}{end}")
			if !strings.Contains(events, "spec.replicas is 0: the 300 stashes") {
				return fmt.Errorf("events: %q", events)
			}
			return nil
		})
	})
}

// An image in which no agent can start serves all the same, and the condition says which pod lacks its agent.
func TestImageWithoutBEAM(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "no-beam")
	s.apply(`adapter: ETS
replicas: 1
podTemplate:
  spec:
    containers:
    - name: app
      command: [perl, -MIO::Socket::INET, -e]
      args:
      - |
        my $server = IO::Socket::INET->new(LocalPort => 4000, Listen => 16, ReuseAddr => 1) or die $!;
        while (my $client = $server->accept) { sysread $client, my $request, 4096; print $client "HTTP/1.0 200 OK\r\n\r\nok"; close $client }`)
	s.settled()
	s.eventually(time.Minute, func() error {
		condition := s.condition("AgentHealthy")
		if !strings.HasPrefix(condition, "False AgentUnreachable shop-0: No agent listens on port 9568") {
			return fmt.Errorf("AgentHealthy is %q", condition)
		}
		return nil
	})
}
