package fleet

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
