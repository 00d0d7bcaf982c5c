package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
)

// The keys of a report's ConfigMap, which are also the names of its files.
const (
	FileJSON     = "report.json"
	FileMarkdown = "report.md"
	FileHTML     = "report.html"
)

// MaxBytes is what all files of a report may take together. A ConfigMap holds 1 MiB, its metadata included.
const MaxBytes = 960 << 10

// The precision of points, and of quantiles and means, in the JSON: more than a pixel shows and less than sixteen digits take.
const (
	pointDigits    = 3
	quantileDigits = 4
)

// thinnedNote begins the sentence that says that points were left out.
const thinnedNote = "To fit, the report keeps"

// ErrTooLarge says that a report does not fit, even without its points.
var ErrTooLarge = errors.New("the report is too large")

// Files renders a report as the files of its ConfigMap. When they take more than limit bytes, each series loses half of its
// points until they fit, and the report says so. It fails with ErrTooLarge when nothing is left to leave out.
func Files(r Report, limit int) (map[string]string, error) {
	for kept := MaxPoints; ; kept /= 2 {
		thin := thinned(r, kept)
		files, size, err := render(thin)
		if err != nil {
			return nil, err
		}
		if size <= limit {
			return files, nil
		}
		if kept == 0 {
			return nil, fmt.Errorf("%w: %d bytes without points, and %d are allowed", ErrTooLarge, size, limit)
		}
	}
}

func render(r Report) (map[string]string, int, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, 0, fmt.Errorf("writing the report as JSON: %w", err)
	}
	files := map[string]string{FileJSON: string(text), FileMarkdown: string(Markdown(r)), FileHTML: string(HTML(r))}
	size := 0
	for _, file := range files {
		size += len(file)
	}
	return files, size, nil
}

// thinned is a copy with at most n points in each series, rounded. It says so when n is below what a report should have.
func thinned(r Report, n int) Report {
	r.Runs = slices.Clone(r.Runs)
	for i, run := range r.Runs {
		r.Runs[i].Durations = roundedAll(run.Durations)
		if run.Samples == nil {
			continue
		}
		samples := make(map[string]Series, len(run.Samples))
		for name, series := range run.Samples {
			series.Points = Thin(series.Points, n)
			for j, p := range series.Points {
				series.Points[j] = [2]float64{roundedTime(p[0]), rounded(p[1], pointDigits)}
			}
			if mean := series.PeakMinute; mean != nil {
				series.PeakMinute = ptr.To(rounded(*mean, quantileDigits))
			}
			samples[name] = series
		}
		r.Runs[i].Samples = samples
	}
	if n < MaxPoints {
		// The note of an earlier time, when this report is one that was read back.
		message, _, _ := strings.Cut(r.Message, thinnedNote)
		r.Message = strings.TrimSpace(fmt.Sprintf("%s %s %d points of each chart's line in place of %d.", strings.TrimSpace(message), thinnedNote, n, MaxPoints))
	}
	return r
}

// Thin returns a copy of points in which at most n are left: the highest of each stretch of equal length, and always the
// last, so that peaks stay where they were.
func Thin(points [][2]float64, n int) [][2]float64 {
	if len(points) <= n {
		return slices.Clone(points)
	}
	if n == 0 {
		return [][2]float64{}
	}
	kept := make([][2]float64, 0, n)
	rest := points[:len(points)-1]
	for i := range n - 1 {
		stretch := rest[i*len(rest)/(n-1) : (i+1)*len(rest)/(n-1)]
		highest := stretch[0]
		for _, p := range stretch {
			if p[1] > highest[1] {
				highest = p
			}
		}
		kept = append(kept, highest)
	}
	return append(kept, points[len(points)-1])
}

// roundedAll is a copy with quantiles and bounds rounded: what they are known to be is less than that.
func roundedAll(durations map[string]Duration) map[string]Duration {
	if durations == nil {
		return nil
	}
	all := make(map[string]Duration, len(durations))
	for name, d := range durations {
		for _, figure := range []*float64{&d.P50, &d.P95, &d.P99, &d.P99AtLeast, &d.ErrorBound, &d.RankBound} {
			*figure = rounded(*figure, quantileDigits)
		}
		all[name] = d
	}
	return all
}

// roundedTime is a point's time to a tenth of a second, from 100 s on to a second.
func roundedTime(seconds float64) float64 {
	if seconds >= 100 {
		return math.Round(seconds)
	}
	return math.Round(seconds*10) / 10
}

// rounded keeps so many significant digits.
func rounded(v float64, digits int) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return 0
	}
	power := digits - 1 - int(math.Floor(math.Log10(math.Abs(v))))
	if power < 0 {
		unit := math.Pow10(-power)
		return math.Round(v/unit) * unit
	}
	unit := math.Pow10(power)
	return math.Round(v*unit) / unit
}
