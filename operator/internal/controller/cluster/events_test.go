package cluster

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestShortened(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"short":                   {"abc", "abc"},
		"just short enough":       {"abcdefgh", "abcdefgh"},
		"long":                    {"abcdefghi", "abcde…"},
		"long, between two bytes": {"abcdéfghi", "abcd…"},
	}
	for name, c := range cases {
		if got := shortened(c.text, 8); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	for _, text := range []string{strings.Repeat("é", 1024), strings.Repeat("e", 1025), "e" + strings.Repeat("é", 1024)} {
		if got := shortened(text, mostNote); len(got) > 1024 || len(got) < 1023 || !utf8.ValidString(got) {
			t.Errorf("a note of %d bytes: %q", len(got), got)
		}
	}
}
