package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

var liveStashClusters = schema.GroupVersionResource{Group: "livestash.dev", Version: "v1alpha1", Resource: "livestashclusters"}

// expected is what should be there.
type expected struct {
	b       *bench
	dynamic dynamic.Interface
	// kinds are all that there are in a namespace, and after the first look those that LiveStashClusters have children of.
	kinds []schema.GroupVersionResource

	mutex sync.Mutex
	// images are those of the LiveStashClusters that should be there, by name.
	images map[string]string
	// rolled are those whose pods were to be replaced in this fault, fresh those that were made in it.
	rolled, fresh map[string]bool
	// children are what each has, the first one's, without what tells one from another.
	children map[string]string
	// before are the pods of before the fault, seen those that there ever were, by the LiveStashCluster.
	before, seen map[string]map[types.UID]bool
}

// newExpected follows pods until ctx ends.
func newExpected(ctx context.Context, b *bench) (*expected, error) {
	e := &expected{b: b, images: map[string]string{}, rolled: map[string]bool{}, fresh: map[string]bool{}, seen: map[string]map[types.UID]bool{}}
	var err error
	if e.dynamic, err = dynamic.NewForConfig(b.config); err != nil {
		return nil, err
	}
	discoverer, err := discovery.NewDiscoveryClientForConfig(b.config)
	if err != nil {
		return nil, err
	}
	lists, err := discoverer.ServerPreferredNamespacedResources()
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			if slices.Contains(resource.Verbs, "list") {
				e.kinds = append(e.kinds, version.WithResource(resource.Name))
			}
		}
	}
	factory := informers.NewSharedInformerFactoryWithOptions(b.client, 0, informers.WithNamespace(clustersNamespace), informers.WithTransform(slimPod))
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: e.came})
	if err != nil {
		return nil, err
	}
	factory.StartWithContext(ctx)
	return e, nil
}

func (e *expected) came(object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	name := pod.Labels[clusterLabel]
	if e.seen[name] == nil {
		e.seen[name] = map[types.UID]bool{}
	}
	e.seen[name][pod.UID] = true
}

// remember takes what is there for what was there before the fault.
func (e *expected) remember(ctx context.Context) error {
	pods, err := e.b.client.CoreV1().Pods(clustersNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.rolled, e.fresh, e.before, e.seen = map[string]bool{}, map[string]bool{}, map[string]map[types.UID]bool{}, map[string]map[types.UID]bool{}
	for _, pod := range pods.Items {
		name := pod.Labels[clusterLabel]
		if e.before[name] == nil {
			e.before[name] = map[types.UID]bool{}
		}
		e.before[name][pod.UID] = true
	}
	return nil
}

// create makes another LiveStashCluster.
func (f *faults) create(ctx context.Context) error {
	name := clusterName(f.made)
	f.made++
	err := f.insist(ctx, func() error { return f.kubectl(ctx, f.liveStashCluster(name, clustersNamespace), "apply", "-f", "-") })
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.images[name], f.fresh[name] = otherImage, true
	return err
}

// changes does something to all LiveStashClusters but a fourth of them, dealt out over that time: a fourth gets another image, a fourth loses
// two of its children, a fourth is deleted, and others are made in their place.
func (f *faults) changes(ctx context.Context, over time.Duration) error {
	f.mutex.Lock()
	names := slices.Sorted(maps.Keys(f.images))
	f.mutex.Unlock()
	for i, name := range names {
		if err := f.change(ctx, i, name); err != nil {
			return err
		}
		if err := sleepUntil(ctx, time.Now().Add(over/time.Duration(len(names)))); err != nil {
			return err
		}
	}
	return nil
}

func (f *faults) change(ctx context.Context, i int, name string) error {
	switch i % 4 {
	case 0:
		return f.roll(ctx, name)
	case 1:
		return f.insist(ctx, func() error {
			return f.kubectl(ctx, "", "delete", "--namespace", clustersNamespace, "--ignore-not-found", "service/"+name, "networkpolicy/"+name)
		})
	case 2:
		return nil
	default:
		err := f.insist(ctx, func() error {
			return f.kubectl(ctx, "", "delete", "--namespace", clustersNamespace, "--ignore-not-found", "--wait=false", "lsc/"+name)
		})
		f.mutex.Lock()
		delete(f.images, name)
		f.mutex.Unlock()
		if err != nil {
			return err
		}
		return f.create(ctx)
	}
}

// rollOthers gives those another image that had the one that they have before the fault.
func (f *faults) rollOthers(ctx context.Context) error {
	f.mutex.Lock()
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(f.images)), func(name string) bool { return f.rolled[name] || f.fresh[name] })
	f.mutex.Unlock()
	for _, name := range names {
		if err := f.roll(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// roll gives a LiveStashCluster the image that it does not have.
func (f *faults) roll(ctx context.Context, name string) error {
	f.mutex.Lock()
	image := otherImage
	if f.images[name] == otherImage {
		image = changedImage
	}
	f.images[name], f.rolled[name] = image, true
	f.mutex.Unlock()
	return f.insist(ctx, func() error {
		_, err := f.dynamic.Resource(liveStashClusters).Namespace(clustersNamespace).Patch(ctx, name, types.MergePatchType,
			[]byte(`{"spec":{"image":"`+image+`"}}`), metav1.PatchOptions{})
		return err
	})
}

// insist does something again and again until it succeeds.
func (f *faults) insist(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil {
			return nil
		}
		if sleepUntil(ctx, time.Now().Add(time.Second)) != nil {
			return err
		}
	}
}

// wrong is what is not as it should be.
func (e *expected) wrong(ctx context.Context) ([]string, error) {
	children, used, err := e.list(ctx)
	if err != nil {
		return nil, err
	}
	clusters, err := e.dynamic.Resource(liveStashClusters).Namespace(clustersNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	pods, err := e.b.client.CoreV1().Pods(clustersNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	there := map[string]bool{}
	for _, cluster := range clusters.Items {
		there[cluster.GetName()] = true
		if e.images[cluster.GetName()] == "" {
			say("%s was deleted and is there", cluster.GetName())
		} else if why := unwell(cluster); why != "" {
			say("%s: %s", cluster.GetName(), why)
		}
	}
	for name := range e.images {
		if !there[name] {
			say("%s is not there", name)
		}
	}
	for name := range children {
		if e.images[name] == "" {
			say("%s was deleted, and %s are there", name, strings.Join(slices.Sorted(maps.Keys(children[name])), ", "))
		}
	}
	if len(wrong) > 0 {
		return wrong, nil
	}
	if e.children == nil {
		e.children, e.kinds = children[clusterName(0)], used
	}
	for name := range e.images {
		for _, difference := range differences(e.children, children[name]) {
			say("%s: %s", name, difference)
		}
	}
	return append(wrong, e.wrongPods(pods.Items)...), nil
}

// list is what each LiveStashCluster has, by kind and name, and the kinds that there are of that.
func (e *expected) list(ctx context.Context) (all map[string]map[string]string, used []schema.GroupVersionResource, err error) {
	all = map[string]map[string]string{}
	for _, kind := range e.kinds {
		objects, err := e.dynamic.Resource(kind).Namespace(clustersNamespace).List(ctx, metav1.ListOptions{})
		if apierrors.IsMethodNotSupported(err) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("list %s: %w", kind.Resource, err)
		}
		found := false
		for _, object := range objects.Items {
			owner := metav1.GetControllerOf(&object)
			if owner == nil || owner.Kind != "LiveStashCluster" {
				continue
			}
			found = true
			if all[owner.Name] == nil {
				all[owner.Name] = map[string]string{}
			}
			text, err := impersonal(object, owner.Name)
			if err != nil {
				return nil, nil, err
			}
			all[owner.Name][kind.Resource+" "+strings.ReplaceAll(object.GetName(), owner.Name, "NAME")] = text
		}
		if found {
			used = append(used, kind)
		}
	}
	return all, used, nil
}

// impersonal is an object without what tells it from that of another LiveStashCluster, and of another rollout.
func impersonal(object unstructured.Unstructured, cluster string) (string, error) {
	content := object.UnstructuredContent()
	labels := object.GetLabels()
	delete(content, "metadata")
	delete(content, "status")
	content["labels"] = labels
	for _, path := range [][]string{
		{"spec", "clusterIP"}, {"spec", "clusterIPs"}, {"spec", "ordinals"}, {"spec", "template", "metadata", "annotations"},
	} {
		unstructured.RemoveNestedField(content, path...)
	}
	if object.GetKind() == "Secret" {
		data, _, err := unstructured.NestedMap(content, "data")
		if err != nil {
			return "", err
		}
		content["data"] = slices.Sorted(maps.Keys(data))
	}
	text, err := json.Marshal(content)
	if err != nil {
		return "", err
	}
	return strings.NewReplacer(cluster, "NAME", changedImage, "IMAGE", otherImage, "IMAGE").Replace(string(text)), nil
}

// differences are those of what a LiveStashCluster has from what it should have.
func differences(want, has map[string]string) []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		switch text, found := has[name]; {
		case !found:
			all = append(all, "there is no "+name)
		case text != want[name]:
			all = append(all, fmt.Sprintf("%s is %s, not %s", name, text, want[name]))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(has)) {
		if _, wanted := want[name]; !wanted {
			all = append(all, name+" is there as well")
		}
	}
	return all
}

// unwell is why a LiveStashCluster is not as it should be, by its status.
func unwell(cluster unstructured.Unstructured) string {
	var object struct {
		Status struct {
			ObservedGeneration int64              `json:"observedGeneration"`
			Conditions         []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	text, err := cluster.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, &object)
	}
	if err != nil {
		return err.Error()
	}
	if object.Status.ObservedGeneration != cluster.GetGeneration() {
		return fmt.Sprintf("generation %d was not acted on", cluster.GetGeneration())
	}
	want := map[string]metav1.ConditionStatus{"Ready": metav1.ConditionTrue, "Reconciling": metav1.ConditionFalse, "Stalled": metav1.ConditionFalse, "ReconcileSucceeded": metav1.ConditionTrue}
	for _, c := range object.Status.Conditions {
		if status, known := want[c.Type]; known && c.Status == status {
			delete(want, c.Type)
		}
	}
	if len(want) > 0 {
		return fmt.Sprintf("not %v", slices.Sorted(maps.Keys(want)))
	}
	return ""
}

// wrongPods are faults of pods: which there are, and which were replaced.
func (e *expected) wrongPods(pods []corev1.Pod) []string {
	now := map[string]map[types.UID]bool{}
	var wrong []string
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	for _, pod := range pods {
		name := pod.Labels[clusterLabel]
		image, wanted := e.images[name]
		if !wanted || pod.DeletionTimestamp != nil {
			say("pod %s ends", pod.Name)
			continue
		}
		if now[name] == nil {
			now[name] = map[types.UID]bool{}
		}
		now[name][pod.UID] = true
		if !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Image == image }) {
			say("pod %s has another image than %s", pod.Name, image)
		}
	}
	for name := range e.images {
		if len(now[name]) != e.b.pods {
			say("%s has %d pods", name, len(now[name]))
		}
		// Of pods that were there before, or were seen to come, in this fault.
		came := 0
		for uid := range e.seen[name] {
			if !e.before[name][uid] {
				came++
			}
		}
		want := 0
		if e.rolled[name] || e.fresh[name] {
			want = e.b.pods
		}
		if e.before != nil && came != want {
			say("%s got %d new pods, not %d", name, came, want)
		}
	}
	return wrong
}
