package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
)

// line is a result for people, in one line.
func (r *result) line() string {
	return fmt.Sprintf("%s, %s: %d sessions: %d recovered, %d stale, %d lost; moved %.2f times, at most %d; p50 %s ms, p99 %s ms; %s",
		r.Adapter, r.Event, r.Sessions, r.Recovered, r.Stale, r.Lost, r.MeanMoves, r.MostMoves, milliseconds(r.P50), milliseconds(r.P99), r.word())
}

func (r *result) word() string {
	word := "ok"
	switch {
	case r.skipped != "":
		word = "skipped: " + r.skipped
	case r.verdict != "":
		word = "FAILED: " + r.verdict
	case !r.judged:
		word = "not judged"
	}
	return strings.Join(append([]string{word}, r.explained()...), "; ")
}

// explained is what else is worth knowing of a result.
func (r *result) explained() []string {
	said := slices.Clone(r.remarks)
	if pod := r.report.Pods[lowest(r.report)]; r.Event == "kill" && pod.Sessions > 0 {
		said = append(said, fmt.Sprintf("the killed pod had %d sessions", pod.Sessions))
	}
	if r.Young > 0 {
		said = append(said, fmt.Sprintf("%d lost only what they had stashed in the last two seconds", r.Young))
	}
	if idle := r.report.LostIdle; idle > 0 {
		said = append(said, fmt.Sprintf("%d of the lost were idle", idle))
	}
	for _, kind := range slices.Sorted(maps.Keys(r.report.FailedAttempts)) {
		said = append(said, fmt.Sprintf("%d attempts failed (%s)", r.report.FailedAttempts[kind], kind))
	}
	return said
}

func milliseconds(n *float64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f", *n)
}

// printTable prints the results for people, with what they were measured on.
func printTable(out io.Writer, o options, results []result) error {
	_, _ = fmt.Fprintf(out, "\nWorkload %s, agent %s, TLS %s, Redis %s, its persistence %s; %s\n",
		o.Image, onOff(o.Agent), onOff(o.TLS), o.Redis, onOff(o.Persistence), machine())
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(table, "adapter\tevent\tsessions\tclosed\trecovered\tstale\tlost\tmoves\tmost\tp50 ms\tp99 ms\tmax ms\t")
	for _, r := range results {
		var longest *float64
		if r.report.Times != nil {
			longest = &r.report.Times.Max
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%.2f\t%d\t%s\t%s\t%s\t %s\n", r.Adapter, r.Event, r.Sessions, r.report.Closed,
			r.Recovered, r.Stale, r.Lost, r.MeanMoves, r.MostMoves, milliseconds(r.P50), milliseconds(r.P99), milliseconds(longest), r.word())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return printTabs(out, results)
}

// printTabs prints the sessions by the kind of tab, as a table for docs/reference/survival.md.
func printTabs(out io.Writer, results []result) error {
	var lines []string
	for _, r := range results {
		lines = append(lines, r.tabLines()...)
	}
	if len(lines) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(out, "\n| adapter | event | tabs | how many | cut | moves | lost | reloads | p50 / worst ms |\n"+
		"|---|---|---|---|---|---|---|---|---|\n%s\n\n", strings.Join(lines, "\n"))
	return err
}

// tabLines are the sessions by the kind of tab, a line of that table for each.
func (r *result) tabLines() []string {
	lines := make([]string, len(r.Tabs))
	for i, row := range r.Tabs {
		times := "– / –"
		if row.Times != nil {
			times = fmt.Sprintf("%.0f / %.0f", row.Times.P50, row.Times.Max)
		}
		lines[i] = fmt.Sprintf("| %s | %s | %s | %d | %d | %d | %d | %d | %s |",
			r.Adapter, r.Event, row.Kind, row.Tabs, row.Cut, row.Moves, row.Lost, row.Reloads, times)
	}
	return lines
}

// printLines prints the results for programs, a line of JSON for each.
func printLines(out io.Writer, results []result) error {
	encoder := json.NewEncoder(out)
	for _, r := range results {
		if err := encoder.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func machine() string {
	memory := "unknown memory"
	if raw, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kibibytes int
		if _, err := fmt.Sscanf(string(raw), "MemTotal: %d kB", &kibibytes); err == nil {
			memory = fmt.Sprintf("%d GiB", (kibibytes+1<<19)>>20)
		}
	}
	return fmt.Sprintf("%d CPUs, %s, %s", runtime.NumCPU(), memory, cmp.Or(os.Getenv("CLUSTER"), "local")+" cluster")
}
