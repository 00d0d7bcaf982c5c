package apply

import (
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

func TestCovers(t *testing.T) {
	cases := map[string]struct {
		have, want string
		covers     bool
	}{
		"the same":                      {"{a: 1, b: [x, y]}", "{a: 1, b: [x, y]}", true},
		"defaults besides":              {"{a: 1, b: 2}", "{a: 1}", true},
		"another value":                 {"{a: 2}", "{a: 1}", false},
		"a missing field":               {"{b: 1}", "{a: 1}", false},
		"false is a value":              {"{a: true}", "{a: false}", false},
		"zero is a value":               {"{a: 3}", "{a: 0}", false},
		"a dropped empty object":        {"{}", "{a: {}}", true},
		"an object for a value":         {"{a: 1}", "{a: {b: 1}}", false},
		"an entry of somebody else":     {"{a: [{name: x, v: 1}, {name: y}]}", "{a: [{name: y}]}", true},
		"an entry with defaults":        {"{a: [{name: x, v: 1, d: 2}]}", "{a: [{name: x, v: 1}]}", true},
		"an entry with another value":   {"{a: [{name: x, v: 2}]}", "{a: [{name: x, v: 1}]}", false},
		"a missing entry":               {"{a: [{name: x}]}", "{a: [{name: x}, {name: y}]}", false},
		"a missing list":                {"{}", "{a: [x]}", false},
		"a text for a number":           {"{a: '1'}", "{a: 1}", false},
		"nested deeper":                 {"{a: {b: {c: [1, 2], d: x}}}", "{a: {b: {c: [2]}}}", true},
		"nested deeper, another value":  {"{a: {b: {c: [1, 2], d: x}}}", "{a: {b: {d: y}}}", false},
		"nothing wanted, nothing there": {"{}", "{}", true},
		"a wanted null":                 {"{a: 1}", "{a: 1, b: null}", true},
		"a value for a wanted null":     {"{a: 1, b: {c: 1}}", "{a: 1, b: null}", false},
		"the same selector":             {"{selector: {a: b}}", "{selector: {a: b}}", true},
		"a selector of fewer":           {"{selector: {a: b, c: d}}", "{selector: {a: b}}", false},
		"a deeper selector of fewer":    {"{podSelector: {matchLabels: {a: b, c: d}}}", "{podSelector: {matchLabels: {a: b}}}", false},
		"a selector of all":             {"{podSelector: {}}", "{podSelector: {}}", true},
		"a dropped selector of all":     {"{}", "{podSelector: {}}", true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := covers(parse(t, c.have), parse(t, c.want)); got != c.covers {
				t.Errorf("covers(%s, %s) = %v", c.have, c.want, got)
			}
		})
	}
}

func parse(t *testing.T, text string) any {
	t.Helper()
	var value any
	suite.Must(t, yaml.Unmarshal([]byte(text), &value))
	return value
}
