package dashboards

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
)

// field is how a field of a panel is shown: as all of them, unless an override says otherwise for its name.
func (p Panel) field(name string) Field {
	field := p.FieldConfig.Defaults
	for _, o := range p.FieldConfig.Overrides {
		if o.matches(name) {
			// Each was checked before anything was drawn.
			field, _ = o.apply(field)
		}
	}
	return field
}

func (o Override) matches(name string) bool {
	if o.Matcher.ID == "byName" {
		return o.Matcher.Options == name
	}
	pattern, err := o.pattern()
	return err == nil && pattern.MatchString(name)
}

// pattern is the regular expression of a matcher. Grafana takes one between slashes too.
func (o Override) pattern() (*regexp.Regexp, error) {
	text := o.Matcher.Options
	if n := len(text); n > 1 && text[0] == '/' && text[n-1] == '/' {
		text = text[1 : n-1]
	}
	return regexp.Compile(text)
}

// property is where one that is known stands in a field.
func (f *Field) property(id string) any {
	switch id {
	case "displayName":
		return &f.DisplayName
	case "color":
		return &f.Color
	case "unit":
		return &f.Unit
	case "decimals":
		return &f.Decimals
	case "noValue":
		return &f.NoValue
	case "mappings":
		return &f.Mappings
	case "thresholds":
		return &f.Thresholds
	case "links":
		return &f.Links
	case "custom.cellOptions":
		return &f.Custom.CellOptions
	default:
		return nil
	}
}

// apply is a field with an override's properties in the place of its own.
func (o Override) apply(field Field) (Field, error) {
	emptied := map[string]func(){
		"color": func() { field.Color = nil }, "decimals": func() { field.Decimals = nil }, "mappings": func() { field.Mappings = nil },
		"thresholds": func() { field.Thresholds = nil }, "links": func() { field.Links = nil },
	}
	for _, property := range o.Properties {
		place := field.property(property.ID)
		if place == nil {
			return field, fmt.Errorf("overrides of %q are not known", property.ID)
		}
		// What is decoded into must be new: all fields of the panel share what its defaults point to.
		if anew := emptied[property.ID]; anew != nil {
			anew()
		}
		decoder := json.NewDecoder(bytes.NewReader(property.Value))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(place); err != nil {
			return field, fmt.Errorf("the override of %q for %s: %w", property.ID, o.Matcher.Options, err)
		}
	}
	return field, nil
}

// unknown is the first thing in an override that this package cannot draw.
func (o Override) unknown(defaults Field) error {
	if !slices.Contains([]string{"byName", "byRegexp"}, o.Matcher.ID) {
		return fmt.Errorf("overrides %q are not known, only byName and byRegexp", o.Matcher.ID)
	}
	if _, err := o.pattern(); o.Matcher.ID == "byRegexp" && err != nil {
		return err
	}
	field, err := o.apply(defaults)
	if err != nil {
		return err
	}
	if units[field.Unit] == nil {
		return fmt.Errorf("the unit %q is not known", field.Unit)
	}
	return field.unknown()
}
