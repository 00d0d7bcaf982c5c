package fleet

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

// The contract is written in three places: what pods get, what the API refuses in spec.env, what the docs promise.
func TestContractIsRefusedByTheAPIAndDocumented(t *testing.T) {
	repository := filepath.Join("..", "..", "..", "..")
	crd := read(t, filepath.Join(repository, "config", "crd", "bases", "livestash.dev_livestashclusters.yaml"))
	docs := read(t, filepath.Join(repository, "docs", "reference", "environment.md"))
	// The rule of spec.env, of all that the definition says.
	const first, last = "'LIVE_STASH_ADAPTER'", "'LIVESTASH_'"
	crd = crd[strings.Index(crd, first) : strings.Index(crd, last)+len(last)]

	cluster := rendertest.Cluster(t, "full")
	cluster.Spec.Env = nil
	// The one variable that users may set too.
	open := []string{"ERL_CRASH_DUMP"}
	for _, variable := range environment(cluster, rendertest.Inputs) {
		if !strings.Contains(docs, "`"+variable.Name+"`") {
			t.Errorf("%s is not in docs/reference/environment.md", variable.Name)
		}
		refused := strings.Contains(crd, "'"+variable.Name+"'") ||
			strings.HasPrefix(variable.Name, "LIVESTASH_") && strings.Contains(crd, "'LIVESTASH_'")
		if refused == slices.Contains(open, variable.Name) {
			t.Errorf("%s: refused in spec.env is %v", variable.Name, refused)
		}
	}
}

// What `mix phx.new` writes starts dns_cluster where DNS_CLUSTER_QUERY is set. It makes names from IP addresses, which no node of a fleet has: each pod
// would fail to reach itself for seconds before it starts, and say so for ever.
func TestDNSClusterStaysOut(t *testing.T) {
	for _, agent := range []bool{true, false} {
		cluster := rendertest.Cluster(t, "smallest")
		cluster.Spec.Agent.Enabled = &agent
		names := map[string]string{}
		for _, variable := range environment(cluster, rendertest.Inputs) {
			names[variable.Name] = variable.Value
		}
		if query, set := names["DNS_CLUSTER_QUERY"]; set {
			t.Errorf("agent %t: DNS_CLUSTER_QUERY is %q", agent, query)
		}
		if query := names["LIVESTASH_PEERS_QUERY"]; agent != (query == "shop-nodes.web.svc.cluster.local") {
			t.Errorf("agent %t: LIVESTASH_PEERS_QUERY is %q", agent, query)
		}
	}
}

// Copies of stashes change these variables alone, so that a fleet without them is rendered as ever.
func TestShadow(t *testing.T) {
	plain, shadowed := rendertest.Cluster(t, "smallest"), rendertest.Cluster(t, "smallest")
	shadowed.Spec.Shadow = &v1alpha1.ShadowSpec{
		Interval: ptr.To(metav1.Duration{Duration: 1500 * time.Millisecond}), Copies: 2, MaxBytes: ptr.To(resource.MustParse("1Gi")),
	}
	if diff := cmp.Diff(variablesOf(t, plain), variablesOf(t, shadowed)); diff != "" {
		t.Errorf("spec.shadow without enabled changes pods:\n%s", diff)
	}
	shadowed.Spec.Shadow.Enabled = true
	want := variablesOf(t, plain)
	want["app LIVESTASH_SHADOW_COPIES"], want["app LIVESTASH_SHADOW_INTERVAL_MS"], want["app LIVESTASH_SHADOW_MAX_BYTES"] = "2", "1500", "1073741824"
	want["app LIVESTASH_MACHINE"], want["app LIVESTASH_ZONE"] = "spec.nodeName", "metadata.labels['topology.kubernetes.io/zone']"
	want["livestash-init LIVESTASH_NET_TICKTIME"], want["livestash-probe LIVESTASH_NET_TICKTIME"] = "8", "8"
	if diff := cmp.Diff(want, variablesOf(t, shadowed)); diff != "" {
		t.Errorf("the variables of the pods (-want +got):\n%s", diff)
	}
	docs := read(t, filepath.Join("..", "..", "..", "..", "docs", "reference", "environment.md"))
	for _, variable := range shadowEnvironment(shadowed) {
		if !strings.Contains(docs, "`"+variable.Name+"`") {
			t.Errorf("%s is not in docs/reference/environment.md", variable.Name)
		}
	}
}

// Where each stash is on one pod, a pod that has lost another one goes on reaching the others.
func TestOverlappingPartitions(t *testing.T) {
	for name, c := range map[string]struct {
		adapter v1alpha1.Adapter
		own     *bool
		want    string
	}{
		"ETS":                     {v1alpha1.AdapterETS, nil, "false"},
		"ETS, as the user wants":  {v1alpha1.AdapterETS, new(true), "true"},
		"Mnesia":                  {v1alpha1.AdapterMnesia, nil, ""},
		"None":                    {v1alpha1.AdapterNone, nil, ""},
		"None, as the user wants": {v1alpha1.AdapterNone, new(false), "false"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := rendertest.Cluster(t, "smallest")
			cluster.Spec.Adapter, cluster.Spec.Clustering.PreventOverlappingPartitions = c.adapter, c.own
			got := variablesOf(t, cluster)
			for _, container := range []string{"livestash-init", "livestash-probe"} {
				if value := got[container+" LIVESTASH_PREVENT_OVERLAPPING_PARTITIONS"]; value != c.want {
					t.Errorf("%s has %q, want %q", container, value, c.want)
				}
			}
		})
	}
}

// variablesOf are those of all containers of a fleet's pods.
func variablesOf(t *testing.T, c *v1alpha1.LiveStashCluster) map[string]string {
	t.Helper()
	in := rendertest.Inputs
	in.StoreDigest = ""
	objects, err := Render(c, in)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, object := range objects {
		set, ok := object.(*appsv1.StatefulSet)
		if !ok {
			continue
		}
		for _, container := range slices.Concat(set.Spec.Template.Spec.InitContainers, set.Spec.Template.Spec.Containers) {
			for _, variable := range container.Env {
				found[container.Name+" "+variable.Name] = valueOf(variable)
			}
		}
	}
	return found
}

// valueOf is a variable's value, or the field of the pod that it comes from.
func valueOf(variable corev1.EnvVar) string {
	if from := variable.ValueFrom; from != nil && from.FieldRef != nil {
		return from.FieldRef.FieldPath
	}
	return variable.Value
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
