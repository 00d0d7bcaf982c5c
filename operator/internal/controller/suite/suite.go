// Package suite is what the tests of the controllers share, which run against a real API server.
package suite

import (
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Clock is ahead of the machine's clock by what a test stores in Ahead, in nanoseconds.
type Clock struct {
	Ahead   atomic.Int64
	stopped atomic.Pointer[time.Time]
}

// Now is the time that the operator believes.
func (c *Clock) Now() time.Time {
	now := time.Now()
	if stopped := c.stopped.Load(); stopped != nil {
		now = *stopped
	}
	return now.Add(time.Duration(c.Ahead.Load()))
}

// Stop stops the clock until resume is called.
func (c *Clock) Stop() (resume func()) {
	now := time.Now()
	c.stopped.Store(&now)
	return func() { c.stopped.Store(nil) }
}

// Since is how long ago t was, as the operator believes.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Namespace makes a namespace for one test.
func Namespace(t *testing.T, api client.Client) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	Must(t, api.Create(t.Context(), namespace))
	return namespace.Name
}

// Must ends a test that cannot go on.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Eventually waits until check has nothing to say, at most a minute: what a status says is written after 15 seconds at times.
func Eventually(t *testing.T, check func() error) {
	t.Helper()
	EventuallyWithin(t, time.Minute, check)
}

// EventuallyWithin waits until check has nothing to say, for what takes longer.
func EventuallyWithin(t *testing.T, limit time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
