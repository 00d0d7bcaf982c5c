// Package text draws what a terminal shows: tables like kubectl's, colours, bars, ages. It is pure.
package text

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"
)

// gap is what lies between two columns at least, as kubectl has it.
const gap = 3

// Paint draws with colours, or without.
type Paint struct{ Colours bool }

// Colour is one of the few that every terminal has.
type Colour string

// The colours, by what they mean.
const (
	Good    Colour = "32"
	Warning Colour = "33"
	Bad     Colour = "31"
	Strong  Colour = "1"
	Faint   Colour = "2"
)

// In is a text in a colour.
func (p Paint) In(colour Colour, text string) string {
	if !p.Colours || text == "" || colour == "" {
		return text
	}
	return "\x1b[" + string(colour) + "m" + text + "\x1b[0m"
}

// Bar is how much of a whole is done, as wide as that many characters.
func (p Paint) Bar(done, whole, width int) string {
	full := 0
	if whole > 0 {
		full = min(width, max(0, done)*width/whole)
	}
	return "[" + p.In(Good, strings.Repeat("#", full)) + strings.Repeat("-", width-full) + "]"
}

// Cell is a text of a table, and its colour.
type Cell struct {
	Text   string
	Colour Colour
}

// Plain is a cell without a colour.
func Plain(value any) Cell { return Cell{Text: fmt.Sprint(value)} }

// Table is drawn with its columns side by side.
type Table struct {
	Columns []string
	Rows    [][]Cell
}

// Add adds a row.
func (t *Table) Add(cells ...Cell) { t.Rows = append(t.Rows, cells) }

// Write draws the table. Control characters of what others wrote are escaped.
func (t *Table) Write(w io.Writer, paint Paint) error {
	widths := make([]int, len(t.Columns))
	for i, column := range t.Columns {
		widths[i] = utf8.RuneCountInString(column)
		for _, row := range t.Rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(Safe(row[i].Text)))
		}
	}
	header := make([]Cell, len(t.Columns))
	for i, column := range t.Columns {
		header[i] = Plain(column)
	}
	for _, row := range append([][]Cell{header}, t.Rows...) {
		if _, err := io.WriteString(w, line(row, widths, paint)); err != nil {
			return err
		}
	}
	return nil
}

func line(row []Cell, widths []int, paint Paint) string {
	var b strings.Builder
	for i, cell := range row {
		text := Safe(cell.Text)
		b.WriteString(paint.In(cell.Colour, text))
		if i < len(row)-1 {
			b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)+gap))
		}
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}

// Safe is a text on one line, with what could steer a terminal, or change the order of what is read, written as Go escapes it: what pods and
// users write is shown too.
func Safe(text string) string {
	return escaped(strings.ReplaceAll(text, "\n", " "))
}

// Lines is the same with its line breaks.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = escaped(line)
	}
	return strings.Join(lines, "\n")
}

func escaped(line string) string {
	var b strings.Builder
	for _, r := range strings.ReplaceAll(line, "\t", " ") {
		if strconv.IsGraphic(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// Age is how long ago something was, as kubectl writes it.
func Age(then, now time.Time) string {
	if then.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(then))
}

// Count is a number with the noun that belongs to it.
func Count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Wrapped are the lines of a text that are at most so wide, each with something before it.
func Wrapped(text, before string, width int) string {
	var b strings.Builder
	line := ""
	for word := range strings.FieldsSeq(Safe(text)) {
		if line != "" && utf8.RuneCountInString(before+line+" "+word) > width {
			b.WriteString(before + line + "\n")
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		b.WriteString(before + line + "\n")
	}
	return b.String()
}
