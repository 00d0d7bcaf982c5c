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
	// Lasts is how long a Lease lasts without being renewed: others wait that long before they lead.
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
	now := f.Clock.Now()
	// Not every clock goes on while the machine stands still: the one that says more is right.
	if max(now.Sub(*renewed), now.Round(0).Sub(renewed.Round(0))) >= f.Lasts {
		return ErrExpired
	}
	return nil
}

// Renewals is the transport of the client that renews the Lease.
func (f *Fence) Renewals(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		sent := f.Clock.Now()
		response, err := next.RoundTrip(request)
		if err == nil && request.Method != http.MethodGet && strings.Contains(request.URL.Path, "/leases") && response.StatusCode < http.StatusMultipleChoices {
			f.renewed.Store(&sent)
		}
		return response, err
	})
}

// Changes is the transport of everything else: what changes something fails with ErrExpired when another operator may lead.
func (f *Fence) Changes(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if request.Method == http.MethodGet {
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
