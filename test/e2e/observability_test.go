package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/test/dashboards"
)

// noData are queries that find nothing in a healthy fleet of the OTP workload, and why.
var noData = map[string]string{
	`livestash_returns_total{%, recovered="yes"}`: "a share of nothing until a user has come back",
	`max by (alertname%, severity`:                "no alert fires",
	`livestash_cluster_max_stash_bytes{%}`:        "of fleets with BrowserMemory alone",
	`livestash_cluster_largest_stash_bytes{%}`:    "of fleets with BrowserMemory alone",
}

// quietOnes are metrics that have no series while nothing goes wrong, while no fleet is being upgraded, without a fleet whose
// stashes are in browsers, or with Redis alone, which has let go of a stash when its visitor comes back late.
var quietOnes = []string{
	"livestash_cluster_largest_stash_bytes", "livestash_cluster_max_stash_bytes",
	"livestash_cluster_upgrade_started_timestamp_seconds",
	"k6_connect_failed_total", "k6_dropped_total", "k6_error_total", "k6_late_recovered_rate", "k6_not_found_total", "k6_unfinished_total", "k6_wrong_count_total",
	"k6_duplicates_total", "k6_late_deliveries_total", "k6_misdelivered_total", "k6_wrong_total",
}

// The dashboards and the alerts on a real Prometheus that scrapes two real fleets, one of them in a rollout, while a load test
// runs: every query finds data, no alert fires, and docs/reference/metrics.md lists exactly what there is.
func TestObservability(t *testing.T) {
	s := newSpace(t, "observability")
	p := s.prometheus()
	s.apply("adapter: ETS\nreplicas: 2\nclustering: {tls: {enabled: true}}\nshadow: {enabled: true}\nresources: {limits: {memory: 512Mi}}")
	s.must(strings.Replace(s.fleet("adapter: Redis\nreplicas: 2\nttl: 10s"), "name: shop", "name: cart", 1), "apply", "-f", "-")
	s.settled()
	s.must("", "wait", "lsc/cart", "--for=condition=Available", "--for=condition=Progressing=false", "--timeout=3m")

	s.observedLoad("reconnect", "shop", "ets", "30", "{name: TTL, value: 60s}", "{name: RAMP, value: 10s}")
	s.observedLoad("visits", "cart", "redis", "30", "{name: TTL, value: 10s}", "{name: RAMP, value: 10s}")
	s.observedLoad("requests", "cart", "", "", "{name: CONNECTIONS, value: \"2\"}", "{name: RATE, value: \"10\"}")
	s.observedLoad("rooms", "cart", "", "20", "{name: ROOM_SIZE, value: \"10\"}", "{name: EVERY, value: 5s}", "{name: RAMP, value: 5s}")
	// Who has not stashed yet has nothing to come back to, and a rollout would be told to have lost that.
	time.Sleep(15 * time.Second)
	s.apply("adapter: ETS\nreplicas: 2\nclustering: {tls: {enabled: true}}\nshadow: {enabled: true}\nresources: {limits: {memory: 512Mi}}\nenv: [{name: ROLLED, value: \"1\"}]")
	s.eventually(4*time.Minute, func() error {
		if finished := s.must("", "get", "lsc", "shop", "-o", "jsonpath={.status.rollouts[0].finished}"); finished == "" {
			return fmt.Errorf("the rollout is not over")
		}
		return nil
	})
	s.settled()
	for _, name := range []string{"reconnect", "visits", "requests", "rooms"} {
		s.eventually(4*time.Minute, func() error {
			switch ended := s.must("", "get", "job", name, "-o", `jsonpath={.status.conditions[?(@.status=="True")].type}`); {
			// Those who reconnect go to a pod that is being replaced, too.
			case strings.Contains(ended, "Fail") && name != "reconnect":
				said, _ := s.kubectl("", "logs", "job/"+name, "--tail=30")
				t.Fatalf("the load test %s failed: %s", name, said)
			case ended == "":
				return fmt.Errorf("the load test %s is still running", name)
			}
			return nil
		})
	}
	// An operator at rest does nothing at all, and a share of nothing is no data: it gets something to do.
	s.must("", "delete", "networkpolicy", "shop", "cart")
	// Every query is asked for this moment: two scrapes after the load.
	time.Sleep(11 * time.Second)
	p.at = time.Now()

	t.Run("every query of every dashboard finds data", func(t *testing.T) {
		p := p.in(t)
		for _, d := range dashboardsOf(t) {
			p.checkDashboard(d)
		}
	})
	t.Run("every alert has what it looks at, and is silent", func(t *testing.T) {
		p := p.in(t)
		p.checkAlerts()
	})
	t.Run("docs/reference/metrics.md lists what there is", func(t *testing.T) {
		p := p.in(t)
		p.checkReference()
	})
}

// observedLoad starts a scenario against a fleet as a Job that writes what it measures to Prometheus, with options of its own.
func (s space) observedLoad(scenario, fleet, adapter, users string, options ...string) {
	s.t.Helper()
	job, err := os.ReadFile(filepath.Join(repository(), "loadtests", "k6", "job.yaml"))
	if err != nil {
		s.t.Fatal(err)
	}
	options = append(options, "{name: TESTID, value: e2e}",
		`{name: K6_PROMETHEUS_RW_SERVER_URL, value: "http://prometheus:9090/api/v1/write"}`,
		`{name: K6_PROMETHEUS_RW_TREND_AS_NATIVE_HISTOGRAM, value: "true"}`,
		"{name: K6_PROMETHEUS_RW_PUSH_INTERVAL, value: 2s}")
	fill := strings.NewReplacer("@REGISTRY@", registry, "@VERSION@", version, "@FLEET@", fleet, "@ADAPTER@", adapter,
		"@USERS@", users, "@DURATION@", "60s", "name: reconnect", "name: "+scenario,
		"env:\n", "env:\n        - "+strings.Join(options, "\n        - ")+"\n",
		"scenarios/reconnect.js", "--out, experimental-prometheus-rw, scenarios/"+scenario+".js")
	s.must(fill.Replace(string(job)), "apply", "-f", "-")
}

// prometheus is a Prometheus that runs in the namespace of a test.
type prometheus struct {
	// The address of its API goes through the API server.
	dashboards.Prometheus
	t *testing.T
	// at is the moment that queries are about.
	at time.Time
}

func (p prometheus) in(t *testing.T) prometheus {
	p.t = t
	return p
}

func (s space) prometheus() prometheus {
	s.t.Helper()
	manifest, err := os.ReadFile(filepath.Join("testdata", "prometheus.yaml"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, role := range []string{"view", "livestash-operator-metrics-reader"} {
		binding := s.name + "-prometheus-" + role
		s.must("", "create", "clusterrolebinding", binding, "--clusterrole="+role, "--serviceaccount="+s.name+":prometheus")
		s.t.Cleanup(func() { _, _ = s.kubectl("", "delete", "clusterrolebinding", binding) })
	}
	authority := s.must("", "get", "configmap", "-n", releaseNamespace, "livestash-operator-metrics-ca", `-o=jsonpath={.data.ca\.crt}`)
	fill := strings.NewReplacer("@REGISTRY@", registry, "@VERSION@", version, "@OPERATOR@", releaseNamespace, "@CA@", strconv.Quote(authority))
	s.must(fill.Replace(string(manifest)), "apply", "-f", "-")
	s.must("", "wait", "pod/prometheus", "--for=condition=Ready", "--timeout=2m")

	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		s.t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		s.t.Fatal(err)
	}
	api := config.Host + "/api/v1/namespaces/" + s.name + "/pods/prometheus:9090/proxy/api/v1"
	return prometheus{t: s.t, Prometheus: dashboards.Prometheus{Client: client, URL: api}}
}

// query is how many series a query finds that have a number, or a histogram.
func (p prometheus) query(expr string) (int, error) {
	var data struct {
		Result []struct {
			Value     []any `json:"value"`
			Histogram []any `json:"histogram"`
		} `json:"result"`
	}
	err := p.Get(p.t.Context(), "query", url.Values{"query": {expr}, "time": {strconv.FormatInt(p.at.Unix(), 10)}}, &data)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", expr, err)
	}
	found := 0
	for _, series := range data.Result {
		if len(series.Histogram) == 2 {
			found++
			continue
		}
		number, err := strconv.ParseFloat(fmt.Sprint(series.Value[1]), 64)
		if err == nil && !math.IsNaN(number) {
			found++
		}
	}
	return found, nil
}

func (p prometheus) values(label, match string) ([]string, error) {
	return p.Values(p.t.Context(), label, match, p.at.Add(-time.Hour), p.at)
}

// dashboardsOf are the dashboards that the chart installed into the cluster.
func dashboardsOf(t *testing.T) []dashboards.Dashboard {
	t.Helper()
	installed := space{t, releaseNamespace}.must("", "get", "configmaps", "-l", "grafana_dashboard=1", "-o", "json")
	var list struct {
		Items []struct {
			Data map[string]string `json:"data"`
		} `json:"items"`
	}
	if err := json.Unmarshal([]byte(installed), &list); err != nil {
		t.Fatal(err)
	}
	var found []dashboards.Dashboard
	for _, item := range list.Items {
		for _, content := range item.Data {
			d, err := dashboards.Read([]byte(content))
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, d)
		}
	}
	if len(found) != 5 {
		t.Fatalf("%d dashboards are installed, want 5", len(found))
	}
	return found
}

// choices are what a user could choose in the menus of a dashboard. A query that finds data with one of them is a good one: no
// fleet has two adapters.
func choices(uid string) []dashboards.Variables {
	namespace, fleets := "e2e-observability", []string{"shop", "cart"}
	switch uid {
	case "livestash-operator":
		namespace = releaseNamespace
	case "livestash-benchmark":
		fleets = []string{".*"}
	}
	var found []dashboards.Variables
	for _, fleet := range fleets {
		found = append(found, dashboards.Variables{"__rate_interval": "5m", "__range": "10m", "namespace": namespace,
			"cluster": fleet, "pod": ".*", "testid": "e2e"})
	}
	return found
}

func (p prometheus) checkDashboard(d dashboards.Dashboard) {
	p.t.Helper()
	asked, empty := 0, 0
	check := func(where, expr string) {
		asked++
		for _, choice := range choices(d.UID) {
			filled, err := choice.Fill(expr)
			if err != nil {
				p.t.Errorf("%s, %s: %v", d.UID, where, err)
				return
			}
			found, err := p.query(filled)
			if err != nil {
				p.t.Errorf("%s, %s: %v", d.UID, where, err)
				return
			}
			if found > 0 {
				return
			}
		}
		empty++
		for part, reason := range noData {
			before, after, _ := strings.Cut(part, "%")
			if strings.Contains(expr, before) && strings.Contains(expr, after) {
				p.t.Logf("%s, %s has no data: %s", d.UID, where, reason)
				return
			}
		}
		p.t.Errorf("%s, %s has no data: %s", d.UID, where, expr)
	}
	for _, q := range d.Queries() {
		check(q.Where, q.Expr)
	}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			p.checkVariable(d.UID, v)
		}
	}
	p.t.Logf("%s: %d queries, %d without data", d.UID, asked, empty)
}

// checkVariable: the menu of a variable has something to choose.
func (p prometheus) checkVariable(uid string, v dashboards.Variable) {
	p.t.Helper()
	match, label, err := v.LabelValues()
	if err == nil {
		match, err = choices(uid)[0].Fill(match)
	}
	if err != nil {
		p.t.Errorf("%s: %v", uid, err)
		return
	}
	if found, err := p.values(label, match); err != nil || len(found) == 0 {
		p.t.Errorf("%s: %s has no values, %v", uid, v.Definition, err)
	}
}

// ruleFile is the chart's file of alerts.
func ruleFile(t *testing.T) []byte {
	t.Helper()
	rules, err := os.ReadFile(filepath.Join(repository(), "charts", "livestash-observability", "rules", "livestash.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func (p prometheus) checkAlerts() {
	p.t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert string `json:"alert"`
				Expr  string `json:"expr"`
			} `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal(ruleFile(p.t), &file); err != nil {
		p.t.Fatal(err)
	}
	alerts := 0
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			alerts++
			if found, err := p.query(rule.Expr); err != nil || found != 0 {
				p.t.Errorf("%s finds %d, %v", rule.Alert, found, err)
			}
			for _, selector := range p.selectors(rule.Expr) {
				if slices.ContainsFunc(quietOnes, func(name string) bool { return strings.Contains(selector, `"`+name+`"`) }) {
					continue
				}
				if found, err := p.query(selector); err != nil || found == 0 {
					p.t.Errorf("%s looks at %s, which has no data, %v", rule.Alert, selector, err)
				}
			}
		}
	}
	p.t.Logf("%d alerts", alerts)
	if alerts == 0 {
		p.t.Error("there are no alerts")
	}
}

// selectors are the series that an expression looks at, as Prometheus itself understands it.
func (p prometheus) selectors(expr string) []string {
	p.t.Helper()
	var tree any
	if err := p.Get(p.t.Context(), "parse_query", url.Values{"query": {expr}}, &tree); err != nil {
		p.t.Fatal(err)
	}
	var found []string
	var walk func(any)
	walk = func(node any) {
		switch node := node.(type) {
		case []any:
			for _, child := range node {
				walk(child)
			}
		case map[string]any:
			if matchers, is := node["matchers"].([]any); is {
				var parts []string
				for _, matcher := range matchers {
					m := matcher.(map[string]any)
					parts = append(parts, fmt.Sprintf("%v%v%q", m["name"], m["type"], m["value"]))
				}
				found = append(found, "{"+strings.Join(parts, ",")+"}")
			}
			for _, child := range node {
				walk(child)
			}
		}
	}
	walk(tree)
	return found
}

// checkReference compares docs/reference/metrics.md with what Prometheus has, both ways.
func (p prometheus) checkReference() {
	p.t.Helper()
	page, err := os.ReadFile(filepath.Join(repository(), "docs", "reference", "metrics.md"))
	if err != nil {
		p.t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		listed[row[1]] = true
	}
	names, err := p.values("__name__", "")
	if err != nil {
		p.t.Fatal(err)
	}
	emitted := map[string]bool{}
	for _, name := range names {
		emitted[strings.TrimSuffix(name, "_bucket")] = true
	}
	for _, name := range quietOnes {
		emitted[name] = true
	}
	// What others give with theirs: they may have more than is listed, but what is listed is there.
	ours := regexp.MustCompile(`^(livestash|erlang_vm)_|^k6_`)
	others := regexp.MustCompile(`^k6_(http|ws|data|vus|iteration|checks|group|dropped)`)
	documented := slices.Sorted(maps.Keys(listed))
	maps.DeleteFunc(emitted, func(name string, _ bool) bool {
		return !listed[name] && (!ours.MatchString(name) || others.MatchString(name))
	})
	if diff := cmp.Diff(documented, slices.Sorted(maps.Keys(emitted))); diff != "" {
		p.t.Errorf("metrics (-docs/reference/metrics.md +emitted):\n%s", diff)
	}
	p.t.Logf("%d metrics", len(documented))
}
