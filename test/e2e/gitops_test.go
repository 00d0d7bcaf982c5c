package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/test/internal/fenced"
)

// health is what Argo CD is told of an object.
type health struct{ status, message string }

// argoHealth has Argo CD's Lua, with the libraries that Argo CD gives it, look at an object by a page's script.
func argoHealth(script string, object map[string]any) (health, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			return health{}, err
		}
	}
	state.SetGlobal("obj", luaValue(state, object))
	if err := state.DoString(script); err != nil {
		return health{}, err
	}
	told, is := state.Get(-1).(*lua.LTable)
	if !is {
		return health{}, fmt.Errorf("it returns %s, no table", state.Get(-1))
	}
	return health{lua.LVAsString(told.RawGetString("status")), lua.LVAsString(told.RawGetString("message"))}, nil
}

// luaValue is a value of JSON.
func luaValue(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, inner := range value {
			table.RawSetString(key, luaValue(state, inner))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, inner := range value {
			table.Append(luaValue(state, inner))
		}
		return table
	case string:
		return lua.LString(value)
	case float64:
		return lua.LNumber(value)
	case bool:
		return lua.LBool(value)
	}
	return lua.LNil
}

// argoScript is the script of the page for those who use Argo CD.
func argoScript(t *testing.T) string {
	t.Helper()
	for _, block := range fenced.Blocks(read(t, "docs/how-to/gitops.md")) {
		var shown struct {
			Data map[string]string `json:"data"`
		}
		if err := yaml.Unmarshal([]byte(block.Text), &shown); err != nil {
			t.Fatal(err)
		}
		if script := shown.Data["resource.customizations.health.livestash.dev_LiveStashCluster"]; script != "" {
			return script
		}
	}
	t.Fatal("the page has no script")
	return ""
}

// What the page teaches Argo CD, on a fleet from its first moment on: it is not well before it serves, it is when all is done, and
// somebody is called when a release does not start.
func TestArgoHealth(t *testing.T) {
	t.Parallel()
	script := argoScript(t)
	s := newSpace(t, "argo")
	look := func() (health, string) {
		t.Helper()
		text := s.must("", "get", "lsc", "shop", "-o", "json")
		object := map[string]any{}
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		told, err := argoHealth(script, object)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		conditions, _ := json.Marshal(object["status"])
		return told, string(conditions)
	}
	// becomes waits for a status, and sees none meanwhile that is not among those before.
	becomes := func(want string, before ...string) health {
		t.Helper()
		var told health
		s.eventually(3*time.Minute, func() error {
			var status string
			told, status = look()
			if told.status == want {
				return nil
			}
			if !strings.Contains(strings.Join(before, " "), told.status) || told.message == "" {
				t.Fatalf("on the way to %s it is %+v:\n%s", want, told, status)
			}
			return fmt.Errorf("it is %+v", told)
		})
		return told
	}

	s.apply("adapter: ETS\nreplicas: 2")
	if told, status := look(); told.status != "Progressing" {
		t.Errorf("a fleet that was just made is %+v:\n%s", told, status)
	}
	t.Log(becomes("Healthy", "Progressing"))
	if ready := s.must("", "get", "pods", "-l", "app.kubernetes.io/component=fleet", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`); ready != "True True" {
		t.Errorf("it is Healthy, and of its pods ready are: %s", ready)
	}
	if told, err := argoHealth(script, map[string]any{"metadata": map[string]any{"generation": 1.0}}); err != nil || told.status != "Progressing" {
		t.Errorf("an object without a status is %+v, %v", told, err)
	}

	s.apply("adapter: ETS\nreplicas: 2\nimage: example.invalid/no/such/image:1")
	// The operator may not have seen it yet. What it said of the spec before does not count.
	if told, status := look(); told.status == "Healthy" {
		t.Errorf("a release that nobody has seen is %+v:\n%s", told, status)
	}
	if told := becomes("Degraded", "Progressing"); !strings.Contains(told.message, "shop-1") {
		t.Errorf("it is %+v, and does not say which pod", told)
	} else {
		t.Log(told)
	}
	s.apply("adapter: ETS\nreplicas: 2")
	becomes("Healthy", "Progressing", "Degraded")
}

// Helm waits for a fleet by the library that Flux waits with (kstatus): until it serves, and not when it cannot.
func TestHelmWaitsForAFleet(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "helm")
	chart := t.TempDir()
	for name, text := range map[string]string{
		"Chart.yaml":          "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
		"templates/shop.yaml": s.fleet("adapter: ETS\nreplicas: 2\nimage: {{ .Values.image }}"),
		"values.yaml":         "image: " + workload() + "\n",
	} {
		path := filepath.Join(chart, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := run("", "helm", "install", "shop", chart, "--namespace", s.name, "--wait", "--timeout", "4m"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// Not Ready itself: on a busy machine a pod may be unready again for a moment.
	if available := s.condition("Available"); !strings.HasPrefix(available, "True ") {
		t.Errorf("helm has waited, and Available is %q", available)
	}
	begun := time.Now()
	out, err := run("", "helm", "upgrade", "shop", chart, "--namespace", s.name, "--set", "image=example.invalid/no/such/image:1", "--wait", "--timeout", "40s")
	if err == nil || !strings.Contains(out, "LiveStashCluster") {
		t.Errorf("helm is content with a release that does not start: %v\n%s", err, out)
	}
	t.Logf("after %s: %s", time.Since(begun).Round(time.Second), out)
}
