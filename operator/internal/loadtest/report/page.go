package report

import (
	"cmp"
	"slices"
	"strings"
)

// write writes the page: words and drawings, nothing to compute.
func (p page) write(w *pageWriter) {
	w.put(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%s</title>
<style>%s</style>
</head>
<body>
<header>
<p class="kicker">LiveStash benchmark</p>
<h1>%s %s</h1>
<p class="sub">%s</p>
<dl class="head">`, p.Title, p.Style, p.Title, badge(p.Verdict), p.Subtitle)
	for _, fact := range p.Head {
		w.put("<div><dt>%s</dt><dd>%s</dd></div>\n", fact.Name, fact.Value)
	}
	w.put("</dl>\n</header>\n<main>\n")
	if p.Costs != nil {
		w.put("<section id=\"costs\" class=\"first\">\n<h2>What it cost: %s</h2>\n", p.Costs.Title)
		p.Costs.write(w, p.Heading)
		w.put("</section>\n")
	}
	p.writeContents(w)
	p.writeAnswer(w)
	p.writeThousand(w)
	p.writeOthers(w)
	p.writeTrips(w)
	p.writeFigures(w)
	p.writeComparisons(w)
	p.writeRuns(w)
	w.put("<section id=\"facts\">\n<h2>Where and what</h2>\n<dl>")
	for _, fact := range p.Facts {
		w.put("<dt>%s</dt><dd>%s</dd>\n", fact.Name, fact.Value)
	}
	w.put("</dl>\n</section>\n</main>\n</body>\n</html>\n")
}

// writeContents names the sections that the page has.
func (p page) writeContents(w *pageWriter) {
	w.put("<nav aria-label=\"Contents\">")
	for _, section := range []struct {
		id, title string
		there     bool
	}{
		{"which", p.Layout.question, true},
		{"thousand", "Cost of 1,000 users", p.Thousand != nil},
		{"others", "Other loads", len(p.Others) > 0},
		{"trips", "Round trips", len(p.Trips) > 0},
		{"figures", "Figures over time", len(p.Figures) > 0},
		{"published", "Beside the published figures", len(p.Comparisons) > 0},
		{"runs", "Runs", true},
		{"facts", "Where and what", true},
	} {
		if section.there {
			w.put(`<a href="#%s">%s</a> `, section.id, section.title)
		}
	}
	w.put("</nav>\n")
}

func (t costTable) write(w *pageWriter, heading string) {
	w.put(`<table class="cost"><thead><tr><th class="l">%s</th>`, heading)
	for _, column := range t.Columns {
		w.put(`<th class="l">%s <span class="detail">%s</span></th>`, column.title, column.detail)
	}
	w.put("</tr></thead>\n<tbody>")
	for _, row := range t.Rows {
		w.put(`<tr class="%s"><th class="l"><span class="nowrap">%s %s</span>%s</th>`, row.Variant.class(), legendMark(row.Variant), row.Variant, notPassed(row.Verdict))
		if row.Note != "" {
			w.put(`<td class="l broken" colspan="%s">%s</td>`, len(t.Columns), row.Note)
		}
		for i, cell := range row.Cells {
			w.put(`<td class="l %s" data-column="%s"><b>%s</b>`, cell.State, t.Columns[i].title, cell.Value)
			if cell.State != "none" || cell.More != "" {
				w.put(`<span class="bar"><i style="width:%s%%"></i></span><span class="more">%s</span>`, pixel(100*min(1, cell.Bar)), cell.More)
				if cell.Pods != "" {
					w.put(`<span class="more">%s</span>`, cell.Pods)
				}
			}
			w.put("</td>")
		}
		w.put("</tr>\n")
	}
	w.put("</tbody></table>\n")
	for _, note := range t.Notes {
		w.put("<p class=\"note\">%s</p>\n", note)
	}
}

// notPassed is the badge of what is not as it should be.
func notPassed(v Verdict) markup {
	if v == VerdictPassed {
		return ""
	}
	return " " + badge(v)
}

func (p page) writeAnswer(w *pageWriter) {
	w.put("<section id=\"which\" class=\"summary\">\n<h2>%s</h2>\n<p class=\"lead\">%s</p>\n", p.Layout.question, p.Answer.Lead)
	if len(p.Answer.Variants) > 0 {
		w.put("<ul class=\"which\">")
		for _, a := range p.Answer.Variants {
			w.put("<li>%s <b>%s</b> %s <span class=\"when\">%s</span></li>\n", legendMark(a.Variant), a.Variant, a.Cost, a.When)
		}
		w.put("</ul>\n")
	}
	if p.Answer.Certainty != "" {
		w.put("<p>%s</p>\n", p.Answer.Certainty)
	}
	for _, paragraph := range p.Summary {
		w.put("<p>%s</p>\n", paragraph)
	}
	w.put("</section>\n")
}

func (p page) writeThousand(w *pageWriter) {
	if p.Thousand == nil {
		return
	}
	w.put(`<section id="thousand">
<h2>Cost of 1,000 users</h2>
<p class="note">The figures of %s, divided by the users: for %s all that the fleet took, for each %s what it took over that. A fleet that stands idle takes something too, which is in the line of %s.</p>
<div class="scroll"><table class="thousand"><thead><tr><th class="l">%s</th>`, p.Thousand.Title, p.Thousand.Base, strings.ToLower(p.Heading), p.Thousand.Base, p.Heading)
	for _, column := range p.Thousand.Columns {
		w.put("<th>%s</th>", column.title)
	}
	w.put("</tr></thead>\n<tbody>")
	for _, row := range p.Thousand.Rows {
		w.put(`<tr><th class="l"><span class="nowrap">%s %s</span></th>`, legendMark(row.Variant), row.Variant)
		for _, cell := range row.Cells {
			w.put("<td>%s</td>", cell)
		}
		w.put("</tr>\n")
	}
	w.put("</tbody></table></div>\n</section>\n")
}

func (p page) writeOthers(w *pageWriter) {
	if len(p.Others) == 0 {
		return
	}
	w.put("<section id=\"others\">\n<h2>Other loads</h2>\n")
	for i, table := range p.Others {
		w.put("<h3>%s</h3>\n", table.Title)
		// Each table under the other would say the same, unless its times do not count.
		if table.Notes = table.Notes[1:]; i > 0 && len(table.Notes) > 0 {
			table.Notes = table.Notes[len(table.Notes)-1:]
		}
		table.write(w, p.Heading)
	}
	w.put("</section>\n")
}

func badge(v Verdict) markup {
	var w pageWriter
	w.put(`<span class="badge %s">%s</span>`, strings.ToLower(v.String()), v)
	return markup(w.String())
}

func (p page) writeTrips(w *pageWriter) {
	if len(p.Trips) == 0 {
		return
	}
	w.put(`<section id="trips">
<h2>Round trips</h2>
<p class="note">Milliseconds. In the charts a band goes from the p50 to the p99, and the mark is the p95. %s In brackets, where it differs: from when the step began. ≥: of so few, no more is certain. Amber: the client was the bottleneck, so these times say nothing about the fleet.</p>
`, p.Layout.tripNote)
	for _, table := range p.Trips {
		w.put("<h3>%s</h3>\n", table.Title)
		if len(table.Charts) > 0 {
			w.put("<div class=\"charts wide\">")
			for _, c := range table.Charts {
				c.write(w)
			}
			w.put("</div>\n<p class=\"note\">%s</p>\n", table.Note)
		}
		w.put(`<div class="scroll"><table class="trips">
<thead><tr><th rowspan="2" class="l">%s</th>`, p.Heading)
		for _, trip := range table.Trips {
			w.put(`<th colspan="3">%s</th>`, trip.title)
		}
		w.put(`</tr>
<tr>%s</tr></thead>
<tbody>`, markup(strings.Repeat("<th>p50</th><th>p95</th><th>p99</th>", len(table.Trips))))
		for _, row := range table.Rows {
			row.write(w, 3*len(table.Trips))
		}
		w.put("</tbody></table></div>\n")
	}
	w.put("</section>\n")
}

func (r tripRow) write(w *pageWriter, columns int) {
	class, failed := markup(""), markup("")
	if r.Note != "" {
		class = ` class="none"`
	}
	if r.Untimed {
		class, failed = ` class="untimed"`, " "+badge(r.Verdict)
	}
	if r.Verdict == VerdictFailed {
		failed = " " + badge(r.Verdict)
	}
	w.put(`<tr%s><th class="l"><span class="nowrap">%s %s</span>%s</th>`, class, legendMark(r.Variant), r.Label, failed)
	if r.Note != "" {
		w.put(`<td colspan="%s" class="l">%s</td>`, columns, r.Note)
	} else {
		for _, cell := range r.Cells {
			w.put("<td>%s</td>", cell)
		}
	}
	w.put("</tr>\n")
}

func (p page) writeFigures(w *pageWriter) {
	if len(p.Figures) == 0 {
		return
	}
	w.put(`<section id="figures">
<h2>Figures over time</h2>
<p class="note">%s; the sum over all pods of the fleet. All runs begin at 0, with their first user.</p>
`, p.Layout.figuresNote())
	if p.hasEvents() {
		w.put("<p class=\"note\">Grey: an event, until the fleet was whole again.</p>\n")
	}
	for _, section := range p.Figures {
		w.put("<div class=\"figure\">\n<h3>%s</h3>\n<p class=\"legend\">", section.Title)
		for _, variant := range section.Variants {
			w.put(`<span class="nowrap">%s %s</span> `, legendMark(variant), variant)
		}
		w.put("</p>\n<div class=\"charts\">")
		for _, c := range section.Charts {
			c.write(w)
		}
		w.put("</div></div>\n")
	}
	w.put("</section>\n")
}

// hasEvents is whether a run of the page has any: the list of runs tells them.
func (p page) hasEvents() bool {
	return slices.ContainsFunc(p.Runs, func(r runRow) bool { return r.Events != "" })
}

func (c figureChart) write(w *pageWriter) {
	w.put("<figure><figcaption>%s</figcaption>%s", c.Title, c.SVG)
	if c.Missing != "" {
		w.put(`<p class="note">%s</p>`, c.Missing)
	}
	w.put("</figure>\n")
}

func (p page) writeComparisons(w *pageWriter) {
	if len(p.Comparisons) == 0 {
		return
	}
	w.put(`<section id="published">
<h2>Beside the published figures</h2>
<p class="note">Ours first, the published figure below it. The machines differ, and so do the application and the network: compare how the adapters stand to each other, not one number with another. Memory, processes and CPU are the mean of the pods here, and of the two machines there, whose CPU includes all that ran on them. Only runs whose scenario, payload, pods, length and ramp are the published ones are here. Published: <a href="%s">%s</a>, read off the charts in its authors’ repository: %s. The article prints, for all adapters: %s.</p>
`, p.URL, p.Source, publishedMachines, printedTimes)
	for _, table := range p.Comparisons {
		w.put(`<h3>%s</h3>
<div class="scroll"><table class="beside">
<thead><tr><th class="l">Figure</th>`, table.Title)
		for _, label := range table.Labels {
			w.put("<th>%s</th>", label)
		}
		w.put("</tr></thead>\n<tbody>")
		for _, row := range table.Rows {
			w.put(`<tr><th class="l">%s</th>`, row.Title)
			for _, cell := range row.Cells {
				w.put(`<td>%s<br><span class="theirs">%s</span></td>`, cmp.Or(cell.Ours, "–"), cmp.Or(cell.Published, "–"))
			}
			w.put("</tr>\n")
		}
		w.put("</tbody></table></div>\n")
	}
	w.put("</section>\n")
}

func (p page) writeRuns(w *pageWriter) {
	w.put("<section id=\"runs\">\n<h2>Runs</h2>\n<ol class=\"runs\">")
	for _, run := range p.Runs {
		w.put("<li class=\"%s\">\n<p class=\"run\"><strong>%s</strong> %s</p>\n", strings.ToLower(run.Verdict.String()), run.Name, badge(run.Verdict))
		if run.Message != "" {
			w.put("<p class=\"message\">%s</p>\n", run.Message)
		}
		if run.Events != "" {
			w.put("<p class=\"message\">%s</p>\n", run.Events)
		}
		pods := ""
		if run.Pods != "" {
			pods = ", " + run.Pods
		}
		w.put("<p class=\"detail\">%s, %s, %s%s. %s %s; wrong %s; errors %s; the client late by %s (p99).</p></li>\n",
			run.Variant, run.Load, run.Length, pods, p.Layout.done.name, run.Done, run.Wrong, run.Errors, run.Client)
	}
	w.put("</ol>\n</section>\n")
}
