package report

import (
	"cmp"
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
</header>
<main>
<section class="summary">
`, p.Title, p.Style, p.Title, badge(p.Verdict), p.Subtitle)
	for i, paragraph := range p.Summary {
		class := markup("")
		if i == 0 {
			class = ` class="lead"`
		}
		w.put("<p%s>%s</p>\n", class, paragraph)
	}
	w.put("</section>\n")
	p.writeTrips(w)
	p.writeFigures(w)
	p.writeComparisons(w)
	p.writeRuns(w)
	w.put("<section>\n<h2>Where and what</h2>\n<dl>")
	for _, fact := range p.Facts {
		w.put("<dt>%s</dt><dd>%s</dd>\n", fact[0], fact[1])
	}
	w.put("</dl>\n</section>\n</main>\n</body>\n</html>\n")
}

func badge(v Verdict) markup {
	var w pageWriter
	w.put(`<span class="badge %s">%s</span>`, strings.ToLower(v.String()), v)
	return markup(w.String())
}

func (p page) writeTrips(w *pageWriter) {
	w.put(`<section>
<h2>Round trips</h2>
<p class="note">Milliseconds. First render and reconnect go from a message to its reply, as in the published test. Stash and return are what the user waits for, from when the step was to begin to its end: for a return to the view that is there again, failed attempts and the pauses between them included. In brackets, where it differs: from when the step began. ≥: of so few, no more is certain. Grey: the client was the bottleneck, so these times say nothing about the fleet.</p>
`)
	for _, table := range p.Trips {
		w.put(`<h3>%s</h3>
<div class="scroll"><table class="trips">
<thead><tr><th rowspan="2" class="l">Adapter</th><th colspan="3">First render</th><th colspan="3">Stash</th><th colspan="3">Reconnect</th><th colspan="3">Return</th></tr>
<tr>%s</tr></thead>
<tbody>`, table.Title, markup(strings.Repeat("<th>p50</th><th>p95</th><th>p99</th>", 4)))
		for _, row := range table.Rows {
			row.write(w)
		}
		w.put("</tbody></table></div>\n")
	}
	w.put("</section>\n")
}

func (r tripRow) write(w *pageWriter) {
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
	w.put(`<tr%s><th class="l"><span class="nowrap">%s %s</span>%s</th>`, class, legendMark(r.Adapter), r.Label, failed)
	if r.Note != "" {
		w.put(`<td colspan="12" class="l">%s</td>`, r.Note)
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
	w.put(`<section>
<h2>Figures</h2>
<p class="note">The charts of the published test, one by one; the sum over all pods of the fleet.</p>
`)
	for _, section := range p.Figures {
		w.put("<div class=\"figure\">\n<h3>%s</h3>\n<p class=\"legend\">", section.Title)
		for _, adapter := range section.Adapters {
			w.put(`<span class="nowrap">%s %s</span> `, legendMark(adapter), adapter)
		}
		w.put("</p>\n<div class=\"charts\">")
		for _, c := range section.Charts {
			w.put("<figure><figcaption>%s</figcaption>%s", c.Title, c.SVG)
			if c.Missing != "" {
				w.put(`<p class="note">%s</p>`, c.Missing)
			}
			w.put("</figure>\n")
		}
		w.put("</div></div>\n")
	}
	w.put("</section>\n")
}

func (p page) writeComparisons(w *pageWriter) {
	if len(p.Comparisons) == 0 {
		return
	}
	w.put(`<section>
<h2>Beside the published figures</h2>
<p class="note">Ours first, the published figure below it. The machines differ, and so do the application and the network: compare how the adapters stand to each other, not one number with another. Memory, processes and CPU are the mean of the pods here, and of the two machines there, whose CPU includes all that ran on them. Only runs whose scenario, payload, pods, length and ramp are the published ones are here. Published: <a href="%s">%s</a>, read off the charts in its authors’ repository: %s. The article prints, for all adapters: %s.</p>
`, p.URL, p.Source, machines, printedTimes)
	for _, table := range p.Comparisons {
		w.put(`<h3>%s</h3>
<div class="scroll"><table class="beside">
<thead><tr><th class="l">Figure</th>`, table.Title)
		for _, adapter := range table.Adapters {
			w.put("<th>%s</th>", adapter)
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
	w.put("<section>\n<h2>Runs</h2>\n<ol class=\"runs\">")
	for _, run := range p.Runs {
		w.put("<li class=\"%s\">\n<p class=\"run\"><strong>%s</strong> %s</p>\n", strings.ToLower(run.Verdict.String()), run.Name, badge(run.Verdict))
		if run.Message != "" {
			w.put("<p class=\"message\">%s</p>\n", run.Message)
		}
		pods := ""
		if run.Pods != "" {
			pods = ", " + run.Pods
		}
		w.put("<p class=\"detail\">%s, %s, %s%s. Recovered %s; wrong %s; errors %s; the client late by %s (p99).</p></li>\n",
			run.Adapter, run.Load, run.Length, pods, run.Recovered, run.Wrong, run.Errors, run.Client)
	}
	w.put("</ol>\n</section>\n")
}
