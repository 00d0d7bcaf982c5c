package dashboards

import (
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// scale is one of the sizes that values of a unit are written in.
type scale struct {
	size   float64
	suffix string
}

// units are those of Grafana that the dashboards use, with its sizes from small to large.
var units = map[string][]scale{
	"short":       thousands("", "K", "Mil", "Bil", "Tri"),
	"percentunit": {{0.01, "%"}},
	"bytes":       {{1, " B"}, {1 << 10, " KiB"}, {1 << 20, " MiB"}, {1 << 30, " GiB"}, {1 << 40, " TiB"}},
	"Bps":         thousands("B/s", "kB/s", "MB/s", "GB/s", "TB/s"),
	"s":           {{1e-9, " ns"}, {1e-6, " µs"}, {1e-3, " ms"}, {1, " s"}, {60, " min"}, {3600, " h"}, {86400, " d"}},
	"ops":         thousands("ops/s", "K ops/s", "M ops/s", "B ops/s", "T ops/s"),
	"cps":         thousands("c/s", "K c/s", "M c/s", "B c/s", "T c/s"),
	"reqps":       thousands("req/s", "K req/s", "M req/s", "B req/s", "T req/s"),
}

// Units are the names of the units that can be drawn.
func Units() []string { return slices.Sorted(maps.Keys(units)) }

func thousands(names ...string) []scale {
	var scales []scale
	for i, name := range names {
		scales = append(scales, scale{math.Pow(1000, float64(i)), strings.TrimSuffix(" "+name, " ")})
	}
	return scales
}

// scaleOf is the size in which a value is short. Zero is written in the unit itself.
func scaleOf(value float64, unit string) scale {
	if value == 0 {
		value = 1
	}
	scales := units[unit]
	found := scales[0]
	for _, s := range scales {
		if math.Abs(value) >= s.size*0.99995 {
			found = s
		}
	}
	return found
}

// format writes a value with four significant digits, or with the decimals that a panel wants.
func format(value float64, unit string, decimals *int) string {
	s := scaleOf(value, unit)
	value /= s.size
	if decimals != nil {
		return strconv.FormatFloat(value, 'f', *decimals, 64) + s.suffix
	}
	digits := 3
	if value != 0 {
		digits = min(max(3-int(math.Floor(math.Log10(math.Abs(value)))), 0), 4)
	}
	return trimmed(value, digits) + s.suffix
}

func trimmed(value float64, decimals int) string {
	text := strconv.FormatFloat(value, 'f', decimals, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// tick is a place on an axis.
type tick struct {
	at   float64
	text string
}

// valueTicks are round values around lowest and highest, all in the same size, so that a reader compares numbers.
func valueTicks(lowest, highest float64, unit string, whole bool) []tick {
	s := scaleOf(max(math.Abs(lowest), math.Abs(highest)), unit)
	step := niceStep((highest-lowest)/s.size, 5)
	if whole && s.size == 1 {
		step = max(1, step)
	}
	decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	var ticks []tick
	first, last := math.Floor(lowest/s.size/step+1e-9), math.Ceil(highest/s.size/step-1e-9)
	for i := first; i <= max(last, first+1); i++ {
		text := strconv.FormatFloat(i*step, 'f', decimals, 64) + s.suffix
		if i == 0 {
			text = format(0, unit, nil)
		}
		ticks = append(ticks, tick{i * step * s.size, text})
	}
	return ticks
}

// niceStep is 1, 2 or 5 times a power of ten, so that at most n steps are in a length.
func niceStep(length float64, n int) float64 {
	if length <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(length/float64(n))))
	for _, m := range []float64{1, 2, 5} {
		if m*power*float64(n) >= length {
			return m * power
		}
	}
	return 10 * power
}

// timeTicks are moments that people count in, in UTC, at most n.
func timeTicks(from, to time.Time, n int) []tick {
	step := 24 * time.Hour
	for _, seconds := range []int{5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800} {
		if d := time.Duration(seconds) * time.Second; to.Sub(from)/d < time.Duration(n) {
			step = d
			break
		}
	}
	layout := "15:04"
	switch {
	case step < time.Minute:
		layout = "15:04:05"
	case step == 24*time.Hour:
		layout = "2 Jan"
	}
	var ticks []tick
	for t := from.Add(step - 1).Truncate(step); !t.After(to); t = t.Add(step) {
		ticks = append(ticks, tick{float64(t.Unix()), t.UTC().Format(layout)})
	}
	return ticks
}

// colors are the names of Grafana's colours that the dashboards use, dark enough for words on white.
var colors = map[string]string{
	"text": "#1b1d21", "green": "#1a7f45", "yellow": "#a66a00", "orange": "#d9660a", "red": "#c2281d", "semi-dark-blue": "#3274d9",
}

var hex = regexp.MustCompile(`^#[0-9a-f]{6}$`)

// color is a colour by Grafana's name of it, or as #rrggbb. One that is not known is empty.
func color(name string) string {
	if hex.MatchString(name) {
		return name
	}
	return colors[name]
}
