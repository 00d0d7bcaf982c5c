package docs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// silence is longer than nginx waits unless it is told otherwise.
const silence = 65 * time.Second

// around is what a whole configuration has beside the page's part, in a folder.
const around = `daemon off;
user root;
pid %[1]s/pid;
error_log %[1]s/error.log;
events {}
http {
  access_log off;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  %[2]s
}
`

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
	// The certificate is one of tests, of another name.
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
	// No t.TempDir: the name of a socket or file below it must be short.
	folder, err := os.MkdirTemp("", "nginx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	writePair(t, folder)

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
	config := filepath.Join(folder, "nginx.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, around, folder, part), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("nginx", "-p", folder, "-c", config, "-e", filepath.Join(folder, "error.log"))
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		_ = command.Wait() // it was killed
	})
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			_ = conn.Close()
			return address
		}
		if time.Since(begun) > 20*time.Second {
			said, _ := os.ReadFile(filepath.Join(folder, "error.log"))
			t.Fatalf("nginx does not listen: %v\n%s", err, said)
		}
	}
}

// writePair writes a certificate for tests, and its key.
func writePair(t *testing.T, folder string) {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	pair := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"tls.crt": {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, "tls.key": {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
