package runner

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// through leads every request for a runner's pod to a server of the test's own, and all others where they want to go.
type through struct {
	runner string
	next   http.RoundTripper
}

func (t through) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.HasPrefix(request.URL.Host, "10.0.0.1:") {
		request = request.Clone(request.Context())
		request.URL.Host = strings.TrimPrefix(t.runner, "http://")
	}
	return t.next.RoundTrip(request)
}

// A runner's image is the user's. It must not send the operator, which may reach more than its user, anywhere else.
func TestRunnersDoNotSendTheOperatorElsewhere(t *testing.T) {
	var reached atomic.Int32
	inner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached.Add(1)
		_, _ = io.WriteString(w, `{"data":{"attributes":{"paused":true}}}`)
	}))
	t.Cleanup(inner.Close)
	for _, code := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		hostile := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, inner.URL+"/latest/meta-data", code)
		}))
		t.Cleanup(hostile.Close)
		http := NewHTTP()
		http.Transport = through{hostile.URL, http.Transport}
		err := (&Job{HTTP: http}).Begin(t.Context(), Observation{Runners: []Process{{State: Ready, IP: "10.0.0.1"}}})
		if err == nil || reached.Load() > 0 {
			t.Errorf("%d: it went %d times where it was sent: %v", code, reached.Load(), err)
		}
	}
}

// A proxy of the environment could answer in a runner's place, and a runner that does not answer would hold up all benchmarks.
func TestRunnersAreAskedDirectlyAndNotForLong(t *testing.T) {
	client := NewHTTP()
	if client.Transport.(*http.Transport).Proxy != nil {
		t.Error("runners are asked by way of a proxy")
	}
	if client.Timeout <= 0 || client.Timeout > 5*time.Second {
		t.Errorf("a runner has %s to answer", client.Timeout)
	}
}

// What a runner answers is not quoted: the error goes into the benchmark's status.
func TestRunnersAnswersAreNotQuoted(t *testing.T) {
	const secret = "AKIAIOSFODNN7EXAMPLE"
	for name, handle := range map[string]http.HandlerFunc{
		"an error":       func(w http.ResponseWriter, _ *http.Request) { http.Error(w, secret, http.StatusForbidden) },
		"something else": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, secret) },
		"of another shape": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"data":{"attributes":"`+secret+`"}}`)
		},
		"more than k6 ever says": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"data":`+strings.Repeat(" ", 2*maxAnswer)+`{"attributes":{"paused":true}}}`)
		},
		"more headers than k6 ever has": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(secret, strings.Repeat("x", 2*maxAnswer))
			_, _ = io.WriteString(w, `{}`)
		},
		"a place elsewhere": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "http://"+secret, http.StatusFound) },
		"no HTTP at all": func(w http.ResponseWriter, _ *http.Request) {
			connection, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				panic(err)
			}
			_, _ = io.WriteString(connection, secret+"\r\n\r\n")
			_ = connection.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(handle)
			t.Cleanup(server.Close)
			http := NewHTTP()
			http.Transport = through{server.URL, http.Transport}
			err := (&Job{HTTP: http}).Begin(t.Context(), Observation{Runners: []Process{{State: Ready, IP: "10.0.0.1"}}})
			if err == nil || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "'A'") {
				t.Errorf("the answer is in the error, or there is none: %v", err)
			}
		})
	}
}

// jobWithPods is a cluster with one Job, and these pods.
type jobWithPods struct{ pods []corev1.Pod }

func (jobWithPods) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	object.SetName(key.Name)
	object.SetUID("job")
	return nil
}

func (j jobWithPods) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*corev1.PodList).Items = j.pods
	return nil
}

// Anybody may label a pod. Only the Job's own, with an address of their own, are asked.
func TestOnlyPodsOfTheJobAreAsked(t *testing.T) {
	pod := func(owner types.UID, change func(*corev1.Pod)) corev1.Pod {
		made := corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: "runner", Labels: map[string]string{batchv1.JobCompletionIndexAnnotation: "0"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "run", UID: owner, Controller: ptr.To(true)}},
			},
			Status: corev1.PodStatus{PodIP: "10.0.0.1", ContainerStatuses: []corev1.ContainerStatus{{Name: container, Ready: true}}},
		}
		if change != nil {
			change(&made)
		}
		return made
	}
	for name, c := range map[string]struct {
		pod  corev1.Pod
		want State
	}{
		"its own":               {pod("job", nil), Ready},
		"one of another Job":    {pod("other", nil), Absent},
		"nobody's":              {pod("job", func(p *corev1.Pod) { p.OwnerReferences = nil }), Absent},
		"one that only claims":  {pod("job", func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }), Absent},
		"on the node's network": {pod("job", func(p *corev1.Pod) { p.Spec.HostNetwork = true }), Absent},
	} {
		t.Run(name, func(t *testing.T) {
			seen, err := (&Job{Reader: jobWithPods{[]corev1.Pod{c.pod}}}).Observe(t.Context(), Test{Name: "run", Runners: 1})
			if err != nil {
				t.Fatal(err)
			}
			if seen.Runners[0].State != c.want {
				t.Errorf("the runner is %s, want %s", seen.Runners[0].State, c.want)
			}
		})
	}
}
