package docs

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/livestash-dev/livestash/test/internal/nginx"
)

// silence is longer than nginx waits unless it is told otherwise.
const silence = 65 * time.Second

// The page's nginx does what the page says that a proxy must do: it tells the application under which name and how it was reached, lets a
// WebSocket pass, and leaves one alone that is silent for longer than a minute.
func TestThePagesNginx(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("nginx"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("there is no nginx: hack/deps proxy installs it")
	}
	application := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/live/websocket" {
			_, _ = fmt.Fprintln(w, r.Host, r.Header.Get("X-Forwarded-Proto"), r.Header.Get("X-Forwarded-For"))
			return
		}
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		time.Sleep(silence)
		_ = conn.Write(r.Context(), websocket.MessageText, []byte("still here"))
		_ = conn.Close(websocket.StatusNormalClosure, "")
	}))
	defer application.Close()
	address := startNginx(t, strings.TrimPrefix(application.URL, "http://"))

	ctx, cancel := context.WithTimeout(t.Context(), 2*silence)
	defer cancel()
	// The certificate is one of tests.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = "shop.example.com"
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var host, scheme, from string
	if _, err := fmt.Fscanln(response.Body, &host, &scheme, &from); err != nil || host != "shop.example.com" || scheme != "https" || from != "127.0.0.1" {
		t.Errorf("the application was told of %q, %q and %q (%v)", host, scheme, from, err)
	}

	conn, answer, err := websocket.Dial(ctx, "wss://"+address+"/live/websocket", &websocket.DialOptions{
		HTTPClient: client, Host: "shop.example.com", HTTPHeader: http.Header{"Origin": {"https://shop.example.com"}},
	})
	if answer != nil && answer.Body != nil {
		defer func() { _ = answer.Body.Close() }()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	begun := time.Now()
	if _, text, err := conn.Read(ctx); err != nil || string(text) != "still here" {
		t.Errorf("after %s of silence: %q, %v", time.Since(begun).Round(time.Second), text, err)
	}
}

// startNginx starts the page's nginx before an application, and returns where it listens.
func startNginx(t *testing.T, application string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it is closed at once
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if _, err := nginx.WriteSelfSigned(folder, "shop.example.com"); err != nil {
		t.Fatal(err)
	}

	shown := regexp.MustCompile("(?ms)^```nginx\n(.*?)^```").FindStringSubmatch(page(t, "docs", "how-to", "ingress.md"))
	if shown == nil {
		t.Fatal("docs/how-to/ingress.md shows no nginx")
	}
	part := shown[1]
	for words, here := range map[string]string{
		"listen 443 ssl;": "listen " + address + " ssl;", "/etc/nginx/tls/": folder + "/", "shop.default.svc.cluster.local": application,
	} {
		if !strings.Contains(part, words) {
			t.Fatalf("the page's nginx does not say %q", words)
		}
		part = strings.ReplaceAll(part, words, here)
	}
	proxy, err := nginx.Start(t.Context(), nil, part, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Stop(); err != nil {
			t.Error(err)
		}
	})
	return address
}
