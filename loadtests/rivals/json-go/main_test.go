package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestSum(t *testing.T) {
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		answer                   string
	}{
		{"two integers", "POST", "/api/sum", `{"a":40,"b":2}`, 200, `{"result":42}`},
		{"zero and negative", "POST", "/api/sum", `{"a":0,"b":-5}`, 200, `{"result":-5}`},
		{"other keys", "POST", "/api/sum", `{"a":1,"b":2,"c":3}`, 200, `{"result":3}`},
		{"one is missing", "POST", "/api/sum", `{"a":1}`, 400, `{"error":"a and b must be integers"}`},
		{"one is no integer", "POST", "/api/sum", `{"a":1.5,"b":2}`, 400, `{"error":"a and b must be integers"}`},
		{"a text", "POST", "/api/sum", `{"a":"1","b":2}`, 400, `{"error":"a and b must be integers"}`},
		{"no JSON", "POST", "/api/sum", `a=1&b=2`, 400, `{"error":"a and b must be integers"}`},
		{"no body", "POST", "/api/sum", ``, 400, `{"error":"a and b must be integers"}`},
		{"too long", "POST", "/api/sum", `{"c":"` + strings.Repeat("x", maxBody) + `"}`, 413,
			`{"error":"the body must have at most 1024 bytes"}`},
		{"another method", "GET", "/api/sum", ``, 405, "Method Not Allowed"},
		{"another path", "POST", "/api/product", `{}`, 404, "404 page not found"},
		{"health", "GET", "/healthz", ``, 200, "ok"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			newServer().Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), c.method, c.path,
				strings.NewReader(c.body)))
			if got := strings.TrimSpace(w.Body.String()); w.Code != c.status || got != c.answer {
				t.Errorf("%d %s, want %d %s", w.Code, got, c.status, c.answer)
			}
			kind := w.Header().Get("Content-Type")
			if strings.HasPrefix(kind, "application/json") != strings.HasPrefix(c.answer, "{") {
				t.Errorf("the content type is %q", kind)
			}
		})
	}
}

// A connection lives as long as its client wants, and SIGTERM ends none that has a request under way.
func TestConnections(t *testing.T) {
	port := freePort(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, port) }()
	conn := dial(t, port)
	request := "POST /api/sum HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n"
	buffer := make([]byte, 4096)
	for range 1000 {
		if _, err := io.WriteString(conn, request+`{"a":1,"b":2}`); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(buffer)
		if err != nil || !strings.HasSuffix(string(buffer[:n]), "{\"result\":3}\n") {
			t.Fatalf("%q, %v", buffer[:n], err)
		}
	}
	if _, err := io.WriteString(conn, request+`{"a":1,`); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // until the server has the request
	cancel()
	time.Sleep(100 * time.Millisecond)
	if _, err := io.WriteString(conn, `"b":2}`); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(buffer); err != nil || !strings.Contains(string(buffer[:n]), `{"result":3}`) {
		t.Fatalf("%q, %v: the request that was under way must have its answer", buffer[:n], err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestBadPort(t *testing.T) {
	for _, port := range []string{"http", "70000", "-1"} {
		if err := run(t.Context(), port); err == nil || !strings.Contains(err.Error(), "PORT="+port) {
			t.Errorf("PORT=%s: %v", port, err)
		}
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func dial(t *testing.T, port string) net.Conn {
	t.Helper()
	for range 100 {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			return conn
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("the server does not listen")
	return nil
}
