package advice

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// untold are the reasons of conditions that are well, and of events.
var untold = map[string]bool{
	"AllReady": true, "EnoughReady": true, "Complete": true, "Reconciled": true, "AllWell": true, "NotStalled": true, "PeersTakeOver": true,
	"Resumed": true, "CookieRotating": true, "CookieRotated": true, "TakenBack": true, "SecretGenerated": true, "SecretRegenerated": true,
	"AllConnected": true, "StoreAnswers": true, "AllAnswer": true, "StashesSmall": true, "CopiesCurrent": true, "PodDrained": true, "UsersSpread": true,
	"StashesLost": true, "ReturnsNotRecovered": true, "TemplateCurrent": true, "RedisPasswordChanged": true, "RedisHandedOver": true,
	"CertificateRenewed": true, "CertificateAuthorityGenerated": true, "CertificateAuthorityReplaced": true,
}

// Every reason of the API is either well or has its advice, so that a new one is not forgotten.
func TestEveryReason(t *testing.T) {
	for name, value := range constants(t, "Reason") {
		_, told := of[value]
		if told == untold[value] {
			t.Errorf("%s: has advice: %v, needs none: %v", name, told, untold[value])
		}
	}
	for name, value := range constants(t, "Condition") {
		summary := value == v1alpha1.ConditionReady || value == v1alpha1.ConditionReconciling
		if (means[value] == "") != summary {
			t.Errorf("%s means %q", name, means[value])
		}
	}
}

// The pages that are named exist, and so do their headings.
func TestPages(t *testing.T) {
	for reason, advice := range of {
		if advice.Read == "" {
			continue
		}
		path, heading, _ := strings.Cut(strings.TrimPrefix(advice.Read, docs), "#")
		page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", path))
		if err != nil {
			t.Errorf("%s: %v", reason, err)
		}
		if heading != "" && !strings.Contains(strings.ToLower(string(page)), "\n## "+strings.ReplaceAll(heading, "-", " ")+"\n") {
			t.Errorf("%s: %s has no heading %s", reason, path, heading)
		}
	}
}

func TestProblems(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "about " + reason}
	}
	got := Problems([]metav1.Condition{
		condition("Ready", "False", "PodFailing"),
		condition("Stalled", "True", "PodFailing"),
		condition("Progressing", "True", "PodFailing"),
		condition("Clustered", "Unknown", "AgentDisabled"),
		condition("StoreReady", "True", "StoreAnswers"),
		condition("UpToDate", "False", "TemplateKept"),
		condition("Available", "False", "TooFewReady"),
		condition("ReconcileSucceeded", "False", "CookieWaits"),
	})
	var told []string
	for _, problem := range got {
		told = append(told, problem.Condition+" "+problem.Reason+" "+strconv.FormatBool(problem.Passing))
	}
	want := []string{"Available TooFewReady false", "Stalled PodFailing false", "ReconcileSucceeded CookieWaits true", "UpToDate TemplateKept true"}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
}

// constants are those of the API whose names begin so.
func constants(t *testing.T, prefix string) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "..", "api", "v1alpha1", "livestashcluster_funcs.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	ast.Inspect(file, func(node ast.Node) bool {
		spec, is := node.(*ast.ValueSpec)
		if !is || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, prefix) {
			return true
		}
		if literal, is := spec.Values[0].(*ast.BasicLit); is {
			found[spec.Names[0].Name], _ = strconv.Unquote(literal.Value)
		}
		return true
	})
	if len(found) < 10 {
		t.Fatalf("only %d constants begin with %s", len(found), prefix)
	}
	return found
}
