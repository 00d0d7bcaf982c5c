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
	if !maps.Equal(t[1].Options.ExcludeByName, map[string]bool{"Time": true}) {
		return errors.New("only tables that leave out the time, and nothing else, are known")
	}
	for _, target := range p.Targets {
		if !target.Instant || target.Format != "table" {
			return errors.New("only tables of instant queries are known")
		}
	}
	return nil
}

// tableOf merges the answers of a panel's queries into one table: a row for each set of labels, a column for each label and for each
// query, in the order that the panel gives them.
func (p Panel) tableOf(data Data) (names []string, rows []map[string]any) {
	order := p.Transformations[1].Options.IndexByName
	index := map[string]int{}
	for _, target := range p.Targets {
		column := "Value #" + target.RefID
		index[column] = order[column]
		for _, s := range data.Answers[Query{p.ID, target.RefID}] {
			row := map[string]any{}
			for label, value := range s.Labels {
				index[label] = order[label]
				row[label] = value
			}
			same := slices.IndexFunc(rows, func(other map[string]any) bool { return labelsOf(other) == s.key() })
			if same < 0 {
				rows, same = append(rows, row), len(rows)
			}
			rows[same][column] = s.Points[0].Value
		}
	}
	names = slices.SortedFunc(maps.Keys(index), func(a, b string) int { return cmp.Or(index[a]-index[b], cmp.Compare(a, b)) })
	return names, rows
}

// labelsOf is the key of the series that a row is made of.
func labelsOf(row map[string]any) string {
	s := Series{Labels: map[string]string{}}
	for name, value := range row {
		if label, is := value.(string); is {
			s.Labels[name] = label
		}
	}
	return s.key()
}

// drawTable writes a table, as many rows as there is room for.
func drawTable(c *canvas, p Panel, b box) {
	names, rows := p.tableOf(c.data)
	rename := p.Transformations[1].Options.RenameByName
	for _, by := range slices.Backward(p.Options.SortBy) {
		slices.SortStableFunc(rows, func(a, b map[string]any) int {
			order := cmp.Compare(fmt.Sprint(a[by.DisplayName]), fmt.Sprint(b[by.DisplayName]))
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
		c.text(b.x+float64(i)*w, b.y+14, "h3", truncated(cmp.Or(rename[name], name), w-8, 13))
		for j, row := range rows[:len(rows)-hidden] {
			words := "–"
			switch value := row[name].(type) {
			case string:
				words = value
			case float64:
				words = format(value, p.FieldConfig.Defaults.Unit, p.FieldConfig.Defaults.Decimals)
			}
			c.text(b.x+float64(i)*w, b.y+float64(j+1)*tableRow+14, "ink", truncated(words, w-8, 12))
		}
	}
	for j := range len(rows) - hidden {
		c.printf(`<path class="grid" d="M%s %sh%s"/>`, px(b.x), px(b.y+float64(j+1)*tableRow-1), px(b.w))
	}
	if hidden > 0 {
		c.text(b.x, b.y+b.h-4, "", fmt.Sprintf("and %d more rows", hidden))
	}
}
