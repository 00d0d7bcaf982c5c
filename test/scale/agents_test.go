package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func podOf(number int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "scale", Name: fmt.Sprintf("shop-%d", number), UID: types.UID(fmt.Sprint(number)), Labels: map[string]string{clusterLabel: "shop"},
	}}
}

func startTestAgents(t *testing.T, silent float64) *agents {
	t.Helper()
	a, err := startAgents(silent, 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.stop(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func askAgent(ctx context.Context, a *agents, address string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:%d/status", address, a.port), nil)
	if err != nil {
		return nil, err
	}
	return (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
}

// TestAgentsAnswerForTheAddressThatWasCalled: one server stands for the agents of all pods.
func TestAgentsAnswerForTheAddressThatWasCalled(t *testing.T) {
	a := startTestAgents(t, 0)
	for number := range 3 {
		pod := podOf(number)
		address := a.admit(pod).String()
		if again := a.admit(pod).String(); again != address {
			t.Errorf("%s has the address %s, then %s", pod.Name, address, again)
		}
		response, err := askAgent(t.Context(), a, address)
		if err != nil {
			t.Fatal(err)
		}
		var status struct {
			Node  string
			Peers struct {
				Expected, Connected, Missing int
				MissingNodes                 []string
			}
		}
		err = json.NewDecoder(response.Body).Decode(&status)
		_ = response.Body.Close()
		if err != nil || response.Header.Get(agentHeader) == "" {
			t.Fatalf("answer %v, header %q", err, response.Header)
		}
		if want := "app@" + pod.Name + ".shop-nodes.scale.svc.cluster.local"; status.Node != want {
			t.Errorf("%s answers as %s", pod.Name, status.Node)
		}
		if diff := cmp.Diff([]int{2, 2, 0}, []int{status.Peers.Expected, status.Peers.Connected, status.Peers.Missing}); diff != "" {
			t.Errorf("peers (-want +got):\n%s", diff)
		}
	}
	a.forget(podOf(1).UID)
	if response, err := askAgent(t.Context(), a, "127.64.0.2"); err == nil {
		_ = response.Body.Close()
		t.Errorf("a pod that is gone answers %s", response.Status)
	}
}

// TestNodesSeeAllOfTheirFleet: in a rollout a fleet has one pod more for a while, and the operator waits until all nodes see that one.
func TestNodesSeeAllOfTheirFleet(t *testing.T) {
	a := startTestAgents(t, 0)
	node := func() agentNode { return a.nodes[a.addresses[podOf(0).UID]] }
	for number, want := range []int{2, 2, 2, 3} {
		a.admit(podOf(number))
		if got := a.seen(node()); got != want {
			t.Errorf("with %d pods, a node sees %d others, want %d", number+1, got, want)
		}
	}
	other := podOf(4)
	other.Labels = map[string]string{clusterLabel: "other"}
	a.admit(other)
	if got := a.seen(node()); got != 3 {
		t.Errorf("with another fleet, a node sees %d others, want 3", got)
	}
	a.forget(podOf(3).UID)
	a.forget(podOf(3).UID)
	a.admit(podOf(5))
	if got := a.seen(node()); got != 3 {
		t.Errorf("with a pod in the place of another, a node sees %d others, want 3", got)
	}
}

// TestSilentAgentsTakeTheQuestion: that is what costs an operator time; one that nobody listens for costs none.
func TestSilentAgentsTakeTheQuestion(t *testing.T) {
	a := startTestAgents(t, 1)
	address := a.admit(podOf(0)).String()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		response, err := askAgent(ctx, a, address)
		if err == nil {
			_ = response.Body.Close()
		}
		ended <- err
	}()
	for a.inFlight.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a silent agent gave %v", err)
	}
	if most := a.mostInFlight.Load(); most != 1 {
		t.Errorf("%d questions at once, want 1", most)
	}
}

func TestShareOfSilentAgents(t *testing.T) {
	for share, want := range map[float64]int{0: 0, 0.33: 33, 0.5: 50, 1: 100} {
		a := startTestAgents(t, share)
		for number := range 100 {
			a.admit(podOf(number))
		}
		if all, silent := a.counts(); all != 100 || silent != want {
			t.Errorf("share %g: %d of %d are silent, want %d of 100", share, silent, all, want)
		}
	}
	if _, err := startAgents(1.5, 0); err == nil {
		t.Error("a share of 1.5 was accepted")
	}
}
