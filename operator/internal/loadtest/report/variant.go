package report

import (
	"cmp"
	"slices"
)

// withoutLiveStash is the adapter of a fleet that stashes nothing, and the baseline where a report names no other.
const withoutLiveStash = "None"

// adapterOrder is that of tables, legends and sentences: the baseline first.
var adapterOrder = []string{"None", "ETS", "BrowserMemory", "Redis", "Mnesia"}

// variant is what is compared: its name, and its look, which is its place in tables, legends and sentences, too.
type variant struct {
	name string
	look int
}

// String is its name, for pages.
func (v variant) String() string { return v.name }

// variant is the name of what a run has and others have not.
func (r Run) variant() string { return cmp.Or(r.Variant, r.Adapter) }

// looks are a colour and the shape of a mark for each variant, by its place. The first are those of the adapters, in their order.
var looks = []struct{ class, mark string }{
	{"a-none", "m-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0z"},
	{"a-ets", "m-3.5-3.5h7v7h-7z"},
	{"a-browsermemory", "m0-4.5l4.3 7.7h-8.6z"},
	{"a-redis", "m0-4.8l4.8 4.8l-4.8 4.8l-4.8-4.8z"},
	{"a-mnesia", "m-4.3-3.2h8.6l-4.3 7.7z"},
	{"a-sixth", "m-4.4-1.4h8.8v2.8h-8.8z"},
	{"a-seventh", "m-1.4-4.4h2.8v8.8h-2.8z"},
	{"a-eighth", "m-4-4l8 8m0-8l-8 8"},
}

// variantsOf are the variants of a report by their names: adapters as always, all others in the order of their first runs.
func variantsOf(r Report) map[string]variant {
	var names []string
	for _, run := range r.Runs {
		if !slices.Contains(names, run.variant()) {
			names = append(names, run.variant())
		}
	}
	isAdapter := func(name string) bool { return slices.Contains(adapterOrder, name) }
	all := map[string]variant{}
	for place, name := range names {
		if !slices.ContainsFunc(names, func(other string) bool { return !isAdapter(other) }) {
			place = slices.Index(adapterOrder, name)
		}
		all[name] = variant{name, place}
	}
	return all
}

// class is that of the variant's colour.
func (v variant) class() markup { return markup(looks[v.look%len(looks)].class) }

// mark is the variant's shape around a point, as the data of a path.
func (v variant) mark(x, y float64) string {
	return "M" + pixel(x) + " " + pixel(y) + looks[v.look%len(looks)].mark
}
