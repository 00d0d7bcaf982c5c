package bundle

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/livestash-dev/livestash/operator/internal/kept"
)

// plainVariables are those of the operator's contract: their values say how the pod was made, and none is secret.
var plainVariables = map[string]bool{
	"LIVE_STASH_ADAPTER": true, "LIVE_STASH_TTL": true, "PORT": true, "PHX_SERVER": true, "PHX_HOST": true, "RELEASE_DISTRIBUTION": true, "RELEASE_NODE": true,
	"RELEASE_TMP": true, "LIBCLUSTER_SERVICE": true, "LIBCLUSTER_NAMESPACE": true, "LIBCLUSTER_APP": true, "CLUSTER_DOMAIN": true, "DNS_CLUSTER_QUERY": true,
	"ERL_AFLAGS": true, "ERL_CRASH_DUMP": true,
}

// Without is an object without what may be secret: values of Secrets and ConfigMaps, values of variables, and what kubectl, servers and the
// operator note of all that besides.
func Without(object *unstructured.Unstructured) *unstructured.Unstructured {
	plain := object.DeepCopy()
	plain.SetManagedFields(nil)
	annotations := plain.GetAnnotations()
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	delete(annotations, kept.RenderingAnnotation)
	plain.SetAnnotations(annotations)
	if kind := plain.GetKind(); kind == "Secret" || kind == "ConfigMap" {
		for _, name := range []string{"data", "stringData", "binaryData"} {
			if values, is, _ := unstructured.NestedMap(plain.Object, name); is {
				for key := range values {
					values[key] = Redacted
				}
				plain.Object[name] = values
			}
		}
	}
	withoutValues(plain.Object)
	return plain
}

// withoutValues walks through all lists named env, wherever they are.
func withoutValues(value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			if variables, is := field.([]any); is && name == "env" {
				hideValues(variables)
			}
			withoutValues(field)
		}
	case []any:
		for _, item := range value {
			withoutValues(item)
		}
	}
}

func hideValues(variables []any) {
	for _, item := range variables {
		variable, is := item.(map[string]any)
		if !is {
			continue
		}
		name, _ := variable["name"].(string)
		if _, has := variable["value"]; has && !plainVariables[name] && !strings.HasPrefix(name, "LIVESTASH_") {
			variable["value"] = Redacted
		}
	}
}
