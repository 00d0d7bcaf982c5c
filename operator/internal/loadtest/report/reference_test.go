package report_test

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

// The reference must name every field, and no field that is gone.
func TestReferenceIsComplete(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/reference/benchmark-report.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-zA-Z0-9.\\[\\]*]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		documented[row[1]] = true
	}
	fields := map[string]bool{}
	paths(reflect.TypeFor[report.Report](), "", fields)
	counts, err := os.ReadFile("counts.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`Count[A-Za-z]+ += "([a-zA-Z]+)"`).FindAllStringSubmatch(string(counts), -1) {
		fields["runs[].counts."+name[1]] = true
	}
	for path := range fields {
		if !documented[path] {
			t.Errorf("docs/reference/benchmark-report.md has no row for `%s`", path)
		}
	}
	for path := range documented {
		if !fields[path] {
			t.Errorf("docs/reference/benchmark-report.md has a row for `%s`, which is no field", path)
		}
	}
}

func paths(t reflect.Type, prefix string, into map[string]bool) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		path := prefix + name
		into[path] = true
		inner := field.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice || inner.Kind() == reflect.Map {
			if inner.Kind() == reflect.Slice {
				path += "[]"
			}
			if inner.Kind() == reflect.Map {
				path += ".*"
			}
			inner = inner.Elem()
		}
		if inner == reflect.TypeFor[report.Counts]() {
			into[path+".errors"] = true
			continue
		}
		if path == "against" {
			continue // its fields are described where comparison is
		}
		if inner.Kind() == reflect.Struct && strings.HasSuffix(inner.PkgPath(), "/report") {
			paths(inner, path+".", into)
		}
	}
}
