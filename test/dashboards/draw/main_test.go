package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("query"))
		answer := `{"status": "success", "data": {"result": []}}`
		if strings.Contains(r.URL.Path, "/label/") {
			answer = `{"status": "success", "data": ["first"]}`
		}
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	out := filepath.Join(t.TempDir(), "pictures")
	args := []string{"-prometheus", server.URL + "/", "-dashboards", "../../../charts/livestash-observability/dashboards", "-out", out,
		"-from", "2026-05-28T20:00:00Z", "-to", "2026-05-28T21:00:00Z", "-var", "cluster=shop", "-var", "operator.pod=manager-0"}
	o, err := parse(args)
	if err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"beam", "benchmark", "fleet", "operator"} {
		picture, err := os.ReadFile(filepath.Join(out, "dashboard-"+name+".svg"))
		if err != nil || !strings.Contains(string(picture), "28 May 2026, 20:00 – 21:00 UTC") {
			t.Errorf("%s: %v, and a picture of %d bytes without its time", name, err, len(picture))
		}
	}
	for _, want := range []string{
		`sum(livestash_sockets{namespace="first", livestash_cluster="shop"})`,
		`sum by (pod) (go_goroutines{namespace="first", pod=~"manager-0"})`,
		`max by (pod) (erlang_vm_atom_count{namespace="first", livestash_cluster="shop", pod=~".*"})`,
	} {
		if !slices.Contains(asked, want) {
			t.Errorf("nobody asked %s", want)
		}
	}

	o.names = []string{"flet"}
	if err := run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "there is no dashboard flet") {
		t.Errorf("an unknown dashboard: %v", err)
	}
}

func TestWrongArguments(t *testing.T) {
	for _, args := range [][]string{{"-var", "cluster"}, {"-from", "today"}, {"-last", "5s"}, {"-scrape", "0s"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}
