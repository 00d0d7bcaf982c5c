package cluster

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/observe"
)

func TestShadowsCurrent(t *testing.T) {
	cases := map[string]struct {
		shadow *agentclient.Shadow
		reason string
		says   string
	}{
		"nothing waits":       {&agentclient.Shadow{Holders: 2}, v1alpha1.ReasonCopiesCurrent, ""},
		"a moment":            {&agentclient.Shadow{Holders: 2, LagSeconds: 9}, v1alpha1.ReasonCopiesCurrent, ""},
		"too long":            {&agentclient.Shadow{Holders: 2, LagSeconds: 10}, v1alpha1.ReasonCopiesLate, "shop-1 have waited 10 s"},
		"nobody is there yet": {&agentclient.Shadow{LagSeconds: 3}, v1alpha1.ReasonCopiesCurrent, ""},
		"nobody is there":     {&agentclient.Shadow{LagSeconds: 30}, v1alpha1.ReasonNobodyHolds, "needs two pods"},
		"no room":             {&agentclient.Shadow{Holders: 2, LagSeconds: 30, Refused: true}, v1alpha1.ReasonCopiesRefused, "raise spec.shadow.maxBytes"},
		"a pod of before":     {nil, v1alpha1.ReasonNotCopiedYet, "of shop-1, whose template is from before"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			seen := fleetOf(3, func(m []member) {
				for i := range m {
					m[i].answer.Status.Shadow = &agentclient.Shadow{Holders: 2}
				}
				m[1].answer.Status.Shadow = c.shadow
			})
			got := shadowsCurrent(&seen)
			if got.Reason != c.reason || !strings.Contains(got.Message, c.says) || (got.Status == metav1.ConditionTrue) != (c.reason == v1alpha1.ReasonCopiesCurrent) {
				t.Errorf("%s %s: %s; want %s with %q", got.Status, got.Reason, got.Message, c.reason, c.says)
			}
		})
	}
	starting := fleetOf(1, func(m []member) { m[0].answer, m[0].Status.Conditions = observe.Answer{}, nil })
	if got := shadowsCurrent(&starting); got.Status != metav1.ConditionTrue {
		t.Errorf("a pod that starts: %s: %s", got.Status, got.Message)
	}
	for heard, want := range map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionUnknown} {
		silent := fleetOf(2, func(m []member) {
			m[0].answer = observe.Answer{}
			m[1].answer.Status.Shadow = &agentclient.Shadow{Holders: 1}
			if !heard {
				m[1].answer.Err, m[1].answer.Status.Shadow = &agentclient.ForeignServerError{}, &agentclient.Shadow{LagSeconds: 99}
			}
		})
		if got := shadowsCurrent(&silent); got.Status != want {
			t.Errorf("when one says nothing, and the other one speaks %t: %s: %s", heard, got.Status, got.Message)
		}
	}
}

// The condition is there while copies are asked for.
func TestShadowsCurrentComesAndGoes(t *testing.T) {
	cluster := &v1alpha1.LiveStashCluster{Spec: v1alpha1.LiveStashClusterSpec{Adapter: v1alpha1.AdapterETS, Shadow: &v1alpha1.ShadowSpec{Enabled: true}}}
	seen := fleetOf(2, nil)
	var conditions []metav1.Condition
	for _, enabled := range []bool{true, false} {
		cluster.Spec.Shadow.Enabled = enabled
		setAgentConditions(&conditions, cluster, &seen, nil)
		if got := meta.FindStatusCondition(conditions, v1alpha1.ConditionShadowsCurrent); (got != nil) != enabled {
			t.Errorf("enabled %t: the condition is %v", enabled, got)
		}
	}
}
