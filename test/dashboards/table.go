package dashboards

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
)

const tableRow = 19.0

// unknownTable is the first thing in a table that this package cannot draw.
func (p Panel) unknownTable() error {
	t := p.Transformations
	if len(t) != 2 || t[0].ID != "merge" || t[1].ID != "organize" {
		return errors.New("only tables that are merged, then organized, are known")
	}
	if !t[1].Options.ExcludeByName["Time"] {
		return errors.New("only tables that leave out the time are known")
	}
	for _, target := range p.Targets {
		if !target.Instant || target.Format != "table" {
			return errors.New("only tables of instant queries are known")
		}
	}
	return nil
}

// tableOf merges the answers of a panel's queries into one table: a row for each set of the labels that all answers have, a column for
// each label and for each query, in the order that the panel gives them.
func (p Panel) tableOf(data Data) (names []string, rows []map[string]any) {
	order := p.Transformations[1].Options.IndexByName
	index := map[string]int{}
	key := p.shared(data)
	for _, target := range p.Targets {
		column := "Value #" + target.RefID
		index[column] = order[column]
		for _, s := range data.Answers[Query{p.ID, target.RefID}] {
			same := slices.IndexFunc(rows, func(row map[string]any) bool {
				return !slices.ContainsFunc(key, func(label string) bool { return row[label] != s.Labels[label] })
			})
			if same < 0 {
				rows, same = append(rows, map[string]any{}), len(rows)
			}
			for label, value := range s.Labels {
				index[label] = order[label]
				rows[same][label] = value
			}
			rows[same][column] = s.Points[0].Value
		}
	}
	maps.DeleteFunc(index, func(name string, _ int) bool { return p.Transformations[1].Options.ExcludeByName[name] })
	names = slices.SortedFunc(maps.Keys(index), func(a, b string) int { return cmp.Or(index[a]-index[b], cmp.Compare(a, b)) })
	return names, rows
}

// shared are the labels that all answers of a panel have.
func (p Panel) shared(data Data) []string {
	var all []string
	first := true
	for _, target := range p.Targets {
		for _, s := range data.Answers[Query{p.ID, target.RefID}] {
			if first {
				all, first = slices.Sorted(maps.Keys(s.Labels)), false
			}
			all = slices.DeleteFunc(all, func(label string) bool { _, is := s.Labels[label]; return !is })
		}
	}
	return all
}

// drawTable writes a table, as many rows as there is room for.
func drawTable(c *canvas, p Panel, b box) {
	names, rows := p.tableOf(c.data)
	rename := p.Transformations[1].Options.RenameByName
	for _, by := range slices.Backward(p.Options.SortBy) {
		slices.SortStableFunc(rows, func(a, b map[string]any) int {
			name := original(by.DisplayName, rename)
			order := compared(a[name], b[name])
			if by.Desc {
				return -order
			}
			return order
		})
	}
	room := int((b.h - tableRow) / tableRow)
	hidden := 0
	if len(rows) > room {
		hidden = len(rows) - room + 1
	}
	w := b.w / float64(len(names))
	for i, name := range names {
		shown := cmp.Or(rename[name], name)
		field := p.field(shown)
		c.text(b.x+float64(i)*w, b.y+14, "h3", truncated(cmp.Or(field.DisplayName, shown), w-8, 13))
		for j, row := range rows[:len(rows)-hidden] {
			words, fill := cmp.Or(field.NoValue, "–"), ""
			switch value := row[name].(type) {
			case string:
				words, fill = field.mapped(value)
			case float64:
				words, fill = field.written(value)
			}
			if field.Custom.CellOptions.Type != "color-text" || fill == "" {
				fill = color("text")
			}
			c.printf(`<text style="fill:%s" x="%s" y="%s">%s</text>`, fill, px(b.x+float64(i)*w), px(b.y+float64(j+1)*tableRow+14), escaped(truncated(words, w-8, 12)))
		}
	}
	for j := range len(rows) - hidden {
		c.printf(`<path class="grid" d="M%s %sh%s"/>`, px(b.x), px(b.y+float64(j+1)*tableRow-1), px(b.w))
	}
	if hidden > 0 {
		c.text(b.x, b.y+b.h-4, "", fmt.Sprintf("and %d more rows", hidden))
	}
}

// original is the name of a column before it was renamed.
func original(shown string, rename map[string]string) string {
	for name, other := range rename {
		if other == shown {
			return name
		}
	}
	return shown
}

// compared orders values of a column: numbers by size, words by the alphabet, and what is not there first.
func compared(a, b any) int {
	x, isX := a.(float64)
	y, isY := b.(float64)
	if isX && isY {
		return cmp.Compare(x, y)
	}
	return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b))
}

// mapped is how a table writes a word, and its colour there.
func (f Field) mapped(value string) (text, fill string) {
	for _, m := range f.Mappings {
		if found, is := m.Options[value]; is {
			return found.Text, color(found.Color)
		}
	}
	return value, ""
}
