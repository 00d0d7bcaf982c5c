package podagent

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/livestash-dev/livestash/operator/internal/agentclient"
)

// redisServer answers every command of a connection with what answer says of its words.
func redisServer(t *testing.T, listener net.Listener, answer func(words []string) string) string {
	t.Helper()
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go converse(conn, answer)
		}
	}()
	return listener.Addr().String()
}

func converse(conn net.Conn, answer func(words []string) string) {
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	for {
		var count int
		if _, err := fmt.Fscanf(reader, "*%d\r\n", &count); err != nil {
			return
		}
		var words []string
		for range count {
			var length int
			if _, err := fmt.Fscanf(reader, "$%d\r\n", &length); err != nil {
				return
			}
			word := make([]byte, length+2)
			if _, err := io.ReadFull(reader, word); err != nil {
				return
			}
			words = append(words, string(word[:length]))
		}
		if _, err := io.WriteString(conn, answer(words)); err != nil {
			return
		}
	}
}

// admits is a Redis whose users may do what LiveStash does, and nothing else.
func admits(words []string) string {
	switch strings.Join(words, " ") {
	case "AUTH shop s3cret", "AUTH s3cret":
		return "+OK\r\n"
	case "PING", "SELECT 0":
		return "-NOPERM this user has no permissions to run this command\r\n"
	}
	return "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
}

// chooses answers a SELECT, and admits everybody.
func chooses(answer string) func([]string) string {
	return func(words []string) string {
		if words[0] == "SELECT" {
			return answer
		}
		return "+OK\r\n"
	}
}

func TestLogin(t *testing.T) {
	always := func(answer string) func([]string) string { return func([]string) string { return answer } }
	cases := map[string]struct {
		server func([]string) string
		url    string
		says   string
	}{
		"admitted":                {admits, "redis://shop:s3cret@ADDRESS", ""},
		"admitted without a user": {admits, "redis://:s3cret@ADDRESS", ""},
		"no password":             {admits, "redis://ADDRESS", ""},
		"wrong password":          {admits, "redis://:s3cret2@ADDRESS", "refuses the user or the password"},
		"answers":                 {always("+PONG\r\n"), "redis://ADDRESS", ""},
		"asked for a password":    {always("-NOAUTH Authentication required.\r\n"), "redis://ADDRESS", ""},
		"loading":                 {always("-LOADING Redis is loading the dataset in memory\r\n"), "redis://ADDRESS", ""},
		"no passwords":            {always("-ERR AUTH <password> called without any password configured\r\n"), "redis://:s3cret@ADDRESS", "has no password"},
		"no users yet":            {always("-ERR wrong number of arguments for 'auth' command\r\n"), "redis://shop:s3cret@ADDRESS", "knows no users"},
		"no room":                 {always("-ERR max number of clients reached\r\n"), "redis://:s3cret@ADDRESS", "takes no more clients"},
		"may not choose":          {chooses("-NOPERM no permissions to run the 'select' command\r\n"), "redis://:s3cret@ADDRESS/0", "leave the database out of the URL"},
		"no such database":        {chooses("-ERR DB index is out of range\r\n"), "redis://:s3cret@ADDRESS/99", "does not have the database"},
		"a database":              {chooses("+OK\r\n"), "redis://:s3cret@ADDRESS/3", ""},
		"another refusal":         {always("-ERR s3cret is not what I know\r\n"), "redis://:s3cret@ADDRESS", "refuses the login"},
		"no Redis":                {always("HTTP/1.1 400 Bad Request\r\n"), "redis://ADDRESS", "does not answer like Redis"},
		"endless":                 {always(strings.Repeat("x", 1<<20)), "redis://ADDRESS", "look at its log"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			address := redisServer(t, listen(t), c.server)
			loginSays(t, c.says, strings.ReplaceAll(c.url, "ADDRESS", address), "")
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		listener := listen(t)
		_ = listener.Close()
		loginSays(t, "refuses connections", "redis://"+listener.Addr().String(), "")
	})
	t.Run("silence", func(t *testing.T) {
		address := redisServer(t, listen(t), always(""))
		loginSays(t, "cannot be reached within 2 seconds", "redis://"+address, "")
	})
	t.Run("unknown host", func(t *testing.T) {
		loginSays(t, "Redis at redis.invalid:6379", "redis://redis.invalid", "")
	})
}

// loginSays tries to log in once.
func loginSays(t *testing.T, want, url, caFile string) {
	t.Helper()
	login, err := parseLogin(url, caFile)
	if err != nil || login == nil {
		t.Fatalf("parseLogin = %v, %v", login, err)
	}
	got := login.try(t.Context())
	if (got == "") != (want == "") || !strings.Contains(got, want) || strings.Contains(got, "s3cret") {
		t.Errorf("got %q, want a sentence that says %q and tells no password", got, want)
	}
}

func TestLoginOverTLS(t *testing.T) {
	// Any server of this library has a certificate for example.com and 127.0.0.1.
	web := httptest.NewTLSServer(nil)
	defer web.Close()
	authorities := filepath.Join(t.TempDir(), "ca.crt")
	write(t, authorities, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})))
	none := filepath.Join(t.TempDir(), "none.crt")
	write(t, none, "")

	address := redisServer(t, tls.NewListener(listen(t), &tls.Config{Certificates: web.TLS.Certificates, MinVersion: tls.VersionTLS12}), admits)
	plain := redisServer(t, listen(t), admits)
	loginSays(t, "", "rediss://:s3cret@"+address, authorities)
	loginSays(t, "has a certificate that is not accepted", "rediss://:s3cret@"+address, none)
	loginSays(t, "does not answer in TLS", "rediss://:s3cret@"+plain, authorities)
	loginSays(t, "Redis at "+address, "redis://:s3cret@"+address, "")
}

func TestWhatIsNotWaitedFor(t *testing.T) {
	for _, url := range []string{"", "rediss://:s3cret@redis", "redis://:s3#cret@redis", "redis:///"} {
		login, err := parseLogin(url, "")
		if login != nil {
			t.Errorf("%q is waited for", url)
		}
		if err != nil && strings.Contains(err.Error(), "cret") {
			t.Errorf("the error tells the password: %v", err)
		}
	}
}

// While it waits, the operator hears why from the port of the agent, which is not there yet.
func TestAwaitStore(t *testing.T) {
	password := make(chan string, 1)
	password <- "another"
	address := redisServer(t, listen(t), func(words []string) string {
		now := <-password
		password <- now
		if words[1] == now {
			return "+OK\r\n"
		}
		return "-WRONGPASS no\r\n"
	})
	settings := Settings{
		RedisURL: "redis://:s3cret@" + address, AgentPort: free(t), Version: "0.1.0", Node: "shop@shop-0",
	}
	done := make(chan error, 1)
	go func() { done <- AwaitStore(t.Context(), settings, log.New(io.Discard, "", 0)) }()

	status := func() (agentclient.Status, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return agentclient.New().Status(ctx, "127.0.0.1", int32(settings.AgentPort))
	}
	deadline := time.Now().Add(time.Minute)
	for {
		got, err := status()
		if err == nil && strings.Contains(got.Store.Reason, "refuses the user or the password") {
			if got.Ready || got.Store.Ready || got.Reason != got.Store.Reason || got.Version != "0.1.0" || got.Node != "shop@shop-0" || got.Adapter != "redis" {
				t.Errorf("status = %+v", got)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("status = %+v, %v", got, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	select {
	case err := <-done:
		t.Fatalf("the wait ended: %v", err)
	default:
	}

	<-password
	password <- "s3cret"
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := status(); err == nil {
		t.Error("the agent's port is still taken")
	}
}

// The authorities are a file that changes while the pod waits, as when the fleet's Redis goes over to another one.
func TestAwaitStoreReadsTheAuthoritiesAgain(t *testing.T) {
	web := httptest.NewTLSServer(nil)
	defer web.Close()
	address := redisServer(t, tls.NewListener(listen(t), &tls.Config{Certificates: web.TLS.Certificates, MinVersion: tls.VersionTLS12}), admits)
	authorities := filepath.Join(t.TempDir(), "ca.crt")
	write(t, authorities, "")
	settings := Settings{RedisURL: "rediss://:s3cret@" + address, RedisCACertFile: authorities, AgentPort: free(t)}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	said, tell := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- AwaitStore(ctx, settings, log.New(tell, "", 0)) }()
	if line, err := bufio.NewReader(said).ReadString('\n'); err != nil || !strings.Contains(line, "has a certificate that is not accepted") {
		t.Errorf("it says %q, %v", line, err)
	}
	_ = said.Close()
	write(t, authorities, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})))
	if err := <-done; err != nil {
		t.Error(err)
	}
}
