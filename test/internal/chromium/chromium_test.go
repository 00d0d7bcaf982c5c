package chromium

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// A browser that opens a page under a name that nobody knows, in two profiles, and hides one of them.
func TestTabs(t *testing.T) {
	if _, err := Program(); err != nil {
		if os.Getenv("BROWSER_NEEDED") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `<!DOCTYPE html><script>localStorage.opened = +(localStorage.opened || 0) + 1</script>`)
	}))
	defer server.Close()
	b, err := Start(nil, "MAP shop.example "+strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var tabs []*Tab
	for range 2 {
		tab, err := b.Open(ctx, "http://shop.example/", "window.first = 'yes'")
		if err != nil {
			t.Fatal(err)
		}
		tabs = append(tabs, tab)
	}
	says := func(tab *Tab, want string) {
		t.Helper()
		var got string
		for begun := time.Now(); time.Since(begun) < 10*time.Second; time.Sleep(20 * time.Millisecond) {
			err := tab.Evaluate(ctx, "[window.first, localStorage.opened, document.visibilityState].join()", &got)
			if err == nil && got == want {
				return
			}
		}
		t.Fatalf("the page says %q, want %q", got, want)
	}
	says(tabs[0], "yes,1,visible")
	says(tabs[1], "yes,1,visible")
	for range 2 {
		if err := tabs[1].Hide(ctx); err != nil {
			t.Fatal(err)
		}
		says(tabs[1], "yes,1,hidden")
		says(tabs[0], "yes,1,visible")
		if err := tabs[1].Show(ctx); err != nil {
			t.Fatal(err)
		}
		says(tabs[1], "yes,1,visible")
	}
	if err := tabs[0].Evaluate(ctx, "nobody.knows", nil); err == nil {
		t.Error("a wrong expression has a value")
	}
	if _, err := b.Open(ctx, "http://elsewhere.invalid/", ""); err == nil {
		t.Error("a page that is not there opens")
	}
}
