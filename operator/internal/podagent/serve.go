package podagent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/textproto"
	"strings"
	"time"
)

const (
	// maxConns are served at once; the kernel keeps more of them waiting.
	maxConns = 128
	// requestTime is how long a client may take to send its request, crowdTime the same while many clients do not: the
	// kubelet, which takes no time, must get through to its answer.
	requestTime = 500 * time.Millisecond
	crowdTime   = 50 * time.Millisecond
	// endPause is between two looks whether the agent of a pod that stops is still there.
	endPause = 200 * time.Millisecond
	// acceptPause keeps a process that has no file descriptor left from spinning.
	acceptPause = 100 * time.Millisecond

	maxRequest = 8 << 10
)

// Serve keeps the boot arguments in dir up to date, and answers GET /readyz and GET /healthz on the probe port, until ctx
// ends: then the pod is being stopped, which it tells the agent. It goes on answering while the agent is there: a pod that
// keeps its users until another one is ready says ready. An error means that it cannot listen, or cannot tell.
func Serve(ctx context.Context, dir string, settings Settings, logger *log.Logger) error {
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", settings.ProbePort))
	if err != nil {
		return fmt.Errorf("cannot answer readiness probes on port %d: %w; choose an agent port so that this one, the next, is free", settings.ProbePort, err)
	}
	go serveConns(listener, probePages(newReadiness(settings, logger).ask), "")
	told := make(chan struct{})
	go func() {
		defer close(told)
		tellUsage(ctx, dir, usageInterval, logger)
	}()
	newBootArgs(dir, settings, dns, logger).refresh(ctx, refreshInterval)
	<-told
	err = TellStopping(dir)
	awaitAgentsEnd(settings.AgentPort)
	return errors.Join(err, listener.Close())
}

// awaitAgentsEnd returns when no agent is there. The kubelet ends this program when that takes longer than the pod has.
func awaitAgentsEnd(port int) {
	for {
		if _, err := askAgent(port, askTime); err != nil && !errors.Is(err, errSilent) {
			return
		}
		time.Sleep(endPause)
	}
}

// probePages are what the kubelet asks for.
func probePages(ready func() answer) func(path string) answer {
	return func(path string) answer {
		switch path {
		case "/readyz":
			return ready()
		case "/healthz":
			return answer{statusOK, "ok"}
		}
		return answer{"404 Not Found", "ask /readyz or /healthz"}
	}
}

// serveConns answers requests for pages until the listener is closed. headers are added to each answer.
func serveConns(listener net.Listener, page func(path string) answer, headers string) {
	places := make(chan struct{}, maxConns)
	for {
		places <- struct{}{}
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			<-places
			time.Sleep(acceptPause)
			continue
		}
		patience := requestTime
		if len(places) > maxConns/2 {
			patience = crowdTime
		}
		go func() {
			defer func() { <-places }()
			serveConn(conn, patience, page, headers)
		}()
	}
}

// serveConn answers one request, and closes: a probe opens a connection of its own each time.
func serveConn(conn net.Conn, patience time.Duration, page func(path string) answer, headers string) {
	defer func() { _ = conn.Close() }()
	if conn.SetDeadline(time.Now().Add(patience)) != nil {
		return
	}
	path, now := readRequest(conn)
	if now == (answer{}) {
		now = page(path)
	}
	if conn.SetDeadline(time.Now().Add(requestTime)) != nil {
		return
	}
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n%s\r\n%s\n",
		now.status, len(now.text)+1, headers, now.text)
}

// readRequest is the path of a GET, or what to answer instead.
func readRequest(from io.Reader) (path string, problem answer) {
	bad := answer{"400 Bad Request", "this is no short HTTP/1 request"}
	reader := textproto.NewReader(bufio.NewReaderSize(io.LimitReader(from, maxRequest), 1<<10))
	line, err := reader.ReadLine()
	if err != nil {
		return "", bad
	}
	fields := strings.Split(line, " ")
	if len(fields) != 3 || !strings.HasPrefix(fields[2], "HTTP/1.") {
		return "", bad
	}
	// Nothing in it is wanted, but to close with unread bytes would take the answer with it.
	if _, err := reader.ReadMIMEHeader(); err != nil {
		return "", bad
	}
	if fields[0] != "GET" {
		return "", answer{"405 Method Not Allowed", "only GET is answered"}
	}
	path, _, _ = strings.Cut(fields[1], "?")
	return path, answer{}
}
