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
		{"plain", Paint{}, "NAME      READY   PROBLEM\nshop-0    yes\nshop-10   no      two lines ]0;title\n"},
		{"colours take no room", Paint{Colours: true}, "NAME      READY   PROBLEM\nshop-0    \x1b[32myes\x1b[0m\nshop-10   \x1b[31mno\x1b[0m      two lines ]0;title\n"},
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
