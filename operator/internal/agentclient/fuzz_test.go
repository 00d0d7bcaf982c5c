package agentclient

import (
	"encoding/json"
	"os"
	"testing"
	"unicode/utf8"
)

// What an agent says becomes a status and a condition's message: whatever is on its port, it is short, and its numbers can be added up.
func FuzzStatus(f *testing.F) {
	f.Add([]byte(answer))
	f.Fuzz(func(t *testing.T, body []byte) {
		status, err := readStatus(body)
		if err != nil {
			return
		}
		for text, most := range map[string]int{
			status.Node: maxName, status.Reason: maxText, status.Store.Reason: maxText, status.Version: maxWord, status.OTP: maxWord, status.Adapter: maxWord,
		} {
			if utf8.RuneCountInString(text) > most {
				t.Errorf("%q is longer than %d", text, most)
			}
		}
		if len(status.Peers.MissingNodes) > maxNodes || len(status.Versions) > maxViews || min(status.Stashes, status.StashBytes, status.Handoffs.Sent) < 0 {
			t.Errorf("it is taken: %+v", status)
		}
	})
}

// Figures are written down as JSON, which knows no number that is none.
func FuzzMetrics(f *testing.F) {
	text, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, body []byte) {
		metrics, err := readMetrics(body)
		if err != nil {
			return
		}
		if _, err := json.Marshal(metrics); err != nil || metrics.Check() != nil {
			t.Errorf("it is taken: %+v (%v)", metrics, err)
		}
	})
}

// The last words of a container may be anything.
func FuzzLastWords(f *testing.F) {
	f.Add([]byte(`{"livestash":1,"sessionsBefore":3,"handedOff":2,"notHandedOff":1,"reason":"a peer was gone","seconds":1.5}`))
	f.Fuzz(func(t *testing.T, message []byte) {
		report, taken := ParseReport(message)
		if taken && (min(report.SessionsBefore, report.HandedOff, report.NotHandedOff) < 0 || utf8.RuneCountInString(report.Reason) > maxText) {
			t.Errorf("it is taken: %+v", report)
		}
	})
}
