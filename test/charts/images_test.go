package charts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Who starts the operator without the chart gets the images that the chart names.
func TestRedisImagesAreTheOperatorsOwnDefaults(t *testing.T) {
	program, err := os.ReadFile(filepath.Join("..", "..", "operator", "cmd", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	values, err := os.ReadFile(filepath.Join("..", "..", "charts", "livestash-operator", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, value := range valuesOf(t, values) {
		if !strings.HasPrefix(value.name, "redis.") {
			continue
		}
		compared++
		if image := strings.Trim(value.fallback, "`\""); !strings.Contains(string(program), `"`+image+`"`) {
			t.Errorf("%s is %s in the chart, and something else by default of the operator's flag", value.name, image)
		}
	}
	if compared != 2 {
		t.Errorf("%d images compared, want 2", compared)
	}
}
