package fencing

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

const lasts = 15 * time.Second

// operator is one whose Lease and other objects are on an API server that answers with a status.
type operator struct {
	*Fence
	clock    *clocktesting.FakePassiveClock
	election http.RoundTripper
	others   http.RoundTripper
	// answers is the status of each answer, and 0 none; takes is how long each takes.
	answers int
	takes   time.Duration
	// came are the requests that have come there.
	came []string
}

func newOperator() *operator {
	o := &operator{clock: clocktesting.NewFakePassiveClock(time.Now()), answers: http.StatusOK}
	o.Fence = &Fence{Lasts: lasts, Clock: o.clock}
	server := roundTripper(func(request *http.Request) (*http.Response, error) {
		o.came = append(o.came, request.Method+" "+request.URL.Path)
		o.pass(o.takes)
		if o.answers == 0 {
			return nil, errors.New("no answer")
		}
		return &http.Response{StatusCode: o.answers, Body: http.NoBody}, nil
	})
	o.election, o.others = o.Renewals(server), o.Changes(server)
	return o
}

func (o *operator) pass(time time.Duration) { o.clock.SetTime(o.clock.Now().Add(time)) }

const lease = "/apis/coordination.k8s.io/v1/namespaces/livestash-system/leases/livestash-operator"

// send sends a request with a body, and returns that with the error.
func send(t *testing.T, through http.RoundTripper, method, path string) (*body, error) {
	t.Helper()
	sent := &body{Reader: strings.NewReader("{}")}
	request, err := http.NewRequestWithContext(t.Context(), method, "https://api"+path, sent)
	if err != nil {
		t.Fatal(err)
	}
	response, err := through.RoundTrip(request)
	if err == nil {
		_ = response.Body.Close()
	}
	return sent, err
}

// renew asks for the Lease to be renewed, and gets that answer.
func (o *operator) renew(t *testing.T, answer int) {
	t.Helper()
	o.answers = answer
	_, _ = send(t, o.election, http.MethodPut, lease)
}

type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

func TestAnOperatorChangesNothingAfterItsLease(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*testing.T, *operator)
		held   bool
	}{
		"it never led": {func(_ *testing.T, o *operator) { o.pass(time.Hour) }, false},
		"its Lease is new": {func(t *testing.T, o *operator) {
			_, _ = send(t, o.election, http.MethodPost, strings.TrimSuffix(lease, "/livestash-operator"))
			o.pass(lasts - 1)
		}, false},
		"its Lease has expired": {func(t *testing.T, o *operator) {
			o.renew(t, http.StatusOK)
			o.pass(lasts)
		}, true},
		"the API server's URL has a path": {func(t *testing.T, o *operator) {
			_, _ = send(t, o.election, http.MethodPut, "/k8s/clusters/c-1"+lease)
			o.pass(lasts)
		}, true},
		"it was renewed": {func(t *testing.T, o *operator) {
			o.renew(t, http.StatusOK)
			o.pass(lasts)
			o.renew(t, http.StatusOK)
		}, false},
		"it was not renewed, because another one leads": {func(t *testing.T, o *operator) {
			o.renew(t, http.StatusOK)
			o.pass(lasts)
			o.renew(t, http.StatusConflict)
		}, true},
		"another one has renewed it, and the clock stood still": {func(t *testing.T, o *operator) {
			o.renew(t, http.StatusOK)
			o.renew(t, http.StatusConflict)
		}, true},
		"it was deleted": {func(t *testing.T, o *operator) {
			o.renew(t, http.StatusOK)
			o.renew(t, http.StatusNotFound)
		}, true},
		"an API server could not renew it": {func(t *testing.T, o *operator) {
			o.renew(t, http.StatusOK)
			o.renew(t, http.StatusInternalServerError)
		}, false},
		"another one came first": {func(t *testing.T, o *operator) {
			o.renew(t, http.StatusConflict)
		}, false},
		"nobody knows whether it was renewed": {func(t *testing.T, o *operator) {
			o.renew(t, http.StatusOK)
			o.pass(lasts)
			o.renew(t, 0)
		}, true},
		"it was looked at, and told of": {func(t *testing.T, o *operator) {
			o.renew(t, http.StatusOK)
			o.pass(lasts)
			_, _ = send(t, o.election, http.MethodGet, lease)
			_, _ = send(t, o.election, http.MethodPost, "/api/v1/namespaces/leases/events")
		}, true},
		// Others count from when they see it, which is not before it was sent.
		"the answer came late": {func(t *testing.T, o *operator) {
			o.takes = lasts
			o.renew(t, http.StatusOK)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOperator()
			c.before(t, o)
			o.came, o.answers = nil, http.StatusOK
			if err := o.Check(); errors.Is(err, ErrExpired) != c.held {
				t.Errorf("Check is %v", err)
			}
			for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
				sent, err := send(t, o.others, method, "/apis/apps/v1/namespaces/shop/statefulsets/shop")
				if errors.Is(err, ErrExpired) != c.held || err != nil && !c.held {
					t.Errorf("%s fails with %v", method, err)
				}
				if c.held && !sent.closed {
					t.Errorf("the body of a %s that is not sent is left open", method)
				}
			}
			if c.held == (len(o.came) > 0) {
				t.Errorf("what came to the API server is %v", o.came)
			}
			if _, err := send(t, o.others, http.MethodGet, "/apis/apps/v1/statefulsets"); err != nil {
				t.Errorf("reading fails with %v", err)
			}
			if _, err := send(t, o.others, http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews"); err != nil {
				t.Errorf("asking who somebody is fails with %v", err)
			}
		})
	}
}

func TestTheClockThatSaysMoreIsRight(t *testing.T) {
	f := Fence{Lasts: lasts}
	for _, c := range []struct {
		monotonic, wall time.Duration
		want            bool
	}{{lasts - 1, lasts - 1, false}, {lasts, 0, true}, {0, lasts, true}, {lasts, -time.Hour, true}, {0, -time.Hour, false}} {
		if got := f.over(c.monotonic, c.wall); got != c.want {
			t.Errorf("after %s and %s: %t", c.monotonic, c.wall, got)
		}
	}
}
