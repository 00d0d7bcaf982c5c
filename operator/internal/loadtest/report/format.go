package report

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// scaled writes a number with three significant digits and the unit that keeps it short: 1,000 of one are 1 of the next.
func scaled(value float64, units ...string) string {
	i := 0
	for i < len(units)-1 && math.Abs(value) >= 999.5 {
		value /= 1000
		i++
	}
	return strings.TrimSuffix(significant(value)+" "+units[i], " ")
}

// significant writes three significant digits, and never an exponent.
func significant(value float64) string {
	size := math.Abs(value)
	switch {
	case size >= 99.95 || value == 0:
		return grouped(int64(math.Round(value)))
	case size >= 9.995:
		return trimmed(value, 1)
	case size >= 0.9995:
		return trimmed(value, 2)
	default:
		return trimmed(value, 3)
	}
}

func trimmed(value float64, decimals int) string {
	text := strconv.FormatFloat(value, 'f', decimals, 64)
	text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	if text == "-0" {
		return "0"
	}
	return text
}

// grouped writes thousands with commas.
func grouped(value int64) string {
	digits := strconv.FormatInt(value, 10)
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// inUnit writes a value in the unit of a Series, or in one that only the published figures have.
func inUnit(value float64, unit string) string {
	switch unit {
	case "bytes":
		return scaled(value, "B", "kB", "MB", "GB", "TB")
	case "bytes/s":
		return scaled(value, "B/s", "kB/s", "MB/s", "GB/s")
	case "cores":
		return significant(value) + " cores"
	case "ms":
		return significant(value) + " ms"
	case "share":
		return significant(100*value) + " %"
	default:
		return significant(value)
	}
}

// span writes a length of time as people say it: 90 s, 5 min, 1 h 30 min.
func span(seconds float64) string {
	if seconds < 120 && math.Mod(seconds, 60) != 0 || seconds < 60 {
		return significant(seconds) + " s"
	}
	var parts []string
	rest := int64(math.Round(seconds))
	for _, unit := range []struct {
		seconds int64
		name    string
	}{{3600, " h"}, {60, " min"}, {1, " s"}} {
		if n := rest / unit.seconds; n > 0 {
			parts = append(parts, strconv.FormatInt(n, 10)+unit.name)
		}
		rest %= unit.seconds
	}
	return strings.Join(parts, " ")
}

func shareOf(part, whole int64) string {
	if whole == 0 {
		return "–"
	}
	percent := 100 * float64(part) / float64(whole)
	// What is not all must not look like all.
	if part < whole {
		percent = min(percent, 99.99)
	}
	return trimmed(percent, 2) + " %"
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2 January 2006, 15:04 UTC")
}

func listed(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// decapitalized is a title in the middle of a sentence: memory, and CPU as it is.
func decapitalized(title string) string {
	if strings.ToUpper(title) == title {
		return title
	}
	return strings.ToLower(title[:1]) + title[1:]
}
