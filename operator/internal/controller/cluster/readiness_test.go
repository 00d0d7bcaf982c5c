package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

func TestSummary(t *testing.T) {
	const (
		yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
		quiet            = "False NotStalled: nothing waits for somebody's help"
	)
	of := func(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
	}
	well := []metav1.Condition{
		of(v1alpha1.ConditionReconcileSucceeded, yes, v1alpha1.ReasonReconciled, ""),
		of(v1alpha1.ConditionProgressing, no, v1alpha1.ReasonComplete, ""),
		of(v1alpha1.ConditionAvailable, yes, v1alpha1.ReasonAllReady, ""),
		of(v1alpha1.ConditionClustered, yes, v1alpha1.ReasonAllConnected, ""),
		of(v1alpha1.ConditionStoreReady, yes, v1alpha1.ReasonStoreAnswers, ""),
		of(v1alpha1.ConditionAgentHealthy, yes, v1alpha1.ReasonAllAnswer, ""),
		of(v1alpha1.ConditionRolloutSafe, yes, v1alpha1.ReasonPeersTakeOver, ""),
	}
	// but are the conditions of a fleet that is well, apart from these.
	but := func(others ...metav1.Condition) []metav1.Condition {
		var conditions []metav1.Condition
		for _, condition := range well {
			for _, other := range others {
				if other.Type == condition.Type {
					condition = other
				}
			}
			conditions = append(conditions, condition)
		}
		return conditions
	}
	away := of(v1alpha1.ConditionAvailable, no, v1alpha1.ReasonTooFewReady, "0 of 2 pods ready")
	rolling := of(v1alpha1.ConditionProgressing, yes, v1alpha1.ReasonRollingOut, "1 of 2 pods")
	cases := map[string]struct {
		conditions []metav1.Condition
		stalled    news
		// want are Ready, Reconciling and Stalled.
		want [3]string
	}{
		"all is well": {well, news{}, [...]string{
			"True AllWell: the fleet is as its spec wants it", "False AllWell: nothing is being changed", quiet,
		}},
		"progressing": {but(rolling), news{}, [...]string{
			"False RollingOut: Progressing is True: 1 of 2 pods", "True RollingOut: Progressing is True: 1 of 2 pods", quiet,
		}},
		"the first that fails is told": {but(away, rolling), news{}, [...]string{
			"False RollingOut: Progressing is True: 1 of 2 pods", "True RollingOut: Progressing is True: 1 of 2 pods", quiet,
		}},
		"stalled": {but(of(v1alpha1.ConditionProgressing, yes, v1alpha1.ReasonPodFailing, "no image")), news{reason: v1alpha1.ReasonPodFailing, message: "no image"}, [...]string{
			"False PodFailing: Progressing is True: no image", "False PodFailing: nothing is being changed", "True PodFailing: no image",
		}},
		"paused": {but(of(v1alpha1.ConditionReconcileSucceeded, no, v1alpha1.ReasonPaused, "spec.paused is true")), news{}, [...]string{
			"False Paused: ReconcileSucceeded is False: spec.paused is true", "False Paused: nothing is being changed", quiet,
		}},
		"the API server refuses": {but(of(v1alpha1.ConditionReconcileSucceeded, no, v1alpha1.ReasonAPIError, "timeout")), news{}, [...]string{
			"False APIError: ReconcileSucceeded is False: timeout", "True APIError: ReconcileSucceeded is False: timeout", quiet,
		}},
		"scaled to zero": {
			but(
				of(v1alpha1.ConditionAvailable, no, v1alpha1.ReasonScaledToZero, "nothing serves"),
				of(v1alpha1.ConditionClustered, unknown, v1alpha1.ReasonScaledToZero, "nobody to tell"),
			), news{}, [...]string{"True AllWell: the fleet is as its spec wants it", "False AllWell: nothing is being changed", quiet},
		},
		"without agents": {
			but(of(v1alpha1.ConditionClustered, unknown, v1alpha1.ReasonAgentDisabled, "only the agent can tell")), news{}, [...]string{
				"True AllWell: the fleet is as its spec wants it", "False AllWell: nothing is being changed", quiet,
			},
		},
		"a rollout would lose stashes": {but(of(v1alpha1.ConditionRolloutSafe, no, v1alpha1.ReasonNoPeer, "one pod alone")), news{}, [...]string{
			"True AllWell: the fleet is as its spec wants it", "False AllWell: nothing is being changed", quiet,
		}},
		"a pod that is gone made too large a stash": {
			append(but(), of(v1alpha1.ConditionStashesFit, no, v1alpha1.ReasonStashWasTooLarge, "12345 bytes")), news{}, [...]string{
				"True AllWell: the fleet is as its spec wants it", "False AllWell: nothing is being changed", quiet,
			},
		},
		"a stash is too large": {append(but(), of(v1alpha1.ConditionStashesFit, no, v1alpha1.ReasonStashTooLarge, "12345 bytes")), news{}, [...]string{
			"False StashTooLarge: StashesFit is False: 12345 bytes", "True StashTooLarge: StashesFit is False: 12345 bytes", quiet,
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var kinds, got [3]string
			for i, condition := range summary(c.conditions, c.stalled) {
				kinds[i], got[i] = condition.Type, string(condition.Status)+" "+condition.Reason+": "+condition.Message
			}
			if want := [...]string{v1alpha1.ConditionReady, v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled}; kinds != want {
				t.Errorf("the conditions are %v", kinds)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("summary (-want +got):\n%s", diff)
			}
		})
	}
}
