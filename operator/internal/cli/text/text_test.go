package text

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	table := Table{Columns: []string{"NAME", "READY", "PROBLEM"}}
	table.Add(Plain("shop-0"), Cell{"yes", Good}, Plain(""))
	table.Add(Plain("shop-10"), Cell{"no", Bad}, Plain("two\nlines \x1b]0;title\x07"))
	for _, tc := range []struct {
		name  string
		paint Paint
		want  string
	}{
		{"plain", Paint{}, "NAME      READY   PROBLEM\nshop-0    yes\nshop-10   no      two lines \\x1b]0;title\\a\n"},
		{"colours take no room", Paint{Colours: true}, "NAME      READY   PROBLEM\nshop-0    \x1b[32myes\x1b[0m\nshop-10   \x1b[31mno\x1b[0m      two lines \\x1b]0;title\\a\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b strings.Builder
			if err := table.Write(&b, tc.paint); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, b.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestBar(t *testing.T) {
	for _, tc := range []struct {
		done, whole int
		want        string
	}{{0, 3, "[------]"}, {1, 3, "[##----]"}, {3, 3, "[######]"}, {4, 3, "[######]"}, {-1, 3, "[------]"}, {0, 0, "[------]"}} {
		if got := (Paint{}).Bar(tc.done, tc.whole, 6); got != tc.want {
			t.Errorf("%d of %d: %s, want %s", tc.done, tc.whole, got, tc.want)
		}
	}
}

func TestWrapped(t *testing.T) {
	want := "  one two\n  three\n  fourfivesixseven\n"
	if diff := cmp.Diff(want, Wrapped("one two three\nfourfivesixseven", "  ", 10)); diff != "" {
		t.Error(diff)
	}
}

func TestAge(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if got := Age(now.Add(-90*time.Second), now); got != "90s" {
		t.Error(got)
	}
	if got := Age(time.Time{}, now); got != "<unknown>" {
		t.Error(got)
	}
}

// What others wrote cannot steer a terminal, nor look like other text than it is.
func TestSafe(t *testing.T) {
	for _, tc := range []struct{ name, text, safe, lines string }{
		{"words", "größer – 3 µs", "größer – 3 µs", "größer – 3 µs"},
		{"lines", "one\ttwo\nthree", "one two three", "one two\nthree"},
		{"a line that is written over", "bad\rgood", `bad\rgood`, `bad\rgood`},
		{"an escape", "\x1b[2J", `\x1b[2J`, `\x1b[2J`},
		{"an escape of one character", "\u009b2J", `\u009b2J`, `\u009b2J`},
		{"delete", "a\x7f", `a\x7f`, `a\x7f`},
		{"writing backwards", "\u202egnp.exe", `\u202egnp.exe`, `\u202egnp.exe`},
		{"no UTF-8", "a\x9bb", "a\ufffdb", "a\ufffdb"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Safe(tc.text); got != tc.safe {
				t.Errorf("%q, want %q", got, tc.safe)
			}
			if got := Lines(tc.text); got != tc.lines {
				t.Errorf("lines: %q, want %q", got, tc.lines)
			}
		})
	}
}
