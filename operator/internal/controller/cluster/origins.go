package cluster

import (
	"encoding/json"
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

// kindOrigins are where those of other kinds come from, whatever their names.
var kindOrigins = []struct{ kind, field, from string }{
	{"Job", "", "spec.rollout.before"},
	{"NetworkPolicy", "spec.egress", "spec.networkPolicy.egress.allow"},
	{"PodMonitor", "metadata.labels", "spec.monitoring.podMonitor.labels"},
	{"PodMonitor", "", "spec.monitoring.podMonitor"},
	{"Certificate", "", "spec.clustering.tls.issuerRef"},
	{"Redis", "", "spec.redis.operator"},
	{"RedisReplication", "", "spec.redis.operator"},
	{"PersistentVolumeClaim", "", "spec.redis.managed.persistence"},
}

// What the API server says of a field that only newer ones know, and of a text that it cannot read, without saying which.
const (
	fieldUnknown = "field not declared in schema"
	unreadable   = "error converting YAML to JSON"
)

// longestName is how long the name of a field may be in YAML, as which the API server reads what is applied, with some room for quotes.
const longestName = 1000

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
	switch {
	case err != nil && strings.Contains(err.Error(), fieldUnknown):
		return &reconcile.Problem{Reason: v1alpha1.ReasonInvalidSpec, Message: "the spec sets a field that this version of Kubernetes does not have: remove it: " + err.Error()}
	case err != nil && strings.Contains(err.Error(), unreadable):
		return &reconcile.Problem{Reason: v1alpha1.ReasonInvalidSpec, Message: unreadableField(c) + " has a control character, or a name of more than 1,000 bytes, which the API server does not take: remove it"}
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
	if child.Name == redis.Name(c) {
		return "spec.redis.managed"
	}
	for _, origin := range kindOrigins {
		if child.Kind == origin.kind && strings.HasPrefix(field, origin.field) {
			return origin.from
		}
	}
	for _, origin := range origins {
		if strings.HasPrefix(field, origin.field) {
			return origin.from
		}
	}
	return ""
}

// unreadableField is the field of the spec that has a character which the API server does not take.
func unreadableField(c *v1alpha1.LiveStashCluster) string {
	var spec any
	text, err := json.Marshal(c.Spec)
	if err != nil || json.Unmarshal(text, &spec) != nil {
		return "spec"
	}
	return "spec" + pathToUnreadable(spec)
}

// pathToUnreadable is empty when there is nothing of that kind.
func pathToUnreadable(value any) string {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			if len(name) > longestName {
				return fmt.Sprintf(".%s...", name[:20])
			}
			if path := pathToUnreadable(field); path != "" || pathToUnreadable(name) != "" {
				return fmt.Sprintf(".%s%s", name, path)
			}
		}
	case []any:
		for i, item := range value {
			if path := pathToUnreadable(item); path != "" {
				return fmt.Sprintf("[%d]%s", i, path)
			}
		}
	case string:
		if at := strings.IndexFunc(value, isUnreadable); at >= 0 {
			return fmt.Sprintf(" (after %d bytes)", at)
		}
	}
	return ""
}

// isUnreadable is whether a character may not be in YAML as it is. JSON escapes those before the space.
func isUnreadable(r rune) bool {
	return r >= '\x7f' && r <= '\u009f' && r != '\u0085' || r == '\ufffe' || r == '\uffff'
}
