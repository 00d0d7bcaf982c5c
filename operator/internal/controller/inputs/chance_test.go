package inputs

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/runner"
	"github.com/livestash-dev/livestash/operator/internal/pki"
)

var (
	objectsFlag = flag.Int("objects", 300, "how many objects chance makes")
	onlyFlag    = flag.Int("only", -1, "which of them alone is made")
	seedFlag    = flag.Uint64("seed", 1, "what chance begins with; 0: something new")
)

// atOnce is how many objects are looked at at the same time.
const atOnce = 12

// TestChance: whatever the API server takes, the operator can make, or says what is wrong with which field.
func TestChance(t *testing.T) {
	if *seedFlag == 0 {
		*seedFlag = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed %d", *seedFlag)
	seeds, schemas := seeds(t), schemas(t)
	namespace := suite.Namespace(t, api)
	furnish(t, namespace)

	var group sync.WaitGroup
	numbers := make(chan int)
	var mutex sync.Mutex
	taken := 0
	for range atOnce {
		group.Go(func() {
			for number := range numbers {
				object, c := made(number, namespace, seeds, schemas)
				accepted, complaint := outcome(t.Context(), object, c.touched)
				mutex.Lock()
				if accepted {
					taken++
				}
				if complaint != "" {
					t.Errorf("-seed %d -only %d, %s: %s\n%s", *seedFlag, number, object.GetKind(), complaint, shortened(fmt.Sprintf("%q", object.Object["spec"])))
				}
				mutex.Unlock()
			}
		})
	}
	for number := range *objectsFlag {
		if *onlyFlag < 0 || number == *onlyFlag {
			numbers <- number
		}
	}
	close(numbers)
	group.Wait()
	t.Logf("%d of %d objects were accepted", taken, *objectsFlag)
	told := fmt.Sprintf("%q:%q", "reason", v1alpha1.ReasonInvalidSpec)
	if broken := slices.DeleteFunc(logs.with("cannot unmarshal"), func(line string) bool { return strings.Contains(line, told) }); len(broken) > 0 {
		t.Errorf("an object that the API server took cannot be read, which stops the operator for all:\n%s", broken[0])
	}
	if *onlyFlag < 0 && taken < *objectsFlag/5 {
		t.Error("they were too bad to tell anything")
	}
}

// made is an object of chance. The first ones are the good ones as they are.
func made(number int, namespace string, seeds []*unstructured.Unstructured, schemas map[string]*properties) (*unstructured.Unstructured, *chance) {
	c := &chance{Rand: rand.New(rand.NewPCG(*seedFlag, uint64(number)))}
	object := in(namespace, seeds[number%len(seeds)])
	object.SetName(fmt.Sprintf("%c%d", object.GetKind()[len("LiveStash")]+'a'-'A', number))
	if number < len(seeds) {
		return object, c
	}
	for range 1 + c.IntN(2) {
		object.Object["spec"] = c.mutate(schemas[object.GetKind()], object.Object["spec"])
	}
	return object, c
}

// outcome is whether the API server took the object, and what is wrong with what it or the operator says. Empty: nothing.
func outcome(ctx context.Context, object *unstructured.Unstructured, touched []string) (accepted bool, complaint string) {
	_, err := raw.Resource(resources[object.GetKind()]).Namespace(object.GetNamespace()).Create(ctx, object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		return false, badRefusal(err)
	}
	defer discard(object)
	complaint = silence(ctx, object, touched)
	if failures := logs.failures(object); complaint == "" && len(failures) > 0 {
		complaint = "the log: " + failures[0]
	}
	return true, complaint
}

// badRefusal is what is wrong with a refusal.
func badRefusal(err error) string {
	switch {
	case !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err):
		return "refused with something else than what is wrong: " + err.Error()
	case !strings.Contains(err.Error(), "spec"):
		return "the refusal names no field: " + err.Error()
	}
	var refusal *apierrors.StatusError
	if !errors.As(err, &refusal) || refusal.ErrStatus.Details == nil {
		return ""
	}
	causes := refusal.ErrStatus.Details.Causes
	if len(causes) > 0 && !slices.ContainsFunc(causes, func(cause metav1.StatusCause) bool { return !strings.Contains(cause.Message, " evaluating rule") }) {
		return "a rule that breaks: " + err.Error()
	}
	return ""
}

// silence is what the operator leaves unsaid about an object that was accepted.
func silence(ctx context.Context, object *unstructured.Unstructured, touched []string) string {
	complaint := "nothing is said"
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		now, err := stateOf(ctx, object)
		if client.IgnoreNotFound(err) != nil {
			return err.Error()
		}
		var done bool
		if done, complaint = now.judge(touched); !done {
			continue
		}
		if complaint != "" || now.isOver || object.GetKind() == "LiveStashCluster" {
			return complaint
		}
		if done, complaint = judgeFleets(ctx, object, touched); done {
			return complaint
		}
	}
	return complaint
}

// judge is whether something is said of the object, and what is wrong with it.
func (s state) judge(touched []string) (done bool, complaint string) {
	found := meta.FindStatusCondition(s.conditions, v1alpha1.ConditionReconcileSucceeded)
	switch {
	case found == nil || found.ObservedGeneration != s.generation:
		return false, "nothing is said"
	case found.Status == metav1.ConditionTrue:
		return true, ""
	case found.Reason == v1alpha1.ReasonAPIError:
		return true, found.Message
	case !strings.Contains(found.Message, "spec.") && !strings.Contains(found.Message, " of Secret ") && !slices.ContainsFunc(touched, func(name string) bool { return name != "" && strings.Contains(found.Message, name) }):
		return true, "the condition names no field: " + found.Message
	}
	return true, ""
}

// judgeFleets looks at the fleets of a benchmark that runs.
func judgeFleets(ctx context.Context, benchmark client.Object, touched []string) (done bool, complaint string) {
	if spec, _, _ := unstructured.NestedMap(benchmark.(*unstructured.Unstructured).Object, "spec", "target", "template"); spec == nil {
		return true, ""
	}
	if suspended, _, _ := unstructured.NestedBool(benchmark.(*unstructured.Unstructured).Object, "spec", "suspend"); suspended {
		return true, ""
	}
	fleets := &v1alpha1.LiveStashClusterList{}
	if err := seen.List(ctx, fleets, client.InNamespace(benchmark.GetNamespace()), client.MatchingLabels{runner.BenchmarkLabel: benchmark.GetName()}); err != nil {
		return true, err.Error()
	}
	if len(fleets.Items) == 0 {
		return false, "it has no fleet"
	}
	fleet := &fleets.Items[0]
	done, complaint = state{generation: fleet.Generation, conditions: fleet.Status.Conditions}.judge(touched)
	if complaint != "" {
		complaint = "its fleet: " + complaint
	}
	return done, complaint
}

// seeds are good objects: the samples, and those of the tables.
func seeds(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	paths, err := filepath.Glob(filepath.Join(repository, "config", "samples", "livestash*.yaml"))
	suite.Must(t, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		suite.Must(t, err)
		object := &unstructured.Unstructured{}
		suite.Must(t, yaml.Unmarshal(text, object))
		all = append(all, object)
	}
	tables := tables(t)
	for _, file := range []string{"cluster-accepted", "benchmark-accepted"} {
		for _, c := range tables[file].Cases {
			all = append(all, objectOf(tables[file].Kind, "", "", c.Spec))
		}
	}
	return all
}

// furnish makes what the good objects name.
func furnish(t *testing.T, namespace string) {
	t.Helper()
	value := []byte(strings.Repeat("a", 64))
	made, err := pki.NewAuthority("redis", time.Now())
	suite.Must(t, err)
	authority, _, err := made.Encode()
	suite.Must(t, err)
	for name, data := range map[string]map[string][]byte{
		"s":         {"k": value},
		"r":         {"url": []byte("rediss://redis:6379"), "p": value, "ca": authority},
		"ca":        {"ca.crt": authority},
		"shop-keys": {"secret-key-base": value, "database-url": value},
	} {
		suite.Must(t, api.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}))
	}
}

// shortened leaves out the middle of very long words.
func shortened(text string) string {
	words := strings.Split(text, " ")
	for i, word := range words {
		if len(word) > 200 {
			words[i] = fmt.Sprintf("%s...(%d bytes)", word[:20], len(word))
		}
	}
	return strings.Join(words, " ")
}
