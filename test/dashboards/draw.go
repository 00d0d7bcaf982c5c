package dashboards

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Caption says in every picture what it is.
const Caption = "Drawn from the dashboard's JSON and queries by this repository, not a screenshot of Grafana"

// Grafana's grid, in pixels.
const (
	width   = 1400.0
	margin  = 16.0
	gap     = 8.0
	columns = 24
	cell    = 30.0
	top     = 74.0
	bottom  = 44.0
)

const style = `text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:#5b616b;font-variant-numeric:tabular-nums}` +
	`.h1{font-size:22px;font-weight:600;fill:#1b1d21}.h2{font-size:15px;font-weight:600;fill:#1b1d21}.h3{font-size:13px;font-weight:600;fill:#1b1d21}` +
	`.ink{fill:#1b1d21}.end{text-anchor:end}.mid{text-anchor:middle}.big{font-weight:600;text-anchor:middle}.card{fill:#fff;stroke:#e3e4e1}` +
	`.grid{stroke:#e9eae7;fill:none}.line{fill:none;stroke-width:3;stroke-linejoin:round;stroke-linecap:round}`

// palette are the colours of lines in their order, where no override gives them one.
var palette = []string{"#007a59", "#0067a5", "#a83a83", "#c24d00", "#6554c0", "#8a7000", "#2b8ca3", "#b0413e", "#5f6672", "#4c7a1e"}

// box is a place in a picture.
type box struct{ x, y, w, h float64 }

// panelTypes draw the content of each type of panel. Rows have no content.
var panelTypes = map[string]func(*canvas, Panel, box){
	"row":            nil,
	"timeseries":     drawTimeseries,
	"stat":           drawStat,
	"state-timeline": drawStateTimeline,
	"table":          drawTable,
}

// Draw draws a dashboard as an SVG picture. The same dashboard and data give the same picture.
func Draw(d Dashboard, data Data) ([]byte, error) {
	rows := 0
	for _, p := range d.Panels {
		rows = max(rows, p.GridPos.Y+p.GridPos.H)
	}
	height := top + float64(rows)*(cell+gap) + bottom
	found, err := marks(d, data)
	if err != nil {
		return nil, err
	}
	c := &canvas{data: data, marks: found}
	c.printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" width="%g" height="%g" role="img"><title>%s</title><style>%s</style><rect width="100%%" height="100%%" fill="#f4f5f4"/>`,
		width, height, width, height, escaped(d.Title), style)
	c.text(margin, 34, "h1", d.Title)
	c.text(margin, 58, "", truncated(menus(d, data.Variables), width-300, 12))
	c.text(width-margin, 34, "end", timeSpan(data))
	c.text(width-margin, 58, "end", "one point every "+format(data.Step.Seconds(), "s", nil))
	for _, p := range d.Panels {
		if err := p.unknown(); err != nil {
			return nil, fmt.Errorf("the panel %q cannot be drawn: %w", p.Title, err)
		}
		c.panel(p)
	}
	c.text(width/2, height-18, "mid", Caption)
	c.printf("</svg>\n")
	return c.Bytes(), nil
}

func timeSpan(data Data) string {
	const day, clock = "2 January 2006, ", "15:04"
	from, to := data.From.UTC(), data.To.UTC()
	end := to.Format(day + clock)
	if from.Format(day) == to.Format(day) {
		end = to.Format(clock)
	}
	return from.Format(day+clock) + " – " + end + " UTC"
}

// menus are the choices at the top of a dashboard.
func menus(d Dashboard, chosen Variables) string {
	var words []string
	for _, v := range d.Templating.List {
		if v.Type == "datasource" {
			continue
		}
		value := chosen[v.Name]
		if v.IncludeAll && value == v.AllValue {
			value = "all"
		}
		words = append(words, v.Label+": "+value)
	}
	return strings.Join(words, "   ·   ")
}

func (c *canvas) panel(p Panel) {
	column := (width - 2*margin + gap) / columns
	b := box{
		x: margin + float64(p.GridPos.X)*column, y: top + float64(p.GridPos.Y)*(cell+gap),
		w: float64(p.GridPos.W)*column - gap, h: float64(p.GridPos.H)*(cell+gap) - gap,
	}
	if p.Type == "row" {
		c.text(b.x+2, b.y+22, "h2", p.Title)
		return
	}
	c.printf(`<rect class="card" x="%s" y="%s" width="%s" height="%s" rx="6"/>`, px(b.x), px(b.y), px(b.w), px(b.h))
	size := min(max(13*(b.w-22)/textWidth(p.Title, 13.5), 11), 13)
	c.printf(`<text class="h3" style="font-size:%spx" x="%s" y="%s">%s</text>`, px(size), px(b.x+12), px(b.y+21), escaped(truncated(p.Title, b.w-20, size)))
	inner := box{b.x + 12, b.y + 34, b.w - 24, b.h - 44}
	if !p.answered(c.data) {
		c.text(inner.x+inner.w/2, inner.y+inner.h/2, "mid", cmp.Or(p.FieldConfig.Defaults.NoValue, "No data"))
		return
	}
	panelTypes[p.Type](c, p, inner)
}

func (p Panel) answered(data Data) bool {
	return slices.ContainsFunc(p.Targets, func(t Target) bool { return len(data.Answers[Query{p.ID, t.RefID}]) > 0 })
}

// unknown is the first thing in a panel that this package cannot draw.
func (p Panel) unknown() error {
	if _, is := panelTypes[p.Type]; !is {
		return fmt.Errorf("the type %q is not known", p.Type)
	}
	f, o := p.FieldConfig.Defaults, p.Options
	if p.Type != "row" && units[f.Unit] == nil {
		return fmt.Errorf("the unit %q is not known", f.Unit)
	}
	if p.Collapsed || len(p.Panels) > 0 {
		return errors.New("collapsed rows are not known")
	}
	for _, o := range p.FieldConfig.Overrides {
		if err := o.unknown(f); err != nil {
			return err
		}
	}
	type words map[string][]string
	known := map[string]words{
		"timeseries": {
			"drawStyle " + f.Custom.DrawStyle:                  {"line"},
			"stacking " + f.Custom.Stacking.Mode:               {"none", "normal"},
			"showPoints " + f.Custom.ShowPoints:                {"never"},
			"thresholdsStyle " + f.Custom.ThresholdsStyle.Mode: {"", "line"},
			"legend " + o.Legend.DisplayMode:                   {"list"},
			"placement " + o.Legend.Placement:                  {"bottom"},
		},
		"stat": {
			"colorMode " + o.ColorMode:                              {"value"},
			"graphMode " + o.GraphMode:                              {"none", "area"},
			"textMode " + o.TextMode:                                {"value", "value_and_name"},
			"calcs " + strings.Join(o.ReduceOptions.Calcs, " and "): {"lastNotNull"},
		},
		"state-timeline": {
			"showValue " + o.ShowValue:                                                             {"auto"},
			"mergeValues " + strconv.FormatBool(o.MergeValues):                                     {"true"},
			"showLegend " + strconv.FormatBool(o.Legend.ShowLegend == nil || *o.Legend.ShowLegend): {"false"},
		},
	}[p.Type]
	for got, values := range known {
		option, value, _ := strings.Cut(got, " ")
		if !slices.Contains(values, value) {
			return fmt.Errorf("%s %q is not known, only %q", option, value, values)
		}
	}
	if p.Type == "table" {
		return cmp.Or(p.unknownTable(), f.unknown())
	}
	if len(p.Transformations) > 0 {
		return errors.New("transformations of anything but tables are not known")
	}
	return f.unknown()
}

// unknown is the first of the colours of values, or ways to choose them, that this package cannot draw.
func (f Field) unknown() error {
	var used []string
	if f.Thresholds != nil {
		if f.Thresholds.Mode != "absolute" {
			return fmt.Errorf("thresholds of the mode %q are not known", f.Thresholds.Mode)
		}
		for _, step := range f.Thresholds.Steps {
			used = append(used, step.Color)
		}
	}
	for _, m := range f.Mappings {
		if m.Type != "value" {
			return fmt.Errorf("mappings of the type %q are not known", m.Type)
		}
		for _, mapped := range m.Options {
			used = append(used, mapped.Color)
		}
	}
	if f.Color != nil {
		if f.Color.Mode != "fixed" {
			return fmt.Errorf("colours of the mode %q are not known", f.Color.Mode)
		}
		used = append(used, f.Color.FixedColor)
	}
	if !slices.Contains([]string{"", "auto", "color-text"}, f.Custom.CellOptions.Type) {
		return fmt.Errorf("cells of the type %q are not known", f.Custom.CellOptions.Type)
	}
	for _, name := range used {
		if color(name) == "" {
			return fmt.Errorf("the colour %q is not known", name)
		}
	}
	return nil
}

// written is how a panel writes a value, and its colour there.
func (f Field) written(value float64) (text, fill string) {
	for _, m := range f.Mappings {
		if mapped, is := m.Options[strconv.FormatFloat(value, 'f', -1, 64)]; is {
			return mapped.Text, color(mapped.Color)
		}
	}
	// What Grafana takes for a panel without thresholds.
	eighty := 80.0
	steps := []Threshold{{Color: "green"}, {"red", &eighty}}
	if f.Thresholds != nil {
		steps = f.Thresholds.Steps
	}
	name := "text"
	if f.Color != nil {
		return format(value, f.Unit, f.Decimals), color(f.Color.FixedColor)
	}
	for _, step := range steps {
		if step.Value == nil || value >= *step.Value {
			name = step.Color
		}
	}
	return format(value, f.Unit, f.Decimals), color(name)
}

// named is a series with the name that its legend gives it.
type named struct {
	name, color string
	field       Field
	points      []Point
}

var placeholder = regexp.MustCompile(`{{ *(\w+) *}}`)

// series are all that a panel's queries found.
func (p Panel) series(data Data) []named {
	var found []named
	for _, target := range p.Targets {
		for _, s := range data.Answers[Query{p.ID, target.RefID}] {
			name := placeholder.ReplaceAllStringFunc(target.LegendFormat, func(used string) string {
				return s.Labels[strings.Trim(used, "{ }")]
			})
			line := named{strings.TrimSpace(name), palette[len(found)%len(palette)], p.field(strings.TrimSpace(name)), s.Points}
			if fixed := line.field.Color; fixed != nil {
				line.color = color(fixed.FixedColor)
			}
			line.name = cmp.Or(line.field.DisplayName, line.name)
			found = append(found, line)
		}
	}
	return found
}

// mark is a moment that every chart shows.
type mark struct {
	at    float64
	color string
}

// marks are the annotations of a dashboard. Their values are moments in milliseconds.
func marks(d Dashboard, data Data) ([]mark, error) {
	var found []mark
	for _, a := range d.Annotations.List {
		if a.BuiltIn == 1 {
			continue
		}
		if !a.Enable || a.Hide || !a.UseValueForTime || color(a.IconColor) == "" {
			return nil, fmt.Errorf("the annotation %q cannot be drawn: only visible ones of known colours whose value is a time are known", a.Name)
		}
		for _, s := range data.Answers[Query{Name: a.Name}] {
			for _, point := range s.Points {
				m := mark{point.Value / 1000, color(a.IconColor)}
				if m.at >= float64(data.From.Unix()) && m.at <= float64(data.To.Unix()) && !slices.Contains(found, m) {
					found = append(found, m)
				}
			}
		}
	}
	return found, nil
}

// canvas is the text of a picture, and what its panels share.
type canvas struct {
	bytes.Buffer
	data  Data
	marks []mark
}

func (c *canvas) printf(format string, args ...any) { fmt.Fprintf(&c.Buffer, format, args...) }

func (c *canvas) text(x, y float64, class, words string) {
	if class != "" {
		class = ` class="` + class + `"`
	}
	c.printf(`<text x="%s" y="%s"%s>%s</text>`, px(x), px(y), class, escaped(words))
}

// timeAxis draws the ticks below a plot, and is where a moment is.
func (c *canvas) timeAxis(plot box) func(float64) float64 {
	from, to := float64(c.data.From.Unix()), float64(c.data.To.Unix())
	x := func(t float64) float64 { return plot.x + (t-from)/max(to-from, 1)*plot.w }
	for _, t := range timeTicks(c.data.From, c.data.To, int(plot.w/60)) {
		c.printf(`<path class="grid" d="M%s %sv%s"/>`, px(x(t.at)), px(plot.y), px(plot.h))
		// A label at the end must not reach over the panel.
		if half := textWidth(t.text, 12) / 2; x(t.at)+half <= plot.x+plot.w+10 {
			c.text(x(t.at), plot.y+plot.h+17, "mid", t.text)
		}
	}
	return x
}

func escaped(words string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(words)) // A buffer takes everything.
	return b.String()
}

func px(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

// textWidth is about how wide words are. Fonts differ, so it is on the safe side.
func textWidth(words string, size float64) float64 {
	total := 0.0
	for _, r := range words {
		switch {
		case strings.ContainsRune("iljftr.,:;|!'()[] ", r):
			total += 0.36
		case strings.ContainsRune("mwMW@%", r):
			total += 0.92
		default:
			total += 0.62
		}
	}
	return total * size
}

// truncated cuts words that are wider than there is room.
func truncated(words string, room, size float64) string {
	if textWidth(words, size) <= room {
		return words
	}
	runes := []rune(words)
	for len(runes) > 1 && textWidth(string(runes)+"…", size) > room {
		runes = runes[:len(runes)-1]
	}
	return strings.TrimSpace(string(runes)) + "…"
}
