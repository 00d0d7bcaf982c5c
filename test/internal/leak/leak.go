package leak

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	// longest is how many bytes of a container's log are read.
	longest = 32 << 20
	// settling is how long an API server may take to tell of what has just been written.
	settling = time.Second
)

// Watch notes what there is to be seen in namespaces.
type Watch struct {
	client  kubernetes.Interface
	objects dynamic.Interface
	// kinds are all that namespaces have.
	kinds []schema.GroupVersionResource

	mutex  sync.Mutex
	values values
	// texts are all that was seen, and where each was first.
	texts map[string]string
	// logs are the containers whose logs are being read, or were.
	logs map[string]bool
}

// watched is a namespace while it is watched.
type watched struct {
	*Watch
	reading sync.WaitGroup
}

// New is a Watch of nothing yet, in the cluster of that configuration.
func New(config *rest.Config) (*Watch, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // what it asks for is opened once
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	lists, err := discovery.ServerPreferredNamespacedResources(client.Discovery())
	if err != nil {
		return nil, err
	}
	w := &Watch{client: client, objects: objects, texts: map[string]string{}, logs: map[string]bool{}}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "watch"}}, lists) {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, kind := range list.APIResources {
			w.kinds = append(w.kinds, group.WithResource(kind.Name))
		}
	}
	return w, nil
}

// Namespace notes all that is in a namespace from now on, until stop is called, which waits until what was written before has
// been seen.
func (w *Watch) Namespace(namespace string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	space := &watched{Watch: w}
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(w.objects, 0, namespace, nil)
	for _, kind := range w.kinds {
		// The error is of an informer that has been stopped.
		_, _ = factory.ForResource(kind).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { space.object(ctx, object) },
			UpdateFunc: func(_, object any) { space.object(ctx, object) },
		})
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return func() {
		time.Sleep(settling)
		cancel()
		factory.Shutdown()
		space.reading.Wait()
	}
}

func (w *watched) object(ctx context.Context, seen any) {
	object, is := seen.(*unstructured.Unstructured)
	if !is {
		return
	}
	object = object.DeepCopy()
	where := fmt.Sprintf("%s %s/%s", object.GetKind(), object.GetNamespace(), object.GetName())
	object.SetManagedFields(nil)
	switch object.GetKind() {
	case "Secret":
		w.secret(where, object)
	case "Pod":
		w.pod(ctx, object)
	}
	text, err := json.Marshal(object.Object)
	if err != nil {
		text = []byte(err.Error())
	}
	w.Note(where, string(text))
}

// secret notes the values of a Secret, and takes them out of the object. A release of Helm's is the chart, and no secret.
func (w *Watch) secret(where string, object *unstructured.Unstructured) {
	kind, _, _ := unstructured.NestedString(object.Object, "type")
	data, _, _ := unstructured.NestedStringMap(object.Object, "data")
	delete(object.Object, "data")
	annotations := object.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation) // kubectl's, on what a test has applied
	object.SetAnnotations(annotations)
	if kind == "helm.sh/release.v1" {
		return
	}
	for key, encoded := range data {
		if value, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			w.Secret(where+" "+key, string(value))
		}
	}
}

// Secret notes a value that must be nowhere.
func (w *Watch) Secret(from, value string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.values.add(from, []byte(value))
}

// Note notes a text that must have no value of a Secret.
func (w *Watch) Note(where, text string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if _, known := w.texts[text]; !known {
		w.texts[text] = where
	}
}

// pod reads the logs of those of its containers that have started.
func (w *watched) pod(ctx context.Context, object *unstructured.Unstructured) {
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pod); err != nil {
		w.Note("what the API server says of a pod", err.Error())
		return
	}
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if container.ContainerID == "" || container.State.Waiting != nil || !w.isNew(container.ContainerID) {
			continue
		}
		w.reading.Go(func() { w.log(ctx, pod, container.Name) })
	}
}

func (w *Watch) isNew(container string) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	known := w.logs[container]
	w.logs[container] = true
	return !known
}

// log reads the log of a container to its end, or until nobody watches any more.
func (w *Watch) log(ctx context.Context, pod *corev1.Pod, container string) {
	where := fmt.Sprintf("the log of %s/%s %s", pod.Namespace, pod.Name, container)
	options := &corev1.PodLogOptions{Container: container, Follow: true}
	stream, err := w.client.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
	if err != nil {
		w.Note(where, err.Error())
		return
	}
	defer func() { _ = stream.Close() }()
	var text strings.Builder
	// A log that ends with an error is what there is.
	_, _ = io.Copy(&text, io.LimitReader(stream, longest))
	w.Note(where, text.String())
}

// Metrics notes what those ports of a namespace's pods answer to a scrape that have one of these names. Pods that are not ready are
// not asked.
func (w *Watch) Metrics(ctx context.Context, namespace string, ports ...string) error {
	pods, err := w.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		isReady := func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }
		if !slices.ContainsFunc(pod.Status.Conditions, isReady) || pod.DeletionTimestamp != nil {
			continue
		}
		for _, port := range portsOf(&pod, ports) {
			text, err := w.client.CoreV1().Pods(namespace).ProxyGet("http", pod.Name, port, "metrics", nil).DoRaw(ctx)
			if err != nil {
				text = []byte(err.Error())
			}
			w.Note(fmt.Sprintf("the metrics of %s/%s at %s", namespace, pod.Name, port), string(text))
		}
	}
	return nil
}

// portsOf are the numbers of a pod's ports with these names.
func portsOf(pod *corev1.Pod, names []string) []string {
	var found []string
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, port := range container.Ports {
			if slices.Contains(names, port.Name) {
				found = append(found, fmt.Sprint(port.ContainerPort))
			}
		}
	}
	return found
}

// Found says of each text that has a value of a Secret where it is, where the value is from, and what is around it.
func (w *Watch) Found() []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	var found []string
	for text, where := range w.texts {
		if from, around := w.values.in(text); from != "" {
			found = append(found, fmt.Sprintf("a part of %s is in %s: ...%s...", from, where, around))
		}
	}
	slices.Sort(found)
	return found
}

// Seen is how many texts were seen, with how many bytes, of how many containers there were logs, and how many parts of values were
// looked for.
func (w *Watch) Seen() string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	size, parts := 0, 0
	for text := range w.texts {
		size += len(text)
	}
	for _, same := range w.values.parts {
		parts += len(same)
	}
	return fmt.Sprintf("%d texts of %d MB, logs of %d containers among them, were searched for %d parts of Secrets' values",
		len(w.texts), size>>20, len(w.logs), parts)
}
