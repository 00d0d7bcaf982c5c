// Package fencing keeps an operator that no longer leads from changing anything. One that stood still, with its machine or for want of a
// processor, goes on when it wakes with what it was about to do, and with a view of which some parts are old and others new. It learns only
// some time later that another one leads.
package fencing

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// ErrExpired is that the operator has not renewed its Lease for so long that another one may lead.
var ErrExpired = errors.New("nothing is changed: this operator's Lease has expired, and another one may lead")

// Fence knows for how long this operator may be sure that no other one leads. One that never led is not held back: what it does, it
// does beside the leader.
type Fence struct {
	// Lasts is for how long something may be changed after the Lease was renewed. Others wait until it has expired before they lead: some seconds less
	// than that leave time for the change to arrive.
	Lasts time.Duration

	// Clock tells the time.
	Clock clock.PassiveClock

	// renewed is when the last request was sent that has renewed the Lease.
	renewed atomic.Pointer[time.Time]
}

// Check is ErrExpired when another operator may lead.
func (f *Fence) Check() error {
	renewed := f.renewed.Load()
	if renewed == nil {
		return nil
	}
	if now := f.Clock.Now(); f.over(now.Sub(*renewed), now.Round(0).Sub(renewed.Round(0))) {
		return ErrExpired
	}
	return nil
}

// over is whether the time is, by the clock that only goes forward or by that of the wall. Not every clock goes on while the machine stands
// still: the one that says more is right.
func (f *Fence) over(monotonic, wall time.Duration) bool { return max(monotonic, wall) >= f.Lasts }

// Renewals is the transport of the client that renews the Lease. A Lease that somebody else has changed, or deleted, has expired, whatever a clock says:
// those of a virtual machine may both stand still with it.
func (f *Fence) Renewals(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		sent := f.Clock.Now()
		response, err := next.RoundTrip(request)
		if err != nil || request.Method == http.MethodGet || !strings.Contains(request.URL.Path, "/apis/coordination.k8s.io/") {
			return response, err
		}
		switch {
		case response.StatusCode < http.StatusMultipleChoices:
			f.renewed.Store(&sent)
		case response.StatusCode == http.StatusConflict || response.StatusCode == http.StatusNotFound:
			if f.renewed.Load() != nil {
				f.renewed.Store(&time.Time{})
			}
		}
		return response, nil
	})
}

// Changes is the transport of everything else: what changes something fails with ErrExpired when another operator may lead. Reviews change nothing: they
// ask who somebody is, and what they may do.
func (f *Fence) Changes(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if request.Method == http.MethodGet || strings.HasSuffix(request.URL.Path, "reviews") {
			return next.RoundTrip(request)
		}
		if err := f.Check(); err != nil {
			if request.Body != nil {
				err = errors.Join(err, request.Body.Close())
			}
			return nil, err
		}
		return next.RoundTrip(request)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
