package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"text/tabwriter"

	"github.com/livestash-dev/livestash/test/overhead/vm"
)

const (
	// maxCPU is the percentage of a core that the agent may use.
	maxCPU = 1
	// maxMemory is what the agent may use, in MiB.
	maxMemory = 3
)

// summary is the medians over all rounds. All figures are of one virtual machine: CPU in percent of a core, memory in MiB.
type summary struct {
	Rounds int `json:"rounds"`
	// IdleCPU is without users.
	IdleCPU pair `json:"idle_cpu_pct"`
	// CycleCPU is milliseconds for a cycle of the load test, and CycleRatio with the agent by without.
	CycleCPU   pair   `json:"cycle_cpu_ms"`
	CycleRatio spread `json:"cycle_cpu_ratio"`
	LoadCPU    pair   `json:"load_cpu_pct"`
	// CycleReductions are thousands of reductions for a cycle, which do not depend on what else the machine does.
	CycleReductions      pair   `json:"cycle_kreductions"`
	CycleReductionsRatio spread `json:"cycle_reductions_ratio"`
	// AgentReductions is the percentage of the reductions under load that the agent's processes took.
	AgentReductions float64 `json:"agent_reductions_pct"`
	IdleMemory      pair    `json:"idle_memory_mib"`
	LoadMemory      pair    `json:"after_load_memory_mib"`
	// Resident is the process's, before the load test.
	Resident pair `json:"resident_mib"`
	// ProbeCPU and ProbeMemory are of the program beside the application.
	ProbeCPU    float64 `json:"probe_cpu_pct"`
	ProbeMemory float64 `json:"probe_resident_mib"`
}

// pair are the medians without the agent, with it, and of the differences within the rounds.
type pair struct {
	Without    float64 `json:"without"`
	With       float64 `json:"with"`
	Difference spread  `json:"difference"`
}

// spread is a median with the quartiles.
type spread struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

func newSpread(values []float64) spread {
	return spread{Median: quantile(values, 0.5), Low: quantile(values, 0.25), High: quantile(values, 0.75)}
}

// quantile interpolates between the two values that are nearest, to three decimals.
func quantile(values []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	place := q * float64(len(sorted)-1)
	below := int(place)
	above := min(below+1, len(sorted)-1)
	return math.Round(1000*(sorted[below]+(place-float64(below))*(sorted[above]-sorted[below]))) / 1000
}

func summarize(rounds []round) summary {
	compare := func(figure func(figures) float64) pair {
		return pair{
			Without:    quantile(each(rounds, func(r round) float64 { return figure(r.without) }), 0.5),
			With:       quantile(each(rounds, func(r round) float64 { return figure(r.with) }), 0.5),
			Difference: newSpread(each(rounds, func(r round) float64 { return figure(r.with) - figure(r.without) })),
		}
	}
	ratio := func(figure func(figures) float64) spread {
		return newSpread(each(rounds, func(r round) float64 { return figure(r.with) / figure(r.without) }))
	}
	agents := func(figure func(figures) float64) float64 {
		return quantile(each(rounds, func(r round) float64 { return figure(r.with) }), 0.5)
	}
	return summary{
		Rounds:               len(rounds),
		IdleCPU:              compare(figures.idleCPU),
		CycleCPU:             compare(figures.cycleCPU),
		CycleRatio:           ratio(figures.cycleCPU),
		LoadCPU:              compare(figures.loadCPU),
		CycleReductions:      compare(figures.cycleReductions),
		CycleReductionsRatio: ratio(figures.cycleReductions),
		AgentReductions:      agents(figures.agentShare),
		IdleMemory:           compare(func(f figures) float64 { return f.before.mebibytes(total) }),
		LoadMemory:           compare(func(f figures) float64 { return f.after.mebibytes(total) }),
		Resident:             compare(func(f figures) float64 { return mebibytes(f.before.resident) }),
		ProbeCPU:             agents(figures.probeCPU),
		ProbeMemory:          agents(func(f figures) float64 { return mebibytes(f.before.probe) }),
	}
}

func each(rounds []round, figure func(round) float64) []float64 {
	var all []float64
	for _, r := range rounds {
		all = append(all, figure(r))
	}
	return all
}

func total(f vm.Figures) int64 { return f.Total }

// brokenBounds says what the agent uses too much of.
func (s summary) brokenBounds() []string {
	var broken []string
	bound := func(name string, value, limit float64, unit string) {
		if value > limit {
			broken = append(broken, fmt.Sprintf("%s: %.2f %s, at most %.0f", name, value, unit, limit))
		}
	}
	bound("CPU without users", s.IdleCPU.Difference.Median, maxCPU, "% of a core")
	bound("CPU under load", s.LoadCPU.Difference.Median, maxCPU, "% of a core")
	bound("share of the reductions under load", s.AgentReductions, maxCPU, "%")
	bound("memory before the load test", s.IdleMemory.Difference.Median, maxMemory, "MiB")
	bound("memory after the load test", s.LoadMemory.Difference.Median, maxMemory, "MiB")
	return broken
}

// String is a round in one line.
func (r round) String() string {
	return fmt.Sprintf("idle CPU %.3f and %.3f %% of a core, %.3f and %.3f ms a cycle, memory %.2f and %.2f MiB; load average %.1f",
		r.without.idleCPU(), r.with.idleCPU(), r.without.cycleCPU(), r.with.cycleCPU(),
		r.without.before.mebibytes(total), r.with.before.mebibytes(total), r.load)
}

// column is one column of a table: a figure of a round.
type column struct {
	title  string
	format string
	figure func(round) float64
}

// compared are the columns of a figure without the agent, with it, and of the two together.
func compared(title, format string, figure func(figures) float64, third column) []column {
	return []column{
		{title + " off", format, func(r round) float64 { return figure(r.without) }},
		{"on", format, func(r round) float64 { return figure(r.with) }},
		third,
	}
}

func difference(format string, figure func(figures) float64) column {
	return column{"difference", format, func(r round) float64 { return figure(r.with) - figure(r.without) }}
}

func ratio(figure func(figures) float64) column {
	return column{"ratio", "%.3f", func(r round) float64 { return figure(r.with) / figure(r.without) }}
}

// printTables prints every round and the medians, for people.
func printTables(out io.Writer, o options, rounds []round) {
	_, _ = fmt.Fprintf(out, "\nWorkload %s, %d users for %s and fleet; %s. All figures are of one virtual machine.\n", o.image(), o.users, o.duration, machine())
	table := func(title string, columns ...[]column) {
		_, _ = fmt.Fprintf(out, "\n%s\n", title)
		printTable(out, rounds, slices.Concat(columns...))
	}
	loads := []column{{"load average", "%.1f", func(r round) float64 { return r.load }}}
	table("CPU: percent of a core without users; milliseconds for a cycle of the load test; percent of a core under load",
		loads, compared("idle", "%.3f", figures.idleCPU, difference("%.3f", figures.idleCPU)),
		compared("cycle", "%.3f", figures.cycleCPU, ratio(figures.cycleCPU)),
		compared("load", "%.2f", figures.loadCPU, difference("%.2f", figures.loadCPU)))
	table("Work: thousands of reductions in a second without users; the same for a cycle; percent of all reductions under load that the agent's processes took",
		compared("idle", "%.1f", figures.idleReductions, difference("%.1f", figures.idleReductions)),
		compared("cycle", "%.1f", figures.cycleReductions, ratio(figures.cycleReductions)),
		[]column{{"agent", "%.2f", func(r round) float64 { return r.with.agentShare() }}},
		[]column{{"cycles off", "%.0f", func(r round) float64 { return float64(r.without.cycles) }}},
		[]column{{"on", "%.0f", func(r round) float64 { return float64(r.with.cycles) }}})
	before := func(figure func(vm.Figures) int64) func(figures) float64 {
		return func(f figures) float64 { return f.before.mebibytes(figure) }
	}
	after := func(f figures) float64 { return f.after.mebibytes(total) }
	resident := func(f figures) float64 { return mebibytes(f.before.resident) }
	part := func(title string, figure func(vm.Figures) int64) []column {
		c := difference("%.3f", before(figure))
		c.title = title
		return []column{c}
	}
	table("Memory in MiB: before the load test, parts of the difference, after the load test, resident",
		compared("total", "%.2f", before(total), difference("%.2f", before(total))),
		part("code", func(f vm.Figures) int64 { return f.Code }),
		part("processes", func(f vm.Figures) int64 { return f.Processes }),
		part("ets", func(f vm.Figures) int64 { return f.ETS }),
		part("atoms", func(f vm.Figures) int64 { return f.Atoms }),
		part("binaries", func(f vm.Figures) int64 { return f.Binaries }),
		compared("after", "%.2f", after, difference("%.2f", after)),
		compared("resident", "%.1f", resident, difference("%.1f", resident)))
	table("livestash-probe, the program beside the application: percent of a core without users, resident MiB",
		[]column{{"CPU", "%.3f", func(r round) float64 { return r.with.probeCPU() }}},
		[]column{{"resident", "%.1f", func(r round) float64 { return mebibytes(r.with.before.probe) }}})
	_, _ = fmt.Fprintln(out)
}

func printTable(out io.Writer, rounds []round, columns []column) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(table, "round\t")
	for _, c := range columns {
		_, _ = fmt.Fprint(table, c.title+"\t")
	}
	row := func(name string, value func(column) float64) {
		_, _ = fmt.Fprintf(table, "\n%s\t", name)
		for _, c := range columns {
			_, _ = fmt.Fprintf(table, c.format+"\t", value(c))
		}
	}
	for i, r := range rounds {
		row(fmt.Sprint(i+1), func(c column) float64 { return c.figure(r) })
	}
	row("median", func(c column) float64 { return quantile(each(rounds, c.figure), 0.5) })
	_, _ = fmt.Fprintln(table)
	_ = table.Flush()
}

func machine() string {
	memory := "unknown memory"
	if raw, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kibibytes int
		if _, err := fmt.Sscanf(string(raw), "MemTotal: %d kB", &kibibytes); err == nil {
			memory = fmt.Sprintf("%d GiB", (kibibytes+1<<19)>>20)
		}
	}
	return fmt.Sprintf("%d CPUs, %s, %s cluster", runtime.NumCPU(), memory, cmp.Or(os.Getenv("CLUSTER"), "local"))
}
