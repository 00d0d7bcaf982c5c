package runner

import (
	"testing"
	"unicode/utf8"
)

// The end of a log becomes a sentence of a status.
func FuzzSentence(f *testing.F) {
	f.Add("time=\"x\" level=error msg=\"a \\\"b\\\" c\" hint=\"d\"\nlast")
	f.Add(`{"level":"error","msg":"no such file"}`)
	f.Add("cut in the mid\xc3")
	f.Fuzz(func(t *testing.T, log string) {
		sentence := Sentence(log)
		if !utf8.ValidString(sentence) || len(sentence) > 3*len(log) {
			t.Errorf("the sentence is %q", sentence)
		}
	})
}
