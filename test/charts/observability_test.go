package charts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/test/dashboards"
)

const rulesKey = "PrometheusRule livestash-system/livestash"

// dashboardsOf are the dashboards as Grafana would get them, by the name of their ConfigMap.
func dashboardsOf(t *testing.T, text string) map[string]dashboards.Dashboard {
	t.Helper()
	found := map[string]dashboards.Dashboard{}
	for key, object := range render(t, observabilityChart, text) {
		if object.GetKind() != "ConfigMap" {
			continue
		}
		data, _, err := unstructured.NestedStringMap(object.Object, "data")
		if err != nil || len(data) != 1 {
			t.Fatalf("%s has %d files, %v", key, len(data), err)
		}
		for _, content := range data {
			read, err := dashboards.Read([]byte(content))
			if err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			found[object.GetName()] = read
		}
	}
	return found
}

func TestDashboards(t *testing.T) {
	found := dashboardsOf(t, "")
	if len(found) != 5 {
		t.Fatalf("%d dashboards, want 5", len(found))
	}
	uids := map[string]string{}
	for name, d := range found {
		t.Run(name, func(t *testing.T) {
			if "livestash-"+strings.TrimPrefix(name, "livestash-dashboard-") != d.UID || uids[d.UID] != "" {
				t.Errorf("its uid is %q: every dashboard has one of its own, made from its name", d.UID)
			}
			uids[d.UID] = name
			if d.Title == "" || !strings.HasSuffix(d.Description, ".") {
				t.Errorf("title %q, description %q", d.Title, d.Description)
			}
			checkVariables(t, d)
			checkPanels(t, d)
		})
	}
}

func checkVariables(t *testing.T, d dashboards.Dashboard) {
	t.Helper()
	if first := d.Templating.List[0]; first.Name != "datasource" || first.Type != "datasource" || string(first.Query) != `"prometheus"` {
		t.Error("the first variable is not that of the datasource")
	}
	known := map[string]bool{"__range": true, "__rate_interval": true, "1": true}
	for _, v := range d.Templating.List {
		known[v.Name] = true
		if v.Type == "query" && (v.Datasource != chosen || v.Label == "" || !strings.Contains(string(v.Query), "label_values(")) {
			t.Errorf("variable %s: datasource %v, label %q, query %s", v.Name, v.Datasource, v.Label, v.Query)
		}
	}
	for _, expr := range expressionsOf(d) {
		for _, used := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(expr, -1) {
			if !known[used[1]] {
				t.Errorf("there is no variable %s for %s", used[0], expr)
			}
		}
	}
}

// chosen is the datasource that the user has chosen in the dashboard's menu.
var chosen = dashboards.Datasource{Type: "prometheus", UID: "${datasource}"}

func checkPanels(t *testing.T, d dashboards.Dashboard) {
	t.Helper()
	ids, titles, taken := map[int]bool{}, map[string]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if p.ID == 0 || ids[p.ID] || p.Title == "" || titles[p.Title] {
			t.Errorf("panel %d %q: number or title are missing or another panel's", p.ID, p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				place := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if taken[place] != "" || place[0] >= 24 {
					t.Fatalf("%q lies on %q, or outside", p.Title, taken[place])
				}
				taken[place] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if !strings.HasSuffix(p.Description, ".") || len(p.Description) < 20 {
			t.Errorf("%q is described by %q, which is no sentence", p.Title, p.Description)
		}
		if known := dashboards.Units(); !slices.Contains(known, p.FieldConfig.Defaults.Unit) {
			t.Errorf("%q has the unit %q, want one of %v", p.Title, p.FieldConfig.Defaults.Unit, known)
		}
		if p.Type == "stat" && p.FieldConfig.Defaults.Thresholds == nil {
			t.Errorf("%q has no thresholds: Grafana would show every number from 80 on in red", p.Title)
		}
		if p.Datasource != chosen || len(p.Targets) == 0 {
			t.Errorf("%q: datasource %v, %d queries", p.Title, p.Datasource, len(p.Targets))
		}
		for _, q := range p.Targets {
			if q.Datasource != chosen || q.LegendFormat == "" || q.RefID == "" {
				t.Errorf("%q: a query has no name or legend, or another datasource: %+v", p.Title, q)
			}
		}
	}
	for _, a := range d.Annotations.List {
		if a.BuiltIn == 0 && (a.Datasource != chosen || a.Expr == "" || !a.UseValueForTime) {
			t.Errorf("annotation %q: %+v", a.Name, a)
		}
	}
}

func expressionsOf(d dashboards.Dashboard) []string {
	var found []string
	for _, q := range d.Queries() {
		found = append(found, q.Expr)
	}
	return found
}

// overridesOf are all of a dashboard, each with what it changes by what that is called.
func overridesOf(t *testing.T, d dashboards.Dashboard) map[string][]map[string]string {
	t.Helper()
	found := map[string][]map[string]string{}
	for _, p := range d.Panels {
		for _, o := range p.FieldConfig.Overrides {
			changes := map[string]string{}
			for _, property := range o.Properties {
				changes[property.ID] = string(property.Value)
			}
			found[o.Matcher.Options] = append(found[o.Matcher.Options], changes)
		}
	}
	return found
}

// Adapters have the names of the API and the colours of a benchmark's report in every dashboard that tells them apart.
func TestAdaptersOfDashboards(t *testing.T) {
	style := string(readFile(t, root+"/operator/internal/loadtest/report/page.css"))
	api := string(readFile(t, root+"/operator/api/v1alpha1/livestashcluster_types.go"))
	for adapter, names := range map[string]struct{ label, css string }{
		"None": {"none", "none"}, "ETS": {"ets", "ets"}, "BrowserMemory": {"browser_memory", "browser"}, "Redis": {"redis", "redis"}, "Mnesia": {"mnesia", "mnesia"},
	} {
		colour := regexp.MustCompile(`--` + names.css + `: (#[0-9a-f]{6});`).FindStringSubmatch(style)
		if colour == nil || !strings.Contains(api, `"`+adapter+`"`) {
			t.Fatalf("%s is no adapter of the API, or has no colour in the report: %q", adapter, colour)
		}
		used := 0
		for name, d := range dashboardsOf(t, "") {
			for match, all := range overridesOf(t, d) {
				for _, changes := range all {
					switch {
					case match == names.label:
						if changes["displayName"] == "" || !strings.Contains(changes["displayName"], `"`+adapter+`"`) {
							t.Errorf("%s calls %s %s", name, adapter, changes["displayName"])
						}
						fallthrough
					case match == adapter, strings.HasPrefix(match, "^"+adapter+"("):
						used++
						if !strings.Contains(changes["color"], colour[1]) {
							t.Errorf("%s shows %s in %s, and the report in %s", name, adapter, changes["color"], colour[1])
						}
					case match == "Adapter":
						used++
						if want := regexp.MustCompile(`"` + names.label + `":\s*\{\s*"text":\s*"` + adapter + `",\s*"color":\s*"` + colour[1] + `"`); !want.MatchString(changes["mappings"]) {
							t.Errorf("%s writes %s as %s", name, adapter, changes["mappings"])
						}
					}
				}
			}
		}
		if used < 15 {
			t.Errorf("only %d places show %s", used, adapter)
		}
	}
}

// What is not as it should be is red, wherever it is shown, and what is as it should be is never red.
func TestColoursMeanTheSame(t *testing.T) {
	bad := regexp.MustCompile(`not ready|lost|failed|missing|refused|: no\$`)
	good := regexp.MustCompile(`^(received|status\.readyReplicas)$|: yes\$`)
	seen := 0
	for name, d := range dashboardsOf(t, "") {
		for match, all := range overridesOf(t, d) {
			for _, changes := range all {
				red := strings.Contains(changes["color"]+changes["thresholds"], `"red"`)
				if bad.MatchString(strings.ToLower(match)) && !red {
					t.Errorf("%s: %s is not red: %v", name, match, changes)
				}
				if good.MatchString(match) && (red || !strings.Contains(changes["color"], `"green"`)) {
					t.Errorf("%s: %s is not green: %v", name, match, changes)
				}
				seen++
			}
		}
		for _, p := range d.Panels {
			if p.Type != "state-timeline" {
				continue
			}
			for _, m := range p.FieldConfig.Defaults.Mappings {
				if m.Options["0"].Color != "red" || m.Options["0"].Text != "False" || m.Options["1"].Color != "green" || m.Options["1"].Text != "True" {
					t.Errorf("%s: %q shows conditions as %v", name, p.Title, m.Options)
				}
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d overrides", seen)
	}
}

// Every link of a dashboard leads somewhere: to a runbook that is there, or to a dashboard and its menus. And every runbook is linked.
func TestLinksOfDashboards(t *testing.T) {
	all := dashboardsOf(t, "")
	menus := map[string]map[string]bool{}
	for _, d := range all {
		menus[d.UID] = map[string]bool{}
		for _, v := range d.Templating.List {
			menus[d.UID][v.Name] = true
		}
	}
	linked := map[string]bool{}
	follow := func(where, address string) {
		t.Helper()
		if runbook, is := strings.CutPrefix(address, "https://github.com/livestash-dev/livestash/blob/main/docs/runbooks/"); is {
			linked[runbook] = true
			if _, err := os.Stat(filepath.Join(root, "docs", "runbooks", runbook)); err != nil && runbook != "${__value.text}.md" {
				t.Errorf("%s leads to the runbook %s: %v", where, runbook, err)
			}
			return
		}
		path, query, _ := strings.Cut(address, "?")
		uid := strings.TrimPrefix(path, "/d/")
		if menus[uid] == nil || !strings.Contains(query, "${__url_time_range}") {
			t.Errorf("%s leads to %s, which is no dashboard, or forgets the time", where, address)
		}
		for _, menu := range regexp.MustCompile(`var-(\w+)=`).FindAllStringSubmatch(query, -1) {
			if !menus[uid][menu[1]] {
				t.Errorf("%s sets %s, which %s does not have", where, menu[1], uid)
			}
		}
	}
	for name, d := range all {
		if len(d.Links) != 2 || !strings.HasSuffix(fmt.Sprint(d.Links[1]["url"]), "/docs/runbooks/README.md") {
			t.Errorf("%s does not link to the runbooks: %v", name, d.Links)
		}
		for _, p := range d.Panels {
			for _, link := range p.Links {
				follow(name+", "+p.Title, link.URL)
			}
		}
		for match, overrides := range overridesOf(t, d) {
			for _, changes := range overrides {
				var links []dashboards.Link
				if changes["links"] != "" && json.Unmarshal([]byte(changes["links"]), &links) != nil || changes["links"] != "" && len(links) == 0 {
					t.Errorf("%s: links of %s: %s", name, match, changes["links"])
				}
				for _, link := range links {
					follow(name+", "+match, link.URL)
				}
			}
		}
	}
	runbooks, err := filepath.Glob(root + "/docs/runbooks/LiveStash*.md")
	if err != nil || len(runbooks) == 0 {
		t.Fatal("there are no runbooks")
	}
	for _, runbook := range runbooks {
		if !linked[filepath.Base(runbook)] {
			t.Errorf("no panel links to %s", filepath.Base(runbook))
		}
	}
	if !linked["${__value.text}.md"] {
		t.Error("the table of alerts does not link to their runbooks")
	}
	for name, d := range dashboardsOf(t, "prometheusRules: {runbooks: 'https://wiki.example/books'}") {
		text, err := json.Marshal(d)
		if err != nil || strings.Contains(string(text), "docs/runbooks") || !strings.Contains(string(text), "https://wiki.example/books/README.md") {
			t.Errorf("%s does not link to runbooks of one's own, %v", name, err)
		}
	}
}

// TestQueriesParse: Prometheus can read every query of the dashboards.
func TestQueriesParse(t *testing.T) {
	fill := strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h")
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	for _, d := range dashboardsOf(t, "") {
		for _, expr := range expressionsOf(d) {
			rules = append(rules, rule{fmt.Sprintf("query_%d", len(rules)), fill.Replace(expr)})
		}
	}
	if len(rules) < 60 {
		t.Errorf("only %d queries", len(rules))
	}
	check := func(rules []rule) error {
		file, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "queries", "rules": rules}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = promtool(t, "check", "rules", "--lint=none", values(t, string(file)))
		return err
	}
	if err := check(rules); err != nil {
		t.Error(err)
	}
	if check([]rule{{"query", "sum(up"}}) == nil {
		t.Error("a query that is none is accepted: this test shows nothing")
	}
}

// TestMetricsAreListed: docs/reference/metrics.md lists every metric that a dashboard or an alert asks for.
func TestMetricsAreListed(t *testing.T) {
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\|").FindAllStringSubmatch(string(readFile(t, root+"/docs/reference/metrics.md")), -1) {
		listed[row[1]] = true
	}
	var asked []string
	for _, d := range dashboardsOf(t, "") {
		asked = append(asked, expressionsOf(d)...)
	}
	for _, group := range ruleGroups(t, "") {
		for _, rule := range group.Rules {
			asked = append(asked, rule.Expr)
		}
	}
	seen := 0
	for _, expr := range asked {
		for _, name := range regexp.MustCompile(`\b(?:livestash|erlang_vm|redis|k6|controller_runtime|workqueue|rest_client|leader_election|process|go)_[a-z0-9_]+`).FindAllString(withoutStrings(expr), -1) {
			if name == "livestash_cluster" {
				continue // the label
			}
			seen++
			if !listed[strings.TrimSuffix(name, "_bucket")] {
				t.Errorf("docs/reference/metrics.md does not list %s, which is asked for by %s", name, expr)
			}
		}
	}
	if seen < 60 {
		t.Errorf("only %d metrics were found", seen)
	}
}

func withoutStrings(expr string) string {
	return regexp.MustCompile(`"[^"]*"`).ReplaceAllString(expr, `""`)
}

func TestDashboardValues(t *testing.T) {
	found := render(t, root, "observability:\n  commonLabels: {team: web}\n  dashboards: {namespace: monitoring, labels: {grafana: web}, folder: Web, folderAnnotation: folder, datasource: 'Long \"term\"'}")
	object := found["ConfigMap monitoring/livestash-dashboard-fleet"]
	if object == nil {
		t.Fatal("the dashboard is not in its namespace")
	}
	if object.GetLabels()["grafana"] != "web" || object.GetLabels()["team"] != "web" || object.GetAnnotations()["folder"] != "Web" {
		t.Errorf("labels %v, annotations %v", object.GetLabels(), object.GetAnnotations())
	}
	for name, d := range dashboardsOf(t, "dashboards: {datasource: 'Long \"term\"'}") {
		if got := d.Templating.List[0].Current["value"]; got != `Long "term"` {
			t.Errorf("%s shows the datasource %v first", name, got)
		}
	}
	if left := render(t, observabilityChart, "dashboards: {enabled: false}"); len(left) != 0 {
		t.Errorf("%d objects without dashboards", len(left))
	}
	if object := render(t, observabilityChart, "dashboards: {folder: ''}")["ConfigMap livestash-system/livestash-dashboard-fleet"]; len(object.GetAnnotations()) != 0 {
		t.Errorf("annotations without a folder: %v", object.GetAnnotations())
	}
}

// The API server holds ConfigMaps below 1 MiB, and `kubectl apply` below a quarter of that.
func TestDashboardsAreSmall(t *testing.T) {
	for key, object := range render(t, observabilityChart, "") {
		text, err := json.Marshal(object.Object)
		if err != nil || len(text) > 200_000 {
			t.Errorf("%s has %d bytes, %v", key, len(text), err)
		}
	}
}

func TestObservabilityRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"dashboard: {}":                                               "dashboard",
		"dashboards: {enabled: 'yes'}":                                "want boolean",
		"dashboards: {labels: {grafana: 1}}":                          "dashboards/labels/grafana",
		"dashboards: {folder: /Web/}":                                 "dashboards/folder",
		"dashboards: {namespace: Web}":                                "dashboards/namespace",
		"prometheusRules: {runbooks: docs}":                           "prometheusRules/runbooks",
		"prometheusRules: {disabled: LiveStashMesh}":                  "want array",
		"prometheusRules: {enabled: true, disabled: [LiveStashMesh]}": "there is no alert LiveStashMesh, only LiveStashMeshIncomplete",
	} {
		if _, err := template(t, observabilityChart, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// ruleGroup is a group of Prometheus' rules.
type ruleGroup struct {
	Name  string `json:"name"`
	Rules []struct {
		Alert       string            `json:"alert"`
		Expr        string            `json:"expr"`
		For         string            `json:"for,omitempty"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"rules"`
}

// ruleGroups are the alerts as Prometheus gets them from the PrometheusRule that the chart makes with further values.
func ruleGroups(t *testing.T, more string) []ruleGroup {
	t.Helper()
	object := render(t, observabilityChart, "prometheusRules:\n  enabled: true\n"+more)[rulesKey]
	if object == nil {
		t.Fatal("there is no PrometheusRule")
	}
	var read struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       struct {
			Groups []ruleGroup `json:"groups"`
		} `json:"spec"`
	}
	strictly(t, object, &read)
	return read.Spec.Groups
}

func alertNames(groups []ruleGroup) []string {
	var names []string
	for _, group := range groups {
		for _, rule := range group.Rules {
			names = append(names, rule.Alert)
		}
	}
	return names
}

// A cluster without prometheus-operator must take the chart with its defaults.
func TestNoRulesByDefault(t *testing.T) {
	for key, object := range render(t, root, "") {
		if strings.HasPrefix(object.GetAPIVersion(), "monitoring.coreos.com/") {
			t.Errorf("%s is installed by default", key)
		}
	}
}

func TestRuleValues(t *testing.T) {
	text := "  labels: {release: monitoring}\n  alertLabels: {team: web, severity: none}\n  disabled: [LiveStashAtomsNearLimit]\n  runbooks: https://wiki.example/runbooks\n"
	if got := render(t, observabilityChart, "prometheusRules:\n  enabled: true\n"+text)[rulesKey].GetLabels()["release"]; got != "monitoring" {
		t.Errorf("the label release is %q", got)
	}
	groups := ruleGroups(t, text)
	for _, group := range groups {
		for _, rule := range group.Rules {
			if rule.Labels["team"] != "web" || rule.Labels["severity"] == "none" {
				t.Errorf("%s has the labels %v", rule.Alert, rule.Labels)
			}
			if want := "https://wiki.example/runbooks/" + rule.Alert + ".md"; rule.Annotations["runbook_url"] != want {
				t.Errorf("%s: runbook_url is %q", rule.Alert, rule.Annotations["runbook_url"])
			}
		}
	}
	all := alertNames(ruleGroups(t, ""))
	all = slices.DeleteFunc(all, func(name string) bool { return name == "LiveStashAtomsNearLimit" })
	if diff := cmp.Diff(all, alertNames(groups)); diff != "" {
		t.Errorf("alerts (-want +got):\n%s", diff)
	}
}

// Every alert says how bad it is, has sentences for people, and a page that says what to do; and every page has its alert.
func TestRunbooks(t *testing.T) {
	groups := ruleGroups(t, "")
	for _, group := range groups {
		for _, rule := range group.Rules {
			if severity := rule.Labels["severity"]; severity != "warning" && severity != "critical" {
				t.Errorf("%s has the severity %q", rule.Alert, severity)
			}
			for _, name := range []string{"summary", "description"} {
				if !strings.HasSuffix(rule.Annotations[name], ".") {
					t.Errorf("%s: %s is %q", rule.Alert, name, rule.Annotations[name])
				}
			}
			page := string(readFile(t, root+"/docs/runbooks/"+rule.Alert+".md"))
			for _, want := range []string{"# " + rule.Alert + "\n", "\n## What it means\n", "\n## How to see it\n", "\n## What to do\n"} {
				if !strings.Contains("\n"+page, want) {
					t.Errorf("docs/runbooks/%s.md has no %q", rule.Alert, strings.TrimSpace(want))
				}
			}
		}
	}
	pages, err := filepath.Glob(root + "/docs/runbooks/LiveStash*.md")
	if err != nil || len(pages) != len(alertNames(groups)) {
		t.Errorf("%d pages for %d alerts, %v", len(pages), len(alertNames(groups)), err)
	}
	index := string(readFile(t, root+"/docs/runbooks/README.md"))
	for _, name := range alertNames(groups) {
		if !strings.Contains(index, "]("+name+".md)") {
			t.Errorf("docs/runbooks/README.md does not name %s", name)
		}
	}
}

// TestAlerts runs testdata/alerts.yaml, Prometheus' own kind of test, on the rules as the chart renders them: every alert
// fires when it should, and stays silent when it should.
func TestAlerts(t *testing.T) {
	groups := ruleGroups(t, "")
	folder := t.TempDir()
	rules, err := yaml.Marshal(map[string]any{"groups": groups})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(folder, "rules.yaml"), rules)
	tests := readFile(t, "testdata/alerts.yaml")
	writeFile(t, filepath.Join(folder, "alerts.yaml"), tests)
	if out, err := promtool(t, "test", "rules", filepath.Join(folder, "alerts.yaml")); err != nil {
		t.Error(out, err)
	}

	var read struct {
		Tests []struct {
			Name  string `json:"name"`
			Cases []struct {
				Alert    string `json:"alertname"`
				Expected []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	if err := yaml.Unmarshal(tests, &read); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range read.Tests {
		for _, c := range test.Cases {
			if len(c.Expected) == 0 {
				silent[c.Alert] = true
				continue
			}
			fires[c.Alert] = true
		}
	}
	want := slices.Sorted(slices.Values(alertNames(groups)))
	for what, tested := range map[string]map[string]bool{"fires": fires, "silent": silent} {
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(tested))); diff != "" {
			t.Errorf("tested that it %s (-alerts +tested):\n%s", what, diff)
		}
	}

	// An alert that fires unexpectedly must fail the test.
	broken := bytes.Replace(rules, []byte("> 0.85"), []byte("> 0.01"), 1)
	writeFile(t, filepath.Join(folder, "rules.yaml"), broken)
	if _, err := promtool(t, "test", "rules", filepath.Join(folder, "alerts.yaml")); err == nil {
		t.Error("an alert with a wrong limit passes its test")
	}
}

// promtool runs bin/promtool, or the one that PROMTOOL names. It returns its output.
func promtool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	name := os.Getenv("PROMTOOL")
	if name == "" {
		name = root + "/bin/promtool"
	}
	if _, err := os.Stat(name); err != nil {
		t.Fatal("There is no bin/promtool, and PROMTOOL is not set: `make test-charts` builds it.")
	}
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("promtool %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}
