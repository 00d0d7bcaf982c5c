package report

import (
	"math"
	"math/rand/v2"
	"slices"
)

// fewestRounds is the number of runs of one adapter and load from which on an interval of their mean can be told. Below, it is too narrow as
// often as not.
const fewestRounds = 5

// resamples are how often a mean is taken anew.
const resamples = 2000

// interval holds the mean that runs like these have, 95 times out of 100: the bootstrap over runs. The same values give the same interval.
type interval struct{ low, high float64 }

func intervalOf(values []float64) (of interval, known bool) {
	if len(values) < fewestRounds {
		return interval{}, false
	}
	random := rand.New(rand.NewPCG(uint64(len(values)), resamples)) //nolint:gosec // chance that must be the same each time
	means := make([]float64, resamples)
	for i := range means {
		sum := 0.0
		for range values {
			sum += values[random.IntN(len(values))]
		}
		means[i] = sum / float64(len(values))
	}
	slices.Sort(means)
	// Of few values a resample varies less than new runs would, by this factor.
	middle, wider := mean(values), math.Sqrt(float64(len(values))/float64(len(values)-1))
	return interval{middle + wider*(means[resamples*25/1000]-middle), middle + wider*(means[resamples*975/1000]-middle)}, true
}

// verdictOn is whether two series of runs differ.
type verdictOn int

const (
	// tooFew says that there are too few runs to tell.
	tooFew verdictOn = iota
	// alike says that the intervals of their means overlap.
	alike
	// different says that they do not.
	different
)

// compareRuns tells whether what was measured in two series of runs differs.
func compareRuns(one, other []float64) verdictOn {
	a, known := intervalOf(one)
	b, too := intervalOf(other)
	switch {
	case !known || !too:
		return tooFew
	case a.high < b.low || b.high < a.low:
		return different
	}
	return alike
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, value := range values {
		sum += value
	}
	return sum / float64(max(1, len(values)))
}
