package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/livestash-dev/livestash/test/soak/eventlog"
	"github.com/livestash-dev/livestash/test/soak/ledger"
	"github.com/livestash-dev/livestash/test/soak/users"
)

const (
	// shownMoments is how many moments are spoken of, and shownFindings how many returns of each.
	shownMoments  = 20
	shownFindings = 2
	// apart is the time without a finding that divides one moment from the next.
	apart = 3 * time.Second
	// shortlyBefore is how old events are at most that a moment is told with.
	shortlyBefore = 30 * time.Second
)

// result is what came of one fleet.
type result struct {
	Adapter     string  `json:"adapter"`
	Workload    string  `json:"workload"`
	Pods        int     `json:"pods"`
	Users       int     `json:"users"`
	Seed        uint64  `json:"seed"`
	Minutes     float64 `json:"minutes"`
	Faults      bool    `json:"faults"`
	Shadow      bool    `json:"shadow"`
	Events      int     `json:"events"`
	Stashes     int     `json:"stashes"`
	Returns     int     `json:"returns"`
	Newer       int     `json:"newer"`
	Stale       int     `json:"stale"`
	Lost        int     `json:"lost"`
	Unexplained int     `json:"unexplained"`
	// Outage is the longest time in seconds in which no pod was ready.
	Outage float64  `json:"outage_s"`
	P50    *float64 `json:"p50_ms"`
	P99    *float64 `json:"p99_ms"`

	began    time.Time
	report   users.Report
	done     []*done
	findings []finding
	// ends are sentences on applications that ended while their pod went on.
	ends []string
	// notBack is how many users did not come back at the end.
	notBack int
	// unsettled is why the fleet was not in order at the end.
	unsettled error
}

// finding is a return that has to be explained, and what explains it; empty when nothing does.
type finding struct {
	ledger.Return
	explanation string
}

func (s *soak) result(report users.Report, notBack int, unsettled error) *result {
	log := &eventlog.Log{Adapter: s.Adapter, Persistent: s.options.Persistence, TTL: s.options.TTL, Young: s.options.Young(s.Adapter)}
	s.pods.tell(log)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.done {
		// One that could not be undone explains as much as others.
		if !errors.Is(d.err, errNotBegun) {
			log.Events = append(log.Events, d.Event)
		}
	}
	r := &result{
		Adapter: s.Adapter, Workload: s.options.workload, Pods: s.options.pods, Users: s.options.users, Seed: s.options.seed,
		Minutes: s.options.minutes, Faults: s.options.faults, Shadow: s.options.Shadows(s.Adapter), Events: len(s.done), Stashes: report.Stashes, Returns: report.Returns,
		Newer: report.Verdicts[ledger.Newer], Stale: report.Verdicts[ledger.Stale], Lost: report.Verdicts[ledger.Lost],
		Unexplained: report.MoreFindings + notBack,
		began:       s.began, report: report, done: s.done, ends: s.pods.ended(), notBack: notBack, unsettled: unsettled,
	}
	for _, o := range log.Outages {
		r.Outage = max(r.Outage, math.Round(o.End.Sub(o.Start).Seconds()))
	}
	for _, back := range report.Findings {
		f := finding{Return: back, explanation: log.Explain(back)}
		if f.explanation == "" {
			r.Unexplained++
		}
		r.findings = append(r.findings, f)
	}
	if report.Times != nil {
		r.P50, r.P99 = &report.Times.P50, &report.Times.P99
	}
	return r
}

// failed is whether a promise was broken: something is unexplained, or the fleet did not come to rest.
func (r *result) failed() bool { return r.Unexplained > 0 || r.unsettled != nil }

// print prints the result for people, and in the last line for programs.
func (r *result) print(out io.Writer) error {
	if err := r.printEvents(out); err != nil {
		return err
	}
	r.printReturns(out)
	for _, end := range r.ends {
		_, _ = fmt.Fprintln(out, end)
	}
	if r.unsettled != nil {
		_, _ = fmt.Fprintf(out, "FAILED: the fleet did not settle: %v\n", r.unsettled)
	}
	if r.Unexplained > 0 {
		_, _ = fmt.Fprintf(out, "FAILED: %d of %d returns that did not find their state are unexplained\n", r.Unexplained, r.Stale+r.Lost)
	}
	return json.NewEncoder(out).Encode(r)
}

func (r *result) printEvents(out io.Writer) error {
	_, _ = fmt.Fprintf(out, "\n%s, workload %s, %d pods, %d users, SEED=%d\n\n", r.Adapter, r.Workload, r.Pods, r.Users, r.Seed)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "at\tclock\tevent\ttook\t")
	for _, d := range r.done {
		trouble := ""
		if d.err != nil {
			trouble, _, _ = strings.Cut(d.err.Error(), "\n")
		}
		_, _ = fmt.Fprintf(table, "%.0f s\t%s\t%s\t%.1f s\t%s\n", d.Start.Sub(r.began).Seconds(), d.Start.Format(time.TimeOnly), d.what,
			d.End.Sub(d.Start).Seconds(), trouble)
	}
	return table.Flush()
}

func (r *result) printReturns(out io.Writer) {
	_, _ = fmt.Fprintf(out, "\n%d stashes were acknowledged. %d sockets were cut%s. %d returns:\n", r.Stashes, r.report.Cut,
		counts(" (%s)", r.report.Endings), r.Returns)
	_, _ = fmt.Fprintf(out, "  %s\n", counts("%s", r.report.Verdicts))
	if r.report.Doubled > 0 {
		_, _ = fmt.Fprintf(out, "  %d times a user came back from two tabs at once; %d times one of the two found nothing\n", r.report.Doubled, r.report.DoubledEmpty)
	}
	if r.report.Errors > 0 {
		_, _ = fmt.Fprintf(out, "  %d times a page could not ask its store, and its user tried again\n", r.report.Errors)
	}
	if len(r.report.FailedAttempts) > 0 {
		_, _ = fmt.Fprintf(out, "  attempts to connect that failed: %s\n", counts("%s", r.report.FailedAttempts))
	}
	if t := r.report.Times; t != nil {
		_, _ = fmt.Fprintf(out, "  back after a cut: p50 %.0f ms, p99 %.0f ms, at most %.0f ms\n", t.P50, t.P99, t.Max)
	}
	_, _ = fmt.Fprintln(out, "The slowest:")
	for _, slow := range r.report.Slowest {
		_, _ = fmt.Fprintf(out, "  %.0f ms, back at %s: user %d, %s, from %s to %s\n", slow.TookMS, slow.At, slow.User, slow.Why,
			eventlog.Pod(slow.From), eventlog.Pod(slow.To))
	}
	r.printFindings(out, "Unexplained", func(f finding) bool { return f.explanation == "" })
	r.printFindings(out, "Explained", func(f finding) bool { return f.explanation != "" })
	if r.notBack > 0 {
		_, _ = fmt.Fprintf(out, "%d users did not come back at the end.\n", r.notBack)
	}
}

// printFindings prints returns by the moments in which they came about.
func (r *result) printFindings(out io.Writer, title string, is func(finding) bool) {
	chosen := slices.DeleteFunc(slices.Clone(r.findings), func(f finding) bool { return !is(f) })
	if len(chosen) == 0 {
		return
	}
	all := moments(chosen)
	_, _ = fmt.Fprintf(out, "%s: %d, in %d moments\n", title, len(chosen), len(all))
	for _, moment := range all[:min(len(all), shownMoments)] {
		r.printMoment(out, moment)
	}
	if more := len(all) - shownMoments; more > 0 {
		_, _ = fmt.Fprintf(out, "  and %d more moments\n", more)
	}
}

func (r *result) printMoment(out io.Writer, moment []finding) {
	verdicts := map[ledger.Verdict]int{}
	for _, f := range moment {
		verdicts[f.Verdict]++
	}
	begin, end := moment[0].At, moment[len(moment)-1].At
	_, _ = fmt.Fprintf(out, "  %s to %s: %s; before it: %s\n", begin.Format(time.TimeOnly), end.Format(time.TimeOnly),
		counts("%s", verdicts), r.before(begin))
	for _, f := range moment[:min(len(moment), shownFindings)] {
		_, _ = fmt.Fprintf(out, "    %s user %d: %s: %s with %d on %s; %d was on %s at %s", f.At.Format("15:04:05.000"), f.User, f.Verdict,
			f.Status, f.Version, eventlog.Pod(f.Node), f.Last.Version, eventlog.Pod(f.Last.Node), f.Last.At.Format("15:04:05.000"))
		if f.explanation != "" {
			_, _ = fmt.Fprintf(out, "; %s\n", f.explanation)
			continue
		}
		_, _ = fmt.Fprintf(out, "\n      %s\n", strings.Join(f.Trail, "\n      "))
	}
	if more := len(moment) - shownFindings; more > 0 {
		_, _ = fmt.Fprintf(out, "    and %d more users\n", more)
	}
}

// before is which events began shortly before a moment, the last ones.
func (r *result) before(moment time.Time) string {
	var texts []string
	for _, d := range r.done {
		if ago := moment.Sub(d.Start); ago >= 0 && ago < shortlyBefore {
			texts = append(texts, fmt.Sprintf("%s (%.0f s)", d.what, ago.Seconds()))
		}
	}
	if len(texts) == 0 {
		return "nothing"
	}
	return strings.Join(texts, ", ")
}

// moments are returns that lie close together, in the order of their times.
func moments(findings []finding) [][]finding {
	slices.SortStableFunc(findings, func(a, b finding) int { return a.At.Compare(b.At) })
	var all [][]finding
	for i, f := range findings {
		if i == 0 || f.At.Sub(findings[i-1].At) > apart {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], f)
	}
	return all
}

// counts is what a map counts, for people; nothing when it counts nothing.
func counts[K ~string](format string, all map[K]int) string {
	if len(all) == 0 {
		return ""
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		texts = append(texts, fmt.Sprintf("%d %s", all[name], name))
	}
	return fmt.Sprintf(format, strings.Join(texts, ", "))
}
