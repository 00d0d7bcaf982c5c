package crowd

import "github.com/livestash-dev/livestash/test/internal/browser"

// Phase is how far a crowd is.
type Phase string

// The phases, in order.
const (
	Opening   Phase = "opening"
	Opened    Phase = "open"
	Event     Phase = "event"
	Verifying Phase = "verifying"
	Verified  Phase = "verified"
)

// Report is the state of a crowd, and what it found since Begin.
type Report struct {
	Phase Phase `json:"phase"`
	// Problem is why the crowd cannot go on; empty when it can.
	Problem string `json:"problem,omitempty"`

	Sessions int `json:"sessions"`
	// Ready is how many have an acknowledged stash, Away how many are about to reconnect.
	Ready int `json:"ready"`
	Away  int `json:"away"`
	// Closed is how many lost their socket during the event, by no doing of their own.
	Closed int `json:"closed"`
	// Outdated is how many of those that stash every now and then have not had a stash acknowledged that they sent after the
	// last Restash.
	Outdated int `json:"outdated"`

	// Every session checked is one of these four: it found another counter than its own at some reconnect; else it found
	// nothing at some reconnect, or was not back in time; else it found what it knew at every reconnect.
	Stale     int `json:"stale"`
	Lost      int `json:"lost"`
	Recovered int `json:"recovered"`
	// Young found neither, but what is missing was stashed no longer than Plan.YoungMS before the socket ended.
	Young int `json:"young"`
	// LostIdle is how many of the lost ones stash only once.
	LostIdle int `json:"lostIdle"`

	// MostMoves is how often one session came back after its socket was closed, at most, Moves how often all did together.
	MostMoves int `json:"mostMoves"`
	Moves     int `json:"moves"`

	// Times from a closed socket to the recovered page. Nil when no socket was closed.
	Times *browser.Times `json:"times,omitempty"`

	// FailedAttempts counts connection attempts that failed, by kind; Endings counts closed sockets by what closed them.
	FailedAttempts map[string]int `json:"failedAttempts"`
	Endings        map[string]int `json:"endings"`
	// Pods has the sessions by the address they were opened at.
	Pods map[string]Pod `json:"pods"`
	// Notes are sentences on the first sessions that did not find what they knew.
	Notes []string `json:"notes"`
}

// Pod is the sessions that were opened at one address.
type Pod struct {
	Sessions int `json:"sessions"`
	Lost     int `json:"lost"`
}
