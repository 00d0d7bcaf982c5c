package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Lines stay whole, also the last one of a log that ends without a line break.
func TestLogLines(t *testing.T) {
	var out strings.Builder
	reader := &logReader{out: &out}
	reader.write("[shop-0] ", []byte("one\n"))
	reader.write("[shop-1] ", []byte("two"))
	if diff := cmp.Diff("[shop-0] one\n[shop-1] two\n", out.String()); diff != "" {
		t.Error(diff)
	}
}

// On a terminal nothing of a log steers it. Elsewhere lines are as they were written.
func TestLogsOnATerminal(t *testing.T) {
	for _, tc := range []struct {
		terminal bool
		want     string
	}{
		{true, "[shop-0] \\x1b[2Jone\n"},
		{false, "[shop-0] \x1b[2Jone\n"},
	} {
		var out strings.Builder
		reader := &logReader{out: &out, terminal: tc.terminal}
		reader.write("[shop-0] ", []byte("\x1b[2Jone\n"))
		if diff := cmp.Diff(tc.want, out.String()); diff != "" {
			t.Error(diff)
		}
	}
}
