package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// TestOperatorGetsOverFaults is `make bench-operator FAULTS=...` at a small size: requests that fail, a leader that stands still, and one that is killed.
func TestOperatorGetsOverFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane, which takes four minutes")
	}
	if os.Geteuid() != 0 {
		t.Skip("localcluster needs root")
	}
	t.Parallel() // it mostly waits
	chosen, err := chosenFaults("refuses,frozen,killed")
	if err != nil {
		t.Fatal(err)
	}
	for i := range chosen {
		chosen[i].lasts = killEvery
	}
	figures, err := runFaults(t.Context(), options{
		clusters: 8,
		pods:     2,
		bin:      filepath.Join("..", "..", "bin"),
		config:   filepath.Join("..", "..", "config"),
		name:     "scale-test-faults",
		idle:     10 * time.Second,
		out:      t.Output(),
	}, chosen)
	if err != nil {
		t.Fatal(err)
	}
	if len(figures) != len(chosen) {
		t.Errorf("%d faults, want %d", len(figures), len(chosen))
	}
	for _, one := range figures {
		for _, wrong := range one.broken() {
			t.Errorf("%s: %s", one.Name, wrong)
		}
		// An operator that does nothing would also send few requests.
		if one.Requests < one.Clusters {
			t.Errorf("%s: %d requests for %d clusters, of which most were changed", one.Name, one.Requests, one.Clusters)
		}
	}
}

func TestChosenFaults(t *testing.T) {
	for names, want := range map[string]string{
		"all": "none away slow refuses full frozen killed clock", "killed,away": "away killed",
		"none": "none", "nothing,away": "there is no fault nothing: choose of none, away, slow, refuses, full, frozen, killed, clock, or all",
	} {
		chosen, err := chosenFaults(names)
		var got []string
		for _, one := range chosen {
			got = append(got, one.name)
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", names, got, want)
		}
	}
}

func TestBrokenByFaults(t *testing.T) {
	good := faultFigures{Clusters: 20, Seconds: 60, Requests: 500, InASecond: 50, After: 20}
	for name, c := range map[string]struct {
		change func(*faultFigures)
		want   int
	}{
		"all well":          {func(*faultFigures) {}, 0},
		"something wrong":   {func(f *faultFigures) { f.Wrong = []string{"a", "b"} }, 2},
		"too many at once":  {func(f *faultFigures) { f.InASecond = 100000 }, 1},
		"too many in all":   {func(f *faultFigures) { f.Requests = 100000 }, 1},
		"does not get calm": {func(f *faultFigures) { f.After = 1000 }, 1},
		"two that lead":     {func(f *faultFigures) { f.Woken = 20 }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			figures := good
			c.change(&figures)
			if got := figures.broken(); len(got) != c.want {
				t.Errorf("broken are %v, want %d", got, c.want)
			}
		})
	}
}

func TestMostInASecond(t *testing.T) {
	at := func(tenths ...int) (times []time.Time) {
		for _, n := range tenths {
			times = append(times, time.Unix(0, 0).Add(time.Duration(n)*100*time.Millisecond))
		}
		return times
	}
	for name, c := range map[string]struct {
		times []time.Time
		want  int
	}{
		"none":            {nil, 0},
		"one":             {at(3), 1},
		"a second apart":  {at(0, 10, 20), 1},
		"in any order":    {at(18, 0, 9, 12, 11, 40), 4},
		"the first of it": {at(0, 1, 2, 30), 3},
	} {
		t.Run(name, func(t *testing.T) {
			if got := mostInASecond(c.times); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

// gateTo is a gate before a server that answers with its number of requests so far.
func gateTo(t *testing.T) (*gate, *http.Client, *int) {
	t.Helper()
	served := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		served++
		_, _ = fmt.Fprint(w, served)
	}))
	t.Cleanup(server.Close)
	g, err := startGate(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.stop)
	return g, g.server.Client(), &served
}

// ask is the status and the text of an answer; 0 when there was none.
func ask(ctx context.Context, client *http.Client, url string) (int, string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err.Error()
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

func TestGate(t *testing.T) {
	g, client, served := gateTo(t)
	begun := time.Now()
	if code, text := ask(t.Context(), client, g.cluster("a").Server); code != http.StatusOK || text != "1" {
		t.Fatalf("without trouble: %d %s", code, text)
	}

	g.set(trouble{refuseEvery: 1})
	var codes []int
	for range 4 {
		code, _ := ask(t.Context(), client, g.cluster("a").Server)
		codes = append(codes, code)
	}
	if want := []int{http.StatusTooManyRequests, http.StatusServiceUnavailable, 0, 0}; !cmp.Equal(want, codes) {
		t.Errorf("refused requests end with %v, want %v", codes, want)
	}
	// Only the third one was carried out.
	if *served != 2 {
		t.Errorf("%d requests were carried out, want 2", *served)
	}

	g.set(trouble{away: true})
	if code, _ := ask(t.Context(), client, g.cluster("a").Server); code != 0 {
		t.Errorf("an API server that is away answers %d", code)
	}

	g.set(trouble{delay: 300 * time.Millisecond})
	asked := time.Now()
	if code, text := ask(t.Context(), client, g.cluster("a").Server); code != http.StatusOK || text != "3" || time.Since(asked) < 300*time.Millisecond {
		t.Errorf("a slow one: %d %s after %s", code, text, time.Since(asked))
	}
	g.set(trouble{})
	for _, path := range []string{"/api/v1/pods", "/apis/coordination.k8s.io/v1/namespaces/livestash-system/leases/livestash-operator"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, g.cluster("b").Server+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
	}
	if a, b := g.changesOf("a", begun), g.changesOf("b", begun); a != 0 || b != 1 {
		t.Errorf("a was about to change something %d times and b %d times, want 0 and 1", a, b)
	}
	// That of an API server that was away may have met a connection that had just ended.
	if all := len(g.between(begun, time.Now())); all < 6 {
		t.Errorf("%d requests were counted, want 6 or more", all)
	}
}

func TestDifferences(t *testing.T) {
	want := map[string]string{"services NAME": "1", "secrets NAME-secrets": "2"}
	for name, c := range map[string]struct {
		has  map[string]string
		want []string
	}{
		"none":      {want, nil},
		"one less":  {map[string]string{"services NAME": "1"}, []string{"there is no secrets NAME-secrets"}},
		"one more":  {map[string]string{"services NAME": "1", "secrets NAME-secrets": "2", "services other": "1"}, []string{"services other is there as well"}},
		"one other": {map[string]string{"services NAME": "3", "secrets NAME-secrets": "2"}, []string{"services NAME is 3, not 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, differences(want, c.has)); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
		})
	}
}

func TestImpersonal(t *testing.T) {
	object := func(name, image, ip string) unstructured.Unstructured {
		return unstructured.Unstructured{Object: map[string]any{
			"kind": "Service", "metadata": map[string]any{"name": name, "uid": ip, "labels": map[string]any{"cluster": name}},
			"spec": map[string]any{"clusterIP": ip, "image": image, "selector": map[string]any{"cluster": name}}, "status": map[string]any{"at": ip},
		}}
	}
	first, err := impersonal(object("shop-0001", changedImage, "10.0.0.1"), "shop-0001")
	if err != nil {
		t.Fatal(err)
	}
	second, err := impersonal(object("shop-0002", otherImage, "10.0.0.2"), "shop-0002")
	if err != nil {
		t.Fatal(err)
	}
	if first != second {
		t.Errorf("two of the same kind differ:\n%s\n%s", first, second)
	}
	if other, err := impersonal(object("shop-0001", "another", "10.0.0.1"), "shop-0001"); err != nil || other == first {
		t.Errorf("another spec is taken for the same: %s, %v", other, err)
	}
}

// The clock of its own is made from the source of the Go that is there.
func TestWithSkew(t *testing.T) {
	root, err := command(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := withSkew(string(source)); err != nil {
		t.Error(err)
	}
	if _, err := withSkew("package time\n\nfunc Now() Time { return Time{} }\n"); err == nil {
		t.Error("another Now was taken for this one")
	}
}
