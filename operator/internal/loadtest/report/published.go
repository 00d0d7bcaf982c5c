package report

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"fmt"
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
// 92-add-performance-tests (commit 9e0c958) of https://github.com/software-mansion-labs/live-stash. The authors state
// none of these numbers: they are read off the images by colour and by the ticks of the axes, to about 1 % of the axis.
// What cannot be read is not here: an axis whose rounded labels fit two scales, a line that others hide where its value
// would be, and what a pixel would change by more than 5 %.
//
//   - Times (first_render, stash, reconnect; p50, p95, p99) are the end of a line. The authors' histograms are
//     cumulative, so that is the quantile of the whole run.
//   - Everything else is the highest point of a line: of a mean over the two application machines for processes,
//     memoryBinary, memoryEts and cpu (a share of the machine), and of the sum of both for bytes per second.
//
//go:embed published.csv
var publishedCSV []byte

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
	}
	return values, nil
}

// published is the published value of a figure for the load and adapter of a run. A run that was scaled down has none.
func published(figure string, run Run) (quantity, bool) {
	q, ok := publishedValues()[cell{figure, run.Adapter, run.Users, int(run.TTLSeconds)}]
	return q, ok && run.TTLSeconds == float64(int(run.TTLSeconds))
}
