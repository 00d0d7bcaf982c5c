package loadtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

// measured is the histogram that a runner reports of these durations: counted from quantiles, as loadtests/k6/lib/histogram.js
// has to.
func measured(values []float64, scale int) Histogram {
	if len(values) == 0 {
		return Histogram{Scale: scale}
	}
	values = slices.Clone(values)
	slices.Sort(values)
	count := len(values)
	// k6 interpolates between the two nearest ranks.
	at := func(level float64) float64 {
		place := level / 100 * float64(count-1)
		low := int(place)
		high := min(low+1, count-1)
		return values[low] + (values[high]-values[low])*(place-float64(low))
	}
	buckets := map[int]int64{bucketOf(values[0], scale): 1}
	counted := 1
	countTo := func(rank int, value float64) {
		if rank > counted {
			buckets[bucketOf(value, scale)] += int64(rank - counted)
			counted = rank
		}
	}
	for _, level := range levels() {
		countTo(int(math.Floor(level/100*float64(count-1)+1e-9))+1, at(level))
	}
	countTo(count, values[count-1])
	return pack(Histogram{Count: int64(count), Min: &values[0], Max: &values[count-1], Scale: scale}, buckets)
}

func levels() []float64 {
	var all []float64
	for tenths := 1; tenths < 990; tenths++ {
		all = append(all, float64(tenths)/10)
	}
	for hundredths := 9900; hundredths < 10000; hundredths++ {
		all = append(all, float64(hundredths)/100)
	}
	return all
}

func bucketOf(value float64, scale int) int {
	return int(math.Ceil(math.Log2(max(value, 0.001))*math.Exp2(float64(scale)))) - 1
}

func pack(h Histogram, buckets map[int]int64) Histogram {
	first, last := math.MaxInt, math.MinInt
	for index := range buckets {
		first, last = min(first, index), max(last, index)
	}
	h.Offset = first
	empty := int64(0)
	for index := first; index <= last; index++ {
		if buckets[index] == 0 {
			empty--
			continue
		}
		if empty < 0 {
			h.Counts = append(h.Counts, empty)
			empty = 0
		}
		h.Counts = append(h.Counts, buckets[index])
	}
	return h
}

// distributions are shapes that round trips have, and some that are hard: two humps, a long tail, one value.
var distributions = map[string]func(r *rand.Rand) float64{
	"even":       func(r *rand.Rand) float64 { return 1 + 99*r.Float64() },
	"bell":       func(r *rand.Rand) float64 { return math.Abs(20 + 5*r.NormFloat64()) },
	"long tail":  func(r *rand.Rand) float64 { return math.Exp(3 + 1.5*r.NormFloat64()) },
	"two humps":  func(r *rand.Rand) float64 { return 2 + r.Float64() + 3000*float64(r.IntN(2)) },
	"rare stall": func(r *rand.Rand) float64 { return 3 + r.Float64() + 10000*math.Floor(r.Float64()+0.02) },
	"one value":  func(*rand.Rand) float64 { return 7.25 },
	"below 1 ms": func(r *rand.Rand) float64 { return 0.01 + 0.5*r.Float64() },
}

// TestMergedQuantiles compares what is merged from the runners' histograms with the raw durations of all of them, and holds it
// to the bound that the report states: between (1-e) Q(p) and (1+e) Q(p+d).
func TestMergedQuantiles(t *testing.T) {
	for name, draw := range distributions {
		for _, sizes := range [][]int{{1}, {5}, {20000}, {3000, 3000}, {10000, 500, 40}, {2500, 2500, 2500, 2500, 2500, 2500, 2500, 2500}} {
			for _, scales := range [][]int{{5}, {5, 4, 3}} {
				t.Run(fmt.Sprint(name, sizes, scales), func(t *testing.T) {
					r := rand.New(rand.NewPCG(1, uint64(len(sizes))))
					var pool []float64
					var parts []Histogram
					for i, size := range sizes {
						// Runners may differ: every second one is slower by half.
						values := make([]float64, size)
						for j := range values {
							values[j] = draw(r) * (1 + 0.5*float64(i%2))
						}
						pool = append(pool, values...)
						parts = append(parts, measured(values, scales[i%len(scales)]))
					}
					slices.Sort(pool)
					got := merged(parts)
					if got.Count != int64(len(pool)) || got.Min != pool[0] || got.Max != pool[len(pool)-1] {
						t.Errorf("count, min, max = %d, %v, %v; want %d, %v, %v", got.Count, got.Min, got.Max, len(pool), pool[0], pool[len(pool)-1])
					}
					for level, quantile := range map[float64]float64{0.5: got.P50, 0.95: got.P95, 0.99: got.P99} {
						low := raw(pool, level) * (1 - got.ErrorBound)
						high := raw(pool, level+got.RankBound) * (1 + got.ErrorBound)
						if quantile < low-1e-9 || quantile > high+1e-9 {
							t.Errorf("p%g = %v, want it between %v and %v", 100*level, quantile, low, high)
						}
					}
				})
			}
		}
	}
}

// raw is the quantile of sorted durations, by nearest rank.
func raw(sorted []float64, level float64) float64 {
	rank := int(math.Ceil(min(level, 1)*float64(len(sorted)) - 1e-9))
	return sorted[max(rank, 1)-1]
}

// TestErrorBounds: those that loadtests/k6/README.md states.
func TestErrorBounds(t *testing.T) {
	for scale, want := range map[int]float64{5: 0.0108, 4: 0.0217, 3: 0.0433} {
		if got := merged([]Histogram{measured([]float64{3, 4, 5}, scale)}).ErrorBound; math.Abs(got-want) > 0.0001 {
			t.Errorf("scale %d: %v, want %v", scale, got, want)
		}
	}
}

func TestMergedIsAsCoarseAsItsCoarsestPart(t *testing.T) {
	// Buckets -3 and -4 of scale 1 are bucket -2 of scale 0, which is (0.25, 0.5].
	fine := pack(Histogram{Count: 3, Min: new(0.26), Max: new(0.49), Scale: 1}, map[int]int64{-4: 1, -3: 2})
	coarse := pack(Histogram{Count: 1, Min: new(0.3), Max: new(0.3), Scale: 0}, map[int]int64{-2: 1})
	got := merged([]Histogram{fine, coarse, {Scale: 5}})
	middle := 2 * 0.25 * 0.5 / 0.75
	want := report.Duration{Count: 4, Min: 0.26, Max: 0.49, P50: middle, P95: middle, P99: middle, P99AtLeast: 0.26, ErrorBound: 1.0 / 3, RankBound: 0.001 + 2.0/4}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(report.Duration{}, merged([]Histogram{{Scale: 5}})); diff != "" {
		t.Errorf("of nothing (-want +got):\n%s", diff)
	}
}

// At scale 0 a bucket's index is the power of two at its lower end, and 62 is the last that is believed.
func TestUnsoundHistograms(t *testing.T) {
	for name, histogram := range map[string]Histogram{
		"a count that is not in the buckets": {Count: 3, Min: new(1.0), Max: new(2.0), Scale: 5, Counts: []int64{1, -7, 1}},
		"no least":                           {Count: 1, Max: new(2.0), Scale: 5, Counts: []int64{1}},
		"no greatest":                        {Count: 1, Min: new(1.0), Scale: 5, Counts: []int64{1}},
		"too fine a scale":                   {Count: 1, Min: new(1.0), Max: new(2.0), Scale: 11, Counts: []int64{1}},
		"too coarse a scale":                 {Count: 1, Min: new(1.0), Max: new(2.0), Scale: -5, Counts: []int64{1}},
		"a bucket below all":                 {Count: 1, Min: new(1.0), Max: new(2.0), Offset: -63, Counts: []int64{1}},
		"a bucket above all":                 {Count: 1, Min: new(1.0), Max: new(2.0), Offset: 63, Counts: []int64{1}},
		"a bucket above all, after a gap":    {Count: 2, Min: new(1.0), Max: new(2.0), Counts: []int64{1, -62, 1}},
		"a gap beyond numbers":               {Count: 2, Min: new(1.0), Max: new(2.0), Counts: []int64{1, math.MinInt64, 1}},
		"counts that add up past numbers":    {Count: 1, Min: new(1.0), Max: new(2.0), Counts: []int64{1 << 62, 1 << 62, 1 << 62, 1 << 62, 1}},
	} {
		if histogram.check() == nil {
			t.Errorf("%s: it was accepted", name)
		}
	}
	for name, histogram := range map[string]Histogram{
		"the finest scale":       {Count: 1, Min: new(1.0), Max: new(2.0), Scale: 10, Counts: []int64{1}},
		"the coarsest scale":     {Count: 1, Min: new(1.0), Max: new(2.0), Scale: -4, Counts: []int64{1}},
		"the first and the last": {Count: 2, Min: new(1.0), Max: new(2.0), Offset: -62, Counts: []int64{1, -123, 1}},
	} {
		if err := histogram.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := merged([]Histogram{histogram}); math.IsNaN(got.P99) || math.IsInf(got.P99, 0) {
			t.Errorf("%s: p99 is %v", name, got.P99)
		}
	}
}

// "At least" is what is certain: of fleets that are all the same, at most one in twenty is told to be slower than it is, and with many
// durations little of the p99 is given away.
func TestP99AtLeast(t *testing.T) {
	const truth = 460.517 // of an exponential distribution with a mean of 100
	for _, count := range []int{1, 2, 10, 50, 300, 3000, 20000} {
		r := rand.New(rand.NewPCG(17, uint64(count)))
		trials, wrong, sum := max(10, 40000/count), 0, 0.0
		for range trials {
			values := make([]float64, count)
			for i := range values {
				values[i] = r.ExpFloat64() * 100
			}
			got := merged([]Histogram{measured(values, 5)})
			if got.P99AtLeast > truth {
				wrong++
			}
			if got.P99AtLeast > got.P99 || got.P99AtLeast < got.Min {
				t.Fatalf("%d durations: p99 %g, at least %g, least of all %g", count, got.P99, got.P99AtLeast, got.Min)
			}
			sum += got.P99AtLeast / float64(trials)
		}
		if float64(wrong) > 0.06*float64(trials)+1 {
			t.Errorf("%d durations: in %d of %d trials the p99 is said to be more than it is", count, wrong, trials)
		}
		if count >= 3000 && sum < 0.8*truth {
			t.Errorf("%d durations: %g of %g are certain", count, sum, truth)
		}
	}
	for count, want := range map[int64]int64{1: 1, 2: 2, 50: 48, 100: 97, 10000: 9883, 10001: 9883, 1e12: 1e12 - 1e10 - 163671 - 1} {
		if got := certainRank(count, 0.99); got < want-10 || got > want+10 || count < 1000 && got != want {
			t.Errorf("of %d durations rank %d is certain, want %d", count, got, want)
		}
	}
}
