package cluster

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
)

// What the API server refuses is told with the field that the user wrote. What the user did not write stays an error of the API.
func TestInWordsOfSpec(t *testing.T) {
	refused := func(kind, name string, at *field.Path) error {
		cause := field.Invalid(at, "x", "it is wrong")
		return fmt.Errorf("applying it: %w", apierrors.NewInvalid(schema.GroupKind{Kind: kind}, name, field.ErrorList{cause}))
	}
	template := field.NewPath("spec", "template")
	app := template.Child("spec", "containers").Index(0)
	cases := map[string]struct {
		err             error
		reason, message string
	}{
		"nothing": {},
		"a text that Kubernetes 1.36 cannot read": {
			errors.New("applying it: error decoding YAML: error converting YAML to JSON: yaml: control characters are not allowed"), v1alpha1.ReasonInvalidSpec,
			"spec has a control character, or a name of more than 1,000 bytes, which the API server does not take: remove it",
		},
		"a text that Kubernetes 1.37 cannot read": {
			errors.New("applying it: error decoding patch: error converting YAML to JSON: yaml: control characters are not allowed"), v1alpha1.ReasonInvalidSpec,
			"spec has a control character, or a name of more than 1,000 bytes, which the API server does not take: remove it",
		},
		"a probe": {
			refused("StatefulSet", "shop", app.Child("livenessProbe")), v1alpha1.ReasonInvalidSpec,
			`spec.probes.liveness: Invalid value: "x": it is wrong (spec.template.spec.containers[0].livenessProbe of StatefulSet shop)`,
		},
		"a sidecar": {
			refused("StatefulSet", "shop", template.Child("spec", "containers").Index(1)), v1alpha1.ReasonInvalidSpec,
			`spec.podTemplate.spec: Invalid value: "x": it is wrong (spec.template.spec.containers[1] of StatefulSet shop)`,
		},
		"a Redis": {
			refused("StatefulSet", "shop-redis", template.Child("spec", "nodeSelector")), v1alpha1.ReasonInvalidSpec,
			`spec.redis.managed: Invalid value: "x": it is wrong (spec.template.spec.nodeSelector of StatefulSet shop-redis)`,
		},
		"a Redis that redis-operator runs": {
			refused("RedisReplication", "shop-redis-op", field.NewPath("spec", "clusterSize")), v1alpha1.ReasonInvalidSpec,
			`spec.redis.operator: Invalid value: "x": it is wrong (spec.clusterSize of RedisReplication shop-redis-op)`,
		},
		"a port that pods may connect to": {
			refused("NetworkPolicy", "shop", field.NewPath("spec", "egress").Index(3)), v1alpha1.ReasonInvalidSpec,
			`spec.networkPolicy.egress.allow: Invalid value: "x": it is wrong (spec.egress[3] of NetworkPolicy shop)`,
		},
		"who reaches the pods": {
			refused("NetworkPolicy", "shop", field.NewPath("spec", "ingress").Index(0)), v1alpha1.ReasonAPIError,
			`applying it: NetworkPolicy "shop" is invalid: spec.ingress[0]: Invalid value: "x": it is wrong`,
		},
		"an issuer": {
			refused("Certificate", "shop-distribution-issued", field.NewPath("spec", "issuerRef")), v1alpha1.ReasonInvalidSpec,
			`spec.clustering.tls.issuerRef: Invalid value: "x": it is wrong (spec.issuerRef of Certificate shop-distribution-issued)`,
		},
		"a volume": {
			refused("PersistentVolumeClaim", "shop-redis-data", field.NewPath("spec", "resources")), v1alpha1.ReasonInvalidSpec,
			`spec.redis.managed.persistence: Invalid value: "x": it is wrong (spec.resources of PersistentVolumeClaim shop-redis-data)`,
		},
		"a field that cannot change": {
			refused("StatefulSet", "shop", field.NewPath("spec")), v1alpha1.ReasonAPIError,
			`applying it: StatefulSet "shop" is invalid: spec: Invalid value: "x": it is wrong`,
		},
		"a field of another Kubernetes": {
			errors.New(".spec.template.spec.containers[0].startupProbe.grpc.mode: field not declared in schema"), v1alpha1.ReasonInvalidSpec,
			"the spec sets a field that this version of Kubernetes does not have: remove it: .spec.template.spec.containers[0].startupProbe.grpc.mode: field not declared in schema",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
			err := inWordsOfSpec(cluster, c.err)
			if err == nil {
				if c.err != nil {
					t.Error("the error is gone")
				}
				return
			}
			reason, message := reconcile.ReasonAndMessage(err)
			if diff := cmp.Diff([]string{c.reason, c.message}, []string{reason, message}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			joined := inWordsOfSpec(cluster, errors.Join(c.err, errors.New("another one")))
			if reason, _ := reconcile.ReasonAndMessage(joined); reason != c.reason {
				t.Errorf("of two errors the reason is %s", reason)
			}
		})
	}
}
