// Package dashboards reads the chart's dashboards, asks a Prometheus what their panels ask, and draws the answers as pictures.
//
// It knows exactly the part of Grafana that the dashboards use. Anything else is an error, so that no dashboard can change beyond what
// is drawn without somebody noticing.
package dashboards

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
)

// Dashboard is the part of Grafana's format that the dashboards use.
type Dashboard struct {
	UID           string           `json:"uid"`
	Title         string           `json:"title"`
	Description   string           `json:"description"`
	Tags          []string         `json:"tags"`
	SchemaVersion int              `json:"schemaVersion"`
	Editable      bool             `json:"editable"`
	GraphTooltip  int              `json:"graphTooltip"`
	Refresh       string           `json:"refresh"`
	Time          map[string]any   `json:"time"`
	Timezone      string           `json:"timezone"`
	Links         []map[string]any `json:"links"`
	Annotations   struct {
		List []Annotation `json:"list"`
	} `json:"annotations"`
	Templating struct {
		List []Variable `json:"list"`
	} `json:"templating"`
	Panels []Panel `json:"panels"`
}

// Datasource says where a query goes.
type Datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// Annotation is a query for moments that every chart marks. Grafana's own, for alerts, has none.
type Annotation struct {
	BuiltIn         int        `json:"builtIn"`
	Name            string     `json:"name"`
	Datasource      Datasource `json:"datasource"`
	Enable          bool       `json:"enable"`
	Hide            bool       `json:"hide"`
	IconColor       string     `json:"iconColor"`
	Type            string     `json:"type"`
	Expr            string     `json:"expr"`
	UseValueForTime bool       `json:"useValueForTime"`
	Step            string     `json:"step"`
	TitleFormat     string     `json:"titleFormat"`
	TagKeys         string     `json:"tagKeys"`
}

// Variable is a menu at the top of a dashboard.
type Variable struct {
	Name       string          `json:"name"`
	Type       string          `json:"type"`
	Label      string          `json:"label"`
	Datasource Datasource      `json:"datasource"`
	Query      json.RawMessage `json:"query"`
	Definition string          `json:"definition"`
	Refresh    int             `json:"refresh"`
	Sort       int             `json:"sort"`
	Multi      bool            `json:"multi"`
	IncludeAll bool            `json:"includeAll"`
	AllValue   string          `json:"allValue"`
	Current    map[string]any  `json:"current"`
}

// Panel is one of a dashboard's panels.
type Panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	GridPos     struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	} `json:"gridPos"`
	Collapsed   bool       `json:"collapsed"`
	Panels      []Panel    `json:"panels"`
	Datasource  Datasource `json:"datasource"`
	Targets     []Target   `json:"targets"`
	FieldConfig struct {
		Defaults  Field      `json:"defaults"`
		Overrides []Override `json:"overrides"`
	} `json:"fieldConfig"`
	Options         Options          `json:"options"`
	Transformations []Transformation `json:"transformations"`
	Links           []Link           `json:"links"`
}

// Link leads from a panel, or from a value in it, to another page.
type Link struct {
	Title       string `json:"title"`
	URL         string `json:"url"`
	TargetBlank bool   `json:"targetBlank"`
}

// Override changes how some fields of a panel are shown: those of a name, or of a regular expression.
type Override struct {
	Matcher struct {
		ID      string `json:"id"`
		Options string `json:"options"`
	} `json:"matcher"`
	Properties []Property `json:"properties"`
}

// Property is one thing that an Override changes.
type Property struct {
	ID    string          `json:"id"`
	Value json.RawMessage `json:"value"`
}

// Target is a query of a panel.
type Target struct {
	RefID        string     `json:"refId"`
	Datasource   Datasource `json:"datasource"`
	Expr         string     `json:"expr"`
	LegendFormat string     `json:"legendFormat"`
	Format       string     `json:"format"`
	Instant      bool       `json:"instant"`
}

// Field says how the values of a panel are written and coloured.
type Field struct {
	Unit     string   `json:"unit"`
	Decimals *int     `json:"decimals"`
	Min      *float64 `json:"min"`
	Max      *float64 `json:"max"`
	NoValue  string   `json:"noValue"`
	// Color is the one of all values, whatever they are.
	Color *FixedColor `json:"color"`
	// Links are those of each value.
	Links       []Link      `json:"links"`
	DisplayName string      `json:"displayName"`
	Mappings    []Mapping   `json:"mappings"`
	Thresholds  *Thresholds `json:"thresholds"`
	Custom      struct {
		DrawStyle       string  `json:"drawStyle"`
		FillOpacity     float64 `json:"fillOpacity"`
		LineWidth       float64 `json:"lineWidth"`
		ShowPoints      string  `json:"showPoints"`
		Stacking        Mode    `json:"stacking"`
		ThresholdsStyle Mode    `json:"thresholdsStyle"`
		CellOptions     struct {
			Type string `json:"type"`
		} `json:"cellOptions"`
	} `json:"custom"`
}

// FixedColor is a colour that does not depend on the value.
type FixedColor struct {
	Mode       string `json:"mode"`
	FixedColor string `json:"fixedColor"`
}

// Mode is an object of Grafana's that holds only which of several ways is meant.
type Mode struct {
	Mode string `json:"mode"`
}

// Mapping writes words in the place of values.
type Mapping struct {
	Type    string `json:"type"`
	Options map[string]struct {
		Text  string `json:"text"`
		Color string `json:"color"`
	} `json:"options"`
}

// Thresholds are the colours of values, each from its value on.
type Thresholds struct {
	Mode  string      `json:"mode"`
	Steps []Threshold `json:"steps"`
}

// Threshold is a colour from a value on. The first has no value: it begins below all of them.
type Threshold struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

// Options are what the types of panels can be told, all types together.
type Options struct {
	ColorMode     string `json:"colorMode"`
	GraphMode     string `json:"graphMode"`
	TextMode      string `json:"textMode"`
	ReduceOptions struct {
		Calcs []string `json:"calcs"`
	} `json:"reduceOptions"`
	Legend struct {
		DisplayMode string `json:"displayMode"`
		Placement   string `json:"placement"`
		ShowLegend  *bool  `json:"showLegend"`
	} `json:"legend"`
	Tooltip    map[string]any `json:"tooltip"`
	ShowHeader bool           `json:"showHeader"`
	SortBy     []struct {
		DisplayName string `json:"displayName"`
		Desc        bool   `json:"desc"`
	} `json:"sortBy"`
	ShowValue   string  `json:"showValue"`
	RowHeight   float64 `json:"rowHeight"`
	MergeValues bool    `json:"mergeValues"`
}

// Transformation changes what queries found before it is shown.
type Transformation struct {
	ID      string `json:"id"`
	Options struct {
		ExcludeByName map[string]bool   `json:"excludeByName"`
		IndexByName   map[string]int    `json:"indexByName"`
		RenameByName  map[string]string `json:"renameByName"`
	} `json:"options"`
}

// Read reads a dashboard. A field that Dashboard does not have is an error: it is either misspelt or wants code that knows it.
func Read(content []byte) (Dashboard, error) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	var d Dashboard
	if err := decoder.Decode(&d); err != nil {
		return d, fmt.Errorf("the dashboard is not understood: %w", err)
	}
	return d, nil
}

// Asked is one query of a dashboard.
type Asked struct {
	Query
	// Where says in words where it stands.
	Where, Expr string
	// Instant is a query for the end of the time, not for all of it.
	Instant bool
}

// Queries are all queries of a dashboard, those of its annotations last.
func (d Dashboard) Queries() []Asked {
	var found []Asked
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			found = append(found, Asked{Query{panel.ID, target.RefID}, fmt.Sprintf("panel %q", panel.Title), target.Expr, target.Instant})
		}
	}
	for _, a := range d.Annotations.List {
		if a.Expr != "" {
			found = append(found, Asked{Query{Name: a.Name}, fmt.Sprintf("annotation %q", a.Name), a.Expr, false})
		}
	}
	return found
}

// Variables are the values of a dashboard's variables, Grafana's own included, by name.
type Variables map[string]string

var variable = regexp.MustCompile(`\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))`)

// Fill puts the values into a query. A variable without a value is an error.
func (v Variables) Fill(text string) (string, error) {
	var err error
	filled := variable.ReplaceAllStringFunc(text, func(used string) string {
		parts := variable.FindStringSubmatch(used)
		value, is := v[parts[1]+parts[2]]
		if !is {
			err = fmt.Errorf("there is no value for %s in %s", used, text)
		}
		return value
	})
	return filled, err
}

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

// LabelValues are the series and their label that have the values of a menu.
func (v Variable) LabelValues() (match, label string, err error) {
	parts := labelValues.FindStringSubmatch(v.Definition)
	if v.Type != "query" || parts == nil {
		return "", "", fmt.Errorf("the variable %s is not understood: %s %q", v.Name, v.Type, v.Definition)
	}
	return parts[1], parts[2], nil
}
