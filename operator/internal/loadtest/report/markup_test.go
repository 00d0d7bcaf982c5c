package report

import (
	"strings"
	"testing"
)

// TestWordsAreNoMarkup: what users and their programs say stands in a page as it is.
func TestWordsAreNoMarkup(t *testing.T) {
	var w pageWriter
	w.put(`<p class="%s">%s%s%s</p>`, `"><script>`, "<b>&100 %s'", markup("<br>"), 3)
	if want := "<p class=\"&#34;&gt;&lt;script&gt;\">&lt;b&gt;&amp;100\u00a0%s&#39;<br>3</p>"; w.String() != want {
		t.Errorf("got  %s\nwant %s", w.String(), want)
	}
}

// A unit never stands on another line than its number.
func TestUnitsDoNotBreak(t *testing.T) {
	for text, want := range map[string]string{
		"121 MB of memory":                        "121~MB of memory",
		"3.83 MB (3 %) more, 12.5 kB/s":           "3.83~MB (3~%) more, 12.5~kB/s",
		"1 h 30 min, 0.18 cores, 8 CPUs":          "1~h 30~min, 0.18~cores, 8~CPUs",
		"1,000 users at 3 pods":                   "1,000~users at 3~pods",
		"5 hours, 3 sessions, 7 Brownies, 2 of 3": "5 hours, 3 sessions, 7 Brownies, 2 of 3",
	} {
		if got := strings.ReplaceAll(unbroken(text), "\u00a0", "~"); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
