package fleet

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

// A patch whose quantities would take hours to read is refused before anybody reads them, wherever a pod spec has some. The test would
// not end otherwise.
func TestQuantitiesThatNobodyCanRead(t *testing.T) {
	cases := map[string]struct {
		spec string
		says string
	}{
		"a limit":            {`{"containers": [{"name": "app", "resources": {"limits": {"memory": "1e-999999999"}}}]}`, `has the quantity "1e-999999999"`},
		"with spaces":        {`{"containers": [{"name": "app", "resources": {"limits": {"memory": " 1e-999999999 "}}}]}`, `has the quantity " 1e-999999999 "`},
		"in capitals":        {`{"Containers": [{"Name": "app", "RESOURCES": {"limits": {"memory": "-.1E-999999999"}}}]}`, `has the quantity "-.1E-999999999"`},
		"overhead":           {`{"overhead": {"memory": "+1e999999999"}}`, `has the quantity "+1e999999999"`},
		"a volume":           {`{"volumes": [{"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "1e-999999999"}}}}}}]}`, "has the quantity"},
		"beside other wrong": {`{"nodeSelector": 7, "overhead": {"memory": "1e-999999999"}}`, "has the quantity"},
		"a million digits":   {`{"overhead": {"memory": "` + strings.Repeat("9", 1_000_000) + `"}}`, `has the quantity "999`},
		"an argument":        {`{"containers": [{"name": "log", "image": "x", "args": ["1e-999999999"], "env": [{"name": "COMMIT", "value": "83e4123"}]}]}`, ""},
		"a large limit":      {`{"containers": [{"name": "app", "resources": {"limits": {"memory": "1e30"}}}]}`, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := rendertest.Cluster(t, "smallest")
			cluster.Spec.PodTemplate = &v1alpha1.PodTemplateOverride{Spec: &v1alpha1.PodSpecOverride{}}
			if err := json.Unmarshal([]byte(c.spec), cluster.Spec.PodTemplate.Spec); err != nil {
				t.Fatal(err)
			}
			References(cluster)
			_, err := Render(cluster, rendertest.Inputs)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), "spec.podTemplate.spec "+c.says)) {
				t.Errorf("Render = %.300v, want %q", err, c.says)
			}
		})
	}
}
