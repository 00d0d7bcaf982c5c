package cluster

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
)

// TestTransitions: what is told of a condition that changes while Progressing has the reasons before and after.
func TestTransitions(t *testing.T) {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	complete, rolling := v1alpha1.ReasonComplete, v1alpha1.ReasonRollingOut
	waiting := v1alpha1.ReasonWaitingForPods
	type states struct{ was, now metav1.ConditionStatus }
	cases := map[string]struct {
		condition string
		states
		reason        string
		before, after string
		// new: the fleet did not serve before.
		new  bool
		want string
	}{
		"first available":                 {"Available", states{no, yes}, "AllReady", waiting, waiting, false, "Normal AllReady the fleet serves: m"},
		"available, nothing known before": {"Available", states{"", yes}, "EnoughReady", waiting, waiting, false, "Normal EnoughReady the fleet serves: m"},
		"not available yet":               {"Available", states{"", no}, "TooFewReady", waiting, waiting, false, ""},
		"no more available":               {"Available", states{yes, no}, "TooFewReady", complete, waiting, false, "Warning TooFewReady m"},
		"stopped":                         {"Available", states{yes, no}, "ScaledToZero", complete, complete, false, ""},
		"a pod less":                      {"Available", states{yes, yes}, "EnoughReady", complete, complete, false, ""},
		"not clustered":                   {"Clustered", states{yes, no}, "NodesMissing", complete, waiting, false, "Warning NodesMissing m"},
		"clustered again":                 {"Clustered", states{no, yes}, "AllConnected", waiting, complete, false, "Normal AllConnected m"},
		"clustered at first":              {"Clustered", states{no, yes}, "AllConnected", waiting, complete, true, ""},
		"the store is there at first":     {"StoreReady", states{no, yes}, "StoreAnswers", waiting, waiting, true, ""},
		"not clustered yet":               {"Clustered", states{"", no}, "NodesMissing", "", waiting, false, ""},
		"a rollout begins":                {"Clustered", states{yes, no}, "NodesMissing", complete, rolling, false, ""},
		"a rollout ends":                  {"Clustered", states{no, yes}, "AllConnected", rolling, complete, false, ""},
		"in a rollout":                    {"StoreReady", states{yes, no}, "StoreNotReady", rolling, rolling, false, ""},
		"the store goes":                  {"StoreReady", states{yes, no}, "StoreNotReady", complete, complete, false, "Warning StoreNotReady m"},
		"the store comes back":            {"StoreReady", states{no, yes}, "StoreAnswers", complete, complete, false, "Normal StoreAnswers m"},
		"the agent is switched off":       {"StoreReady", states{yes, unknown}, "AgentDisabled", complete, complete, false, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			fleet := func(progressing string, status metav1.ConditionStatus, reason string) *v1alpha1.LiveStashCluster {
				told := &v1alpha1.LiveStashCluster{}
				if c.condition != v1alpha1.ConditionAvailable && !c.new {
					told.Status.Conditions = append(told.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionAvailable, Status: yes})
				}
				if progressing != "" {
					told.Status.Conditions = append(told.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionProgressing, Reason: progressing})
				}
				if status != "" {
					told.Status.Conditions = append(told.Status.Conditions, metav1.Condition{Type: c.condition, Status: status, Reason: reason, Message: "m"})
				}
				return told
			}
			recorder := events.NewFakeRecorder(10)
			(&Reconciler{Recorder: recorder}).tellTransitions(fleet(c.before, c.was, "Before"), fleet(c.after, c.now, c.reason))
			close(recorder.Events)
			var got []string
			for event := range recorder.Events {
				if strings.HasSuffix(event, "m") { // else it is of Progressing
					got = append(got, event)
				}
			}
			if diff := cmp.Diff(c.want, strings.Join(got, "\n")); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestShortened(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"short":                   {"abc", "abc"},
		"just short enough":       {"abcdefgh", "abcdefgh"},
		"long":                    {"abcdefghi", "abcde…"},
		"long, between two bytes": {"abcdéfghi", "abcd…"},
	}
	for name, c := range cases {
		if got := reconcile.Shortened(c.text, 8); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	for _, text := range []string{strings.Repeat("é", 1024), strings.Repeat("e", 1025), "e" + strings.Repeat("é", 1024)} {
		if got := reconcile.Shortened(text, reconcile.MostNote); len(got) > 1024 || len(got) < 1023 || !utf8.ValidString(got) {
			t.Errorf("a note of %d bytes: %q", len(got), got)
		}
	}
}

// What one pass tells of several pods, or Secrets, is told of each. Kubernetes' client takes two events for the same that differ by their
// text alone, and drops the second text.
func TestEachIsToldOf(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), nil)
	reconciled(t, cluster)
	underTest.tellDrained(cluster, []drained{{pod: "shop-0"}, {pod: "shop-1"}})
	for _, secret := range []string{"shop-secrets", "shop-cookie-2"} {
		suite.Must(t, underTest.tellGenerated(t.Context(), cluster, secret))
	}
	underTest.tellGivenUp(cluster, &appsv1.StatefulSet{ObjectMeta: cluster.ObjectMeta}, "the stashes")
	underTest.tellGivenUp(cluster, &corev1.PersistentVolumeClaim{ObjectMeta: cluster.ObjectMeta}, "the volume")
	paused := cluster.DeepCopy()
	setConditions(&paused.Status.Conditions, cluster, []metav1.Condition{
		{Type: v1alpha1.ConditionReconcileSucceeded, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPaused, Message: "all of it"},
		{Type: v1alpha1.ConditionPlaced, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPaused, Message: "shop-1 stays"},
	})
	underTest.tellTransitions(cluster, paused)
	for says, reason := range map[string]string{
		"shop-0 had":    v1alpha1.ReasonPodDrained,
		"shop-1 had":    v1alpha1.ReasonPodDrained,
		"shop-secrets":  v1alpha1.ReasonSecretRegenerated,
		"shop-cookie-2": v1alpha1.ReasonSecretRegenerated,
		"the stashes":   v1alpha1.ReasonStashesLost,
		"the volume":    v1alpha1.ReasonStashesLost,
		"all of it":     v1alpha1.ReasonPaused,
		"shop-1 stays":  v1alpha1.ReasonPaused,
	} {
		toldInEvent(t, cluster, reason, says)
	}
}
