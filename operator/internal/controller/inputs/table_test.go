package inputs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// table is a file of test/inputs. Its README says what the fields mean.
type table struct {
	Kind  string      `json:"kind"`
	Cases []inputCase `json:"cases"`
}

type inputCase struct {
	Name      string                       `json:"name"`
	Object    string                       `json:"object"`
	Given     []*unstructured.Unstructured `json:"given"`
	First     map[string]any               `json:"first"`
	Started   bool                         `json:"started"`
	Spec      map[string]any               `json:"spec"`
	Refused   []string                     `json:"refused"`
	Condition *expectation                 `json:"condition"`
	Within    metav1.Duration              `json:"within"`
	There     []string                     `json:"there"`
	Absent    []string                     `json:"absent"`
	Mended    *mending                     `json:"mended"`
	Pods      bool                         `json:"pods"`

	// refusals collects what the API server says.
	refusals *refusals
}

// expectation is what a condition must say. Status is False unless it is given.
type expectation struct {
	Type   string                 `json:"type"`
	Status metav1.ConditionStatus `json:"status"`
	Reason string                 `json:"reason"`
	Says   []string               `json:"says"`
}

// mending is what the user does upon what was said.
type mending struct {
	Given []*unstructured.Unstructured `json:"given"`
	Gone  []string                     `json:"gone"`
	Spec  map[string]any               `json:"spec"`
}

// resources are the kinds that cases speak of.
var resources = map[string]schema.GroupVersionResource{
	"LiveStashCluster":      v1alpha1.GroupVersion.WithResource("livestashclusters"),
	"LiveStashBenchmark":    v1alpha1.GroupVersion.WithResource("livestashbenchmarks"),
	"Secret":                {Version: "v1", Resource: "secrets"},
	"ConfigMap":             {Version: "v1", Resource: "configmaps"},
	"Service":               {Version: "v1", Resource: "services"},
	"ServiceAccount":        {Version: "v1", Resource: "serviceaccounts"},
	"PersistentVolumeClaim": {Version: "v1", Resource: "persistentvolumeclaims"},
	"StatefulSet":           {Group: "apps", Version: "v1", Resource: "statefulsets"},
	"Job":                   {Group: "batch", Version: "v1", Resource: "jobs"},
	"NetworkPolicy":         {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	"PodDisruptionBudget":   {Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
}

// tables are those of test/inputs, by the names of their files.
func tables(t *testing.T) map[string]table {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(repository, "test", "inputs", "*.yaml"))
	suite.Must(t, err)
	all := map[string]table{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		suite.Must(t, err)
		var one table
		if err := yaml.UnmarshalStrict(text, &one); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all[strings.TrimSuffix(filepath.Base(path), ".yaml")] = one
	}
	return all
}

func TestInputs(t *testing.T) {
	names, refusals := map[string]bool{}, &refusals{}
	t.Cleanup(func() { refusals.check(t) })
	for file, table := range tables(t) {
		for _, c := range table.Cases {
			name := file + "/" + c.Name
			if names[name] {
				t.Errorf("two cases are named %s", name)
			}
			names[name] = true
			if !c.Pods {
				refusals.due++
				c.refusals = refusals
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					c.run(t, table.Kind)
				})
			}
		}
	}
	t.Logf("%d cases", len(names))
}

func (c inputCase) run(t *testing.T, kind string) {
	c.refusals.begin()
	if c.Condition == nil && c.First == nil && c.Given == nil {
		c.check(t, c.send(t, objectOf(kind, "default", c.Object, c.Spec), true))
		return
	}
	namespace := suite.Namespace(t, api)
	for _, object := range c.Given {
		suite.Must(t, c.send(t, in(namespace, object), false))
	}
	given := c.versions(t, namespace)
	object := objectOf(kind, namespace, c.Object, c.Spec)
	before := map[string]types.UID{}
	if c.First != nil {
		first := objectOf(kind, namespace, c.Object, c.First)
		suite.Must(t, c.send(t, first, false))
		if c.Started {
			start(t, first)
		}
		for _, child := range c.There {
			before[child] = c.find(t, namespace, child)
		}
	}
	defer discard(object)
	c.check(t, c.send(t, object, false))
	if c.Condition != nil {
		c.await(t, object, *c.Condition)
	}
	if diff := cmp.Diff(given, c.versions(t, namespace)); diff != "" {
		t.Errorf("what was the user's is gone, or was changed (-before +after):\n%s", diff)
	}
	c.look(t, namespace, before)
	if c.Mended != nil {
		c.mend(t, object)
	}
}

// check compares the API server's answer with what it should say.
func (c inputCase) check(t *testing.T, refusal error) {
	t.Helper()
	switch {
	case c.Refused == nil && refusal != nil:
		t.Fatalf("it was refused:\n%v", refusal)
	case c.Refused != nil && refusal == nil:
		t.Fatal("it was accepted")
	case refusal != nil:
		c.refusals.add(refusal.Error())
	}
	for _, part := range c.Refused {
		if !strings.Contains(refusal.Error(), part) {
			t.Errorf("the refusal does not say %q:\n%v", part, refusal)
		}
	}
}

// send creates the object, or gives the one that is there its spec, as `kubectl apply` does: with fields that do not exist it is refused.
func (c inputCase) send(t *testing.T, object *unstructured.Unstructured, dryRun bool) error {
	t.Helper()
	resource := raw.Resource(resources[object.GetKind()]).Namespace(object.GetNamespace())
	create := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	if dryRun {
		create.DryRun = []string{metav1.DryRunAll}
	}
	_, err := resource.Create(t.Context(), object, create)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		there, err := resource.Get(t.Context(), object.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, field := range []string{"spec", "data", "stringData"} {
			if value, given := object.Object[field]; given {
				there.Object[field] = value
			}
		}
		_, err = resource.Update(t.Context(), there, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
		return err
	})
}

// start notes that the benchmark's first run has begun.
func start(t *testing.T, benchmark *unstructured.Unstructured) {
	t.Helper()
	patch := []byte(`{"status": {"startedAt": "2026-07-01T12:00:00Z"}}`)
	suite.Must(t, api.Status().Patch(t.Context(), benchmark.DeepCopy(), client.RawPatch(types.MergePatchType, patch)))
}

// await waits until the operator says of the spec as it is now what it should.
func (c inputCase) await(t *testing.T, object *unstructured.Unstructured, want expectation) {
	t.Helper()
	var last string
	deadline := time.Now().Add(c.limit())
	for ; time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		now, err := stateOf(t.Context(), object)
		suite.Must(t, client.IgnoreNotFound(err))
		if last = now.misses(want); last == "" {
			break
		}
	}
	if last != "" {
		t.Fatalf("after %s: %s", c.limit(), last)
	}
	for _, line := range logs.failures(object) {
		t.Errorf("a mistake of a user is an error in the log:\n%s", line)
	}
	if want.Type == v1alpha1.ConditionReconcileSucceeded && want.Status == "" && want.Reason != v1alpha1.ReasonPaused {
		if lines := logs.mistakes(object, want.Reason); len(lines) != 1 {
			t.Errorf("a mistake of a user is one line in the log, not %d:\n%s", len(lines), strings.Join(lines, "\n"))
		}
	}
}

// limit is within which time a condition must say it. No watch of the operator takes longer than seconds; a busy machine does.
func (c inputCase) limit() time.Duration {
	if c.Within.Duration == 0 {
		return time.Minute
	}
	return c.Within.Duration
}

// versions are those of the objects that were there before. Whoever writes to one gives it another; a fleet has a status of its own.
func (c inputCase) versions(t *testing.T, namespace string) map[string]string {
	t.Helper()
	versions := map[string]string{}
	for _, object := range c.Given {
		name := object.GetKind() + " " + object.GetName()
		switch found := there(t, namespace, name); {
		case found == nil:
		case found.GetKind() == "LiveStashCluster":
			versions[name] = fmt.Sprint(found.GetUID(), found.GetGeneration(), found.GetOwnerReferences())
		default:
			versions[name] = found.GetResourceVersion()
		}
	}
	return versions
}

// look sees to it that what should be there is, and that it is what was there before.
func (c inputCase) look(t *testing.T, namespace string, before map[string]types.UID) {
	t.Helper()
	for _, child := range c.There {
		if uid := c.find(t, namespace, child); before[child] != "" && uid != before[child] {
			t.Errorf("%s is another one", child)
		}
	}
	for _, child := range c.Absent {
		if there(t, namespace, child) != nil {
			t.Errorf("%s is there", child)
		}
	}
}

// mend does what the user was told, upon which nothing is wrong any more.
func (c inputCase) mend(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	for _, name := range c.Mended.Gone {
		kind, name, _ := strings.Cut(name, " ")
		suite.Must(t, raw.Resource(resources[kind]).Namespace(object.GetNamespace()).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	for _, given := range c.Mended.Given {
		suite.Must(t, c.send(t, in(object.GetNamespace(), given), false))
	}
	if c.Mended.Spec != nil {
		suite.Must(t, c.send(t, objectOf(object.GetKind(), object.GetNamespace(), object.GetName(), c.Mended.Spec), false))
	}
	c.await(t, object, expectation{Type: v1alpha1.ConditionReconcileSucceeded, Status: metav1.ConditionTrue})
}

// find waits until the child, "Service shop", is there, and returns its UID.
func (c inputCase) find(t *testing.T, namespace, child string) types.UID {
	t.Helper()
	for deadline := time.Now().Add(c.limit()); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if found := there(t, namespace, child); found != nil {
			return found.GetUID()
		}
	}
	t.Errorf("%s is not there", child)
	return ""
}
