package show

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/cli/doctor"
	"github.com/livestash-dev/livestash/operator/internal/cli/text"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: ago(5 * time.Minute)}
}

// fleet is one that is well.
func fleet() *v1alpha1.LiveStashCluster {
	c := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Name: "shop", Namespace: "web", Generation: 3, CreationTimestamp: ago(48 * time.Hour)}}
	c.Spec = v1alpha1.LiveStashClusterSpec{Image: "ghcr.io/acme/shop:1.4.2", Adapter: v1alpha1.AdapterETS, Replicas: ptr.To[int32](3)}
	c.Status = v1alpha1.LiveStashClusterStatus{
		ObservedGeneration: 3, Replicas: 3, ReadyReplicas: 3, UpdatedReplicas: 3, Stashes: 1204,
		Pods: []v1alpha1.PodStatus{{Name: "shop-0", Ready: true, Updated: true, Stashes: 400}, {Name: "shop-1", Ready: true, Updated: true, Stashes: 404}, {Name: "shop-2", Ready: true, Updated: true, Stashes: 400}},
		Conditions: []metav1.Condition{
			condition("Ready", "True", "AllWell", ""), condition("Stalled", "False", "NotStalled", ""), condition("Progressing", "False", "Complete", "3 of 3 pods ready"),
			condition("Clustered", "True", "AllConnected", ""), condition("UpToDate", "False", "TemplateKept", "the pods keep the template of version 0.1.0"),
		},
		Rollouts: []v1alpha1.RolloutStatus{
			{From: "shop-1a", To: "shop-2b", Started: ago(3 * time.Hour), Finished: ptr.To(ago(3*time.Hour - 70*time.Second)), Outcome: v1alpha1.RolloutComplete, PodsReported: 3, StashesBefore: 1200, HandedOver: 800, Returned: 410, NotRecovered: 2},
			{From: "shop-0f", To: "shop-1a", Started: ago(30 * time.Hour), Finished: ptr.To(ago(29 * time.Hour)), Outcome: v1alpha1.RolloutRolledBack, Message: "2 of 12 users found their state", PodsReported: 1, StashesBefore: 9, HandedOver: 4, Lost: 5},
		},
	}
	return c
}

// broken is one whose rollout has got stuck at a pod.
func broken() *v1alpha1.LiveStashCluster {
	c := fleet()
	const says = "shop-2: the image ghcr.io/acme/shop:1.4.3 cannot be had: check spec.image and spec.imagePullSecrets"
	c.Status.ReadyReplicas, c.Status.UpdatedReplicas = 2, 1
	c.Status.Pods[2] = v1alpha1.PodStatus{Name: "shop-2", Updated: true, MissingPeers: 2, Problem: "the image cannot be had"}
	c.Status.Pods[1].Draining = true
	c.Status.Rollouts[0] = v1alpha1.RolloutStatus{From: "shop-1a", To: "shop-2b", Started: ago(4 * time.Minute), PodsReported: 1, StashesBefore: 404, HandedOver: 400, Lost: 4}
	c.Status.Conditions = []metav1.Condition{
		condition("Ready", "False", "PodFailing", says), condition("Stalled", "True", "PodFailing", says), condition("Progressing", "True", "PodFailing", says),
		condition("Clustered", "False", "NodesMissing", "shop-0 does not see shop-2"),
	}
	return c
}

// crashed is a pod whose application ended two minutes ago, and runs again.
func crashed(reason string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "shop-1"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
		}}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", RestartCount: 3,
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, FinishedAt: ago(2 * time.Minute)}},
		}}},
	}
}

func TestGoldens(t *testing.T) {
	moving := broken()
	moving.Status.Conditions = []metav1.Condition{condition("Ready", "False", "RollingOut", ""), condition("Progressing", "True", "RollingOut", "1 of 3 pods have the new template; waiting for shop-2")}
	paused := fleet()
	paused.Spec.Rollout.Paused = true
	waiting := fleet()
	meta.SetStatusCondition(&waiting.Status.Conditions, condition("ReconcileSucceeded", "False", "CookieWaits", "the change to the one before it comes first"))
	changed := fleet()
	changed.Generation = 4
	pod := func(name string) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	for name, draw := range map[string]func(io.Writer, text.Paint) error{
		"status-well":   func(w io.Writer, p text.Paint) error { return StatusOf(fleet()).Write(w, p, now) },
		"status-broken": func(w io.Writer, p text.Paint) error { return StatusOf(broken()).Write(w, p, now) },
		"status-paused": func(w io.Writer, p text.Paint) error { return StatusOf(paused).Write(w, p, now) },
		"status-new": func(w io.Writer, p text.Paint) error {
			return StatusOf(&v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: v1alpha1.LiveStashClusterSpec{Image: "shop:1", Adapter: "ETS"}}).Write(w, p, now)
		},
		"rollout-well":   func(w io.Writer, p text.Paint) error { return ProgressOf(fleet()).Write(w, p, now) },
		"rollout-moving": func(w io.Writer, p text.Paint) error { return ProgressOf(moving).Write(w, p, now) },
		"rollout-broken": func(w io.Writer, p text.Paint) error { return ProgressOf(broken()).Write(w, p, now) },
		"rollout-waiting": func(w io.Writer, p text.Paint) error {
			if ProgressOf(waiting).Ended {
				t.Error("a rollout is over, and the next one is still to begin")
			}
			return ProgressOf(waiting).Write(w, p, now)
		},
		"rollout-changed": func(w io.Writer, p text.Paint) error { return ProgressOf(changed).Write(w, p, now) },
		"fleets": func(w io.Writer, p text.Paint) error {
			return Fleets(w, p, []Status{StatusOf(fleet()), StatusOf(broken()), StatusOf(moving)}, true, now)
		},
		"sessions": func(w io.Writer, p text.Paint) error {
			return WriteSessions(w, p, []Sessions{
				SessionsOf(pod("shop-0"), agentclient.Status{Sockets: ptr.To[int64](120), Stashes: 400, StashBytes: 6 << 20, Returns: agentclient.Returns{Recovered: 31, NotRecovered: 1}, UptimeSeconds: 7300}, nil),
				SessionsOf(pod("shop-1"), agentclient.Status{Draining: true, StashBytes: 2000}, nil),
				SessionsOf(pod("shop-2"), agentclient.Status{}, errors.New("the pod is Pending")),
			})
		},
		"crashes": func(w io.Writer, p text.Paint) error {
			return WriteCrashes(w, p, []Crashes{
				CrashesOf(pod("shop-0"), "app", nil, nil),
				CrashesOf(crashed("OOMKilled"), "app", []CrashDump{
					{Name: "erl_crash-20260722T115500.000Z.dump", Time: now.Add(-5 * time.Minute), Bytes: 6 << 20, Complete: true, Slogan: "eheap_alloc: Cannot allocate 1024 bytes"},
					{Name: "erl_crash-20260722T105500.000Z.dump", Time: now.Add(-65 * time.Minute), Bytes: 256 << 20, Slogan: "no next heap size found"},
				}, nil),
				CrashesOf(crashed("Error"), "app", nil, errors.New("the pod was made without spec.beam.crashDumps")),
			}, now)
		},
		"doctor": func(w io.Writer, p text.Paint) error {
			return Examination{Name: "shop", Checks: 24, Unread: []string{"Nodes"}, Findings: []doctor.Finding{
				{Check: "host", Severity: doctor.Broken, Wrong: "spec.http.host is not set, and Ingress shop serves the fleet as shop.example.com: Phoenix refuses the sockets of that origin (check_origin), and pages reload for ever.", Change: "Set spec.http.host: shop.example.com"},
				{Check: "tag-moves", Severity: doctor.Risky, Wrong: "The image shop has no fixed tag.", Change: "Give each release a tag of its own."},
			}}.Write(w, p)
		},
		"doctor-well": func(w io.Writer, p text.Paint) error { return Examination{Name: "shop", Checks: 24}.Write(w, p) },
		"benchmark": func(w io.Writer, p text.Paint) error {
			b := &v1alpha1.LiveStashBenchmark{Status: v1alpha1.LiveStashBenchmarkStatus{Phase: v1alpha1.BenchmarkRunning, Runs: []v1alpha1.BenchmarkRunStatus{
				{Name: "small-1-ets", Adapter: "ETS", Users: 200, TTL: metav1.Duration{Duration: time.Minute}, Phase: v1alpha1.RunFinished, Verdict: v1alpha1.VerdictPassed, Recovered: "1", ReconnectP95: &metav1.Duration{Duration: 120 * time.Millisecond}},
				{Name: "small-2-redis", Adapter: "Redis", Users: 200, TTL: metav1.Duration{Duration: time.Minute}, Phase: v1alpha1.RunFinished, Verdict: v1alpha1.VerdictFailed, Recovered: "0.91", Message: "minRecovered: 0.91 < 0.99"},
				{Name: "small-3-fullsweep", Variant: "fullsweep-20", Adapter: "None", Users: 200, TTL: metav1.Duration{Duration: time.Minute}, Phase: v1alpha1.RunRunning},
			}}}
			if _, err := io.WriteString(w, BenchmarkOf(b).Line(p)+"\n"); err != nil {
				return err
			}
			return BenchmarkOf(b).Write(w, p)
		},
		"benchmark-requests": func(w io.Writer, p text.Paint) error {
			return BenchmarkOf(&v1alpha1.LiveStashBenchmark{Status: v1alpha1.LiveStashBenchmarkStatus{Runs: []v1alpha1.BenchmarkRunStatus{
				{Name: "api-01-none", Adapter: "None", Users: 12, Verdict: v1alpha1.VerdictPassed, PerSecond: "4588.1", AnswerP95: &metav1.Duration{Duration: 4 * time.Millisecond}},
				{Name: "api-02-none", Adapter: "None", Users: 100, Rate: 9000, Verdict: v1alpha1.VerdictErrored, PerSecond: "4601.9", Message: "The client was the bottleneck"},
			}}}).Write(w, p)
		},
		"benchmark-knees": func(w io.Writer, p text.Paint) error {
			return BenchmarkOf(&v1alpha1.LiveStashBenchmark{Status: v1alpha1.LiveStashBenchmarkStatus{
				Runs: []v1alpha1.BenchmarkRunStatus{{Name: "chat-01-phoenix", Variant: "phoenix", Users: 500, Verdict: v1alpha1.VerdictPassed, PerSecond: "250"}},
				Knees: []v1alpha1.BenchmarkKneeStatus{
					{Variant: "phoenix", Size: 1000, AtLeast: true, Verdict: v1alpha1.VerdictPassed, Message: "phoenix: at least 1000 users: there was no larger step"},
					{Variant: "rails", Size: 0, Verdict: v1alpha1.VerdictFailed, Message: "rails: less than 500 users: delivery p95 2s > 1s"},
				},
				Against: &v1alpha1.BenchmarkAgainstStatus{Baseline: "phoenix", Verdict: v1alpha1.VerdictPassed},
			}}).Write(w, p)
		},
		"benchmark-compared": func(w io.Writer, p text.Paint) error {
			b := &v1alpha1.LiveStashBenchmark{Status: v1alpha1.LiveStashBenchmarkStatus{
				Comparison: &v1alpha1.BenchmarkComparisonStatus{ConfigMap: "main-report", Verdict: v1alpha1.VerdictPassed},
			}}
			if err := BenchmarkOf(b).Write(w, p); err != nil {
				return err
			}
			b.Status.Comparison.Verdict, b.Status.Comparison.Message = v1alpha1.VerdictFailed, "Compared with main-report: ETS is slower."
			return BenchmarkOf(b).Write(w, p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var plain, colours strings.Builder
			if err := errors.Join(draw(&plain, text.Paint{}), draw(&colours, text.Paint{Colours: true})); err != nil {
				t.Fatal(err)
			}
			rendertest.Golden(t, name+".txt", []byte(plain.String()))
			if without := strip(colours.String()); without != plain.String() {
				t.Errorf("with colours the text is another one:\n%s", without)
			}
		})
	}
}

// strip is a text without its colours.
func strip(text string) string {
	var b strings.Builder
	for {
		before, rest, has := strings.Cut(text, "\x1b[")
		b.WriteString(before)
		if !has {
			return b.String()
		}
		_, text, _ = strings.Cut(rest, "m")
	}
}
