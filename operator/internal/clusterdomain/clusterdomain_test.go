package clusterdomain

import (
	"os"
	"path/filepath"
	"testing"
)

func TestDetect(t *testing.T) {
	cases := map[string]struct{ content, want string }{
		"in a pod":           {"nameserver 10.96.0.10\nsearch shop.svc.corp.example svc.corp.example corp.example\noptions ndots:5\n", "corp.example"},
		"with a final dot":   {"search shop.svc.corp.example. svc.corp.example. corp.example.\n", "corp.example"},
		"outside a pod":      {"search lan\n", Default},
		"no search":          {"nameserver 127.0.0.1\n", Default},
		"a word with svc in": {"search mysvc.example\n", Default},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "resolv.conf")
			if err := os.WriteFile(file, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := Detect(file); got != c.want {
				t.Errorf("Detect = %q, want %q", got, c.want)
			}
		})
	}
	if got := Detect(filepath.Join(t.TempDir(), "absent")); got != Default {
		t.Errorf("Detect of an absent file = %q, want %q", got, Default)
	}
}
