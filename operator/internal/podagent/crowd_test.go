package podagent

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// However many come at once, so many are served.
func TestServedAtOnce(t *testing.T) {
	listener := listen(t)
	var now, most atomic.Int32
	go serveConns(listener, func(string) answer {
		for here, seen := now.Add(1), most.Load(); here > seen && !most.CompareAndSwap(seen, here); {
			seen = most.Load()
		}
		time.Sleep(requestTime)
		now.Add(-1)
		return answer{statusOK, "ok"}
	}, "")
	var crowd sync.WaitGroup
	for range 3 * maxConns {
		crowd.Go(func() {
			conn, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				return
			}
			defer func() { _ = conn.Close() }()
			_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\n\r\n")
			_, _ = io.ReadAll(conn)
		})
	}
	crowd.Wait()
	if got := most.Load(); got > maxConns || got < 2 {
		t.Errorf("%d were served at once, want at most %d, and more than one", got, maxConns)
	}
}
