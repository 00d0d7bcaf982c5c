package podagent

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// agentHeader is in every answer of the agent, with its version. A server without it is somebody else.
const agentHeader = "livestash-agent"

const (
	// askTime bounds each of at most two questions for one answer, so that the answer comes within the probe's three seconds.
	askTime = time.Second
	// answerAge is how old an answer may be for the next to ask. So a crowd does not reach the agent.
	answerAge = 100 * time.Millisecond
	// wordAge is for how long the agent's last word stands while it says nothing: longer than a node is slow, shorter than a frozen
	// one should be sent users.
	wordAge = 30 * time.Second
	// agentStartTime is how long an open port does not count without the agent's word: the agent starts last, so a
	// probe may come between the two, and a pod that is ready too early lets a rollout take the next one.
	agentStartTime = 3 * time.Second

	maxAnswer = 64 << 10
	maxReason = 512
)

// readiness decides whether the pod is ready: by the agent's word, and when there is no agent, by the application's port. So an
// agent that gave up, or an image that is no BEAM, never makes a serving pod unready; and an agent that is slow, in a pod
// that must not serve, never makes it ready.
type readiness struct {
	settings Settings
	logger   *log.Logger
	// startTime is agentStartTime, patience is askTime: tests have their own.
	startTime, patience time.Duration

	mu       sync.Mutex
	last     answer
	answered time.Time
	// word is the agent's last, and heard when it came: zero when there is no agent.
	word  answer
	heard time.Time
	// servingSince is zero while the application's port is shut.
	servingSince time.Time
}

// answer is one to an HTTP request.
type answer struct{ status, text string }

const (
	statusOK          = "200 OK"
	statusUnavailable = "503 Service Unavailable"
)

func newReadiness(settings Settings, logger *log.Logger) *readiness {
	return &readiness{settings: settings, logger: logger, startTime: agentStartTime, patience: askTime}
}

// ask finds one answer at a time, and who waited for it shares it.
func (r *readiness) ask() answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.answered) < answerAge {
		return r.last
	}
	now := r.decide()
	if now != r.last {
		r.logger.Printf("Readiness: %s: %q", now.status, now.text)
	}
	r.last, r.answered = now, time.Now()
	return now
}

func (r *readiness) decide() answer {
	verdict, noAgent := r.agentsWord()
	if noAgent == nil && verdict.status != statusOK {
		return verdict
	}
	if err := r.askApplication(noAgent != nil); err != nil {
		r.servingSince = time.Time{}
		return answer{statusUnavailable, err.Error()}
	}
	if r.servingSince.IsZero() {
		r.servingSince = time.Now()
	}
	if noAgent == nil {
		return verdict
	}
	if time.Since(r.servingSince) < r.startTime {
		return answer{statusUnavailable, fmt.Sprintf("giving the agent on port %d time to start: %v", r.settings.AgentPort, noAgent)}
	}
	return answer{statusOK, fmt.Sprintf("ready by the application's port %d alone: %v", r.settings.AppPort, noAgent)}
}

// agentsWord is what the agent says, or while it says nothing, what it has said last. It is an error when there is no agent.
func (r *readiness) agentsWord() (answer, error) {
	word, err := askAgent(r.settings.AgentPort, r.patience)
	switch {
	case err == nil:
		r.word, r.heard = word, time.Now()
		return word, nil
	case !errors.Is(err, errSilent):
		r.heard = time.Time{}
		return answer{}, err
	case time.Since(r.heard) < wordAge:
		return r.word, nil
	default:
		return answer{statusUnavailable, err.Error()}, nil
	}
}

// errSilent says that an agent is there and gives no answer.
var errSilent = errors.New("the agent is there but does not answer: the node is starting, frozen or overloaded")

// askAgent asks over the agent's own socket, and where there is none, over its port. It is errSilent when nothing is answered
// there in time, and another error when nobody listens, or somebody who is not the agent. On the port, which may be anybody's,
// silence is not the agent's.
func askAgent(agentPort int, patience time.Duration) (answer, error) {
	deadline := time.Now().Add(patience)
	conn, err := dialAgent(agentPort, deadline)
	if isAbsent(err) {
		return askAgentPort(agentPort, deadline)
	}
	if err != nil {
		return answer{}, fmt.Errorf("%w (%w)", errSilent, err)
	}
	reply, err := exchange(conn, agentPort, "/readyz", deadline)
	if err != nil {
		return answer{}, fmt.Errorf("%w (%w)", errSilent, err)
	}
	return agentsAnswer(reply, "the agent's socket")
}

func askAgentPort(port int, deadline time.Time) (answer, error) {
	reply, err := get(port, "/readyz", deadline)
	if err != nil {
		return answer{}, fmt.Errorf("no agent answers: %w", err)
	}
	return agentsAnswer(reply, fmt.Sprintf("port %d", port))
}

// agentsAnswer is an error when somebody else gave it than an agent of this version.
func agentsAnswer(reply reply, where string) (answer, error) {
	version := reply.header.Get(agentHeader)
	if version == "" {
		return answer{}, fmt.Errorf("%s belongs to another server than the agent", where)
	}
	switch reply.status {
	case 200:
		return answer{statusOK, reply.text}, nil
	case 503:
		return answer{statusUnavailable, reply.text}, nil
	default:
		return answer{}, fmt.Errorf("agent %.20q answered %d to /readyz", version, reply.status)
	}
}

// askApplication is nil when the readiness path answers as the kubelet would want it, or, without such a path and
// without an agent to know better, when the port is open.
func (r *readiness) askApplication(withoutAgent bool) error {
	port, path := r.settings.AppPort, r.settings.ReadinessPath
	switch {
	case path != "":
		reply, err := get(port, path, time.Now().Add(r.patience))
		if err != nil {
			return fmt.Errorf("the application does not answer %s: %w", path, err)
		}
		if reply.status < 200 || reply.status > 399 {
			return fmt.Errorf("the application answered %d to %s on port %d", reply.status, path, port)
		}
	case withoutAgent:
		conn, err := dial(port, time.Now().Add(r.patience))
		if err != nil {
			return fmt.Errorf("neither the application nor the agent answers: %w", err)
		}
		_ = conn.Close()
	}
	return nil
}

// reply is what a server in this pod answered.
type reply struct {
	status int
	header textproto.MIMEHeader
	text   string
}

// get asks a server on a port of this pod.
func get(port int, path string, deadline time.Time) (reply, error) {
	conn, err := dial(port, deadline)
	if err != nil {
		return reply{}, err
	}
	answered, err := exchange(conn, port, path, deadline)
	if err != nil {
		return reply{}, fmt.Errorf("bad answer on port %d: %w", port, err)
	}
	return answered, nil
}

// exchange asks a server in this pod, closes, and believes neither that it is quick, nor that it is modest, nor that it speaks
// HTTP.
func exchange(conn net.Conn, port int, path string, deadline time.Time) (reply, error) {
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(deadline); err != nil {
		return reply{}, err
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost:%d\r\nUser-Agent: livestash-podagent\r\nConnection: close\r\n\r\n", path, port); err != nil {
		return reply{}, err
	}
	return readReply(conn)
}

func readReply(from io.Reader) (reply, error) {
	reader := textproto.NewReader(bufio.NewReader(io.LimitReader(from, maxAnswer)))
	line, err := reader.ReadLine()
	if err != nil {
		return reply{}, err
	}
	status, err := parseStatus(line)
	if err != nil {
		return reply{}, err
	}
	header, err := reader.ReadMIMEHeader()
	if err != nil {
		return reply{}, err
	}
	return reply{status, header, readReason(reader.R, header)}, nil
}

func parseStatus(line string) (int, error) {
	protocol, rest, _ := strings.Cut(line, " ")
	code, _, _ := strings.Cut(rest, " ")
	status, err := strconv.Atoi(code)
	if err != nil || !strings.HasPrefix(protocol, "HTTP/1.") || status < 100 || status > 599 {
		return 0, fmt.Errorf("%.40q is no HTTP status line", line)
	}
	return status, nil
}

// readReason reads the beginning of the body. The verdict does not depend on it, so it may be missing.
func readReason(body io.Reader, header textproto.MIMEHeader) string {
	size := maxReason
	if length, err := strconv.Atoi(header.Get("Content-Length")); err == nil && length >= 0 {
		size = min(size, length)
	}
	text := make([]byte, size)
	n, _ := io.ReadFull(body, text)
	return strings.TrimSpace(string(text[:n]))
}

// dialAgent connects to the agent's own socket: one without a file, which the containers of a pod share and nobody outside can
// fill. Its name has the agent's port, of which there is one in a network namespace.
func dialAgent(agentPort int, deadline time.Time) (net.Conn, error) {
	dialer := net.Dialer{Deadline: deadline}
	return dialer.Dial("unix", fmt.Sprintf("@livestash-agent-%d", agentPort))
}

// isAbsent is whether there is no such socket, or a security profile of the machine does not allow one.
func isAbsent(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM)
}

// dial connects to a port of this pod, whichever IP the server listens on.
func dial(port int, deadline time.Time) (net.Conn, error) {
	dialer := net.Dialer{Deadline: deadline}
	number := strconv.Itoa(port)
	conn, err := dialer.Dial("tcp", net.JoinHostPort("127.0.0.1", number))
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return conn, err
	}
	if conn, errV6 := dialer.Dial("tcp", net.JoinHostPort("::1", number)); errV6 == nil {
		return conn, nil
	}
	return nil, err
}
