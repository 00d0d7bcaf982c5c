package fleet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

func TestReferences(t *testing.T) {
	cases := map[string]struct {
		spec string
		want []Reference
	}{
		"none":                        {`{image: a, env: [{name: A, value: b}, {name: B, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}`, nil},
		"ignored":                     {`{rollout: {configChanges: Ignore}, envFrom: [{configMapRef: {name: a}}]}`, nil},
		"its own":                     {`{secretKeyBase: {secretRef: {name: own, key: base}}}`, nil},
		"a patch that is no pod spec": {`{podTemplate: {spec: {volumes: 7}}}`, nil},
		"variables": {
			`{env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: a}}}, {name: B, valueFrom: {configMapKeyRef: {name: c, key: b, optional: true}}}],
			  envFrom: [{configMapRef: {name: all}}, {secretRef: {name: all, optional: true}}]}`,
			[]Reference{{Kind: "ConfigMap", Name: "all"}, {Kind: "ConfigMap", Name: "c", Keys: []string{"b"}, Optional: true},
				{Kind: "Secret", Name: "all", Optional: true}, {Kind: "Secret", Name: "s", Keys: []string{"a"}}},
		},
		"files": {
			`{podTemplate: {spec: {volumes: [{name: a, configMap: {name: c, items: [{key: k, path: p}]}}, {name: b, secret: {secretName: s}},
			  {name: c, projected: {sources: [{configMap: {name: p}}, {secret: {name: q, optional: true}}]}}, {name: d, emptyDir: {}}]}}}`,
			[]Reference{{Kind: "ConfigMap", Name: "c", Keys: []string{"k"}}, {Kind: "ConfigMap", Name: "p"},
				{Kind: "Secret", Name: "q", Optional: true}, {Kind: "Secret", Name: "s"}},
		},
		"sidecars": {
			`{podTemplate: {spec: {initContainers: [{name: i, image: i, envFrom: [{secretRef: {name: i}}]}],
			  containers: [{name: log, image: l, env: [{name: A, valueFrom: {configMapKeyRef: {name: l, key: a}}}]}, {$patch: delete, name: old}]}}}`,
			[]Reference{{Kind: "ConfigMap", Name: "l", Keys: []string{"a"}}, {Kind: "Secret", Name: "i"}},
		},
		"the same several times": {
			`{env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: b, optional: true}}}, {name: B, valueFrom: {secretKeyRef: {name: s, key: a}}},
			  {name: C, valueFrom: {secretKeyRef: {name: s, key: b}}}, {name: D, valueFrom: {secretKeyRef: {name: t, key: b}}}], envFrom: [{secretRef: {name: t}}]}`,
			[]Reference{{Kind: "Secret", Name: "s", Keys: []string{"a", "b"}}, {Kind: "Secret", Name: "t"}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := &v1alpha1.LiveStashCluster{}
			if err := yaml.Unmarshal([]byte(c.spec), &cluster.Spec); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, References(cluster), cmpopts.IgnoreFields(Reference{}, "Uses")); diff != "" {
				t.Errorf("References (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUses(t *testing.T) {
	cluster := &v1alpha1.LiveStashCluster{}
	spec := `{env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: a, optional: true}}}], envFrom: [{prefix: B_, secretRef: {name: s}}],
	  podTemplate: {spec: {volumes: [{name: v, secret: {secretName: s, items: [{key: c, path: c}]}}], containers: [{name: log, envFrom: [{secretRef: {name: s}}]}]}}}`
	if err := yaml.Unmarshal([]byte(spec), &cluster.Spec); err != nil {
		t.Fatal(err)
	}
	want := []Reference{{Kind: "Secret", Name: "s", Uses: []Use{
		{Field: "spec.env", Key: "a", Optional: true, Environment: true, Variable: "A"},
		{Field: "spec.envFrom", Environment: true, Variable: "B_"},
		{Field: "spec.podTemplate.spec"},
		{Field: "spec.podTemplate.spec", Key: "c"},
	}}}
	if diff := cmp.Diff(want, References(cluster)); diff != "" {
		t.Errorf("References (-want +got):\n%s", diff)
	}
}
