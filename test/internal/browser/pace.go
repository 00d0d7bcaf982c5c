// Package browser is what a browser does beside LiveView's protocol: it keeps a page's socket alive, gives up a server that
// fell silent, and knows how long to wait before it tries again.
package browser

import "time"

// Pace are the times by which a page acts as in a browser.
type Pace struct {
	// Reconnect is how long a page waits before its first, second, ... attempt to come back. The last one repeats.
	Reconnect []time.Duration
	// Connect bounds each attempt: page, socket and the join's reply.
	Connect time.Duration
	// Reply bounds the wait for the answer to a stash. A server that is silent for longer is given up.
	Reply time.Duration
	// Heartbeat is the time between two signs of life. One that is not answered before the next is due gives the server up.
	Heartbeat time.Duration
}

// Usual is the pace of phoenix.js with LiveView's reconnect schedule.
func Usual() Pace {
	milliseconds := []int{10, 50, 100, 150, 200, 250, 500, 1000, 2000, 5000}
	schedule := make([]time.Duration, len(milliseconds))
	for i, n := range milliseconds {
		schedule[i] = time.Duration(n) * time.Millisecond
	}
	return Pace{Reconnect: schedule, Connect: 10 * time.Second, Reply: 10 * time.Second, Heartbeat: 30 * time.Second}
}

// Wait is how long to wait before an attempt; the first is 1.
func (p Pace) Wait(attempt int) time.Duration {
	return p.Reconnect[min(attempt, len(p.Reconnect))-1]
}
