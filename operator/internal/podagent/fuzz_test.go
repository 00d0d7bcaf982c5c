package podagent

import (
	"bytes"
	"strings"
	"testing"
)

// The helper's port is open to the pod's network: whatever comes in, it ends in a path or an answer.
func FuzzRequest(f *testing.F) {
	f.Add([]byte("GET /readyz HTTP/1.1\r\nHost: a\r\n\r\n"))
	f.Add([]byte("POST /readyz?x HTTP/1.0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, request []byte) {
		if path, problem := readRequest(bytes.NewReader(request)); (path == "") == (problem == answer{}) && !strings.HasPrefix(string(request), "GET ") {
			t.Errorf("path %q, problem %v", path, problem)
		}
	})
}

// Nothing of a URL that cannot be read is told.
func FuzzLogin(f *testing.F) {
	const secret = "s3cretpassword"
	f.Add("redis://user:", "@redis:6379/0")
	f.Add("redis://user:12/", "@redis")
	f.Add("redis://user:", "%zz@redis")
	f.Add("redis://redis:", "")
	f.Fuzz(func(t *testing.T, before, after string) {
		if _, err := parseLogin(before+secret+after, ""); err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%v tells a part of %q", err, before+secret+after)
		}
	})
}

// What answers on the application's port may be anything.
func FuzzStatusLine(f *testing.F) {
	f.Add("HTTP/1.1 200 OK")
	f.Fuzz(func(t *testing.T, line string) {
		if status, err := parseStatus(line); err == nil && (status < 100 || status > 599) {
			t.Errorf("%q is %d", line, status)
		}
	})
}
