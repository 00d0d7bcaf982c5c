package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// Browsers keep what a pod made when the pod is gone, for as long as the TTL.
func TestLargestStash(t *testing.T) {
	now := ptr.To(metav1.NewTime(said))
	before := func(ago time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(said.Add(-ago))) }
	word := func(bytes int64) []drained {
		return []drained{{pod: "shop-9", report: agentclient.Report{LargestStashBytes: bytes}}}
	}
	cases := map[string]struct {
		known *v1alpha1.LargestStash
		// there is what the pod that is there says.
		there int64
		gone  []drained
		want  *v1alpha1.LargestStash
	}{
		"nobody has stashed":           {},
		"the first":                    {there: 500, want: &v1alpha1.LargestStash{Bytes: 500, Pod: "shop-0"}},
		"a larger one":                 {&v1alpha1.LargestStash{Bytes: 400, Pod: "shop-1"}, 500, nil, &v1alpha1.LargestStash{Bytes: 500, Pod: "shop-0"}},
		"its pod is gone":              {&v1alpha1.LargestStash{Bytes: 900, Pod: "shop-1"}, 500, nil, &v1alpha1.LargestStash{Bytes: 900, Pod: "shop-1", PodGone: now}},
		"and has been for a while":     {&v1alpha1.LargestStash{Bytes: 900, Pod: "shop-1", PodGone: before(299 * time.Second)}, 500, nil, &v1alpha1.LargestStash{Bytes: 900, Pod: "shop-1", PodGone: before(299 * time.Second)}},
		"and has been for the TTL":     {&v1alpha1.LargestStash{Bytes: 900, Pod: "shop-1", PodGone: before(300 * time.Second)}, 500, nil, &v1alpha1.LargestStash{Bytes: 500, Pod: "shop-0"}},
		"and nobody has stashed since": {&v1alpha1.LargestStash{Bytes: 900, Pod: "shop-1", PodGone: before(300 * time.Second)}, 0, nil, nil},
		"another has made one as large": {
			&v1alpha1.LargestStash{Bytes: 500, Pod: "shop-1", PodGone: before(time.Second)}, 500, nil, &v1alpha1.LargestStash{Bytes: 500, Pod: "shop-0"},
		},
		"the last word of a pod":  {&v1alpha1.LargestStash{Bytes: 900, Pod: "shop-1"}, 500, word(950), &v1alpha1.LargestStash{Bytes: 950, Pod: "shop-9", PodGone: now}},
		"one with nothing to say": {&v1alpha1.LargestStash{Bytes: 900, Pod: "shop-1"}, 900, word(0), &v1alpha1.LargestStash{Bytes: 900, Pod: "shop-0"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := &v1alpha1.LiveStashCluster{}
			cluster.Spec.Adapter, cluster.Status.LargestStash = v1alpha1.AdapterBrowserMemory, c.known
			seen := fleetOf(1, func(m []member) { m[0].answer.Status.LargestStashBytes = c.there })
			if diff := cmp.Diff(c.want, largestStash(cluster, &seen, c.gone)); diff != "" {
				t.Errorf("the largest stash (-want +got):\n%s", diff)
			}
			cluster.Spec.Adapter = v1alpha1.AdapterETS
			if got := largestStash(cluster, &seen, c.gone); got != nil {
				t.Errorf("with ETS the largest is %+v", got)
			}
		})
	}
}

func TestStashesFit(t *testing.T) {
	const small, near, large = "True StashesSmall", "True StashNearLimit", "False StashTooLarge"
	for bytes, want := range map[int64]string{0: small, 6569: small, 6570: near, 7300: near, 7301: large} {
		cluster := &v1alpha1.LiveStashCluster{}
		cluster.Spec.Adapter = v1alpha1.AdapterBrowserMemory
		check := func(bytes int64) {
			t.Helper()
			got := stashesFit(cluster, larger(nil, "shop-1", bytes, nil))
			if told := string(got.Status) + " " + got.Reason; told != want {
				t.Errorf("a stash of %d bytes: %s, want %s", bytes, told, want)
			}
			if want != small && !strings.Contains(got.Message, fmt.Sprintf("shop-1 made a stash of %d bytes", bytes)) {
				t.Errorf("a stash of %d bytes: %s", bytes, got.Message)
			}
		}
		check(bytes)
		cluster.Spec.BrowserMemory = &v1alpha1.BrowserMemorySpec{MaxStashBytes: 73_000}
		check(10 * bytes)
	}
	cluster := &v1alpha1.LiveStashCluster{}
	cluster.Spec.Adapter = v1alpha1.AdapterBrowserMemory
	got := stashesFit(cluster, larger(nil, "shop-1", 8000, ptr.To(metav1.Unix(0, 0))))
	if got.Reason != v1alpha1.ReasonStashWasTooLarge || !strings.Contains(got.Message, "until 1970-01-01T00:05:00Z") {
		t.Errorf("of a pod that is gone: %s, %s", got.Reason, got.Message)
	}
}

func TestALargeStashIsToldAndNotForgotten(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) { spec.Adapter = v1alpha1.AdapterBrowserMemory })
	pods := []*corev1.Pod{fleetPod(t, cluster, 0, "a"), fleetPod(t, cluster, 1, "a")}
	made := func(bytes int64) agentclient.Status {
		status := wellAmong(2, "shop-1")
		status.LargestStashBytes = bytes
		return status
	}
	serves(t, pods[0], wellAmong(2, "shop-0"))
	serves(t, pods[1], made(6800))
	acted(t, cluster, "a", "a")
	condition(t, cluster, v1alpha1.ConditionStashesFit, metav1.ConditionTrue, v1alpha1.ReasonStashNearLimit)
	eventSays(t, cluster.Namespace, v1alpha1.ReasonStashNearLimit, "shop-1 made a stash of 6800 bytes")

	// The pod ends before it was asked again: its last word says what it made.
	gone(t, pods[1], `{"livestash":1,"sessionsBefore":0,"socketsClosed":9,"handedOff":0,"notHandedOff":0,"largestStashBytes":8100,"reason":""}`)
	eventSays(t, cluster.Namespace, v1alpha1.ReasonStashWasTooLarge, "shop-1 made a stash of 8100 bytes")
	serves(t, fleetPod(t, cluster, 1, "a"), made(0))
	acted(t, cluster, "a", "a")
	condition(t, cluster, v1alpha1.ConditionClustered, metav1.ConditionTrue, v1alpha1.ReasonAllConnected)
	condition(t, cluster, v1alpha1.ConditionStashesFit, metav1.ConditionFalse, v1alpha1.ReasonStashWasTooLarge)
	if largest := cluster.Status.LargestStash; largest == nil || largest.Bytes != 8100 || largest.PodGone == nil {
		t.Errorf("status.largestStash is %+v", largest)
	}
}

// A rollout takes the pods that made a large stash, and not the stash: its user is locked out until the TTL is over.
func TestARolloutDoesNotMakeALargeStashFit(t *testing.T) {
	cluster, pods := fleetAtRest(t, 2, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Adapter = v1alpha1.AdapterBrowserMemory })
	made := func(pod *corev1.Pod, bytes int64) {
		t.Helper()
		status := wellAmong(2, pod.Name)
		status.LargestStashBytes = bytes
		serves(t, pod, status)
	}
	made(pods[0], 8100)
	acted(t, cluster, "a", "a")
	condition(t, cluster, v1alpha1.ConditionStashesFit, metav1.ConditionFalse, v1alpha1.ReasonStashTooLarge)

	newImage(t, cluster, "ghcr.io/acme/shop:2")
	acted(t, cluster, "a", "b")
	hasStrategy(t, cluster, appsv1.OnDeleteStatefulSetStrategyType, 2)
	for i := len(pods) - 1; i >= 0; i-- {
		acted(t, cluster, "a", "b")
		stops(t, cluster, pods[i].Name)
		// Its last word has been lost on the way.
		gone(t, pods[i], "")
		made(fleetPod(t, cluster, i, "b"), 0)
	}
	acted(t, cluster, "a", "b")
	hasStrategy(t, cluster, appsv1.RollingUpdateStatefulSetStrategyType, 2)
	acted(t, cluster, "b", "b")
	condition(t, cluster, v1alpha1.ConditionProgressing, metav1.ConditionFalse, v1alpha1.ReasonComplete)
	condition(t, cluster, v1alpha1.ConditionStashesFit, metav1.ConditionFalse, v1alpha1.ReasonStashWasTooLarge)
	later(t, cluster, 5*time.Minute)
	condition(t, cluster, v1alpha1.ConditionStashesFit, metav1.ConditionTrue, v1alpha1.ReasonStashesSmall)
}
