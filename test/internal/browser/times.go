package browser

import (
	"slices"
	"time"
)

// Times are quantiles of the time to be back, in milliseconds.
type Times struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50Ms"`
	P99   float64 `json:"p99Ms"`
	Max   float64 `json:"maxMs"`
}

// TimesOf sorts the times. It is nil when there are none.
func TimesOf(times []time.Duration) *Times {
	if len(times) == 0 {
		return nil
	}
	slices.Sort(times)
	// The nearest rank: a time that a session really had.
	at := func(percent int) float64 {
		rank := (len(times)*percent + 99) / 100
		return float64(times[rank-1].Microseconds()) / 1000
	}
	return &Times{Count: len(times), P50: at(50), P99: at(99), Max: at(100)}
}
