package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// newOwner makes the owner of a test's objects, which is a ConfigMap here, in a namespace of its own.
func newOwner(t *testing.T) *corev1.ConfigMap {
	t.Helper()
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: suite.Namespace(t, api), Name: "owner"}}
	suite.Must(t, api.Create(t.Context(), owner))
	return owner
}

// of gives an object its kind, its place and its owner, as rendered objects have them.
func of[T client.Object](owner *corev1.ConfigMap, kind schema.GroupVersionKind, name string, object T) T {
	object.GetObjectKind().SetGroupVersionKind(kind)
	object.SetNamespace(owner.Namespace)
	object.SetName(name)
	object.SetLabels(map[string]string{"fleet": owner.Name})
	object.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))})
	return object
}

var (
	configMapKind      = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	serviceKind        = corev1.SchemeGroupVersion.WithKind("Service")
	serviceAccountKind = corev1.SchemeGroupVersion.WithKind("ServiceAccount")
	statefulSetKind    = appsv1.SchemeGroupVersion.WithKind("StatefulSet")
)

// statefulSet needs the ServiceAccount web, the Service nodes and the ConfigMap options.
func statefulSet(owner *corev1.ConfigMap) *appsv1.StatefulSet {
	labels := map[string]string{"a": "b"}
	return of(owner, statefulSetKind, "web", &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{
		Replicas:    ptr.To[int32](2),
		ServiceName: "nodes",
		Selector:    &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{
				ServiceAccountName: "web",
				Containers:         []corev1.Container{{Name: "app", Image: "a", Env: []corev1.EnvVar{{Name: "ONE", Value: "1"}, {Name: "TWO", Value: "2"}}}},
				Volumes: []corev1.Volume{{Name: "options", VolumeSource: corev1.VolumeSource{
					ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "options"}},
				}}},
			},
		},
	}})
}

func service(owner *corev1.ConfigMap, name string) *corev1.Service {
	return of(owner, serviceKind, name, &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(4000)}}}})
}

// costs runs do, and says how many requests it was.
func costs(t *testing.T, want int64, do func() error) {
	t.Helper()
	before := requests.Load()
	suite.Must(t, do())
	if got := requests.Load() - before; got != want {
		t.Errorf("it cost %d requests, want %d", got, want)
	}
}

func read[T client.Object](t *testing.T, object T) T {
	t.Helper()
	suite.Must(t, api.Get(t.Context(), client.ObjectKeyFromObject(object), object))
	return object
}

func TestMakeChangeAndRest(t *testing.T) {
	owner, ctx := newOwner(t), t.Context()
	one := func(object client.Object) func() error {
		return func() error {
			_, err := underTest.One(ctx, owner, object)
			return err
		}
	}
	costs(t, 1, one(statefulSet(owner)))
	costs(t, 0, one(statefulSet(owner)))

	// What somebody else adds stays.
	live := read(t, statefulSet(owner))
	before := live.DeepCopy()
	live.Labels["theirs"] = "x"
	live.Spec.Template.Annotations = map[string]string{"theirs": "x"}
	live.Spec.Template.Spec.Containers[0].Env = append(live.Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: "THEIRS", Value: "x"})
	suite.Must(t, api.Patch(ctx, live, client.StrategicMergeFrom(before)))
	costs(t, 0, one(statefulSet(owner)))

	// The first change already takes away what is no longer wanted.
	changed := statefulSet(owner)
	changed.Labels = nil
	changed.Spec.Template.Spec.Containers[0].Env = changed.Spec.Template.Spec.Containers[0].Env[:1]
	changed.Spec.Template.Spec.Volumes = nil
	costs(t, 1, one(changed))
	costs(t, 0, one(changed))
	live = read(t, statefulSet(owner))
	type seen struct {
		Labels, Annotations map[string]string
		Env                 []corev1.EnvVar
		Volumes             []corev1.Volume
	}
	want := seen{
		Labels: map[string]string{"theirs": "x"}, Annotations: map[string]string{"theirs": "x"},
		Env: []corev1.EnvVar{{Name: "ONE", Value: "1"}, {Name: "THEIRS", Value: "x"}},
	}
	template := live.Spec.Template
	if diff := cmp.Diff(want, seen{live.Labels, template.Annotations, template.Spec.Containers[0].Env, template.Spec.Volumes}); diff != "" {
		t.Errorf("after the first change (-want +got):\n%s", diff)
	}

	// What somebody else changes is taken back.
	suite.Must(t, api.Patch(ctx, live, client.RawPatch(types.MergePatchType, []byte(`{"spec": {"replicas": 7}}`))))
	costs(t, 1, one(changed))
	if live = read(t, live); *live.Spec.Replicas != 2 {
		t.Errorf("%d replicas", *live.Spec.Replicas)
	}
}

// nothingKnown is a cache that does not know any object: those without a label of ours, and those that were just made.
type nothingKnown struct{ client.Reader }

func (nothingKnown) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func TestSomebodyElsesObjectIsNotAdopted(t *testing.T) {
	owner, ctx := newOwner(t), t.Context()
	cases := map[string]client.Object{
		"ServiceAccount":        of(owner, serviceAccountKind, "web", &corev1.ServiceAccount{AutomountServiceAccountToken: ptr.To(false)}),
		"ConfigMap":             of(owner, configMapKind, "options", &corev1.ConfigMap{Data: map[string]string{"a": "b"}}),
		"Service":               service(owner, "web"),
		"StatefulSet":           statefulSet(owner),
		"kind of somebody else": unknown(owner),
	}
	for name, wanted := range cases {
		t.Run(name, func(t *testing.T) {
			foreign := wanted.DeepCopyObject().(client.Object)
			foreign.SetOwnerReferences(nil)
			suite.Must(t, api.Create(ctx, foreign))
			blind := Applier{Writer: underTest.Writer, Live: underTest.Live, Known: nothingKnown{}}
			absent := wanted.DeepCopyObject().(client.Object)
			absent.SetResourceVersion(Absent)
			for name, try := range map[string]struct {
				by     Applier
				wanted client.Object
			}{
				"known": {underTest, wanted}, "not known": {blind, wanted}, "not known, and only to be made": {blind, absent},
			} {
				_, err := try.by.One(ctx, owner, try.wanted)
				var taken *ConflictError
				if !errors.As(err, &taken) || !slices.Equal(taken.Objects, []string{kindAndName(wanted)}) || taken.Owner != "ConfigMap" {
					t.Errorf("%s: One = %v", name, err)
				}
			}
			version := foreign.GetResourceVersion()
			if read(t, foreign).GetResourceVersion() != version {
				t.Errorf("it was changed: %+v", foreign)
			}
		})
	}
}

// What was applied for an owner that is gone is taken back by one of its name, if it may.
func TestObjectThatWasLeft(t *testing.T) {
	owner, ctx := newOwner(t), t.Context()
	takesBack := underTest
	takesBack.TakesBack = true
	cases := map[string]struct {
		applier Applier
		change  func(client.Object)
		taken   bool
	}{
		"left":               {takesBack, func(client.Object) {}, true},
		"left, not known":    {Applier{Writer: underTest.Writer, Live: underTest.Live, Known: nothingKnown{}, TakesBack: true}, func(client.Object) {}, true},
		"may not":            {underTest, func(client.Object) {}, false},
		"with another label": {takesBack, func(object client.Object) { object.SetLabels(map[string]string{"fleet": "other"}) }, false},
		"not applied":        {takesBack, func(object client.Object) { object.SetAnnotations(nil) }, false},
		"with an owner of its own": {takesBack, func(object client.Object) {
			object.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}})
		}, false},
		"with what somebody changed": {takesBack, func(object client.Object) { object.(*corev1.Service).Spec.Ports[0].Port = 81 }, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := underTest.One(ctx, owner, service(owner, "web"))
			suite.Must(t, err)
			live := read(t, service(owner, "web"))
			defer func() { suite.Must(t, api.Delete(ctx, live)) }()
			live.SetOwnerReferences(nil)
			c.change(live)
			suite.Must(t, api.Update(ctx, live))
			_, err = c.applier.One(ctx, owner, service(owner, "web"))
			var conflict *ConflictError
			if c.taken && err != nil || !c.taken && !errors.As(err, &conflict) {
				t.Errorf("One = %v", err)
			}
			live = read(t, live)
			if is := metav1.IsControlledBy(live, owner); is != c.taken {
				t.Errorf("the owner controls it: %v, want %v", is, c.taken)
			}
			if c.taken && (len(live.Spec.Ports) != 1 || live.Spec.Ports[0].Port != 80) {
				t.Errorf("ports %v", live.Spec.Ports)
			}
		})
	}
}

// The cache lags behind what was just made.
func TestOwnObjectThatIsNotKnownYet(t *testing.T) {
	owner, ctx := newOwner(t), t.Context()
	_, err := underTest.One(ctx, owner, service(owner, "web"))
	suite.Must(t, err)
	changed := service(owner, "web")
	changed.Spec.Ports[0].Port = 81
	applier := Applier{Writer: underTest.Writer, Live: underTest.Live, Known: nothingKnown{}}
	costs(t, 3, func() error {
		_, err := applier.One(ctx, owner, changed)
		return err
	})
	if got := read(t, service(owner, "web")); got.Spec.Ports[0].Port != 81 || len(got.Spec.Ports) != 1 {
		t.Errorf("ports %v", got.Spec.Ports)
	}
}

// lagging is a cache that has an object as it once was.
type lagging struct {
	client.Reader
	service *corev1.Service
}

func (l lagging) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	l.service.DeepCopyInto(object.(*corev1.Service))
	return nil
}

// The cache still has the owner's object, which is gone: somebody else has made one of that name, or nobody has.
func TestObjectThatWasReplaced(t *testing.T) {
	owner, ctx := newOwner(t), t.Context()
	_, err := underTest.One(ctx, owner, service(owner, "web"))
	suite.Must(t, err)
	was := read(t, service(owner, "web"))
	suite.Must(t, api.Delete(ctx, service(owner, "web")))
	changed := service(owner, "web")
	changed.Spec.Ports[0].Port = 81
	applier := Applier{Writer: underTest.Writer, Live: underTest.Live, Known: lagging{service: was}}
	if _, err := applier.One(ctx, owner, changed); !apierrors.IsConflict(err) {
		t.Errorf("One of a Service that is gone = %v", err)
	}
	foreign := service(owner, "web")
	foreign.OwnerReferences = nil
	suite.Must(t, api.Create(ctx, foreign))
	if _, err := applier.One(ctx, owner, changed); err == nil {
		t.Error("a Service that is another one was applied")
	}
	if got := read(t, service(owner, "web")); got.Spec.Ports[0].Port != 80 || len(got.OwnerReferences) != 0 {
		t.Errorf("somebody else's was changed: %+v", got)
	}
}

// The kind is one that the scheme does not know: of those the metadata is looked up.
func unknown(owner *corev1.ConfigMap) *unstructured.Unstructured {
	return of(owner, unknownKind, "web", &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"a": "b"}}})
}

func TestKindOfSomebodyElse(t *testing.T) {
	owner, ctx := newOwner(t), t.Context()
	costs(t, 1, func() error {
		_, err := underTest.One(ctx, owner, unknown(owner))
		return err
	})
	costs(t, 0, func() error {
		_, err := underTest.One(ctx, owner, unknown(owner))
		return err
	})
	changed := unknown(owner)
	changed.Object["spec"] = map[string]any{"c": "d"}
	costs(t, 1, func() error {
		_, err := underTest.One(ctx, owner, changed)
		return err
	})
	if diff := cmp.Diff(map[string]any{"c": "d"}, read(t, unknown(owner)).Object["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	missing := of(owner, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Missing"}, "web", &unstructured.Unstructured{Object: map[string]any{}})
	if _, err := underTest.One(ctx, owner, missing); !meta.IsNoMatchError(err) {
		t.Errorf("One of a kind that is not served = %v", err)
	}
}

func TestAll(t *testing.T) {
	for name, kind := range map[string]client.Object{
		"ServiceAccount web":         &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "web"}},
		"Service nodes":              &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "nodes"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}},
		"ConfigMap options":          &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "options"}},
		"Service that is not needed": &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}}},
	} {
		t.Run(name, func(t *testing.T) {
			owner, ctx := newOwner(t), t.Context()
			objects := func(replicas int32) []client.Object {
				set := statefulSet(owner)
				set.Spec.Replicas = ptr.To(replicas)
				return []client.Object{
					of(owner, serviceAccountKind, "web", &corev1.ServiceAccount{}), service(owner, "nodes"),
					of(owner, configMapKind, "options", &corev1.ConfigMap{}), set, service(owner, "web"),
				}
			}
			foreign := kind.DeepCopyObject().(client.Object)
			foreign.SetNamespace(owner.Namespace)
			suite.Must(t, api.Create(ctx, foreign))

			answers, err := underTest.All(ctx, owner, objects(1))
			var taken *ConflictError
			if !errors.As(err, &taken) || len(taken.Objects) != 1 {
				t.Errorf("All = %v", err)
			}
			made := api.Get(ctx, client.ObjectKeyFromObject(statefulSet(owner)), &appsv1.StatefulSet{}) == nil
			if want := strings.HasSuffix(name, "not needed"); made != want {
				t.Errorf("StatefulSet made: %v, want %v", made, want)
			}
			if want := map[bool]int{true: 4, false: 3}[made]; len(answers) != want {
				t.Errorf("%d objects were applied, want %d", len(answers), want)
			}

			suite.Must(t, api.Delete(ctx, foreign))
			costs(t, int64(5-len(answers)), func() error {
				_, err := underTest.All(ctx, owner, objects(1))
				return err
			})
			costs(t, 0, func() error {
				_, err := underTest.All(ctx, owner, objects(1))
				return err
			})

			// A StatefulSet that is there is changed, whatever else is in the way.
			for _, object := range objects(1) {
				if kindAndName(object) == "StatefulSet web" {
					continue
				}
				live := read(t, object)
				live.SetOwnerReferences(nil)
				suite.Must(t, api.Update(ctx, live))
			}
			_, err = underTest.All(ctx, owner, objects(3))
			if !errors.As(err, &taken) || len(taken.Objects) != 4 || !strings.Contains(err.Error(), "delete them") {
				t.Errorf("All = %v", err)
			}
			if got := *read(t, statefulSet(owner)).Spec.Replicas; got != 3 {
				t.Errorf("%d replicas", got)
			}
		})
	}
}

func TestOnDelete(t *testing.T) {
	hold := func(set *appsv1.StatefulSet) {
		set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To[int32](2147483647)}
	}
	onDelete := func(set *appsv1.StatefulSet) { set.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType }
	owner, ctx := newOwner(t), t.Context()
	goTo := func(requests int64, change func(*appsv1.StatefulSet)) {
		t.Helper()
		set := statefulSet(owner)
		change(set)
		want := set.Spec.UpdateStrategy
		if want.RollingUpdate != nil {
			want.RollingUpdate = want.RollingUpdate.DeepCopy()
			want.RollingUpdate.MaxUnavailable = ptr.To(intstr.FromInt32(1)) // the default, with the feature gate of this suite
		}
		costs(t, requests, func() error {
			_, err := underTest.One(ctx, owner, set)
			return err
		})
		if diff := cmp.Diff(want, read(t, statefulSet(owner)).Spec.UpdateStrategy); diff != "" {
			t.Errorf("updateStrategy (-want +got):\n%s", diff)
		}
		costs(t, 0, func() error {
			_, err := underTest.One(ctx, owner, set)
			return err
		})
	}
	for range 2 {
		goTo(1, hold)
		goTo(1, onDelete)
	}
	goTo(1, hold)
	live := read(t, statefulSet(owner))
	suite.Must(t, api.Patch(ctx, live, client.RawPatch(types.MergePatchType, []byte(`{"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}}}`))))
	goTo(3, onDelete)
	goTo(1, hold)
	goTo(1, onDelete)
}

// A StatefulSet is wanted of what one version of it was seen to be: an operator that stood still must not put back what another one did.
func TestObjectOfAVersion(t *testing.T) {
	owner, ctx := newOwner(t), t.Context()
	at := func(version string, replicas int32) *appsv1.StatefulSet {
		set := statefulSet(owner)
		set.ResourceVersion, set.Spec.Replicas = version, ptr.To(replicas)
		return set
	}
	apply := func(by Applier, set *appsv1.StatefulSet) error {
		_, err := by.One(ctx, owner, set)
		return err
	}
	costs(t, 1, func() error { return apply(underTest, at(Absent, 1)) })
	old := read(t, statefulSet(owner)).ResourceVersion
	costs(t, 1, func() error { return apply(underTest, at(old, 2)) })
	costs(t, 0, func() error { return apply(underTest, at(old, 2)) })

	blind := Applier{Writer: underTest.Writer, Live: underTest.Live, Known: nothingKnown{}}
	for name, err := range map[string]error{
		"an old version":                       apply(underTest, at(old, 3)),
		"one that was absent":                  apply(underTest, at(Absent, 3)),
		"one that was absent, and is unknown":  apply(blind, at(Absent, 3)),
		"an old version that is unknown again": apply(blind, at(old, 3)),
	} {
		if !apierrors.IsConflict(err) {
			t.Errorf("%s: One = %v", name, err)
		}
	}
	later := service(owner, "later")
	if _, err := underTest.All(ctx, owner, []client.Object{at(old, 3), later}); !apierrors.IsConflict(err) {
		t.Errorf("All = %v", err)
	}
	if err := api.Get(ctx, client.ObjectKeyFromObject(later), later); !apierrors.IsNotFound(err) {
		t.Errorf("what came after the old version was applied: %v", err)
	}
	live := read(t, statefulSet(owner))
	if *live.Spec.Replicas != 2 {
		t.Errorf("%d replicas", *live.Spec.Replicas)
	}

	// Somebody took the label away that the cache would know it by.
	suite.Must(t, api.Patch(ctx, live, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"labels": null}}`))))
	costs(t, 3, func() error { return apply(blind, at(Absent, 2)) })
	if live = read(t, live); !hasLabels(live, at(Absent, 2).Labels) {
		t.Errorf("its labels are %v", live.Labels)
	}

	// What needs more than one request.
	suite.Must(t, api.Patch(ctx, live, client.RawPatch(types.MergePatchType, []byte(`{"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}}}`))))
	onDelete := func(version string) *appsv1.StatefulSet {
		set := at(version, 2)
		set.Spec.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
		return set
	}
	if err := apply(underTest, onDelete(old)); !apierrors.IsConflict(err) {
		t.Errorf("an old version, in several requests: One = %v", err)
	}
	costs(t, 3, func() error { return apply(underTest, onDelete(live.ResourceVersion)) })
}

func TestPrune(t *testing.T) {
	owner, ctx := newOwner(t), t.Context()
	inventory := client.MatchingLabels{"fleet": owner.Name}
	_, err := underTest.All(ctx, owner, []client.Object{service(owner, "wanted"), service(owner, "unwanted"), of(owner, configMapKind, "wanted", &corev1.ConfigMap{})})
	suite.Must(t, err)
	foreign := service(owner, "foreign")
	foreign.OwnerReferences = nil
	suite.Must(t, api.Create(ctx, foreign))
	notApplied := service(owner, "not-applied")
	suite.Must(t, api.Create(ctx, notApplied))
	for _, name := range []string{"wanted", "unwanted"} {
		suite.Must(t, api.Create(ctx, of(owner, secretKind, name, &corev1.Secret{})))
	}
	secret := of(owner, secretKind, "foreign", &corev1.Secret{})
	secret.OwnerReferences = nil
	suite.Must(t, api.Create(ctx, secret))

	prune := func() error {
		wanted := []client.Object{service(owner, "wanted"), of(owner, configMapKind, "wanted", &corev1.ConfigMap{})}
		err := underTest.Prune(ctx, owner, inventory, []schema.GroupVersionKind{serviceKind, configMapKind}, wanted)
		return errors.Join(err, underTest.PruneSecrets(ctx, owner, inventory, []string{"wanted"}))
	}
	costs(t, 2, prune)
	costs(t, 0, prune)

	var left []string
	services, secrets := &corev1.ServiceList{}, &corev1.SecretList{}
	suite.Must(t, api.List(ctx, services, client.InNamespace(owner.Namespace)))
	suite.Must(t, api.List(ctx, secrets, client.InNamespace(owner.Namespace)))
	for i := range services.Items {
		left = append(left, "Service "+services.Items[i].Name)
	}
	for i := range secrets.Items {
		left = append(left, "Secret "+secrets.Items[i].Name)
	}
	want := []string{"Service foreign", "Service not-applied", "Service wanted", "Secret foreign", "Secret wanted"}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestRemove(t *testing.T) {
	owner, ctx := newOwner(t), t.Context()
	own, foreign, notServed := service(owner, "own"), service(owner, "foreign"), &metav1.PartialObjectMetadata{}
	foreign.OwnerReferences = nil
	suite.Must(t, api.Create(ctx, own.DeepCopy()))
	suite.Must(t, api.Create(ctx, foreign.DeepCopy()))
	notServed.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "NotServed"})
	notServed.Namespace, notServed.Name = owner.Namespace, "any"

	for _, c := range []struct {
		name   string
		object client.Object
		costs  int64
		gone   bool
	}{
		{"own", own, 1, true},
		{"gone already", own, 0, true},
		{"somebody else's", foreign, 0, false},
		{"of a kind that is not served", notServed, 0, true},
	} {
		costs(t, c.costs, func() error {
			gone, err := underTest.Remove(ctx, owner, c.object)
			if gone != c.gone {
				t.Errorf("%s: gone = %t", c.name, gone)
			}
			return err
		})
	}
	suite.Must(t, api.Get(ctx, client.ObjectKeyFromObject(foreign), &corev1.Service{}))
	if err := api.Get(ctx, client.ObjectKeyFromObject(own), &corev1.Service{}); !apierrors.IsNotFound(err) {
		t.Errorf("the owner's Service is still there: %v", err)
	}
}

func TestFailedNamesTheObject(t *testing.T) {
	named := metav1.ObjectMeta{Name: "shop"}
	service := &corev1.Service{TypeMeta: metav1.TypeMeta{Kind: "Service", APIVersion: "v1"}, ObjectMeta: named}
	set := &appsv1.StatefulSet{TypeMeta: metav1.TypeMeta{Kind: "StatefulSet", APIVersion: "apps/v1"}, ObjectMeta: named}
	refused := &FailedError{Object: "Service shop", Err: errors.New("refused")}
	for name, err := range map[string]error{"alone": refused, "among others": errors.Join(errors.New("another"), fmt.Errorf("told: %w", refused))} {
		if !Failed(err, service) || Failed(err, set) {
			t.Errorf("%s: the Service has failed: %v, the StatefulSet: %v", name, Failed(err, service), Failed(err, set))
		}
	}
	if Failed(nil, service) || Failed(&ConflictError{Objects: []string{"Service shop"}}, service) {
		t.Error("nothing has failed")
	}
}
