package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	fleetName    = "shop"
	fleetPods    = "livestash.dev/cluster=" + fleetName + ",app.kubernetes.io/component=fleet"
	appContainer = "app"
	beam         = "beam.smp"
	httpPort     = "4000"
	agentPort    = "9568"

	// settleTime bounds how long a fleet may take for one event.
	settleTime = 10 * time.Minute
)

// adapters by their names in the API, with those in the page's path.
var adapters = map[string]string{"ETS": "ets", "BrowserMemory": "browser_memory", "Redis": "redis", "Mnesia": "mnesia"}

// fleet is one LiveStashCluster in a namespace of its own that admits only restricted pods.
type fleet struct {
	*cluster
	options   options
	adapter   string
	namespace string

	// What the spec asks for. rollout is the value of a variable that the application does not look at.
	image    string
	replicas int
	rollout  int
	// up is whether the fleet was left in order.
	up bool
}

func newFleet(c *cluster, o options, adapter string) *fleet {
	return &fleet{
		cluster: c, options: o, adapter: adapter, namespace: "survival-" + strings.ToLower(adapter),
		image: o.image, replicas: 3,
	}
}

// ensure brings the fleet to a number of pods, and makes it anew when the event before has left it in disorder.
func (f *fleet) ensure(ctx context.Context, replicas int) error {
	f.replicas = replicas
	if !f.up {
		if err := f.remove(ctx); err != nil {
			return err
		}
		if err := f.create(ctx); err != nil {
			return err
		}
	}
	if err := f.apply(ctx); err != nil {
		return err
	}
	return f.settled(ctx)
}

func (f *fleet) create(ctx context.Context) error {
	if _, err := f.kubectl(ctx, "", "create", "namespace", f.namespace); err != nil {
		return err
	}
	_, err := f.kubectl(ctx, "", "label", "namespace", f.namespace, "pod-security.kubernetes.io/enforce=restricted")
	if err != nil {
		return err
	}
	if _, err := f.in(ctx, f.crowdPod(), "apply", "-f", "-"); err != nil {
		return err
	}
	f.up = true
	return nil
}

// remove removes the fleet with its namespace, and waits until it is gone.
func (f *fleet) remove(ctx context.Context) error {
	f.up = false
	_, err := f.kubectl(ctx, "", "delete", "namespace", f.namespace, "--ignore-not-found", "--wait", "--timeout=4m")
	return err
}

func (f *fleet) in(ctx context.Context, input string, args ...string) (string, error) {
	return f.kubectl(ctx, input, append([]string{"--namespace", f.namespace}, args...)...)
}

// otherImage is the same application under the tag that the fleet does not have.
func (f *fleet) otherImage() string {
	if f.image == f.options.nextImage {
		return f.options.image
	}
	return f.options.nextImage
}

// apply applies the LiveStashCluster. What is not the subject of an event is left to the defaults.
func (f *fleet) apply(ctx context.Context) error {
	spec := map[string]any{
		"image": f.image, "replicas": f.replicas, "adapter": f.adapter, "ttl": f.options.ttl.String(),
		"http": map[string]any{"readinessPath": "/healthz"},
		"env":  []any{map[string]any{"name": "SURVIVAL_ROLLOUT", "value": fmt.Sprint(f.rollout)}},
	}
	if !f.options.agent {
		spec["agent"] = map[string]any{"enabled": false}
	}
	if f.options.tls {
		spec["clustering"] = map[string]any{"tls": map[string]any{"enabled": true}}
	}
	if f.adapter == "Redis" {
		spec["redis"] = f.redis()
	}
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "livestash.dev/v1alpha1", "kind": "LiveStashCluster",
		"metadata": map[string]any{"name": fleetName}, "spec": spec,
	})
	if err != nil {
		return err
	}
	_, err = f.in(ctx, string(manifest), "apply", "-f", "-")
	return err
}

// status is what the driver reads of a LiveStashCluster.
type status struct {
	Metadata struct {
		Generation int64 `json:"generation"`
	} `json:"metadata"`
	Status struct {
		ObservedGeneration int64              `json:"observedGeneration"`
		Conditions         []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

func (f *fleet) status(ctx context.Context) (status, error) {
	var s status
	raw, err := f.raw(ctx, fmt.Sprintf("/apis/livestash.dev/v1alpha1/namespaces/%s/livestashclusters/%s", f.namespace, fleetName))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(raw, &s)
}

// condition is nil when the operator does not set it.
func (s status) condition(kind string) *metav1.Condition {
	i := slices.IndexFunc(s.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &s.Status.Conditions[i]
}

// settled waits until the fleet is what its spec asks for, by the operator's word and by the pods themselves.
func (f *fleet) settled(ctx context.Context) error {
	return eventually(ctx, settleTime, func(ctx context.Context) error {
		return errors.Join(f.conditionsHold(ctx), f.podsAreRight(ctx))
	})
}

func (f *fleet) conditionsHold(ctx context.Context) error {
	s, err := f.status(ctx)
	if err != nil {
		return err
	}
	if s.Status.ObservedGeneration != s.Metadata.Generation {
		return fmt.Errorf("the operator has not seen generation %d", s.Metadata.Generation)
	}
	want := map[string]metav1.ConditionStatus{
		"Available": metav1.ConditionTrue, "Progressing": metav1.ConditionFalse, "ReconcileSucceeded": metav1.ConditionTrue,
	}
	if f.options.agent {
		want["Clustered"], want["StoreReady"], want["AgentHealthy"] = metav1.ConditionTrue, metav1.ConditionTrue, metav1.ConditionTrue
	}
	// What kstatus looks at. It takes one that is not there for a good one.
	summary := map[string]metav1.ConditionStatus{
		"Ready": metav1.ConditionTrue, "Reconciling": metav1.ConditionFalse, "Stalled": metav1.ConditionFalse,
	}
	for kind, status := range summary {
		if s.condition(kind) != nil {
			want[kind] = status
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(want)) {
		c := s.condition(kind)
		if c == nil {
			return fmt.Errorf("there is no condition %s", kind)
		}
		if c.Status != want[kind] {
			return fmt.Errorf("%s is %s: %s: %s", kind, c.Status, c.Reason, c.Message)
		}
	}
	return nil
}

func (f *fleet) podsAreRight(ctx context.Context) error {
	set, err := f.statefulSet(ctx)
	if err != nil {
		return err
	}
	pods, err := f.pods(ctx)
	if err != nil {
		return err
	}
	if set.Status.ObservedGeneration != set.Generation {
		return errors.New("the StatefulSet's new generation is not seen yet")
	}
	// A pod that the operator has added for the time of a rollout is gone again.
	if asked := ptr.Deref(set.Spec.Replicas, 1); int(asked) != f.replicas || len(pods) != f.replicas {
		return fmt.Errorf("there are %d pods, and the StatefulSet asks for %d, not %d", len(pods), asked, f.replicas)
	}
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil || !isReady(pod) {
			return fmt.Errorf("pod %s is not ready", pod.Name)
		}
		if pod.Labels[appsv1.StatefulSetRevisionLabel] != set.Status.UpdateRevision {
			return fmt.Errorf("pod %s is not of revision %s", pod.Name, set.Status.UpdateRevision)
		}
	}
	return nil
}

func isReady(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func (f *fleet) statefulSet(ctx context.Context) (*appsv1.StatefulSet, error) {
	return f.AppsV1().StatefulSets(f.namespace).Get(ctx, fleetName, metav1.GetOptions{})
}

// pods are the fleet's, in the order of their ordinals (of which there are fewer than ten).
func (f *fleet) pods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := f.CoreV1().Pods(f.namespace).List(ctx, metav1.ListOptions{LabelSelector: fleetPods})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return list.Items, nil
}

// lives are the pods' UIDs by name, with which it can be told whether an event has replaced them.
func (f *fleet) lives(ctx context.Context) (map[string]types.UID, error) {
	pods, err := f.pods(ctx)
	if err != nil {
		return nil, err
	}
	lives := map[string]types.UID{}
	for _, pod := range pods {
		lives[pod.Name] = pod.UID
	}
	return lives, nil
}

// replaced waits until none of the pods of before is there any more.
func (f *fleet) replaced(ctx context.Context, before map[string]types.UID) error {
	return eventually(ctx, settleTime, func(ctx context.Context) error {
		now, err := f.lives(ctx)
		if err != nil {
			return err
		}
		for name, uid := range before {
			if now[name] == uid {
				return fmt.Errorf("pod %s was not replaced", name)
			}
		}
		return nil
	})
}

// lowest is the pod with ordinal 0, whose loss is the worst for Mnesia.
func (f *fleet) lowest() string { return fleetName + "-0" }

// highest is the one that a rollout takes first.
func (f *fleet) highest() string { return fmt.Sprintf("%s-%d", fleetName, f.replicas-1) }

func (f *fleet) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	return f.CoreV1().Pods(f.namespace).Get(ctx, name, metav1.GetOptions{})
}

// container is the status of a container in a pod.
func container(pod *corev1.Pod, name string) (corev1.ContainerStatus, error) {
	i := slices.IndexFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if i < 0 {
		return corev1.ContainerStatus{}, fmt.Errorf("pod %s has no container %s", pod.Name, name)
	}
	return pod.Status.ContainerStatuses[i], nil
}

// addresses are where sessions are opened, where they come back, and the host that the application takes itself for.
func (f *fleet) addresses(ctx context.Context) (pods []string, service, host string, err error) {
	for i := range f.replicas {
		pods = append(pods, net.JoinHostPort(podHost(i), httpPort))
	}
	s, err := f.CoreV1().Services(f.namespace).Get(ctx, fleetName, metav1.GetOptions{})
	if err != nil {
		return nil, "", "", err
	}
	// The address and not the name: a browser does not ask the cluster's DNS at each reconnect.
	service = net.JoinHostPort(s.Spec.ClusterIP, fmt.Sprint(s.Spec.Ports[0].Port))
	set, err := f.statefulSet(ctx)
	if err != nil {
		return nil, "", "", err
	}
	for _, container := range set.Spec.Template.Spec.Containers {
		for _, variable := range container.Env {
			if container.Name == appContainer && variable.Name == "PHX_HOST" {
				return pods, service, variable.Value, nil
			}
		}
	}
	return nil, "", "", errors.New("the pods have no PHX_HOST")
}

func podHost(ordinal int) string { return fmt.Sprintf("%s-%d.%s-nodes", fleetName, ordinal, fleetName) }

// peers is how many peers the agent of a pod says that its BEAM has.
type peers struct {
	Connected int `json:"connected"`
	Missing   int `json:"missing"`
}

func (f *fleet) peers(ctx context.Context, pod string) (peers, error) {
	var s struct {
		Peers peers `json:"peers"`
	}
	raw, err := f.raw(ctx, fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%s/proxy/status", f.namespace, pod, agentPort))
	if err != nil {
		return s.Peers, fmt.Errorf("agent of %s: %w", pod, err)
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s.Peers, fmt.Errorf("agent of %s: %w", pod, err)
	}
	return s.Peers, nil
}

// missingPeers is which peers the pods' agents miss; empty when the mesh is whole.
func (f *fleet) missingPeers(ctx context.Context) (string, error) {
	pods, err := f.pods(ctx)
	if err != nil {
		return "", err
	}
	var missing []string
	for _, pod := range pods {
		p, err := f.peers(ctx, pod.Name)
		if err != nil {
			return "", err
		}
		if p.Missing > 0 || p.Connected != f.replicas-1 {
			missing = append(missing, fmt.Sprintf("%s sees %d of %d peers", pod.Name, p.Connected, f.replicas-1))
		}
	}
	return strings.Join(missing, ", "), nil
}

// evict asks for the eviction of a pod as `kubectl drain` does, again and again while the disruption budget forbids it.
func (f *fleet) evict(ctx context.Context, name string) error {
	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/eviction", f.namespace, name)
	eviction := fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":%q}}`, name, f.namespace)
	return eventually(ctx, time.Minute, func(ctx context.Context) error {
		err := f.CoreV1().RESTClient().Post().AbsPath(path).Body([]byte(eviction)).Do(ctx).Error()
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}
