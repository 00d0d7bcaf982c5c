package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/livestash-dev/livestash/test/internal/fenced"
)

// walk is a page whose commands are run as they stand, by somebody who does what it says, in its order.
type walk struct {
	page string
	// fleet is the spec of the fleet named shop that the page takes for granted; empty when it needs none.
	fleet string
	// before makes what else the page takes for granted.
	before func(s space)
	// replaced are words of the page that a reader replaces, too, with what stands for them here.
	replaced map[string]string
	// left are commands that are not run, and YAML that is not shown to the API server, by how they begin, with the reason.
	left map[string]string
	// parts is the kind that the page's parts of a spec belong to; LiveStashCluster when it is empty.
	parts string
}

const (
	noInternet   = "it needs the internet"
	noPrometheus = "it needs prometheus-operator, which is not here"
	noRegistry   = "it needs a registry to publish to, and who may"
	longWork     = "it builds what is here already, or runs for an hour"
	forEver      = "it does not end by itself"
	twoPods      = "adapter: ETS\nreplicas: 2"
	oneNode      = "the only node would be taken away"
	lost         = "kubectl delete secret shop-secrets\nkubectl wait lsc/shop --for=condition=ReconcileSucceeded=false --timeout=1m\n"
	ofARun       = "it is of a benchmark that has run for ten minutes: TestBenchmarkOfAllAdapters waits for one"
)

// unwalked are the pages of which nothing is run, with the reason.
var unwalked = map[string]string{
	"docs/how-to/release.md": noRegistry,
	"docs/how-to/gitops.md":  "neither Argo CD nor Flux is here: TestArgoHealth runs its Lua, TestHelmWaitsForAFleet waits as Flux does",
}

// readElsewhere are the languages of blocks that other tests read.
var readElsewhere = map[string]string{
	"elixir":     "test/docs holds it against the Phoenix workload, which is compiled from these lines",
	"javascript": "the same",
	"nginx":      "TestNginxInFrontOfAFleet runs an nginx by it",
}

// workload is the image of the small application, which stands for the reader's.
func workload() string { return fmt.Sprintf("%s/livestash-workload-otp:%s", registry, version) }

// walks are the pages. Every line of left and replaced must be of use: what the page does not say any more has to go from here, too.
func walks() []walk {
	return []walk{
		{page: "README.md", replaced: map[string]string{"registry.example/you": registry, "ghcr.io/acme/shop:1.4.2": workload()},
			left: map[string]string{"make demo": longWork, "make test": longWork}},
		{page: "docs/quickstart.md", replaced: map[string]string{"registry.example/you": registry, "ghcr.io/acme/shop:1.4.2": workload(), "bin/shop": "bin/workload"},
			left: map[string]string{"make images": longWork, "skopeo copy": noRegistry}},
		{page: "docs/how-to/kubectl-plugin.md", fleet: twoPods,
			left: map[string]string{"make kubectl-livestash": longWork, "cp bin/kubectl*livestash": "the plugin is found in bin/"}},
		{page: "docs/how-to/troubleshooting.md", fleet: twoPods,
			left: map[string]string{"kubectl logs shop-1 -c app --previous": "nothing has crashed here"}},
		{page: "docs/how-to/prepare-your-app.md", fleet: twoPods, replaced: map[string]string{"bin/my_app": "bin/workload"},
			left: map[string]string{"kubectl livestash open": forEver}},
		{page: "docs/how-to/move-a-deployment.md", before: deployment, replaced: map[string]string{"ghcr.io/acme/shop:1.4.2": workload()}},
		{page: "docs/how-to/deploys.md", fleet: twoPods, before: restored},
		{page: "docs/how-to/crash-dumps.md", fleet: twoPods + "\nbeam: {crashDumps: {}}",
			left: map[string]string{"kubectl livestash crashdump get": "nothing has crashed here: TestPluginCrashdump fetches one"}},
		{page: "docs/how-to/redis.md", left: map[string]string{"kubectl cordon": oneNode, "kubectl drain": oneNode, "kubectl rollout restart statefulset/shop-redis": oneNode}},
		{page: "docs/how-to/benchmark.md", parts: "LiveStashBenchmark", replaced: map[string]string{"registry.example/you": registry},
			left: map[string]string{
				"make matrix PRESET": longWork, "kubectl apply -f small.yaml": ofARun,
				"kubectl get livestashbenchmark small -o wide --watch": forEver, "kubectl get livestashbenchmark small -o jsonpath": ofARun,
				"kubectl get configmap": ofARun, "kubectl create configmap kept-report": ofARun, "kubectl wait livestashbenchmark/change": ofARun,
			}},
		{page: "docs/how-to/secrets.md", fleet: twoPods, replaced: map[string]string{"USER": "user", "PASSWORD": "password", "cookie=$(kubectl exec": lost + "cookie=$(kubectl exec"},
			left: map[string]string{`kubectl create secret generic shop-keys --from-literal=secret-key-base="$(jq`: "it is for another cluster: here the Secret is there"}},
		{page: "docs/how-to/monitoring.md", fleet: twoPods, parts: "LiveStashBenchmark", replaced: map[string]string{"NAMESPACE": "e2e-pages-monitoring", "NAME": "prometheus"},
			left: map[string]string{"helm dependency build": noInternet, "helm install platform": noInternet, "helm upgrade": noPrometheus,
				"kubectl get podmonitor": noPrometheus, "kubectl port-forward -n monitoring service/platform-grafana": noPrometheus,
				"kubectl get secret -n monitoring": noPrometheus, "kubectl port-forward -n monitoring service/prometheus-operated": noPrometheus, "make pictures": noPrometheus,
				"scrape_configs:": "TestMonitoringHowTo gives them to promtool"},
			before: func(s space) {
				s.t.Cleanup(func() { _, _ = s.kubectl("", "delete", "clusterrolebinding", "prometheus-livestash") })
			}},
		{page: "docs/concepts.md"},
		{page: "docs/how-to/ingress.md", left: map[string]string{"apiVersion: gateway.networking.k8s.io": "the Gateway API is not here"}},
		{page: "docs/how-to/autoscaling.md"},
		{page: "docs/how-to/quotas.md"},
	}
}

// deployment is an application as a reader has it who has not heard of LiveStash.
func deployment(s space) {
	s.must("", "create", "deployment", "shop", "--image="+workload())
	s.must("", "create", "secret", "generic", "shop-environment", "--from-literal=GREETING=hello")
}

// restored takes back what a page does to the operator's release.
func restored(s space) {
	s.t.Cleanup(func() {
		args := append([]string{"upgrade", release, repository(), "--namespace", releaseNamespace, "--wait", "--reset-values"}, chartValues()...)
		if out, err := run("", "helm", args...); err != nil {
			s.t.Errorf("helm upgrade: %v\n%s", err, out)
		}
	})
}

// TestPages walks a newcomer's path: every command block of these pages, as it stands. README.md and the quickstart install the operator and take it
// away again, so the others wait for them.
func TestPages(t *testing.T) {
	helm := func(args ...string) {
		t.Helper()
		if out, err := run("", "helm", append(args, "--namespace", releaseNamespace)...); err != nil {
			t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	name := func(w walk) string { return strings.TrimSuffix(filepath.Base(w.page), ".md") }
	all := walks()
	for i, w := range all[:2] {
		t.Run(name(w), func(t *testing.T) {
			if i == 0 {
				helm("uninstall", release, "--wait")
			}
			// However it ends, the next page finds the operator as it expects it.
			t.Cleanup(func() {
				_, _ = run("", "helm", "uninstall", release, "--namespace", releaseNamespace, "--wait")
				if i == 1 {
					helm(append([]string{"install", release, repository(), "--wait", "--timeout", "3m"}, chartValues()...)...)
				}
			})
			w.walk(t, name(w))
		})
	}
	t.Run("others", func(t *testing.T) {
		for _, w := range all[2:] {
			t.Run(name(w), func(t *testing.T) {
				t.Parallel()
				w.walk(t, name(w))
			})
		}
	})
}

// walk makes what the page takes for granted, and does what it says.
func (w walk) walk(t *testing.T, name string) {
	t.Helper()
	s := newSpace(t, "pages-"+strings.ToLower(name))
	if w.fleet != "" {
		s.apply(w.fleet)
		s.settled()
	}
	if w.before != nil {
		w.before(s)
	}
	w.run(s)
}

// run does what the page says.
func (w walk) run(s space) {
	s.t.Helper()
	checkout, environment := s.checkout()
	used := map[string]bool{}
	ran := 0
	for _, block := range fenced.Blocks(read(s.t, w.page)) {
		switch block.Language {
		case "yaml":
			if w.leaves(block.Text, s.t, used) {
				continue
			}
			ran++
			s.show(checkout, w.replace(block.Text, used), w.parts)
		case "sh":
			commands := w.without(block.Text, s.t, used)
			if strings.TrimSpace(commands) == "" {
				continue
			}
			ran++
			s.shell(checkout, environment, w.replace(commands, used))
		}
	}
	if w.page == "README.md" {
		// It shows the object, and leaves it to the quickstart to apply it.
		s.shell(checkout, environment, "kubectl apply -f shop.yaml\nkubectl wait lsc/shop --for=condition=Ready --timeout=3m\nkubectl delete lsc shop")
	}
	for _, listed := range []map[string]string{w.replaced, w.left} {
		for word := range listed {
			if !used[word] {
				s.t.Errorf("%s does not say %q any more: take it out of this test", w.page, word)
			}
		}
	}
	if ran == 0 {
		s.t.Errorf("nothing of %s was run", w.page)
	}
}

// show has the API server look at the YAML of a page: at whole objects, and at parts of a spec in an object of their kind; or helm at values.
// A LiveStashCluster is also kept in the file that the page's commands apply.
func (s space) show(folder, text, kind string) {
	s.t.Helper()
	if strings.Contains("\n"+text, "\nkind: ") {
		s.keep(folder, text)
		s.must(text, "apply", "--dry-run=server", "-f", "-")
		return
	}
	if !strings.HasPrefix(text, "spec:") { // values of the chart, whose schema knows all there are
		if out, err := run(text, "helm", "template", release, repository(), "--values", "-"); err != nil {
			s.t.Errorf("%v\n%s", err, out)
		}
		return
	}
	whole := "apiVersion: livestash.dev/v1alpha1\nkind: LiveStashCluster\nmetadata: {name: part}\nspec: {image: ghcr.io/acme/shop:1.4.1, replicas: 3, adapter: ETS}\n"
	if kind == "LiveStashBenchmark" {
		whole = "apiVersion: livestash.dev/v1alpha1\nkind: LiveStashBenchmark\nmetadata: {name: part}\nspec: {target: {template: {spec: {image: ghcr.io/acme/shop:1.4.1}}}, matrix: {runs: [{users: 200, ttl: 10m}]}}\n"
	}
	base := filepath.Join(s.t.TempDir(), "whole.yaml")
	if err := os.WriteFile(base, []byte(whole), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.must(s.must("", "patch", "--local", "-f", base, "--type=merge", "--patch", text, "-o", "yaml"), "create", "--dry-run=server", "-f", "-")
}

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository(), page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// checkout is a folder to work in with what a reader's checkout has of it, and the environment of a shell whose kubectl means the space.
func (s space) checkout() (folder string, environment []string) {
	s.t.Helper()
	folder = s.t.TempDir()
	for _, name := range []string{"Chart.yaml", "values.yaml", "values.schema.json", ".helmignore", "README.md", "LICENSE", "templates", "charts", "manifests", "loadtests/k6"} {
		to := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			s.t.Fatal(err)
		}
		if out, err := run("", "cp", "-R", filepath.Join(repository(), name), to); err != nil {
			s.t.Fatal(out, err)
		}
	}
	config := filepath.Join(s.t.TempDir(), "kubeconfig")
	flat := s.must("", "config", "view", "--raw", "--flatten")
	if err := os.WriteFile(config, []byte(flat), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.must("", "config", "set-context", "--current", "--namespace="+s.name, "--kubeconfig="+config)
	return folder, append(os.Environ(), "KUBECONFIG="+config, "PATH="+filepath.Join(repository(), "bin")+":"+os.Getenv("PATH"),
		"SECRET_KEY_BASE="+strings.Repeat("k", 64), "DATABASE_URL=ecto://shop")
}

// fleetName finds under which name a page means a LiveStashCluster to be kept.
var fleetName = regexp.MustCompile(`(?m)^metadata:\n  name: (\S+)$`)

// keep writes the YAML of a fleet to the file that the page's commands apply.
func (s space) keep(folder, text string) {
	s.t.Helper()
	name := fleetName.FindStringSubmatch(text)
	if name == nil || !strings.Contains(text, "kind: LiveStashCluster") {
		return
	}
	if err := os.WriteFile(filepath.Join(folder, name[1]+".yaml"), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s space) shell(folder string, environment []string, commands string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 6*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-euxo", "pipefail", "-c", commands)
	command.Dir, command.Env = folder, environment
	begun := time.Now()
	out, err := command.CombinedOutput()
	s.t.Logf("%.1f s:\n%s", time.Since(begun).Seconds(), out)
	if err != nil {
		s.t.Fatalf("%v, of:\n%s", err, commands)
	}
}

func (w walk) replace(text string, used map[string]bool) string {
	// The longer ones first: one word may be the beginning of another.
	for _, word := range slices.Backward(slices.SortedFunc(maps.Keys(w.replaced), func(a, b string) int { return len(a) - len(b) })) {
		replaced := strings.ReplaceAll(text, word, w.replaced[word])
		used[word] = used[word] || replaced != text
		text = replaced
	}
	return text
}

// without is a block without the commands that are left. A command goes on in the next line after a backslash or &&, or before a pipe.
func (w walk) without(text string, t *testing.T, used map[string]bool) string {
	t.Helper()
	var kept strings.Builder
	for _, command := range commandsOf(text) {
		if !w.leaves(command, t, used) {
			kept.WriteString(command + "\n")
		}
	}
	return kept.String()
}

// leaves is whether there is a reason not to use this command, or this YAML.
func (w walk) leaves(text string, t *testing.T, used map[string]bool) bool {
	t.Helper()
	for begin, why := range w.left {
		if strings.HasPrefix(text, begin) {
			used[begin] = true
			t.Logf("left, because %s: %s", why, text)
			return true
		}
	}
	return false
}

func commandsOf(text string) []string {
	var commands []string
	goesOn := false
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		if goesOn || strings.HasPrefix(strings.TrimSpace(line), "|") {
			commands[len(commands)-1] += "\n" + line
		} else {
			commands = append(commands, line)
		}
		goesOn = strings.HasSuffix(line, `\`) || strings.HasSuffix(line, "&&")
	}
	return commands
}

// command is how a command begins that a reader would copy.
var command = regexp.MustCompile(`(?m)^ *(\$ )?(kubectl|helm|make|sed|cp|curl|docker|git|export|mix|skopeo|cosign) `)

// Every block of the README, the quickstart, the concepts and the how-tos is run, shown to the API server or left for a reason; a new one has to be, too.
func TestEveryBlockHasItsPlace(t *testing.T) {
	walked := map[string]bool{}
	for _, w := range walks() {
		walked[w.page] = true
	}
	paths, err := filepath.Glob(filepath.Join(repository(), "docs", "how-to", "*.md"))
	if err != nil || len(paths) == 0 {
		t.Fatal("no how-tos: ", err)
	}
	pages := []string{"README.md", "docs/quickstart.md", "docs/concepts.md"}
	for _, path := range paths {
		pages = append(pages, "docs/how-to/"+filepath.Base(path))
	}
	for _, page := range pages {
		blocks := fenced.Blocks(read(t, page))
		if len(blocks) > 0 && walked[page] == (unwalked[page] != "") {
			t.Errorf("%s has commands or YAML: nobody walks it, and there is no reason why; or both", page)
		}
		for _, block := range blocks {
			switch {
			case block.Language == "sh" || block.Language == "yaml" || readElsewhere[block.Language] != "":
			case block.Language != "":
				t.Errorf("%s: no test reads %s:\n%s", page, block.Language, block.Text)
			case command.MatchString(block.Text):
				t.Errorf("%s: these are commands, and are not marked as sh:\n%s", page, block.Text)
			}
		}
	}
}

// TestBlocks: what a page's commands are, and which are left.
func TestBlocks(t *testing.T) {
	page := "text\n```sh\na \\\n  b    # why\nc x &&\n  d\nc x \\\n  | d\n```\n- list\n  ```sh\n  e\n  ```\n```yaml\nf: 1\n```\n"
	blocks := fenced.Blocks(page)
	if len(blocks) != 3 || blocks[1] != (fenced.Block{Language: "sh", Text: "e\n"}) || blocks[2] != (fenced.Block{Language: "yaml", Text: "f: 1\n"}) {
		t.Fatalf("blocks %q", blocks)
	}
	used := map[string]bool{}
	w := walk{left: map[string]string{"c": "it is not wanted"}, replaced: map[string]string{"b": "B"}}
	if got := w.replace(w.without(blocks[0].Text, t, used), used); got != "a \\\n  B    # why\n" || !used["c"] || !used["b"] {
		t.Errorf("%q, used %v", got, used)
	}
}
