package report

import (
	"math/rand/v2"
	"testing"
)

// A server that is 5 % slower is told in 95 of 100 comparisons, and one that is not is told to differ in 5 of 100 at most, with five
// rounds or more of runs whose figures vary by 1.5 % from one to the next, as the figures of a quiet machine do.
func TestCompareRuns(t *testing.T) {
	const comparisons, spread = 500, 0.015
	random := rand.New(rand.NewPCG(17, 5))
	runs := func(rounds int, of float64) []float64 {
		values := make([]float64, rounds)
		for i := range values {
			values[i] = of * (1 + spread*random.NormFloat64())
		}
		return values
	}
	for _, rounds := range []int{fewestRounds, 8, 20} {
		told, alarms := 0, 0
		for range comparisons {
			if compareRuns(runs(rounds, 100), runs(rounds, 105)) == different {
				told++
			}
			if compareRuns(runs(rounds, 100), runs(rounds, 100)) != alike {
				alarms++
			}
		}
		t.Logf("%d rounds: told %.1f %%, false alarms %.1f %%", rounds, 100*float64(told)/comparisons, 100*float64(alarms)/comparisons)
		if told < comparisons*95/100 || alarms > comparisons*5/100 {
			t.Errorf("%d rounds: of %d comparisons each, a difference of 5 %% is told in %d, and none in %d", rounds, comparisons, told, alarms)
		}
	}
	if compareRuns(runs(fewestRounds-1, 100), runs(fewestRounds, 200)) != tooFew {
		t.Error("four runs have an interval")
	}
	first, _ := intervalOf([]float64{1, 2, 3, 4, 5})
	again, _ := intervalOf([]float64{1, 2, 3, 4, 5})
	if first != again || first.low <= 1 || first.high >= 5 || first.low >= 2.5 || mean([]float64{1, 2, 6}) != 3 {
		t.Errorf("an interval of %v, and then of %v", first, again)
	}
}
