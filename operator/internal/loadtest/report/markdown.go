package report

import (
	"fmt"
	"strings"
)

// Markdown renders a report for a terminal, a pull request or a wiki: the page's words and tables, with peaks in place
// of its charts.
func Markdown(r Report) []byte {
	var b strings.Builder
	r = measuredAlike(r)
	fmt.Fprintf(&b, "# %s: %s\n", plain(title(r)), plain(r.Verdict.String()))
	for _, fact := range head(r) {
		fmt.Fprintf(&b, "\n%s: %s  ", fact.Name, plain(fact.Value))
	}
	b.WriteByte('\n')
	costWords(&b, costs(r))
	for _, paragraph := range summary(r) {
		fmt.Fprintf(&b, "\n%s\n", plain(paragraph))
	}
	for _, l := range loads(r) {
		fmt.Fprintf(&b, "\n## %s\n\n", plain(l.title()))
		costOf(&b, l, strings.ToLower(heading(r)))
		roundTrips(&b, l)
		peaks(&b, l)
		beside(&b, l)
	}
	b.WriteString("\n## Runs\n\n")
	rows := [][]string{{"run", "verdict", strings.ToLower(heading(r)), "load", strings.ToLower(layoutOf(r.Spec).done.name), "wrong", "errors", "client late (p99)", "message"}}
	for _, run := range r.Runs {
		row := newRunRow(r, run)
		rows = append(rows, []string{row.Name, row.Verdict.String(), row.Variant, row.Load, row.Done, row.Wrong, row.Errors, row.Client, strings.TrimSpace(row.Message + " " + row.Events)})
	}
	table(&b, rows)
	b.WriteString("\n## Where and what\n\n")
	for _, fact := range facts(r) {
		fmt.Fprintf(&b, "- %s: %s\n", plain(fact.Name), plain(fact.Value))
	}
	return []byte(b.String())
}

func costWords(b *strings.Builder, said answer) {
	fmt.Fprintf(b, "\n%s\n", plain(said.Lead))
	for i, a := range said.Variants {
		if i == 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(b, "- **%s** %s %s\n", plain(a.Variant.name), plain(a.Cost), plain(a.When))
	}
	if said.Certainty != "" {
		fmt.Fprintf(b, "\n%s\n", plain(said.Certainty))
	}
}

// costOf is the page's table of costs, and below it that for 1,000 users.
func costOf(b *strings.Builder, l load, compared string) {
	costs, sound := newCostTable(l)
	if !sound {
		return
	}
	rows := [][]string{{compared}}
	for _, column := range costs.Columns {
		rows[0] = append(rows[0], decapitalized(column.title)+", "+column.detail)
	}
	for _, row := range costs.Rows {
		texts := []string{marked(row.Variant.name, row.Verdict)}
		for _, cell := range row.Cells {
			text := cell.Value
			if cell.More != "" {
				text += " (" + cell.More + ")"
			}
			if cell.Pods != "" {
				text += ", " + cell.Pods
			}
			texts = append(texts, text)
		}
		for len(texts) < len(rows[0]) {
			texts = append(texts, strings.ToLower(row.Verdict.String()))
		}
		rows = append(rows, texts)
	}
	table(b, rows)
	b.WriteByte('\n')
	if thousand, there := newThousand(l); there {
		rows := [][]string{{"1,000 users; " + compared + "s over " + thousand.Base}}
		for _, column := range thousand.Columns {
			rows[0] = append(rows[0], column.title)
		}
		for _, row := range thousand.Rows {
			rows = append(rows, append([]string{row.Variant.name}, row.Cells...))
		}
		table(b, rows)
		b.WriteByte('\n')
	}
}

func roundTrips(b *strings.Builder, l load) {
	rows := [][]string{{"ms: p50 / p95 / p99"}}
	for _, trip := range l.layout().trips {
		rows[0] = append(rows[0], strings.ToLower(trip.title))
	}
	for _, run := range l.runs {
		row := []string{marked(run.label(), run.Verdict)}
		for _, trip := range l.layout().trips {
			if !run.sound() {
				row = append(row, strings.ToLower(run.Verdict.String()))
				continue
			}
			times := strings.Join(cells(run, trip.duration), " / ")
			if !run.timed() {
				times = "not the fleet's: " + times
			}
			row = append(row, times)
		}
		rows = append(rows, row)
	}
	table(b, rows)
}

// marked is the name of a variant or a run, with a mark when a threshold did not hold.
func marked(name string, verdict Verdict) string {
	if verdict == VerdictFailed {
		name += " (failed)"
	}
	return name
}

// peaks has a row for each run, as the charts have a line for each.
func peaks(b *strings.Builder, l load) {
	rows := [][]string{{"peak, all pods"}}
	for _, f := range l.layout().charts() {
		rows[0] = append(rows[0], f.title)
	}
	for _, run := range l.sound() {
		row := []string{marked(run.label(), run.Verdict)}
		for _, f := range l.layout().charts() {
			value := "–"
			if peak, known := peakOf(f.series)(run); known {
				value = inUnit(peak, f.unit)
			}
			row = append(row, value)
		}
		rows = append(rows, row)
	}
	if len(rows) > 1 {
		b.WriteByte('\n')
		table(b, rows)
	}
}

func beside(b *strings.Builder, l load) {
	compared := comparisons(l)
	if len(compared) == 0 {
		return
	}
	rows := [][]string{{"ours (published)"}}
	for _, c := range compared[0].cells {
		rows[0] = append(rows[0], c.label)
	}
	for _, c := range compared {
		row := []string{c.title}
		for _, cell := range c.cells {
			row = append(row, fmt.Sprintf("%s (%s)", dash(cell.ours), dash(cell.published)))
		}
		rows = append(rows, row)
	}
	fmt.Fprintf(b, "\nThe machines differ: compare how the adapters stand to each other. Published: [%s](%s), read off the charts in its authors' repository: %s. The article prints, for all adapters: %s.\n\n",
		Source, SourceURL, publishedMachines, printedTimes)
	table(b, rows)
}

func dash(text string) string {
	if text == "" {
		return "–"
	}
	return text
}

// table writes rows, the first of them the head.
func table(b *strings.Builder, rows [][]string) {
	for i, row := range rows {
		for _, text := range row {
			b.WriteString("| " + plain(text) + " ")
		}
		b.WriteString("|\n")
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
}

var markdownEscapes = strings.NewReplacer(
	"\\", "\\\\", "|", "\\|", "`", "\\`", "*", "\\*", "_", "\\_", "[", "\\[", "]", "\\]", "<", "&lt;", ">", "&gt;", "&", "&amp;",
	"#", "\\#", "\r", " ", "\n", " ",
)

// plain makes any text mean itself in Markdown, on one line.
func plain(text string) string {
	return markdownEscapes.Replace(text)
}
