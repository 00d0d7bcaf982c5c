package agentclient

import (
	"encoding/json"

	"github.com/livestash-dev/livestash/operator/internal/plausible"
)

const (
	reportFormat = 1
	// maxReport is what Kubernetes keeps of a termination message.
	maxReport = 4096
)

// Report is what a node says of its drain before it ends, in its container's termination message.
type Report struct {
	// SessionsBefore is how many stashes the node held when the drain began.
	SessionsBefore int64 `json:"sessionsBefore"`
	SocketsClosed  int64 `json:"socketsClosed"`
	// HandedOff are the rows that went to peers, NotHandedOff those that were lost with the node. Rows that returning
	// clients pulled are neither.
	HandedOff    int64 `json:"handedOff"`
	NotHandedOff int64 `json:"notHandedOff"`
	// OtherVersion are those of HandedOff that were made by pages of another version of the application: the pages that run
	// where they went may refuse them.
	OtherVersion int64 `json:"otherVersion"`
	// LargestStashBytes is the size of the largest BrowserMemory stash that the node made, else 0.
	LargestStashBytes int64 `json:"largestStashBytes"`
	// Reason is a sentence when NotHandedOff is not 0.
	Reason string `json:"reason"`
	// Seconds is how long the drain took.
	Seconds float64 `json:"seconds"`
}

// ParseReport reads a termination message. It is false for every message that is no whole report: one of the application's
// own, the end of its log, or that of a format to come.
func ParseReport(message []byte) (Report, bool) {
	var report struct {
		Format int `json:"livestash"`
		Report
	}
	if len(message) > maxReport || json.Unmarshal(message, &report) != nil || report.Format != reportFormat {
		return Report{}, false
	}
	r := report.Report
	if !plausible.Counts(r.SessionsBefore, r.SocketsClosed, r.HandedOff, r.NotHandedOff, r.OtherVersion, r.LargestStashBytes) || !plausible.Seconds(r.Seconds) {
		return Report{}, false
	}
	r.Reason = shortened(r.Reason, maxText)
	return r, true
}
