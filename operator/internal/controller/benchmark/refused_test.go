package benchmark

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// refuse is what a controller says when the API server does not let it make a pod of an object, so many seconds ago.
func refuse(t *testing.T, object client.Object, kind, name, message string, secondsAgo int) {
	t.Helper()
	at := metav1.NewTime(time.Now().Add(-time.Duration(secondsAgo) * time.Second))
	suite.Must(t, api.Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: name},
		InvolvedObject: corev1.ObjectReference{Namespace: object.GetNamespace(), Kind: kind, Name: object.GetName(), UID: object.GetUID()},
		Reason:         "FailedCreate", Message: message, FirstTimestamp: at, LastTimestamp: at,
	}))
}

const overQuota = "pods \"x\" is forbidden: exceeded quota: small"

// A quota that lets no runner be made is named while the run waits, and at its deadline.
func TestRefusedRunnersAreNamed(t *testing.T) {
	b := newBenchmark(t, suite.Namespace(t, api), "poor", func(spec *v1alpha1.LiveStashBenchmarkSpec) {
		spec.Runner, spec.RunDeadline = v1alpha1.RunnerJob, &metav1.Duration{Duration: 2 * time.Minute}
	})
	job, _ := jobOf(t, b)
	refuse(t, job, "Job", "newest", overQuota, 1)
	refuse(t, job, "Job", "older", "something else", 5)
	other := job.DeepCopy()
	other.UID = "another"
	refuse(t, other, "Job", "another", "what is refused to others", 0)
	operatorTime.Ahead.Add(int64(refusedAfter + time.Second))
	changeSpec(t, b, func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.TTLSecondsAfterFinished = ptr.To[int32](3600) })
	const want = "a runner's pod is not made: " + overQuota
	reaches(t, b, "told what is wrong", func(s v1alpha1.LiveStashBenchmarkStatus) bool {
		complete := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionComplete)
		return complete != nil && strings.HasSuffix(complete.Message, want)
	})
	operatorTime.Ahead.Add(int64(2 * time.Minute))
	changeSpec(t, b, func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.TTLSecondsAfterFinished = ptr.To[int32](3601) })
	if row := finished(t, b); !strings.Contains(row.Message, "deadline of 2m0s (spec.runDeadline): "+want) {
		t.Errorf("the run is %s because %q", row.Verdict, row.Message)
	}
}

// So is one that lets no pod of a server be made.
func TestRefusedServersAreNamed(t *testing.T) {
	b := roomsOfServer(t, suite.Namespace(t, api), "poor", "protocol: WebSocket")
	set := serverOf(t, b)
	targetSays(t, b, metav1.ConditionFalse, "0 of 1 pods are ready")
	refuse(t, set, "StatefulSet", "newest", overQuota, 1)
	operatorTime.Ahead.Add(int64(refusedAfter + time.Second))
	changeSpec(t, b, func(spec *v1alpha1.LiveStashBenchmarkSpec) { spec.TTLSecondsAfterFinished = ptr.To[int32](3600) })
	targetSays(t, b, metav1.ConditionFalse, "0 of 1 pods are ready; "+overQuota)
}
