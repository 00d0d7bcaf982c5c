package report

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"sync"
)

// Source and SourceURL name the published test.
const (
	Source    = "LiveStash Performance Tests (K. Nalepa, F. Węgrzyn, Software Mansion, 1 July 2026)"
	SourceURL = "https://swmansion.com/blog/live-stash-performance-tests/"
)

// The published test's values: figure, adapter, users, ttl (seconds), value, unit.
//
// Source: the test's charts as its authors keep them, the images below testing/observability/charts/output in branch
// 92-add-performance-tests (commit 9e0c958) of https://github.com/software-mansion-labs/live-stash. They are read off the images by colour and by
// the ticks of the axes, to about 1 % of the axis. What the article states itself is in printedTimes and publishedMachines.
// What cannot be read is not here: an axis whose rounded labels fit two scales, a line that others hide where its value
// would be, and what a pixel would change by more than 5 %.
//
//   - Times (first_render, stash, reconnect; p50, p95, p99) are the end of a line. The authors' histograms are
//     cumulative, so that is the quantile of the whole run.
//   - Everything else is the highest point of a line: of a mean over the two application machines for processes,
//     memoryBinary, memoryEts and cpu (a share of the machine, which has machineCores), and of the sum of both for bytes per second. Rates
//     are means over a minute.
//
//go:embed published.csv
var publishedCSV []byte

// machineCores are those of each of the two application machines (the article's table 1).
const machineCores = 4

// publishedMachines is the article's table 1, and printedTimes its table 3, which it gives for all adapters alike and for no row by name.
const (
	publishedMachines = "two machines with the application (4 cores, 8 GB each), one with Redis (4 cores, 8 GB), one with k6 and nginx (8 cores, 16 GB), " +
		"one with Prometheus and Grafana (2 cores, 4 GB)"
	printedTimes = "first render 3–4 / 4–5 / 5–7 ms, stash 3–4 / 4–5 / 5–8 ms, reconnect 3–4 / 4–5 / 5–7 ms (p50 / p95 / p99)"
)

// What the published test was, as far as figures depend on it. Its ramp by its TTL, in seconds: the article prints 11m25s for the
// last, and its script computes 11m15s.
const (
	publishedReplicas = 2
	publishedKeys     = 150
	payloadShown      = "Shown"
)

var publishedRamps = map[float64][]float64{60: {45}, 300: {225}, 900: {685, 675}}

// cell is what is compared: one figure for one adapter under one load.
type cell struct {
	figure, adapter string
	users, ttl      int
}

// quantity is a value with its unit.
type quantity struct {
	value float64
	unit  string
}

// publishedValues is read once. The file is part of the program: an error in it is one of the build, which a test finds.
var publishedValues = sync.OnceValue(func() map[cell]quantity {
	values, err := readPublished(publishedCSV)
	if err != nil {
		panic(err)
	}
	return values
})

func readPublished(text []byte) (map[cell]quantity, error) {
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("reading the published figures: %w", err)
	}
	values := make(map[cell]quantity, len(rows))
	for i, row := range rows[1:] {
		users, err := strconv.Atoi(row[2])
		if err != nil {
			return nil, fmt.Errorf("published figures, line %d: users: %w", i+2, err)
		}
		ttl, err := strconv.Atoi(row[3])
		if err != nil {
			return nil, fmt.Errorf("published figures, line %d: ttl: %w", i+2, err)
		}
		value, err := strconv.ParseFloat(row[4], 64)
		if err != nil {
			return nil, fmt.Errorf("published figures, line %d: value: %w", i+2, err)
		}
		key := cell{row[0], row[1], users, ttl}
		if _, ok := values[key]; ok {
			return nil, fmt.Errorf("published figures, line %d: %v stands there twice", i+2, key)
		}
		values[key] = quantity{value, row[5]}
		if row[5] == "share" {
			values[key] = quantity{value * machineCores, "cores"}
		}
	}
	return values, nil
}

// published is the published value of a figure for a run that is as the published one was: else two numbers side by side would say
// nothing. A run that was scaled down has none.
func published(figure string, spec Spec, run Run) (quantity, bool) {
	q, ok := publishedValues()[cell{figure, run.Adapter, run.Users, int(run.TTLSeconds)}]
	same := spec.Scenario == "Visits" && spec.PayloadKeys == publishedKeys && spec.PayloadOnPage == payloadShown &&
		run.Replicas == publishedReplicas && run.DurationSeconds == 3*run.TTLSeconds && slices.Contains(publishedRamps[run.TTLSeconds], run.RampSeconds)
	return q, ok && same
}
