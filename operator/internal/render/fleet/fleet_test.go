package fleet

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

var update = flag.Bool("update", false, "write the rendered objects to testdata instead of comparing")

// The rendered objects as a user would read them. After a wanted change: go test ./internal/render/fleet -update.
func TestRenderedObjects(t *testing.T) {
	for _, name := range []string{"smallest", "full", "redis"} {
		t.Run(name, func(t *testing.T) {
			cluster, in := rendertest.Cluster(t, name), rendertest.Inputs
			if cluster.Spec.Adapter != v1alpha1.AdapterRedis {
				in.StoreDigest = ""
			}
			objects, err := Render(cluster, in)
			if err != nil {
				t.Fatal(err)
			}
			compareGolden(t, name, objects...)
		})
	}
}

// compareGolden compares objects with the file of that name.
func compareGolden[T client.Object](t *testing.T, name string, objects ...T) {
	t.Helper()
	var got bytes.Buffer
	for _, object := range objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		got.WriteString("---\n")
		got.Write(text)
	}
	golden := filepath.Join("testdata", name+".golden.yaml")
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("rendered objects differ from %s (-want +got):\n%s", golden, diff)
	}
}

func TestRenderIsPure(t *testing.T) {
	cluster := rendertest.Cluster(t, "full")
	before := cluster.DeepCopy()
	first, err := Render(cluster, rendertest.Inputs)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Render(cluster, rendertest.Inputs)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("two renders differ:\n%s", diff)
	}
	if diff := cmp.Diff(before.Spec.PodTemplate.Metadata, cluster.Spec.PodTemplate.Metadata); diff != "" {
		t.Errorf("rendering changed the spec:\n%s", diff)
	}
}
func TestTooLongNodeNames(t *testing.T) {
	cluster := rendertest.Cluster(t, "smallest")
	cluster.Name, cluster.Namespace = strings.Repeat("n", 45), strings.Repeat("s", 63)
	if _, err := Render(cluster, rendertest.Inputs); err != nil {
		t.Errorf("the longest name in the longest namespace of cluster.local is refused: %v", err)
	}

	long := rendertest.Inputs
	long.ClusterDomain = strings.Repeat("d", 60) + ".example"
	_, err := Render(cluster, long)
	var invalid *render.SpecError
	if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "shorter name") {
		t.Errorf("a node name over 255 characters gives %v, want a *SpecError that says what to change", err)
	}
}

func TestOverrideCannotBreakIdentity(t *testing.T) {
	cases := map[string]struct{ spec, says string }{
		"the app container deleted":   {`{"containers": [{"name": "app", "$patch": "delete"}]}`, "must stay"},
		"the containers replaced":     {`{"containers": [{"$patch": "replace"}, {"name": "log", "image": "x"}]}`, "must stay"},
		"its environment replaced":    {`{"containers": [{"name": "app", "env": [{"$patch": "replace"}]}]}`, "changes the environment variable"},
		"the cookie set in a patch":   {`{"containers": [{"name": "app", "env": [{"name": "RELEASE_COOKIE", "value": "x", "valueFrom": null}]}]}`, "RELEASE_COOKIE"},
		"its ports replaced":          {`{"containers": [{"name": "app", "ports": [{"$patch": "replace"}]}]}`, "changes the port http"},
		"a field that is no pod spec": {`{"tolerations": "none"}`, "not a valid pod spec"},
		"an unknown field":            {`{"nodeSelektor": {"disk": "ssd"}}`, `unknown field "nodeSelektor"`},
		"one deep inside":             {`{"containers": [{"name": "log", "imagee": "x"}]}`, `unknown field "containers[0].imagee"`},
		"one beside a directive":      {`{"containers": [{"name": "log", "$patch": "delete", "imagee": "x"}]}`, `unknown field "containers[0].imagee"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := patched(t, c.spec)
			_, err := Render(cluster, rendertest.Inputs)
			var invalid *render.SpecError
			if !errors.As(err, &invalid) {
				t.Fatalf("Render gives %v, want a *SpecError", err)
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error does not say %q: %v", c.says, err)
			}
		})
	}
}

// The kubelet would restart a container again and again whose liveness port it cannot find.
func TestProbesOfPortsThatAreNotThere(t *testing.T) {
	cluster := rendertest.Cluster(t, "smallest")
	named := func(port string) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString(port)}}}
	}
	cluster.Spec.Probes = &v1alpha1.ProbesSpec{Startup: named("http"), Liveness: named("admin")}
	_, err := Render(cluster, rendertest.Inputs)
	var invalid *render.SpecError
	if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "spec.probes.liveness asks the port admin, which the container app does not have") {
		t.Errorf("Render = %v", err)
	}
	cluster.Spec.PodTemplate = &v1alpha1.PodTemplateOverride{Spec: override(t, `{"containers": [{"name": "app", "ports": [{"name": "admin", "containerPort": 7000}]}]}`)}
	if _, err := Render(cluster, rendertest.Inputs); err != nil {
		t.Errorf("with a port of that name, Render = %v", err)
	}
}

// A strategic merge patch may say how it is to be merged. That is no field of a pod spec.
func TestOverrideMayHaveDirectives(t *testing.T) {
	cases := map[string]struct {
		spec string
		// is whether the pods are as the patch wants them.
		is func(corev1.PodSpec) bool
	}{
		"an entry deleted": {`{"volumes": [{"name": "tmp", "$patch": "delete"}]}`, func(pod corev1.PodSpec) bool {
			return !slices.ContainsFunc(pod.Volumes, func(volume corev1.Volume) bool { return volume.Name == "tmp" })
		}},
		"an object replaced": {`{"securityContext": {"$patch": "replace", "runAsUser": 1000}}`, func(pod corev1.PodSpec) bool {
			return *pod.SecurityContext.RunAsUser == 1000 && pod.SecurityContext.FSGroup == nil
		}},
		"keys kept": {`{"securityContext": {"$retainKeys": ["runAsUser"], "runAsUser": 1000}}`, func(pod corev1.PodSpec) bool {
			return *pod.SecurityContext.RunAsUser == 1000
		}},
		"an order": {`{"$setElementOrder/containers": [{"name": "app"}, {"name": "log"}], "containers": [{"name": "log", "image": "x"}]}`, func(pod corev1.PodSpec) bool {
			return slices.ContainsFunc(pod.Containers, func(container corev1.Container) bool { return container.Name == "log" })
		}},
		"a field removed": {`{"terminationGracePeriodSeconds": null}`, func(pod corev1.PodSpec) bool { return pod.TerminationGracePeriodSeconds == nil }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := patched(t, c.spec)
			set, err := StatefulSet(cluster, rendertest.Inputs)
			if err != nil {
				t.Fatal(err)
			}
			if !c.is(set.Spec.Template.Spec) {
				t.Errorf("the pods are not as wanted: %+v", set.Spec.Template.Spec)
			}
		})
	}
}

func TestOperatorLabelsWinOverOverride(t *testing.T) {
	cluster := rendertest.Cluster(t, "smallest")
	cluster.Spec.PodTemplate = &v1alpha1.PodTemplateOverride{Metadata: v1alpha1.PodMetadataOverride{
		Labels: map[string]string{render.ClusterLabel: "other", "team": "web"},
	}}
	set, err := StatefulSet(cluster, rendertest.Inputs)
	if err != nil {
		t.Fatal(err)
	}
	if got := set.Spec.Template.Labels; got[render.ClusterLabel] != "shop" || got["team"] != "web" {
		t.Errorf("labels of the pods: %v", got)
	}
}

// patched is a LiveStashCluster with that podTemplate.spec.
func patched(t *testing.T, patch string) *v1alpha1.LiveStashCluster {
	t.Helper()
	cluster := rendertest.Cluster(t, "smallest")
	cluster.Spec.PodTemplate = &v1alpha1.PodTemplateOverride{Spec: override(t, patch)}
	return cluster
}

// override is a podTemplate.spec as the API server hands it to the operator.
func override(t *testing.T, patch string) *v1alpha1.PodSpecOverride {
	t.Helper()
	spec := &v1alpha1.PodSpecOverride{}
	if err := spec.UnmarshalJSON([]byte(patch)); err != nil {
		t.Fatal(err)
	}
	return spec
}

func TestGeneratedSecrets(t *testing.T) {
	cluster := rendertest.Cluster(t, "smallest")
	first, second := GeneratedSecret(cluster), GeneratedSecret(cluster)
	for key, least := range map[string]int{cookieKey: 32, secretKeyBaseKey: 64} {
		if len(first.Data[key]) < least {
			t.Errorf("%s has %d bytes, want %d or more", key, len(first.Data[key]), least)
		}
		if bytes.Equal(first.Data[key], second.Data[key]) {
			t.Errorf("two Secrets have the same %s", key)
		}
	}
	// Many, because only one random text in sixty-four starts with the sign that would do harm.
	for range 1000 {
		if cookie := GeneratedSecret(cluster).Data[cookieKey]; !cookieText.Match(cookie) {
			t.Fatalf("%s is no cookie", cookie)
		}
	}
	if !ptr.Deref(first.Immutable, false) {
		t.Error("the Secret can be edited")
	}
	if NeedsGeneratedSecret(rendertest.Cluster(t, "full")) {
		t.Error("a Secret is generated though the user has one for everything")
	}
}

func TestCheckSecretValue(t *testing.T) {
	cluster := rendertest.Cluster(t, "full")
	cookie, base := *cluster.Spec.Clustering.Cookie.SecretRef, *cluster.Spec.SecretKeyBase.SecretRef
	long := strings.Repeat("k", 64)
	cases := map[string]struct {
		ref   v1alpha1.SecretKeyReference
		value string
		says  string
	}{
		"a cookie":                   {cookie, "Monster-123_x", ""},
		"a cookie that is a flag":    {cookie, "-9yelj", "is no Erlang cookie"},
		"a cookie and a line break":  {cookie, "monster\n", "no line break"},
		"a cookie of 256 characters": {cookie, strings.Repeat("c", 256), "up to 255"},
		"a secret key base":          {base, long, ""},
		"a short secret key base":    {base, long[:63], "needs at least 64 bytes"},
		"a base and a line break":    {base, long + "\n", "the key base of Secret own has a line break at its end"},
		"a base with a NUL byte":     {base, long + "\x00" + long, "has a NUL byte"},
		"a base with a tab":          {base, long + "\t" + long, "has a control character"},
		"a base of random bytes":     {base, long + "\xff\xfe", "has bytes that are no UTF-8"},
		"anything else":              {v1alpha1.SecretKeyReference{Name: "shop-redis", Key: "other"}, "-", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := CheckSecretValue(cluster, c.ref, []byte(c.value))
			if (err == nil) != (c.says == "") {
				t.Fatalf("CheckSecretValue = %v, want one that says %q", err, c.says)
			}
			if err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), c.value)) {
				t.Errorf("the error does not say %q, or tells the value: %v", c.says, err)
			}
			// Whoever may name a Secret need not be allowed to read it.
			if err != nil && regexp.MustCompile(`\b63\b`).MatchString(err.Error()) {
				t.Errorf("the error tells how long the value is: %v", err)
			}
		})
	}
}
