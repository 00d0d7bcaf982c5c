package loadtest

import (
	"fmt"
	"math"
	"slices"

	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
	"github.com/livestash-dev/livestash/operator/internal/plausible"
)

// The finest and coarsest scale that make sense: buckets that grow by 0.07 % and by a factor of 65,536.
const (
	finestScale   = 10
	coarsestScale = -4
)

// mostPower bounds the buckets' ends: from 2 to the minus this to 2 to this, in ms, which is a hundred million years.
const mostPower = 62

// gridStep is how far, as a share of all, a runner may count a duration above its true rank: it counts from quantiles that are
// a tenth of a percent apart. Source: loadtests/k6/lib/histogram.js, tested there and here against raw values.
const gridStep = 0.001

// Histogram are durations in ms, counted as loadtests/k6/lib/histogram.js does: exponential buckets as OpenTelemetry defines
// them. Bucket i of scale s holds what is in (b^i, b^(i+1)] with b = 2^(2^-s).
type Histogram struct {
	Count int64    `json:"count"`
	Sum   float64  `json:"sum"`
	Min   *float64 `json:"min"`
	Max   *float64 `json:"max"`
	Scale int      `json:"scale"`
	// Offset is the index of the first of Counts; a negative count -n stands for n empty buckets.
	Offset int     `json:"offset"`
	Counts []int64 `json:"counts"`
}

// check finds what no histogram can have.
func (h Histogram) check() error {
	if h.Scale > finestScale || h.Scale < coarsestScale {
		return fmt.Errorf("its scale is %d", h.Scale)
	}
	counted, err := h.counted()
	if err != nil {
		return err
	}
	if counted != h.Count {
		return fmt.Errorf("its buckets hold %d durations of %d", counted, h.Count)
	}
	if h.Count > 0 && (h.Min == nil || h.Max == nil) {
		return fmt.Errorf("it has %d durations and neither least nor greatest", h.Count)
	}
	return plausible.Named{"the least": ptr.Deref(h.Min, 0), "the greatest": ptr.Deref(h.Max, 0), "the sum": h.Sum}.Check()
}

// counted is how many durations are in the buckets. Those beyond any duration are refused: their ends are no numbers any more.
func (h Histogram) counted() (int64, error) {
	most := int64(math.Ceil(math.Exp2(float64(h.Scale)) * mostPower))
	index, counted := int64(h.Offset), int64(0)
	for _, count := range h.Counts {
		if index < -most || index > most || count > mostCounted {
			return 0, fmt.Errorf("its bucket %d holds %d", index, count)
		}
		if count < 0 {
			index -= count
			continue
		}
		index++
		counted += count
	}
	return counted, nil
}

// buckets are the counts by index.
func (h Histogram) buckets() map[int]int64 {
	buckets := make(map[int]int64, len(h.Counts))
	index := h.Offset
	for _, count := range h.Counts {
		if count < 0 {
			index -= int(count)
			continue
		}
		buckets[index] = count
		index++
	}
	return buckets
}

// merged adds up the histograms of several runners, in buckets as coarse as the coarsest of them.
func merged(parts []Histogram) report.Duration {
	scale := finestScale
	for _, part := range parts {
		scale = min(scale, part.Scale)
	}
	sum := report.Duration{Min: math.Inf(1)}
	runners := 0
	buckets := map[int]int64{}
	for _, part := range parts {
		if part.Count == 0 {
			continue
		}
		runners++
		// Each step down merges buckets 2i and 2i+1 into i, rounding down also below zero.
		for index, count := range part.buckets() {
			buckets[index>>(part.Scale-scale)] += count
		}
		sum.Count += part.Count
		sum.Min = min(sum.Min, *part.Min)
		sum.Max = max(sum.Max, *part.Max)
	}
	if sum.Count == 0 {
		return report.Duration{}
	}
	for level, into := range map[float64]*float64{0.5: &sum.P50, 0.95: &sum.P95, 0.99: &sum.P99} {
		*into = min(sum.Max, max(sum.Min, quantile(buckets, sum.Count, scale, level)))
	}
	base := growth(scale)
	sum.ErrorBound = (base - 1) / (base + 1)
	sum.RankBound = gridStep + float64(runners)/float64(sum.Count)
	sum.P99AtLeast = sum.Min
	if certain := certainRank(sum.Count, 0.99) - int64(math.Ceil(sum.RankBound*float64(sum.Count))); certain > 0 {
		sum.P99AtLeast = max(sum.Min, quantile(buckets, sum.Count, scale, float64(certain)/float64(sum.Count))/(1+sum.ErrorBound))
	}
	return sum
}

// confidence is that of "at least": at most one time in twenty it is said of a fleet that is faster. certaintyDeviations are the
// standard deviations that it takes, and mostExact up to how many values they are not needed.
const (
	confidence          = 0.95
	certaintyDeviations = 1.645
	mostExact           = 10000
)

// certainRank is the greatest rank whose value, of so many, is at most the quantile of everything that could have been measured, with
// that confidence: a share of 1-level of that is greater than the quantile, and by chance it may be more in a sample.
func certainRank(count int64, level float64) int64 {
	if count > mostExact {
		n := float64(count)
		return count - int64(math.Ceil(n*(1-level)+certaintyDeviations*math.Sqrt(n*level*(1-level)))) - 1
	}
	// The chance that exactly so many of the values are greater, and that at most so many are: those of the binomial distribution.
	greater := int64(0)
	exactly := math.Pow(level, float64(count))
	atMost := exactly
	for atMost < confidence && greater < count {
		exactly *= (1 - level) / level * float64(count-greater) / float64(greater+1)
		greater++
		atMost += exactly
	}
	return count - greater
}

// quantile is the middle, by the same relative distance to both ends, of the bucket that holds the duration of that rank.
func quantile(buckets map[int]int64, count int64, scale int, level float64) float64 {
	rank := max(1, int64(math.Ceil(level*float64(count))))
	indexes := make([]int, 0, len(buckets))
	for index := range buckets {
		indexes = append(indexes, index)
	}
	slices.Sort(indexes)
	below := int64(0)
	last := 0
	for _, last = range indexes {
		below += buckets[last]
		if below >= rank {
			break
		}
	}
	low := math.Pow(growth(scale), float64(last))
	high := math.Pow(growth(scale), float64(last+1))
	return 2 * low * high / (low + high)
}

// growth is b, from the lower end of a bucket to its upper one.
func growth(scale int) float64 {
	return math.Exp2(math.Exp2(-float64(scale)))
}
