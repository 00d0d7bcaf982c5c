package runner

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A runner's image is the user's, and so is its log: little of it is asked for, no more is read, and of that the end is kept.
func TestLogsAreReadInBounds(t *testing.T) {
	asked := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RawQuery
		_, _ = io.WriteString(w, strings.Repeat("x", maxRead-3)+"end"+strings.Repeat("beyond", maxRead))
	}))
	t.Cleanup(server.Close)
	clients, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	tail, err := PodLogs{clients}.Tail(t.Context(), "web", "runner", container)
	if err != nil {
		t.Fatal(err)
	}
	if len(tail) != maxTail || !strings.HasSuffix(tail, "xend") {
		t.Errorf("it has %d bytes, and ends with %q", len(tail), tail[max(0, len(tail)-9):])
	}
	if want := "container=k6&limitBytes=65536&tailLines=40"; asked != want {
		t.Errorf("asked for %s, want %s", asked, want)
	}
}
