package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// An operator that starts while the API server is away, or refuses, goes on as soon as it answers.
func TestAwaitAPIServer(t *testing.T) {
	for name, c := range map[string]struct {
		answers []int
		asked   int32
	}{
		"it is there":          {[]int{http.StatusOK}, 1},
		"it knows nobody":      {[]int{http.StatusForbidden}, 1},
		"it refuses, then not": {[]int{http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusOK}, 3},
		"it cuts off":          {[]int{0, http.StatusOK}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				code := c.answers[min(int(asked.Add(1)), len(c.answers))-1]
				if code == 0 {
					panic(http.ErrAbortHandler)
				}
				w.WriteHeader(code)
			}))
			defer server.Close()
			if err := awaitAPIServer(t.Context(), &rest.Config{Host: server.URL}); err != nil {
				t.Fatal(err)
			}
			if asked.Load() < c.asked {
				t.Errorf("it was asked %d times, want %d", asked.Load(), c.asked)
			}
		})
	}
}

// An operator that is told to stop does not wait.
func TestAwaitAPIServerEnds(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	if err := awaitAPIServer(ctx, &rest.Config{Host: server.URL}); err == nil {
		t.Error("a server that is not there was found")
	}
}
