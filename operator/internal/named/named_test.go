package named

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/livestash-dev/livestash/operator/internal/render"
)

// The tests of the controllers watch by name, on a real API server. These are about what happens when many are named.

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

func secret(name, version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID(name), ResourceVersion: version},
	}
}

// crowded watches all Secrets, because two are named and one would be too many.
func crowded(t *testing.T, there ...runtime.Object) (*Watcher, fake.MetadataClient) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := fake.NewSimpleMetadataClient(scheme, there...)
	w := New(api)
	w.most = 1
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.Start(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"a", "b"} {
		w.Watch(types.NamespacedName{Namespace: "web", Name: "shop-" + name}, []Key{{"Secret", "web", name}})
	}
	return w, api.Resource(secrets).Namespace("web").(fake.MetadataClient)
}

func (w *Watcher) versionOf(t *testing.T, name string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	live, err := w.Get(ctx, Key{"Secret", "web", name})
	if err != nil {
		t.Fatal(err)
	}
	if live == nil {
		return ""
	}
	return live.ResourceVersion
}

// tells waits for the next LiveStashCluster that is told of a change.
func (w *Watcher) tells(t *testing.T, want string) {
	t.Helper()
	select {
	case event := <-w.Changed:
		if event.Object.GetName() != want {
			t.Errorf("%s is told, want %s", event.Object.GetName(), want)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("%s is not told", want)
	}
}

func TestManyAreWatchedTogether(t *testing.T) {
	w, api := crowded(t, secret("a", "1"), secret("bystander", "1"))
	if a, b := w.versionOf(t, "a"), w.versionOf(t, "b"); a != "1" || b != "" {
		t.Fatalf("a is %q and b is %q, want 1 and none", a, b)
	}
	for _, change := range []func() error{
		func() error {
			_, err := api.UpdateFake(secret("bystander", "2"), metav1.UpdateOptions{})
			return err
		},
		func() error { _, err := api.UpdateFake(secret("a", "3"), metav1.UpdateOptions{}); return err },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
	}
	w.tells(t, "shop-a")
	if _, err := api.CreateFake(secret("b", "4"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.tells(t, "shop-b")
	if err := api.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.tells(t, "shop-a")
	if a, b := w.versionOf(t, "a"), w.versionOf(t, "b"); a != "" || b != "4" {
		t.Errorf("a is %q and b is %q, want none and 4", a, b)
	}

	w.Watch(types.NamespacedName{Namespace: "web", Name: "late"}, []Key{{"Secret", "web", "bystander"}})
	if version := w.versionOf(t, "bystander"); version != "2" {
		t.Errorf("what is named later is %q, want 2", version)
	}
	w.Watch(types.NamespacedName{Namespace: "web", Name: "late"}, nil)
	if _, err := w.Get(t.Context(), Key{"Secret", "web", "bystander"}); err == nil {
		t.Error("what nobody names any more is still watched")
	}
}

// An object is listed and watched by its name: who asks for more sees what no fleet names.
func TestOneIsAskedForByItsName(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := fake.NewSimpleMetadataClient(scheme, secret("a", "1"))
	w := New(api)
	w.Watch(types.NamespacedName{Namespace: "web", Name: "shop"}, []Key{{"Secret", "web", "a"}})
	t.Cleanup(func() { w.Watch(types.NamespacedName{Namespace: "web", Name: "shop"}, nil) })
	w.versionOf(t, "a")
	for deadline := time.Now().Add(30 * time.Second); !slices.ContainsFunc(api.Actions(), watches) && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	asked := map[string]string{}
	for _, action := range api.Actions() {
		switch action := action.(type) {
		case clienttesting.ListAction:
			asked[action.GetVerb()+" "+action.GetNamespace()] = action.GetListRestrictions().Fields.String()
		case clienttesting.WatchAction:
			asked[action.GetVerb()+" "+action.GetNamespace()] = action.GetWatchRestrictions().Fields.String()
		}
	}
	if diff := cmp.Diff(map[string]string{"list web": "metadata.name=a", "watch web": "metadata.name=a"}, asked); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
}

func watches(action clienttesting.Action) bool { return action.GetVerb() == "watch" }

// Where namespaces are named, nothing of others is asked for, also when very many objects are named.
func TestOnlyNamedNamespacesAreWatched(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := fake.NewSimpleMetadataClient(scheme, secret("a", "1"))
	w := New(api, "web", "cart")
	w.most = 1
	for _, name := range []string{"a", "b", "c"} {
		w.Watch(types.NamespacedName{Namespace: "web", Name: "shop-" + name}, []Key{{"Secret", "web", name}})
	}
	if a, b := w.versionOf(t, "a"), w.versionOf(t, "b"); a != "1" || b != "" {
		t.Errorf("a is %q and b is %q, want 1 and none", a, b)
	}
	gone, end := context.WithCancel(t.Context())
	end()
	if err := w.Start(gone); err != nil {
		t.Fatal(err)
	}
	for _, action := range api.Actions() {
		if space := action.GetNamespace(); space != "web" && space != "cart" {
			t.Errorf("it asks to %s %s of namespace %q", action.GetVerb(), action.GetResource().Resource, space)
		}
	}
}

// An API server that refuses is no reason to wait: the pass ends with its words, and comes again when it answers.
func TestRefusal(t *testing.T) {
	told := make(chan struct{}, 1)
	watched := newObject(func() { told <- struct{}{} })
	watched.failed(nil)
	watched.failed(context.DeadlineExceeded)
	<-watched.told
	if live, err := watched.now(); live != nil || err == nil {
		t.Errorf("now = %v, %v, want the error", live, err)
	}
	watched.becomes(nil)
	select {
	case <-told:
	default:
		t.Error("nobody is told that it answers now")
	}
	if live, err := watched.now(); live != nil || err != nil {
		t.Errorf("now = %v, %v, want neither", live, err)
	}
}

// Of users' objects nothing is kept but what tells one from another, and whose it is: an annotation of `kubectl apply` has a Secret's values.
func TestNoValuesAreKept(t *testing.T) {
	told := secret("a", "1")
	told.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": `{"stringData": {"token": "s3cret"}}`, render.KeptAnnotation: "1"}
	told.Labels = map[string]string{"note": "s3cret"}
	byName := newObject(func() {})
	if err := byName.Replace([]any{told}, ""); err != nil {
		t.Fatal(err)
	}
	together := &all{kind: "Secret", live: map[Key]*metav1.PartialObjectMetadata{}, told: func(Key, *metav1.PartialObjectMetadata) {}}
	if err := together.Update(told); err != nil {
		t.Fatal(err)
	}
	for how, kept := range map[string]*metav1.PartialObjectMetadata{"by name": byName.live, "with all others": together.live[Key{"Secret", "web", "a"}]} {
		if !maps.Equal(kept.Annotations, map[string]string{render.KeptAnnotation: "1"}) || len(kept.Labels) > 0 || kept.ResourceVersion != "1" {
			t.Errorf("%s: kept is %+v", how, kept)
		}
	}
}

// A watch is a connection. It ends when the last who named the object no longer does, when all are watched together, and with the operator.
func TestWatchesEnd(t *testing.T) {
	w, _ := crowded(t)
	w.most = 3
	ended := map[string]bool{}
	watch := func(name string) {
		w.Watch(types.NamespacedName{Namespace: "web", Name: "shop-" + name}, []Key{{"ConfigMap", "web", name}})
		if watched := w.get(Key{"ConfigMap", "web", name}); watched != nil {
			stop := watched.stop
			watched.stop = func() { ended[name] = true; stop() }
		}
	}
	watch("c")
	watch("d")
	w.Watch(types.NamespacedName{Namespace: "web", Name: "another"}, []Key{{"ConfigMap", "web", "c"}})
	w.Watch(types.NamespacedName{Namespace: "web", Name: "shop-c"}, nil)
	if ended["c"] {
		t.Error("the watch has ended of what another one names")
	}
	w.Watch(types.NamespacedName{Namespace: "web", Name: "another"}, nil)
	if !ended["c"] || ended["d"] {
		t.Errorf("nobody names c any more, and ended have %v", ended)
	}
	for _, name := range []string{"e", "f", "g"} {
		watch(name)
	}
	if !ended["d"] || !ended["e"] || !ended["f"] {
		t.Errorf("all are watched together, and ended have the watches by name of %v", ended)
	}
	together := 0
	w.mutex.Lock()
	for _, every := range w.byKind["ConfigMap"] {
		stop := every.stop
		every.stop = func() { together++; stop() }
	}
	w.mutex.Unlock()
	gone, end := context.WithCancel(t.Context())
	end()
	other := New(w.client)
	other.byKind = w.byKind
	if err := other.Start(gone); err != nil {
		t.Fatal(err)
	}
	if together == 0 {
		t.Error("the operator ends, and its watches do not")
	}
}
