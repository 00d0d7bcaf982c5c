package inputs

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// grownVolume is the rule that reads what the operator says of a volume, which no case can have. TestAVolumeThatCannotGrow tries it.
const grownVolume = "size cannot become smaller than the volume is"

// refusals are what the API server has said to the cases.
type refusals struct {
	mutex sync.Mutex
	// due and begun count the cases: with -run not all of them are asked.
	due, begun int
	said       strings.Builder
}

func (r *refusals) begin() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.begun++
}

func (r *refusals) add(refusal string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.said.WriteString(refusal + "\n")
}

// check fails for a rule of the definitions that no case is refused by: nobody would see if it no longer held.
func (r *refusals) check(t *testing.T) {
	if r.begun < r.due {
		return
	}
	paths, err := filepath.Glob(filepath.Join(repository, "config", "crd", "bases", "*.yaml"))
	suite.Must(t, err)
	told := map[string]bool{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		suite.Must(t, err)
		kind := &apiextensionsv1.CustomResourceDefinition{}
		suite.Must(t, yaml.Unmarshal(text, kind))
		for _, rule := range rulesOf(*kind.Spec.Versions[0].Schema.OpenAPIV3Schema) {
			words := wordsOf(rule)
			if !told[words] && !strings.HasPrefix(words, grownVolume) && !strings.Contains(r.said.String(), words) {
				t.Errorf("no case of test/inputs is refused by the rule of %s that says: %s", kind.Spec.Names.Kind, rule.Message)
			}
			told[words] = true
		}
	}
	if len(told) < 90 {
		t.Errorf("%d rules were found", len(told))
	}
}

// rulesOf are the rules of a schema and of all within it.
func rulesOf(schema apiextensionsv1.JSONSchemaProps) []apiextensionsv1.ValidationRule {
	rules := schema.XValidations
	for _, property := range schema.Properties {
		rules = append(rules, rulesOf(property)...)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		rules = append(rules, rulesOf(*schema.Items.Schema)...)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		rules = append(rules, rulesOf(*schema.AdditionalProperties.Schema)...)
	}
	return rules
}

// wordsOf is what a rule always says: its message, or the longest text in what makes its message.
func wordsOf(rule apiextensionsv1.ValidationRule) string {
	words := ""
	for _, literal := range regexp.MustCompile(`'([^']*)'`).FindAllStringSubmatch(rule.MessageExpression, -1) {
		for part := range strings.SplitSeq(literal[1], "%d") {
			if len(part) > len(words) {
				words = part
			}
		}
	}
	return cmp.Or(words, rule.Message)
}
