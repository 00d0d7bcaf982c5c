package runner

import (
	"strings"
	"testing"
)

// The end of a log becomes a sentence of a status.
func FuzzSentence(f *testing.F) {
	f.Add("time=\"x\" level=error msg=\"a \\\"b\\\" c\" hint=\"d\"\nlast")
	f.Add(`{"level":"error","msg":"no such file"}`)
	f.Fuzz(func(t *testing.T, log string) {
		if sentence := Sentence(log); len(sentence) > 3*len(log) || !strings.ContainsAny(log, "\\") && !strings.Contains(log, "{") && !strings.Contains(log, sentence) {
			t.Errorf("the sentence is %q", sentence)
		}
	})
}
