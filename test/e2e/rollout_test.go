package e2e

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// rolloutStatus is status.rollouts' newest entry, as far as these tests look.
type rolloutStatus struct {
	Outcome      string `json:"outcome"`
	PodsReported int    `json:"podsReported"`
	HandedOver   int    `json:"handedOver"`
	Lost         int    `json:"lost"`
}

func (s space) rollouts() []rolloutStatus {
	s.t.Helper()
	var all []rolloutStatus
	text := s.must("", "get", "lsc", "shop", "-o", "jsonpath={.status.rollouts}")
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		s.t.Fatal(err)
	}
	return all
}

// held is how many rows the pods hold, by their own word: the status follows once a minute.
func (s space) held(want int, pods ...string) {
	s.t.Helper()
	s.eventually(time.Minute, func() error {
		sum := 0
		for _, pod := range pods {
			out, err := s.rpc(pod, ":ets.info(:live_stash_server_storage, :size)")
			if err != nil {
				return fmt.Errorf("%s: %w: %s", pod, err, out)
			}
			rows, err := strconv.Atoi(out)
			if err != nil {
				return err
			}
			sum += rows
		}
		if sum != want {
			return fmt.Errorf("%v hold %d rows, want %d", pods, sum, want)
		}
		return nil
	})
}

// rolledOut waits until the first rollout is complete.
func (s space) rolledOut() rolloutStatus {
	s.t.Helper()
	var first rolloutStatus
	s.eventually(8*time.Minute, func() error {
		all := s.rollouts()
		if len(all) != 1 || all[0].Outcome != "Complete" {
			return fmt.Errorf("the rollouts are %+v, want one that is complete", all)
		}
		first = all[0]
		return nil
	})
	return first
}

// A fleet of one pod gets a second one for the time of a rollout, which takes the stashes over and gives them back. Who asks
// how many pods there are, as an autoscaler does, hears of one.
func TestOnePodLosesNothing(t *testing.T) {
	t.Parallel()
	for _, adapter := range []string{"ETS", "Mnesia"} {
		t.Run(adapter, func(t *testing.T) {
			s := newSpace(t, "one-pod-"+strings.ToLower(adapter))
			s.apply("adapter: " + adapter + "\nreplicas: 1")
			s.settled()
			if adapter == "ETS" {
				s.rows("shop-0", 500)
			}
			before := s.must("", "get", "pod", "shop-0", "-o", "jsonpath={.metadata.uid}")
			s.apply("adapter: " + adapter + "\nreplicas: 1\nenv: [{name: ROLLED, value: \"1\"}]")
			most := 0
			s.eventually(8*time.Minute, func() error {
				told := s.must("", "get", "--raw", "/apis/livestash.dev/v1alpha1/namespaces/"+s.name+"/livestashclusters/shop/scale")
				var scale struct {
					Status struct {
						Replicas int `json:"replicas"`
					} `json:"status"`
				}
				if err := json.Unmarshal([]byte(told), &scale); err != nil {
					return err
				}
				if scale.Status.Replicas > 1 {
					t.Fatalf("the scale subresource tells of %d pods", scale.Status.Replicas)
				}
				pods := s.must("", "get", "pods", "-l", "livestash.dev/cluster=shop", "-o", "name")
				most = max(most, len(strings.Fields(pods)))
				now, _ := s.kubectl("", "get", "pod", "shop-0", "-o", "jsonpath={.metadata.uid}")
				if now == before || most < 2 || pods != "pod/shop-0" {
					return fmt.Errorf("the pods are %q, at most there were %d", pods, most)
				}
				return nil
			})
			s.settled()
			told := s.rolledOut()
			if told.Lost != 0 || told.PodsReported != 2 {
				t.Errorf("the rollout tells %+v, want two pods that lost nothing", told)
			}
			if adapter == "ETS" {
				s.held(500, "shop-0")
			}
		})
	}
}

// Without room for another pod the rollout waits, says in the quota's words what it waits for, and loses nothing.
func TestQuotaWithoutRoomForTheSurgePod(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "quota")
	s.must("", "create", "quota", "tight", "--hard=pods=1")
	s.apply("adapter: ETS\nreplicas: 1")
	s.settled()
	s.rows("shop-0", 100)
	before := s.must("", "get", "pod", "shop-0", "-o", "jsonpath={.metadata.uid}")
	s.apply("adapter: ETS\nreplicas: 1\nenv: [{name: ROLLED, value: \"1\"}]")
	s.eventually(2*time.Minute, func() error {
		if got := s.condition("Progressing"); !strings.Contains(got, "exceeded quota: tight") {
			return fmt.Errorf("Progressing is %q", got)
		}
		return nil
	})
	if now := s.must("", "get", "pod", "shop-0", "-o", "jsonpath={.metadata.uid}"); now != before {
		t.Error("the only pod was replaced all the same")
	}
	s.held(100, "shop-0")
	s.must("", "delete", "quota", "tight")
	s.settled()
	if told := s.rolledOut(); told.Lost != 0 {
		t.Errorf("the rollout tells %+v", told)
	}
	s.held(100, "shop-0")
}

// A template that is taken back in the middle of its rollout: both are told as they were, and the good pods stay.
func TestRolloutIsTakenBack(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "back")
	s.apply("adapter: ETS\nreplicas: 3")
	s.settled()
	kept := s.must("", "get", "pod", "shop-0", "-o", "jsonpath={.metadata.uid}")
	s.apply("adapter: ETS\nreplicas: 3\nimage: example.invalid/no/such/image:1")
	s.eventually(2*time.Minute, func() error {
		if got := s.condition("Stalled"); !strings.HasPrefix(got, "True ") || !strings.Contains(got, "shop-2") {
			return fmt.Errorf("Stalled is %q", got)
		}
		return nil
	})
	// Whatever comes back meanwhile comes back with the template that is good.
	s.lose("shop-1")
	s.apply("adapter: ETS\nreplicas: 3")
	s.settled()
	s.eventually(time.Minute, func() error {
		all := s.rollouts()
		if len(all) != 2 || all[0].Outcome != "Complete" || all[1].Outcome != "Reverted" {
			return fmt.Errorf("the rollouts are %+v", all)
		}
		return nil
	})
	if now := s.must("", "get", "pod", "shop-0", "-o", "jsonpath={.metadata.uid}"); now != kept {
		t.Error("shop-0 was replaced, though its template never changed in the end")
	}
}

// While a template is on trial, a pod that is lost comes back with the one before: else there would soon be none to go back to.
func TestAPodThatIsLostInATrial(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "trial")
	const spec = "adapter: ETS\nreplicas: 3\nrollout: {canary: {pods: 1, duration: 30m}}"
	s.apply(spec)
	s.settled()
	revision := func(pod string) string {
		return s.must("", "get", "pod", pod, "-o", `jsonpath={.metadata.labels.controller-revision-hash}`)
	}
	before := revision("shop-0")
	s.apply(spec + "\nenv: [{name: TRIED, value: \"1\"}]")
	s.eventually(2*time.Minute, func() error {
		if got := s.condition("Progressing"); !strings.HasPrefix(got, "True CanaryRunning ") {
			return fmt.Errorf("Progressing is %q", got)
		}
		return nil
	})
	lost := s.must("", "get", "pod", "shop-0", "-o", "jsonpath={.metadata.uid}")
	s.lose("shop-0")
	if now := revision("shop-0"); now != before || s.must("", "get", "pod", "shop-0", "-o", "jsonpath={.metadata.uid}") == lost {
		t.Errorf("the pod that took the lost one's place has the template %s, want %s", now, before)
	}
	if got := revision("shop-1"); got != before {
		t.Errorf("shop-1 has the template %s, want %s", got, before)
	}
	// Nothing of it is undone later.
	time.Sleep(10 * time.Second)
	if now := revision("shop-0"); now != before {
		t.Errorf("after a while the pod has the template %s, want %s", now, before)
	}
}

// kubectl's own restart goes the operator's way: one pod after the other.
func TestKubectlRolloutRestart(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "kubectl-restart")
	s.apply("adapter: ETS\nreplicas: 2")
	s.settled()
	s.rows("shop-0", 50)
	s.rows("shop-1", 50)
	s.must("", "rollout", "restart", "statefulset/shop")
	if told := s.rolledOut(); told.PodsReported != 2 || told.Lost != 0 {
		t.Errorf("the rollout tells %+v, want two pods that lost nothing", told)
	}
	s.held(100, "shop-0", "shop-1")
}

// Objects of others are neither changed nor deleted, and what does not hang on them goes on. When they are gone, the
// operator gets on by itself.
func TestObjectsOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "others")
	s.must("", "create", "serviceaccount", "shop")
	before := s.must("", "get", "serviceaccount", "shop", "-o", "json")
	s.apply("adapter: ETS\nreplicas: 1")
	s.eventually(time.Minute, func() error {
		if got := s.condition("ReconcileSucceeded"); !strings.HasPrefix(got, "False NameConflict ServiceAccount shop exists") {
			return fmt.Errorf("ReconcileSucceeded is %q", got)
		}
		_, err := s.kubectl("", "get", "service", "shop")
		return err
	})
	if sets := s.must("", "get", "statefulsets", "-o", "name"); sets != "" {
		t.Errorf("pods would run as somebody else's account: %s", sets)
	}
	if after := s.must("", "get", "serviceaccount", "shop", "-o", "json"); after != before {
		t.Errorf("the account was\n%s\nand is\n%s", before, after)
	}
	s.must("", "delete", "serviceaccount", "shop")
	s.eventually(30*time.Second, func() error {
		_, err := s.kubectl("", "get", "statefulset", "shop")
		return err
	})
	s.settled()
}

// A change of the ports serves throughout: whoever has the old port is reached and asked under it.
func TestPortsChangeWhileItServes(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "ports")
	s.apply("adapter: ETS\nreplicas: 2")
	s.settled()
	s.rows("shop-0", 50)
	s.rows("shop-1", 50)
	s.must(strings.Replace(s.fleet("adapter: ETS\nreplicas: 2\nagent: {port: 9600}"), "readinessPath: /healthz", "readinessPath: /healthz, port: 4100", 1), "apply", "-f", "-")
	held := false
	// A busy machine answers the operator late, for a moment. An agent that cannot be reached stays one.
	healthyAt := time.Now()
	s.eventually(8*time.Minute, func() error {
		healthy := s.condition("AgentHealthy")
		if strings.HasPrefix(healthy, "True") {
			healthyAt = time.Now()
		}
		if silent := time.Since(healthyAt); silent > 20*time.Second {
			t.Fatalf("AgentHealthy is %q, for %s", healthy, silent)
		}
		ports := s.must("", "get", "networkpolicy", "shop", "-o", "jsonpath={.spec.ingress[0].ports[*].port} {.spec.ingress[1].ports[*].port}")
		held = held || ports == "4000 4100 9568 9600"
		if !held || ports != "4100 9600" || !strings.HasPrefix(healthy, "True") {
			return fmt.Errorf("the policy opens %q, held both: %v, AgentHealthy is %q", ports, held, healthy)
		}
		return nil
	})
	s.settled()
	if told := s.rolledOut(); told.Lost != 0 || told.PodsReported != 2 {
		t.Errorf("the rollout tells %+v", told)
	}
	s.held(100, "shop-0", "shop-1")
}
