package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
)

// origins are where the fields of the StatefulSet and of the client Service come from. Of several that begin a path the first one counts.
var origins = []struct{ field, from string }{
	{"spec.template.spec.containers[0].env[", "spec.env"},
	{"spec.template.spec.containers[0].envFrom", "spec.envFrom"},
	{"spec.template.spec.containers[0].resources", "spec.resources"},
	{"spec.template.spec.containers[0].startupProbe", "spec.probes.startup"},
	{"spec.template.spec.containers[0].readinessProbe", "spec.probes.readiness"},
	{"spec.template.spec.containers[0].livenessProbe", "spec.probes.liveness"},
	{"spec.template.spec.", "spec.podTemplate.spec"},
	{"spec.template.labels", "spec.podTemplate.metadata.labels"},
	{"spec.template.annotations", "spec.podTemplate.metadata.annotations"},
	{"metadata.annotations", "spec.http.service.annotations"},
}

// fieldUnknown is what the API server says of a field that only newer ones know.
const fieldUnknown = "field not declared in schema"

// inWordsOfSpec is the same error in the words of the spec, when the API server refuses a child for what the user wrote: what a pod may
// have is more than the API of fleets checks.
func inWordsOfSpec(c *v1alpha1.LiveStashCluster, err error) error {
	if several, are := err.(interface{ Unwrap() []error }); are {
		all := slices.Clone(several.Unwrap())
		for i := range all {
			all[i] = inWordsOfSpec(c, all[i])
		}
		return errors.Join(all...)
	}
	if err != nil && strings.Contains(err.Error(), fieldUnknown) {
		return &reconcile.Problem{Reason: v1alpha1.ReasonInvalidSpec, Message: "the spec sets a field that this version of Kubernetes does not have: remove it: " + err.Error()}
	}
	var refusal *apierrors.StatusError
	if !errors.As(err, &refusal) || !apierrors.IsInvalid(refusal) || refusal.ErrStatus.Details == nil {
		return err
	}
	child := refusal.ErrStatus.Details
	sentences := make([]string, 0, len(child.Causes))
	for _, cause := range child.Causes {
		from := originOf(c, child, cause.Field)
		if from == "" {
			return err
		}
		sentences = append(sentences, fmt.Sprintf("%s: %s (%s of %s %s)", from, cause.Message, cause.Field, child.Kind, child.Name))
	}
	if len(sentences) == 0 {
		return err
	}
	return &reconcile.Problem{Reason: v1alpha1.ReasonInvalidSpec, Message: strings.Join(sentences, "; ")}
}

// originOf is the field of the spec that the field of a child is made of. Empty: it is the operator's.
func originOf(c *v1alpha1.LiveStashCluster, child *metav1.StatusDetails, field string) string {
	switch {
	case child.Name == redis.Name(c):
		return "spec.redis.managed"
	case child.Kind == "Job":
		return "spec.rollout.before"
	}
	for _, origin := range origins {
		if strings.HasPrefix(field, origin.field) {
			return origin.from
		}
	}
	return ""
}
