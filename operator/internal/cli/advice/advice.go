// Package advice says in plain words what a condition that is not well means, and what to do: what the runbooks say, in short.
package advice

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// runbooks is where the alerts' runbooks are published, docs where the rest is.
const (
	docs     = "https://github.com/livestash-dev/livestash/blob/main/docs/"
	runbooks = docs + "runbooks/"
)

// Advice is what to do about a condition.
type Advice struct {
	// Do is one sentence or two. Empty: nothing, it passes by itself.
	Do string `json:"do,omitempty"`
	// Read is the address of the page with the rest.
	Read string `json:"read,omitempty"`
}

// Problem is a condition that is not as it should be.
type Problem struct {
	// Condition and Reason are the API's words.
	Condition string `json:"condition"`
	Reason    string `json:"reason"`
	// Means is the condition in plain words, Says the operator's own sentence.
	Means string `json:"means"`
	Says  string `json:"says"`
	// Passing is whether nobody has to do anything: it is at work.
	Passing bool        `json:"passing"`
	Since   metav1.Time `json:"since"`
	Advice
}

// means are the conditions in plain words, while they are not as they should be.
var means = map[string]string{
	v1alpha1.ConditionAvailable:          "Too few pods serve users.",
	v1alpha1.ConditionStalled:            "Somebody has to do something before it goes on.",
	v1alpha1.ConditionReconcileSucceeded: "The fleet is not as its spec asks for.",
	v1alpha1.ConditionClustered:          "Some pods do not see each other as BEAM nodes: users who reconnect to the wrong one may lose their state.",
	v1alpha1.ConditionStoreReady:         "A pod cannot keep stashes: what its users do is lost when they reconnect.",
	v1alpha1.ConditionAgentHealthy:       "The agent does not answer in a pod: nobody would hand its stashes over.",
	v1alpha1.ConditionRolloutSafe:        "The next rollout loses stashes.",
	v1alpha1.ConditionStashesFit:         "A stash is too large for a browser to bring back.",
	v1alpha1.ConditionShadowsCurrent:     "If a pod is killed, stashes are lost that other pods should have copies of.",
	v1alpha1.ConditionPlaced:             "A pod is on a machine that is to be emptied, or a machine has more than its share of them.",
	v1alpha1.ConditionProgressing:        "Pods are being made, replaced or removed.",
	v1alpha1.ConditionUpToDate:           "The pods are as another version of the operator made them.",
}

// order is that of conditions in a report: what keeps users away first.
var order = []string{
	v1alpha1.ConditionAvailable, v1alpha1.ConditionStalled, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ConditionStoreReady, v1alpha1.ConditionClustered,
	v1alpha1.ConditionAgentHealthy, v1alpha1.ConditionStashesFit, v1alpha1.ConditionShadowsCurrent, v1alpha1.ConditionRolloutSafe, v1alpha1.ConditionPlaced, v1alpha1.ConditionProgressing,
	v1alpha1.ConditionUpToDate,
}

// Problems are the conditions that are not as they should be, the worst first. What two conditions say with the same reason and the same
// words is told once.
func Problems(conditions []metav1.Condition) []Problem {
	var found []Problem
	told := map[string]bool{}
	for _, kind := range order {
		for _, condition := range conditions {
			key := condition.Reason + condition.Message
			if condition.Type != kind || well(condition) || told[key] {
				continue
			}
			told[key] = true
			found = append(found, Problem{
				Condition: kind, Reason: condition.Reason, Means: means[kind], Says: condition.Message, Passing: passes(condition),
				Since: condition.LastTransitionTime, Advice: of[condition.Reason],
			})
		}
	}
	return found
}

// well is whether a condition is as it should be.
func well(condition metav1.Condition) bool {
	switch condition.Type {
	case v1alpha1.ConditionStalled, v1alpha1.ConditionProgressing:
		return condition.Status == metav1.ConditionFalse
	}
	return condition.Status != metav1.ConditionFalse
}

// passes is whether a condition that is not well ends by itself.
func passes(condition metav1.Condition) bool {
	switch condition.Type {
	case v1alpha1.ConditionProgressing, v1alpha1.ConditionUpToDate:
		return of[condition.Reason].Do == ""
	}
	return condition.Reason == v1alpha1.ReasonCookieWaits
}
