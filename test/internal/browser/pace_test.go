package browser

import (
	"slices"
	"testing"
	"time"
)

func TestReconnectSchedule(t *testing.T) {
	var waits []time.Duration
	for attempt := 1; attempt <= 12; attempt++ {
		waits = append(waits, Usual().Wait(attempt)/time.Millisecond)
	}
	if want := []time.Duration{10, 50, 100, 150, 200, 250, 500, 1000, 2000, 5000, 5000, 5000}; !slices.Equal(waits, want) {
		t.Errorf("the waits are %v, want %v", waits, want)
	}
}
