package report_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

// Variants of one adapter are told apart by their names, in words, tables and charts, and compared with the baseline.
func TestVariants(t *testing.T) {
	r := example(20, [2]int{1000, 60})
	r.Spec.Baseline = "usual"
	r.Spec.Variants = []report.Variant{{Name: "usual", Adapter: "ETS"}, {Name: "fullsweep-20", Adapter: "ETS", Patch: `{"beam": {"fullsweepAfter": 20}}`}}
	names := []string{"fullsweep-20", "usual", "old"}
	r.Runs = r.Runs[:3]
	for i := range r.Runs {
		r.Runs[i].Variant, r.Runs[i].Adapter = names[i], "ETS"
	}
	page, md := breakable(r), string(report.Markdown(r))
	for _, want := range []string{
		"With 1,000 users and a TTL of 1 min, usual took 125 MB", "fullsweep-20 cost 3.83 MB (3 %) less memory", "and what that is over usual.",
		"for usual all that the fleet took, for each variant what it took over that",
	} {
		if text := section(page, "which") + section(page, "costs") + section(page, "thousand"); !strings.Contains(text, want) {
			t.Errorf("%q is not in: %s", want, text)
		}
	}
	if text := section(page, "facts"); !strings.Contains(text, "Variant usual adapter ETS Variant fullsweep-20 adapter ETS, {&#34;beam&#34;: {&#34;fullsweepAfter&#34;: 20}}") {
		t.Errorf("it is not told what the variants are: %s", text)
	}
	if strings.Contains(page, "Choose ETS") || strings.Contains(page, "without LiveStash") {
		t.Error("the page takes variants for adapters")
	}
	if got := rowOf(t, r, "old"); !strings.Contains(got, "as usual") && !strings.Contains(got, "+") && !strings.Contains(got, "−") {
		t.Errorf("it is compared with nothing: %s", got)
	}
	for _, want := range []string{"| variant | memory, peak |", "| fullsweep-20 | 121 MB (−3.83 MB (3 %)), pods", "| 1,000 users; variants over usual |"} {
		if !strings.Contains(md, want) {
			t.Errorf("%q is not in the Markdown: %s", want, md)
		}
	}
	for look, class := range []string{"a-none", "a-ets", "a-browsermemory"} {
		if !regexp.MustCompile(`class="line `+class+`"><polyline points="0,6 28,6"/><path class="mark" d="[^"]*"/></g></svg> <b>`+names[look]).MatchString(page) && names[look] != "usual" {
			t.Errorf("%s does not look like %s", names[look], class)
		}
	}
	r.Runs = append(r.Runs[:1], r.Runs[2])
	if text := section(breakable(r), "which"); !strings.Contains(text, "there is no sound run with usual") {
		t.Errorf("the baseline is not missed: %s", text)
	}
}
