package show

import (
	"fmt"
	"io"
	"strings"

	"github.com/livestash-dev/livestash/operator/internal/cli/doctor"
	"github.com/livestash-dev/livestash/operator/internal/cli/text"
)

// Examination is what doctor found.
type Examination struct {
	Name string `json:"name"`
	// Checks is how many were made.
	Checks   int              `json:"checks"`
	Findings []doctor.Finding `json:"findings"`
	// Unread is what could not be looked at.
	Unread []string `json:"unread,omitempty"`
}

// Write draws the findings, the worst first.
func (e Examination) Write(w io.Writer, paint text.Paint) error {
	var b strings.Builder
	for _, finding := range e.Findings {
		colour := text.Bad
		if finding.Severity == doctor.Risky {
			colour = text.Warning
		}
		fmt.Fprintf(&b, "%s %s\n", paint.In(colour, string(finding.Severity)), paint.In(text.Faint, "("+finding.Check+")"))
		b.WriteString(text.Wrapped(finding.Wrong, "  ", width))
		b.WriteString(text.Wrapped("To change: "+finding.Change, "  ", width) + "\n")
	}
	for _, what := range e.Unread {
		b.WriteString(paint.In(text.Faint, "Not looked at: "+text.Safe(what)) + "\n")
	}
	verdict := paint.In(text.Good, "nothing is wrong")
	if len(e.Findings) > 0 {
		verdict = paint.In(text.Strong, text.Count(int64(len(e.Findings)), "finding", "findings"))
	}
	fmt.Fprintf(&b, "%s: %s, by %d checks.\n", text.Safe(e.Name), verdict, e.Checks)
	_, err := io.WriteString(w, b.String())
	return err
}
