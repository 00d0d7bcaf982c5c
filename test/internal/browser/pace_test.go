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

func TestTimes(t *testing.T) {
	if TimesOf(nil) != nil {
		t.Error("no time at all has quantiles")
	}
	var times []time.Duration
	for i := 200; i > 0; i-- {
		times = append(times, time.Duration(i)*time.Millisecond)
	}
	if got, want := *TimesOf(times), (Times{Count: 200, P50: 100, P99: 198, Max: 200}); got != want {
		t.Errorf("the quantiles are %+v, want %+v", got, want)
	}
}
