package podagent

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// storePatience bounds one attempt to log in to Redis, storePause is between two of them.
	storePatience = 2 * time.Second
	storePause    = time.Second
)

// AwaitStore returns when Redis answers and admits this pod, at once when the pod needs none. LiveStash's client ends the
// whole virtual machine when its login is refused, so the application must not boot before. Meanwhile it answers for the
// agent, which cannot: what is wrong. Without limit, because a fleet must not serve without its store. Whether Redis also
// takes stashes is the agent's question.
func AwaitStore(ctx context.Context, settings Settings, logger *log.Logger) error {
	login, err := parseLogin(settings.RedisURL, settings.RedisCACertFile)
	if err != nil {
		logger.Printf("not waiting for Redis: %v", err)
		return nil
	}
	if login == nil {
		return nil
	}
	waiting := &waiting{settings: settings}
	said := "Redis has not answered yet."
	waiting.reason.Store(&said)
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", settings.AgentPort))
	if err != nil {
		return fmt.Errorf("cannot answer for the agent on port %d: %w; choose another agent port", settings.AgentPort, err)
	}
	defer func() { _ = listener.Close() }()
	go serveConns(listener, waiting.page, agentHeader+": "+settings.Version+"\r\n")

	for {
		now := login.try(ctx)
		if now == "" {
			return nil
		}
		if now != said {
			logger.Print(now)
			waiting.reason.Store(&now)
			said = now
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(storePause):
		}
		// The file of authorities may have changed. While it cannot be read, what was in it stands.
		if again, err := parseLogin(settings.RedisURL, settings.RedisCACertFile); err == nil {
			login = again
		}
	}
}

// waiting is what is answered for the agent.
type waiting struct {
	settings Settings
	reason   atomic.Pointer[string]
}

// page answers with what the agent would say of a node without its store.
func (w *waiting) page(path string) answer {
	reason := *w.reason.Load()
	if path != "/status" {
		return answer{statusUnavailable, reason}
	}
	type store struct {
		Ready  bool   `json:"ready"`
		Reason string `json:"reason"`
	}
	text, err := json.Marshal(struct {
		Version string `json:"version"`
		Node    string `json:"node"`
		Adapter string `json:"adapter"`
		Ready   bool   `json:"ready"`
		Reason  string `json:"reason"`
		Store   store  `json:"store"`
	}{w.settings.Version, w.settings.Node, "redis", false, reason, store{false, reason}})
	if err != nil {
		return answer{"500 Internal Server Error", err.Error()}
	}
	return answer{statusOK, string(text)}
}

// redisLogin is how to log in to Redis: with the commands that LiveStash's client sends before any other, if the URL asks
// for any.
type redisLogin struct {
	address  string
	commands [][]string
	tls      *tls.Config
}

// parseLogin reads LIVE_STASH_REDIS_URL. Nil when there is none to check: no URL, or a server whose certificate only the
// application can check, because this image has no authorities.
func parseLogin(text, caFile string) (*redisLogin, error) {
	if text == "" {
		return nil, nil
	}
	parsed, err := url.Parse(text)
	if err != nil || parsed.Hostname() == "" {
		return nil, errors.New("LIVE_STASH_REDIS_URL cannot be read") // the parser's own words would tell the password
	}
	port := parsed.Port()
	if port == "" {
		port = "6379"
	}
	login := &redisLogin{address: net.JoinHostPort(parsed.Hostname(), port)}
	if parsed.Scheme == "rediss" {
		if caFile == "" {
			return nil, errors.New("its certificate is checked against the application's own authorities, which are not here")
		}
		authorities, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("reading LIVE_STASH_REDIS_CACERTFILE: %w", err)
		}
		login.tls = &tls.Config{RootCAs: x509.NewCertPool(), ServerName: parsed.Hostname(), MinVersion: tls.VersionTLS12}
		login.tls.RootCAs.AppendCertsFromPEM(authorities)
	}
	if password, has := parsed.User.Password(); has {
		auth := []string{"AUTH"}
		if user := parsed.User.Username(); user != "" {
			auth = append(auth, user)
		}
		login.commands = append(login.commands, append(auth, password))
	}
	if database := strings.Trim(parsed.Path, "/"); database != "" {
		login.commands = append(login.commands, []string{"SELECT", database})
	}
	return login, nil
}

// try logs in once. It returns nothing, or a sentence that says what to change and never tells the password.
func (l *redisLogin) try(ctx context.Context) string {
	if err := l.logIn(ctx); err != nil {
		return fmt.Sprintf("Redis at %s %s.", l.address, l.advice(err))
	}
	return ""
}

func (l *redisLogin) logIn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	conn, err := l.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	answers := bufio.NewReader(io.LimitReader(conn, maxRequest))
	if len(l.commands) == 0 {
		// Whatever a Redis says to that, its user may do: there is no login to refuse.
		err := ask(conn, answers, []string{"PING"})
		if errors.As(err, new(refusal)) {
			return nil
		}
		return err
	}
	for _, command := range l.commands {
		if err := ask(conn, answers, command); err != nil {
			return err
		}
	}
	return nil
}

func (l *redisLogin) dial(ctx context.Context) (net.Conn, error) {
	dialer := &net.Dialer{Resolver: dns}
	if l.tls == nil {
		return dialer.DialContext(ctx, "tcp", l.address)
	}
	return (&tls.Dialer{NetDialer: dialer, Config: l.tls}).DialContext(ctx, "tcp", l.address)
}

// refusal is Redis' own answer.
type refusal string

func (r refusal) Error() string { return string(r) }

// ask sends one command and reads its answer, which is one line.
func ask(conn io.Writer, answers *bufio.Reader, command []string) error {
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(command))
	for _, word := range command {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(word), word)
	}
	if _, err := io.WriteString(conn, request.String()); err != nil {
		return err
	}
	line, err := answers.ReadString('\n')
	if err != nil {
		return err
	}
	line = strings.TrimSpace(line)
	switch {
	case line == "+OK", line == "+PONG":
		return nil
	case strings.HasPrefix(line, "-"):
		return refusal(line[1:])
	}
	return errNotRedis
}

var errNotRedis = errors.New("does not answer like Redis")

// advice says what is wrong, in the words of the agent (livestash_agent_redis_reason).
func (l *redisLogin) advice(err error) string {
	var refused refusal
	var unknown *net.DNSError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var slow net.Error
	switch {
	case errors.As(err, &refused):
		return refusalAdvice(string(refused))
	case errors.Is(err, errNotRedis):
		return "does not answer like Redis: correct host and port"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refuses connections: start it, or correct host and port"
	case errors.As(err, &unknown) && unknown.IsNotFound:
		return "cannot be found, because DNS does not know the host: correct it, or create its Service"
	case errors.As(err, &certificate):
		return fmt.Sprintf("has a certificate that is not accepted (%v): give the CA that signed it, or reissue it", certificate.Err)
	case errors.As(err, &record), errors.Is(err, io.EOF) && l.tls != nil:
		return "does not answer in TLS: if this is its port without TLS, write redis:// in the URL; else look at its log"
	case errors.As(err, &slow) && slow.Timeout():
		return "cannot be reached within 2 seconds: correct host and port, or let network policies and firewalls admit this pod"
	case errors.Is(err, io.EOF):
		return "closes the connection without an answer: if this is its TLS port, write rediss:// in the URL; else look at its log"
	}
	return "cannot be connected: look at its log"
}

// refusalAdvice tells no word of an unknown answer: Redis may repeat what it was sent.
func refusalAdvice(answer string) string {
	for _, known := range []struct{ mark, advice string }{
		{"WRONGPASS", "refuses the user or the password: correct them in the URL"},
		{"without any password configured", "has no password, but the URL has one: remove it there, or set it in Redis"},
		{"NOAUTH", "asks for a password: add it to the URL"},
		{"for 'auth' command", "knows no users, as before version 6: leave the user out of the URL"},
		{"NOPERM", "does not permit this user to choose a database: leave the database out of the URL, or allow the user SELECT"},
		{"DB index", "does not have the database of the URL: use 0, or raise `databases` in Redis"},
		{"max number of clients", "takes no more clients: raise its maxclients, or find out who holds them"},
		{"DENIED", "runs in protected mode: give it a password"},
	} {
		if strings.Contains(answer, known.mark) {
			return known.advice
		}
	}
	return "refuses the login: look at its log"
}
