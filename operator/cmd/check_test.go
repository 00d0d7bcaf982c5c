package main

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// The check shows a token to whom it asks, and to nobody else: who answers sends it nowhere.
func TestCheckIsNotSentElsewhere(t *testing.T) {
	var asked atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer elsewhere.Close()
	if err := ask(elsewhere.URL, ""); err != nil || asked.Load() != 1 {
		t.Fatalf("asked %d times, %v: this test shows nothing", asked.Load(), err)
	}
	for _, code := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, code))
		if err := ask(server.URL, ""); err == nil {
			t.Errorf("%d: what another server answers is taken for the answer", code)
		}
		server.Close()
	}
	if asked.Load() != 1 {
		t.Error("it went where it was sent")
	}
}
