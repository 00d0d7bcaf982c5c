package fleet

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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

const (
	// Name of every LiveStashCluster under test: each has a namespace of its own.
	Name = "shop"
	// Component is the label app.kubernetes.io/component of a fleet's pods.
	Component = "fleet"
	// Selector selects the pods of the fleet.
	Selector = "livestash.dev/cluster=" + Name + ",app.kubernetes.io/component=" + Component
	// AppContainer is the application's container.
	AppContainer = "app"
	// Beam is the name of the process in it.
	Beam = "beam.smp"
	// HTTPPort is the application's.
	HTTPPort  = "4000"
	agentPort = "9568"

	// SettleTime bounds how long a fleet may take for one event.
	SettleTime = 10 * time.Minute
	// answerTime is how long a pod's agent may take to answer.
	answerTime = 5 * time.Second
)

// Adapters by their names in the API, with those in the page's path.
var Adapters = map[string]string{"ETS": "ets", "BrowserMemory": "browser_memory", "Redis": "redis", "Mnesia": "mnesia"}

// Fleet is one LiveStashCluster in a namespace of its own that admits only restricted pods.
type Fleet struct {
	*Cluster
	Options   Options
	Adapter   string
	Namespace string

	// What the spec asks for. Rollout is the value of a variable that the application does not look at.
	Image    string
	Replicas int
	Rollout  int
	// Version is that of the pages, Canary spec.rollout.canary. Empty: none.
	Version string
	Canary  map[string]any
	// Up is whether the fleet was left in order.
	Up bool
}

// New is a fleet of three pods that is not made yet. Its namespace begins with the name of the test.
func New(c *Cluster, o Options, test, adapter string) *Fleet {
	return &Fleet{
		Cluster: c, Options: o, Adapter: adapter, Namespace: test + "-" + strings.ToLower(adapter),
		Image: o.Image, Replicas: 3,
	}
}

// Ensure brings the fleet to a number of pods, and makes it anew when the event before has left it in disorder.
func (f *Fleet) Ensure(ctx context.Context, replicas int) error {
	f.Replicas = replicas
	if !f.Up {
		if err := f.Remove(ctx); err != nil {
			return err
		}
		if err := f.create(ctx); err != nil {
			return err
		}
	}
	if err := f.Apply(ctx); err != nil {
		return err
	}
	return f.Settled(ctx)
}

func (f *Fleet) create(ctx context.Context) error {
	if _, err := f.Kubectl(ctx, "", "create", "namespace", f.Namespace); err != nil {
		return err
	}
	_, err := f.Kubectl(ctx, "", "label", "namespace", f.Namespace, "pod-security.kubernetes.io/enforce=restricted")
	if err != nil {
		return err
	}
	if _, err := f.In(ctx, f.clientPod(), "apply", "-f", "-"); err != nil {
		return err
	}
	f.Up = true
	return nil
}

// Remove removes the fleet with its namespace, and waits until it is gone.
func (f *Fleet) Remove(ctx context.Context) error {
	f.Up = false
	_, err := f.Kubectl(ctx, "", "delete", "namespace", f.Namespace, "--ignore-not-found", "--wait", "--timeout=4m")
	return err
}

// In runs kubectl in the fleet's namespace.
func (f *Fleet) In(ctx context.Context, input string, args ...string) (string, error) {
	return f.Kubectl(ctx, input, append([]string{"--namespace", f.Namespace}, args...)...)
}

// OtherImage is the same application under the tag that the fleet does not have.
func (f *Fleet) OtherImage() string {
	if f.Image == f.Options.NextImage {
		return f.Options.Image
	}
	return f.Options.NextImage
}

// Apply applies the LiveStashCluster. What is not the subject of an event is left to the defaults.
func (f *Fleet) Apply(ctx context.Context) error {
	env := []any{
		map[string]any{"name": "SURVIVAL_ROLLOUT", "value": fmt.Sprint(f.Rollout)},
		map[string]any{"name": "STASH_VERSION", "value": f.Version},
	}
	if f.Options.PayloadKeys > 0 {
		env = append(env, map[string]any{"name": "STASH_PAYLOAD_KEYS", "value": fmt.Sprint(f.Options.PayloadKeys)})
	}
	spec := map[string]any{
		"image": f.Image, "replicas": f.Replicas, "adapter": f.Adapter, "ttl": f.Options.TTL.String(),
		"http": map[string]any{"readinessPath": "/healthz"}, "env": env,
	}
	rollout := map[string]any{}
	if f.Canary != nil {
		rollout["canary"] = f.Canary
	}
	if f.Options.Surge != "" {
		rollout["surge"] = f.Options.Surge
	}
	if f.Options.MaxLoadFactor != "" {
		rollout["maxLoadFactor"] = f.Options.MaxLoadFactor
	}
	spec["rollout"] = rollout
	if !f.Options.Agent {
		spec["agent"] = map[string]any{"enabled": false}
	}
	if f.Options.HandOff > 0 {
		spec["drain"] = map[string]any{"handOffTimeout": f.Options.HandOff.String()}
	}
	if f.Options.TLS {
		spec["clustering"] = map[string]any{"tls": map[string]any{"enabled": true}}
	}
	if f.Options.Shadows(f.Adapter) {
		spec["shadow"] = map[string]any{"enabled": true}
	}
	if f.Adapter == "Redis" {
		spec["redis"] = f.redis()
	}
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "livestash.dev/v1alpha1", "kind": "LiveStashCluster",
		"metadata": map[string]any{"name": Name}, "spec": spec,
	})
	if err != nil {
		return err
	}
	_, err = f.In(ctx, string(manifest), "apply", "-f", "-")
	return err
}

// RolledBack waits until the operator has gone back to the template before, and says that the wanted one was rejected.
func (f *Fleet) RolledBack(ctx context.Context, within time.Duration) (why string, err error) {
	err = Eventually(ctx, within, func(ctx context.Context) error {
		s, err := f.status(ctx)
		if err != nil {
			return err
		}
		stalled := s.condition("Stalled")
		if stalled == nil || stalled.Reason != "RolledBack" || s.Status.UpdatedReplicas > 0 || int(s.Status.ReadyReplicas) < f.Replicas {
			return fmt.Errorf("%d pods have the new template, %d are ready, Stalled is %+v", s.Status.UpdatedReplicas, s.Status.ReadyReplicas, stalled)
		}
		why = stalled.Message
		return nil
	})
	return why, err
}

// status is what the driver reads of a LiveStashCluster.
type status struct {
	Metadata struct {
		Generation int64 `json:"generation"`
	} `json:"metadata"`
	Status struct {
		ObservedGeneration int64              `json:"observedGeneration"`
		ReadyReplicas      int32              `json:"readyReplicas"`
		UpdatedReplicas    int32              `json:"updatedReplicas"`
		Conditions         []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

func (f *Fleet) status(ctx context.Context) (status, error) {
	var s status
	raw, err := f.Raw(ctx, fmt.Sprintf("/apis/livestash.dev/v1alpha1/namespaces/%s/livestashclusters/%s", f.Namespace, Name))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(raw, &s)
}

// condition is nil when the operator does not set it.
func (s status) condition(kind string) *metav1.Condition {
	return meta.FindStatusCondition(s.Status.Conditions, kind)
}

// Settled waits until the fleet is what its spec asks for, by the operator's word and by the pods themselves.
func (f *Fleet) Settled(ctx context.Context) error {
	return Eventually(ctx, SettleTime, func(ctx context.Context) error {
		return errors.Join(f.ConditionsHold(ctx), f.podsAreRight(ctx))
	})
}

// ConditionsHold fails unless the operator says that all is well, of the newest spec.
func (f *Fleet) ConditionsHold(ctx context.Context) error {
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
	if f.Options.Agent {
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

func (f *Fleet) podsAreRight(ctx context.Context) error {
	set, err := f.statefulSet(ctx)
	if err != nil {
		return err
	}
	pods, err := f.ListPods(ctx)
	if err != nil {
		return err
	}
	if set.Status.ObservedGeneration != set.Generation {
		return errors.New("the StatefulSet's new generation is not seen yet")
	}
	// A pod that the operator has added for the time of a rollout is gone again.
	if asked := ptr.Deref(set.Spec.Replicas, 1); int(asked) != f.Replicas || len(pods) != f.Replicas {
		return fmt.Errorf("there are %d pods, and the StatefulSet asks for %d, not %d", len(pods), asked, f.Replicas)
	}
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil || !IsReady(pod) {
			return fmt.Errorf("pod %s is not ready", pod.Name)
		}
		if pod.Labels[appsv1.StatefulSetRevisionLabel] != set.Status.UpdateRevision {
			return fmt.Errorf("pod %s is not of revision %s", pod.Name, set.Status.UpdateRevision)
		}
	}
	return nil
}

// IsReady is whether a pod is ready.
func IsReady(pod corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func (f *Fleet) statefulSet(ctx context.Context) (*appsv1.StatefulSet, error) {
	return f.AppsV1().StatefulSets(f.Namespace).Get(ctx, Name, metav1.GetOptions{})
}

// ListPods are the fleet's, in the order of their ordinals (of which there are fewer than ten).
func (f *Fleet) ListPods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := f.CoreV1().Pods(f.Namespace).List(ctx, metav1.ListOptions{LabelSelector: Selector})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return list.Items, nil
}

// Lives are the pods' UIDs by name, with which it can be told whether an event has replaced them.
func (f *Fleet) Lives(ctx context.Context) (map[string]types.UID, error) {
	pods, err := f.ListPods(ctx)
	if err != nil {
		return nil, err
	}
	lives := map[string]types.UID{}
	for _, pod := range pods {
		lives[pod.Name] = pod.UID
	}
	return lives, nil
}

// Replaced waits until none of the pods of before is there any more.
func (f *Fleet) Replaced(ctx context.Context, before map[string]types.UID) error {
	return Eventually(ctx, SettleTime, func(ctx context.Context) error {
		now, err := f.Lives(ctx)
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

// Upgrade does what brings another operator, and waits until that one has looked at the fleet. It fails when a pod is not the one that it was.
func (f *Fleet) Upgrade(ctx context.Context, bring func() error) error {
	before, err := f.Lives(ctx)
	if err != nil {
		return err
	}
	last, err := f.looked(ctx)
	if err != nil {
		return err
	}
	if err := bring(); err != nil {
		return err
	}
	err = Eventually(ctx, SettleTime, func(ctx context.Context) error {
		now, err := f.looked(ctx)
		if err == nil && now == last {
			err = errors.New("the new operator has not noted on the StatefulSet that it has looked")
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := f.Settled(ctx); err != nil {
		return err
	}
	now, err := f.Lives(ctx)
	if err == nil && !maps.Equal(before, now) {
		err = fmt.Errorf("the pods are no longer those that they were: %v, now %v", before, now)
	}
	return err
}

// looked is what the operator that looked last noted of that.
func (f *Fleet) looked(ctx context.Context) (string, error) {
	set, err := f.statefulSet(ctx)
	if err != nil {
		return "", err
	}
	return set.Annotations["livestash.dev/rendered"], nil
}

// Pod is one of the fleet's namespace.
func (f *Fleet) Pod(ctx context.Context, name string) (*corev1.Pod, error) {
	return f.CoreV1().Pods(f.Namespace).Get(ctx, name, metav1.GetOptions{})
}

// Container is the status of a container in a pod.
func Container(pod *corev1.Pod, name string) (corev1.ContainerStatus, error) {
	i := slices.IndexFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if i < 0 {
		return corev1.ContainerStatus{}, fmt.Errorf("pod %s has no container %s", pod.Name, name)
	}
	return pod.Status.ContainerStatuses[i], nil
}

// Addresses are where sessions are opened, where they come back, and the host that the application takes itself for.
func (f *Fleet) Addresses(ctx context.Context) (pods []string, service, host string, err error) {
	running, err := f.ListPods(ctx)
	if err != nil {
		return nil, "", "", err
	}
	for _, pod := range running {
		pods = append(pods, net.JoinHostPort(pod.Name+"."+Name+"-nodes", HTTPPort))
	}
	s, err := f.CoreV1().Services(f.Namespace).Get(ctx, Name, metav1.GetOptions{})
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
			if container.Name == AppContainer && variable.Name == "PHX_HOST" {
				return pods, service, variable.Value, nil
			}
		}
	}
	return nil, "", "", errors.New("the pods have no PHX_HOST")
}

// Peers is how many peers the agent of a pod says that its BEAM has.
type Peers struct {
	Connected int `json:"connected"`
	Missing   int `json:"missing"`
}

// PeersOf asks the agent of a pod, which has some seconds to answer: one question that is lost must not take all of the time.
func (f *Fleet) PeersOf(ctx context.Context, pod string) (Peers, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var s struct {
		Peers Peers `json:"peers"`
	}
	raw, err := f.Raw(ctx, fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%s/proxy/status", f.Namespace, pod, agentPort))
	if err != nil {
		return s.Peers, fmt.Errorf("agent of %s: %w", pod, err)
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s.Peers, fmt.Errorf("agent of %s: %w", pod, err)
	}
	return s.Peers, nil
}

// MissingPeers is which peers the pods' agents miss; empty when the mesh is whole.
func (f *Fleet) MissingPeers(ctx context.Context) (string, error) {
	pods, err := f.ListPods(ctx)
	if err != nil {
		return "", err
	}
	var missing []string
	for _, pod := range pods {
		p, err := f.PeersOf(ctx, pod.Name)
		if err != nil {
			return "", err
		}
		if p.Missing > 0 || p.Connected != f.Replicas-1 {
			missing = append(missing, fmt.Sprintf("%s sees %d of %d peers", pod.Name, p.Connected, f.Replicas-1))
		}
	}
	return strings.Join(missing, ", "), nil
}

// Evict asks for the eviction of a pod as `kubectl drain` does, again and again while the disruption budget forbids it.
func (f *Fleet) Evict(ctx context.Context, name string) error {
	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/eviction", f.Namespace, name)
	eviction := fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":%q}}`, name, f.Namespace)
	return Eventually(ctx, time.Minute, func(ctx context.Context) error {
		err := f.CoreV1().RESTClient().Post().AbsPath(path).Body([]byte(eviction)).Do(ctx).Error()
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}
