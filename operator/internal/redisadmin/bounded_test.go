package redisadmin

import (
	"io"
	"net"
	"strings"
	"testing"
)

// says is a server that answers INFO with that, in two pieces, and knows nothing else.
func says(t *testing.T, text string) Login {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = connection.Close() }()
				for request := make([]byte, 4096); ; {
					n, err := connection.Read(request)
					if err != nil {
						return
					}
					if !strings.Contains(strings.ToUpper(string(request[:n])), "INFO") {
						_, _ = io.WriteString(connection, "-ERR unknown command\r\n")
						continue
					}
					_, _ = io.WriteString(connection, text[:len(text)/2])
					_, _ = io.WriteString(connection, text[len(text)/2:])
				}
			}()
		}
	}()
	return Login{Address: listener.Addr().String()}
}

// A server's image may be the user's. Whatever it announces, the operator makes no room for it: it would end, and again when it is back.
func TestServersThatAnnounceTooMuch(t *testing.T) {
	for _, answer := range []string{
		"$70368744177664\r\n", "$9223372036854775807\r\n", "*70368744177664\r\n", "*9223372036854775807\r\n", "%70368744177664\r\n", "$?\r\n",
		"=70368744177664\r\n", "+" + strings.Repeat("x", 1<<20) + "\r\n", "*1\r\n*1\r\n$70368744177664\r\n",
		strings.Repeat("*1\r\n", 1<<20), strings.Repeat("*1048576\r\n", 1<<10),
	} {
		if _, err := patient().Look(t.Context(), says(t, answer)); err == nil {
			t.Errorf("%.30q is taken", answer)
		}
	}
}

// What a Redis says goes through, in whatever pieces it comes.
func TestBoundedFollows(t *testing.T) {
	answers := "+OK\r\n$5\r\nab\r\nc\r\n:3\r\n$-1\r\n*2\r\n$0\r\n\r\n-ERR no\r\n"
	for size := 1; size <= len(answers); size++ {
		b := &bounded{}
		for rest := answers; rest != ""; {
			piece := rest[:min(size, len(rest))]
			if !b.follow([]byte(piece)) {
				t.Fatalf("in pieces of %d, %q is refused", size, piece)
			}
			rest = rest[len(piece):]
		}
		if b.payload != 0 || len(b.line) != 0 {
			t.Errorf("in pieces of %d, something is still to come: %d, %q", size, b.payload, b.line)
		}
	}
}

// Each bound holds by itself: the library has some of its own, which may change.
func TestBoundsOfAnswers(t *testing.T) {
	for name, answer := range map[string]string{
		"a text":               "$1048577\r\n",
		"the elements":         "*1025\r\n",
		"arrays in each other": strings.Repeat("*1\r\n", mostElements+1),
		"a line that goes on":  "+" + strings.Repeat("x", mostHeader+1),
		"a line that ends":     "-" + strings.Repeat("x", mostHeader+1) + "\r\n",
		"what is no length":    "$1e3\r\n",
		"what is no count":     "*1e3\r\n",
	} {
		if (&bounded{}).follow([]byte(answer)) {
			t.Errorf("%s: %.30q is in bounds", name, answer)
		}
	}
	for kind := range byte(128) {
		if known := strings.IndexByte("+-:$*", kind) >= 0; (&bounded{}).follow([]byte{kind, '1', '\r', '\n'}) != known {
			t.Errorf("what begins with %q is known: %t", kind, !known)
		}
	}
	for name, answer := range map[string]string{
		"a text": "$1048576\r\n", "the elements": "*1024\r\n", "arrays in each other": strings.Repeat("*1\r\n", mostElements),
	} {
		if !(&bounded{}).follow([]byte(answer)) {
			t.Errorf("%s: %.30q is out of bounds", name, answer)
		}
	}
}

// Figures that no server has are none: they are told in the status.
func TestAbsurdFiguresAreNone(t *testing.T) {
	for _, absurd := range []string{"-5", "9223372036854775807", "99999999999999999999", "many"} {
		seen := readInfo("used_memory:" + absurd + "\r\nmaxmemory:" + absurd + "\r\ndb0:keys=" + absurd + ",expires=0\r\n")
		if seen.Used != 0 || seen.Max != 0 || seen.Stashes != 0 {
			t.Errorf("%s is read as %+v", absurd, seen)
		}
	}
}
