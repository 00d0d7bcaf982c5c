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
