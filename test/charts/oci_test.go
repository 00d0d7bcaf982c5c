package charts

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// registry is what helm needs of an OCI registry: blobs and manifests that are put there and got again.
type registry struct {
	mutex  sync.Mutex
	stored map[string]blob // by repository, and digest or tag
}

type blob struct {
	contentType, digest string
	content             []byte
}

// address is that of a blob or a manifest: its repository, and its digest or tag. A blob is put at uploads/put, with its digest in the query.
var address = regexp.MustCompile(`^/v2/(.+)/(?:blobs|manifests)/(uploads/put|[^/]+)$`)

func (r *registry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	at := address.FindStringSubmatch(request.URL.Path)
	switch {
	case request.Method == http.MethodPost:
		w.Header().Set("Location", request.URL.Path+"put")
		w.WriteHeader(http.StatusAccepted)
	case at == nil:
		w.WriteHeader(http.StatusNotFound)
	case request.Method == http.MethodPut:
		content, err := io.ReadAll(request.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		put := blob{request.Header.Get("Content-Type"), fmt.Sprintf("sha256:%x", sha256.Sum256(content)), content}
		r.stored[at[1]+"@"+at[2]], r.stored[at[1]+"@"+put.digest] = put, put
		w.Header().Set("Docker-Content-Digest", put.digest)
		w.WriteHeader(http.StatusCreated)
	default:
		got, has := r.stored[at[1]+"@"+at[2]]
		if !has {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", got.contentType)
		w.Header().Set("Content-Length", strconv.Itoa(len(got.content)))
		w.Header().Set("Docker-Content-Digest", got.digest)
		if request.Method == http.MethodGet {
			_, _ = w.Write(got.content)
		}
	}
}

// TestPush: what hack/package pushes to a registry installs from there, by the digests that it notes.
func TestPush(t *testing.T) {
	server := httptest.NewServer(&registry{stored: map[string]blob{}})
	defer server.Close()
	place := strings.TrimPrefix(server.URL, "http://") + "/you/charts"
	t.Setenv("PUSH", "oci://"+place)
	t.Setenv("PUSH_FLAGS", "--plain-http")
	folder := t.TempDir()
	if out, err := packaged(t, folder, digests()); err != nil {
		t.Fatal(err, out)
	}

	lines := strings.Split(strings.TrimSpace(string(readFile(t, folder+"/charts.digests"))), "\n")
	if len(lines) != 3 {
		t.Fatalf("charts.digests has %q", lines)
	}
	for i, name := range []string{"livestash", "livestash-operator", "livestash-observability"} {
		pushed, digest, _ := strings.Cut(lines[i], " ")
		if pushed != place+"/"+name {
			t.Errorf("line %d of charts.digests is %q", i, lines[i])
		}
		var rendered []string
		for _, source := range [][]string{
			{filepath.Join(folder, name+"-"+chartVersion(t)+".tgz")},
			{"oci://" + pushed, "--version", chartVersion(t), "--plain-http"},
			{"oci://" + pushed + "@" + digest, "--plain-http"},
		} {
			out, err := helm(t, append([]string{"template", "livestash"}, source...)...)
			if err != nil {
				t.Fatal(err)
			}
			rendered = append(rendered, out)
		}
		if rendered[0] == "" {
			t.Errorf("%s renders nothing", name)
		}
		if diff := cmp.Diff([]string{rendered[0], rendered[0]}, rendered[1:]); diff != "" {
			t.Errorf("%s (-package +registry):\n%s", name, diff)
		}
	}

	t.Setenv("PUSH", place)
	if _, err := packaged(t, folder, digests()); err == nil || !strings.Contains(err.Error(), "begins with oci://") {
		t.Errorf("a place without a scheme: %v", err)
	}
}
