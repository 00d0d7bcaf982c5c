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
)

// walk is a page whose commands are run as they stand, by somebody who does what it says, in its order.
type walk struct {
	page string
	// fleet is whether a fleet named shop is there before, which the page takes for granted.
	fleet bool
	// before makes what else the page takes for granted.
	before func(s space)
	// replaced are words of the page that a reader replaces, too, with what stands for them here.
	replaced map[string]string
	// left are commands that are not run, by how they begin, with the reason.
	left map[string]string
	// objects is whether the page's YAML is shown to the API server too.
	objects bool
}

const (
	noInternet   = "needs the internet"
	noPrometheus = "needs prometheus-operator, which is not here"
	needsRoom    = "builds what is here already, or runs for an hour"
	forEver      = "does not end by itself"
)

// workload is the image of the small application, which stands for the reader's.
func workload() string { return fmt.Sprintf("%s/livestash-workload-otp:%s", registry, version) }

// walks are the pages. Every line of left and replaced must be of use: what the page does not say any more has to go from here, too.
func walks() []walk {
	return []walk{
		{page: "README.md", replaced: map[string]string{"registry.example/you": registry, "ghcr.io/acme/shop:1.4.2": workload()},
			left: map[string]string{"make demo": needsRoom, "make test": needsRoom}},
		{page: "docs/quickstart.md", replaced: map[string]string{"registry.example/you": registry, "ghcr.io/acme/shop:1.4.2": workload(), "bin/shop": "bin/workload"}},
		{page: "docs/how-to/kubectl-plugin.md", fleet: true,
			left: map[string]string{"make kubectl-livestash": needsRoom, "cp bin/kubectl*livestash": "the plugin is found in bin/"}},
		{page: "docs/how-to/troubleshooting.md", fleet: true,
			left: map[string]string{"kubectl logs statefulset/shop -c app --previous": "nothing has crashed"}},
		{page: "docs/how-to/prepare-your-app.md", fleet: true, replaced: map[string]string{"bin/my_app": "bin/workload"},
			left: map[string]string{"kubectl port-forward": forEver}},
		{page: "docs/how-to/move-a-deployment.md", before: deployment, replaced: map[string]string{"ghcr.io/acme/shop:1.4.2": workload()}},
		{page: "docs/how-to/deploys.md", fleet: true},
		{page: "docs/how-to/secrets.md", fleet: true, replaced: map[string]string{"USER": "user", "PASSWORD": "password"},
			left: map[string]string{`kubectl create secret generic shop-keys --from-literal=secret-key-base="$(jq`: "is for another cluster; here the Secret is there"}},
		{page: "docs/how-to/monitoring.md", fleet: true, replaced: map[string]string{"NAMESPACE": "e2e-pages-monitoring", "NAME": "prometheus"},
			left: map[string]string{"helm dependency build": noInternet, "helm install platform": noInternet, "helm upgrade": noPrometheus,
				"kubectl get podmonitor": noPrometheus, "kubectl port-forward -n monitoring service/platform-grafana": noPrometheus,
				"kubectl get secret -n monitoring": noPrometheus, "kubectl port-forward -n monitoring service/prometheus-operated": noPrometheus, "make pictures": noPrometheus},
			before: func(s space) {
				s.t.Cleanup(func() { _, _ = s.kubectl("", "delete", "clusterrolebinding", "prometheus-livestash") })
			}},
		{page: "docs/how-to/ingress.md", objects: true},
		{page: "docs/how-to/autoscaling.md", objects: true},
		{page: "docs/how-to/quotas.md", objects: true},
	}
}

// deployment is an application as a reader has it who has not heard of LiveStash.
func deployment(s space) {
	s.must("", "create", "deployment", "shop", "--image="+workload())
	s.must("", "create", "secret", "generic", "shop-environment", "--from-literal=GREETING=hello")
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
	for i, w := range walks() {
		name := strings.TrimSuffix(filepath.Base(w.page), ".md")
		t.Run(name, func(t *testing.T) {
			if i == 0 {
				helm("uninstall", release, "--wait")
			}
			if i < 2 { // However it ends, the next page finds the operator as it expects it.
				t.Cleanup(func() {
					_, _ = run("", "helm", "uninstall", release, "--namespace", releaseNamespace, "--wait")
					if i == 1 {
						helm(append([]string{"install", release, repository(), "--wait", "--timeout", "3m"}, chartValues()...)...)
					}
				})
			}
			s := newSpace(t, "pages-"+strings.ToLower(name))
			if w.fleet {
				s.apply("adapter: ETS\nreplicas: 2")
				s.settled()
			}
			if w.before != nil {
				w.before(s)
			}
			w.run(s)
		})
	}
}

// run does what the page says.
func (w walk) run(s space) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(repository(), w.page))
	if err != nil {
		s.t.Fatal(err)
	}
	checkout, environment := s.checkout()
	used := map[string]bool{}
	ran := 0
	for _, block := range blocksOf(string(text)) {
		switch block.language {
		case "yaml":
			s.keep(checkout, w.replace(block.text, used))
			if w.objects && strings.Contains("\n"+block.text, "\nkind: ") && !strings.Contains(block.text, "kind: HTTPRoute") {
				s.must(w.replace(block.text, used), "apply", "--dry-run=server", "-f", "-")
				ran++
			}
		case "sh":
			commands := w.without(block.text, s.t, used)
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
	out, err := command.CombinedOutput()
	s.t.Logf("%s", out)
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

// without is a block without the commands that are left. A command goes on in the next line after a backslash or before a pipe.
func (w walk) without(text string, t *testing.T, used map[string]bool) string {
	t.Helper()
	var kept strings.Builder
	for _, command := range commandsOf(text) {
		reason := ""
		for begin, why := range w.left {
			if strings.HasPrefix(command, begin) {
				used[begin], reason = true, why
			}
		}
		if reason != "" {
			t.Logf("not run, because it %s: %s", reason, command)
			continue
		}
		kept.WriteString(command + "\n")
	}
	return kept.String()
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
		goesOn = strings.HasSuffix(line, `\`)
	}
	return commands
}

type fenced struct{ language, text string }

// blocksOf are the fenced blocks of a page, without the indent of those in a list.
func blocksOf(page string) []fenced {
	var found []fenced
	for _, block := range regexp.MustCompile("(?ms)^( *)```([a-z]*)\n(.*?)^ *```").FindAllStringSubmatch(page, -1) {
		found = append(found, fenced{block[2], regexp.MustCompile("(?m)^"+block[1]).ReplaceAllString(block[3], "")})
	}
	return found
}

// TestBlocks: what a page's commands are, and which are left.
func TestBlocks(t *testing.T) {
	page := "text\n```sh\na \\\n  b    # why\nc x \\\n  | d\n```\n- list\n  ```sh\n  e\n  ```\n```yaml\nf: 1\n```\n"
	blocks := blocksOf(page)
	if len(blocks) != 3 || blocks[1] != (fenced{"sh", "e\n"}) || blocks[2] != (fenced{"yaml", "f: 1\n"}) {
		t.Fatalf("blocks %q", blocks)
	}
	used := map[string]bool{}
	w := walk{left: map[string]string{"c": "is not wanted"}, replaced: map[string]string{"b": "B"}}
	if got := w.replace(w.without(blocks[0].text, t, used), used); got != "a \\\n  B    # why\n" || !used["c"] || !used["b"] {
		t.Errorf("%q, used %v", got, used)
	}
}
