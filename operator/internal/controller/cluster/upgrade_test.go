package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// others are the namespaces whose fleets are looked after by operators that a test starts itself, one after the other.
var others sync.Map

// leaves is a client of an operator that does not see the LiveStashClusters of others.
type leaves struct{ client.Client }

func (l leaves) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	_, isCluster := object.(*v1alpha1.LiveStashCluster)
	if _, found := others.Load(key.Namespace); found && isCluster {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return l.Client.Get(ctx, key, object, options...)
}

// release is an operator of another version, which does nothing before operate has it do something.
type release struct{ *Reconciler }

// installed is an operator of that version, with images of that version.
func installed(version string, change func(*Reconciler)) release {
	watcher, err := newNamed()
	if err != nil {
		panic(err)
	}
	r := &Reconciler{
		Named: watcher, Client: underTest.Client.(leaves).Client, Live: underTest.Live, Recorder: underTest.Recorder, Clock: underTest.Clock,
		ClusterDomain: "cluster.local", Agents: underTest.Agents, Redis: redisServers,
		Version: version, AgentImage: "agent:" + version, RedisImage: "valkey:" + version, RedisExporterImage: "exporter:" + version,
		Upgrade: v1alpha1.UpgradeWithNextRollout, UpgradesAtOnce: 1,
	}
	if change != nil {
		change(r)
	}
	return release{r}
}

// operate has the operator look at the fleets until it has nothing more to write.
func (o release) operate(t *testing.T, clusters ...*v1alpha1.LiveStashCluster) {
	t.Helper()
	for _, cluster := range clusters {
		isKnown(t, cluster, &v1alpha1.LiveStashCluster{})
		pods, sets := &corev1.PodList{}, &appsv1.StatefulSetList{}
		ours := []client.ListOption{client.InNamespace(cluster.Namespace), client.MatchingLabels{render.ClusterLabel: cluster.Name}}
		suite.Must(t, api.List(t.Context(), pods, ours...))
		suite.Must(t, api.List(t.Context(), sets, ours...))
		for i := range pods.Items {
			isKnown(t, &pods.Items[i], &corev1.Pod{})
		}
		for i := range sets.Items {
			isKnown(t, &sets.Items[i], &appsv1.StatefulSet{})
		}
	}
	quiet := 0
	suite.Eventually(t, func() error {
		before := len(written.of("statefulsets"))
		for _, cluster := range clusters {
			if _, err := o.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)}); err != nil {
				return err
			}
		}
		if len(written.of("statefulsets")) != before {
			quiet = 0
		}
		if quiet++; quiet < 4 {
			return fmt.Errorf("it still writes")
		}
		return nil
	})
	for _, cluster := range clusters {
		suite.Must(t, get(t, cluster))
	}
}

// fleetOfOthers is a LiveStashCluster that the operator made, with pods that the StatefulSet controllers made.
func (o release) fleetOfOthers(t *testing.T, change func(*v1alpha1.LiveStashClusterSpec)) *v1alpha1.LiveStashCluster {
	t.Helper()
	namespace := suite.Namespace(t, api)
	others.Store(namespace, true)
	cluster := newCluster(t, namespace, change)
	o.operate(t, cluster)
	return cluster
}

// isKnown waits until the operators' cache has the object as it is, or another one of its name.
func isKnown(t *testing.T, object, seen client.Object) {
	t.Helper()
	cache := underTest.Client.(leaves).Client
	suite.Eventually(t, func() error {
		err := cache.Get(t.Context(), client.ObjectKeyFromObject(object), seen)
		if err != nil || seen.GetUID() != object.GetUID() {
			return err
		}
		order, err := resourceversion.CompareResourceVersion(seen.GetResourceVersion(), object.GetResourceVersion())
		if err == nil && order < 0 {
			err = fmt.Errorf("the cache has %s of %s", seen.GetResourceVersion(), object.GetName())
		}
		return err
	})
}

// imagesOf are the images of a StatefulSet's template.
func imagesOf(t *testing.T, cluster *v1alpha1.LiveStashCluster, name string) []string {
	t.Helper()
	var images []string
	spec := await(t, cluster.Namespace, name, &appsv1.StatefulSet{}).Spec.Template.Spec
	for _, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		images = append(images, container.Image)
	}
	return images
}

// hasImages checks the images of a StatefulSet's template.
func hasImages(t *testing.T, cluster *v1alpha1.LiveStashCluster, name string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, imagesOf(t, cluster, name)); diff != "" {
		t.Errorf("the images of StatefulSet %s (-want +got):\n%s", name, diff)
	}
}

func isUpToDate(t *testing.T, cluster *v1alpha1.LiveStashCluster, reason string, says ...string) {
	t.Helper()
	found := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionUpToDate)
	if found == nil || found.Reason != reason {
		t.Fatalf("condition UpToDate is %+v, want %s", found, reason)
	}
	for _, text := range says {
		if !strings.Contains(found.Message, text) {
			t.Errorf("condition UpToDate says %q, want %q in it", found.Message, text)
		}
	}
}

const shopImage = "ghcr.io/acme/shop:1"

func TestUpgradeTouchesNobody(t *testing.T) {
	old, next := installed("1", nil), installed("2", nil)
	cluster := old.fleetOfOthers(t, managedRedisFleet)
	isUpToDate(t, cluster, v1alpha1.ReasonTemplateCurrent)
	fleetBefore, redisBefore := fleetSet(t, cluster), await(t, cluster.Namespace, "shop-redis", &appsv1.StatefulSet{})

	next.operate(t, cluster)
	for _, before := range []*appsv1.StatefulSet{fleetBefore, redisBefore} {
		after := await(t, cluster.Namespace, before.Name, &appsv1.StatefulSet{})
		if diff := cmp.Diff(before.Spec, after.Spec); diff != "" {
			t.Errorf("the StatefulSet %s has changed (-before +after):\n%s", before.Name, diff)
		}
		if before.Generation != after.Generation {
			t.Errorf("the StatefulSet %s has been written", before.Name)
		}
	}
	isUpToDate(t, cluster, v1alpha1.ReasonTemplateKept, "operator 1", "operator 2")
	if got := cluster.Status.OperatorVersion + " " + cluster.Status.Redis.OperatorVersion; got != "1 1" {
		t.Errorf("the status tells of operators %s", got)
	}

	writes := len(written.of(cluster.Namespace))
	for range 3 {
		next.operate(t, cluster)
	}
	if got := len(written.of(cluster.Namespace)); got != writes {
		t.Errorf("%d more writes for a fleet that is left alone", got-writes)
	}
}

// What follows the user's changes under a new operator, and what does not.
func TestUpgradeGoesWithTheNextRollout(t *testing.T) {
	ownBase := func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.SecretKeyBase = &v1alpha1.SecretSource{SecretRef: &v1alpha1.SecretKeyReference{Name: "own", Key: "base"}}
		spec.AcceptLossOf = spec.Adapter
	}
	for name, c := range map[string]struct {
		spec func(*v1alpha1.LiveStashClusterSpec)
		// while the old operator runs no more, and the new one does not yet.
		between, later func(*testing.T, *v1alpha1.LiveStashCluster)
		images         []string
	}{
		"another image": {
			later: func(t *testing.T, c *v1alpha1.LiveStashCluster) {
				changeSpec(t, c, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Image = "shop:2" })
			},
			images: []string{"agent:2", "shop:2", "agent:2"},
		},
		"another image in between": {
			between: func(t *testing.T, c *v1alpha1.LiveStashCluster) {
				changeSpec(t, c, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Image = "shop:2" })
			},
			images: []string{"agent:2", "shop:2", "agent:2"},
		},
		"more pods": {
			later: func(t *testing.T, c *v1alpha1.LiveStashCluster) {
				changeSpec(t, c, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = ptr.To[int32](7) })
			},
			images: []string{"agent:1", shopImage, "agent:1"},
		},
		"more pods in between": {
			between: func(t *testing.T, c *v1alpha1.LiveStashCluster) {
				changeSpec(t, c, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = ptr.To[int32](7) })
			},
			images: []string{"agent:1", shopImage, "agent:1"},
		},
		"another port for users": {
			later: func(t *testing.T, c *v1alpha1.LiveStashCluster) {
				changeSpec(t, c, func(spec *v1alpha1.LiveStashClusterSpec) { spec.HTTP.Service.Port = 8080 })
			},
			images: []string{"agent:1", shopImage, "agent:1"},
		},
		"a Secret's value": {spec: ownBase, later: changeOwnSecret, images: []string{"agent:2", shopImage, "agent:2"}},
		"a Secret's value in between": {
			spec: ownBase, between: changeOwnSecret, images: []string{"agent:2", shopImage, "agent:2"},
		},
		"somebody else's change": {
			later: func(t *testing.T, c *v1alpha1.LiveStashCluster) {
				set := fleetSet(t, c)
				set.Spec.Template.Spec.Containers[0].Image = "drifted"
				suite.Must(t, api.Update(t.Context(), set))
			},
			images: []string{"agent:1", shopImage, "agent:1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			old, next := installed("1", nil), installed("2", nil)
			namespace := suite.Namespace(t, api)
			others.Store(namespace, true)
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"}, StringData: map[string]string{"base": strings.Repeat("a", 64)}}
			suite.Must(t, api.Create(t.Context(), secret))
			await(t, namespace, "own", &corev1.Secret{})
			cluster := newCluster(t, namespace, c.spec)
			old.operate(t, cluster)
			if c.between != nil {
				c.between(t, cluster)
				suite.Must(t, get(t, cluster))
				isKnown(t, cluster, &v1alpha1.LiveStashCluster{})
			}
			next.operate(t, cluster)
			if c.later != nil {
				c.later(t, cluster)
			}
			suite.Eventually(t, func() error {
				next.operate(t, cluster)
				if diff := cmp.Diff(c.images, imagesOf(t, cluster, "shop")); diff != "" {
					return fmt.Errorf("the images of the template (-want +got):\n%s", diff)
				}
				return nil
			})
			version := strings.TrimPrefix(c.images[0], "agent:")
			if cluster.Status.OperatorVersion != version {
				t.Errorf("status.operatorVersion is %q, want %s", cluster.Status.OperatorVersion, version)
			}
		})
	}
}

func changeOwnSecret(t *testing.T, c *v1alpha1.LiveStashCluster) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: "own"}}
	suite.Must(t, get(t, secret))
	secret.Data["base"] = []byte(strings.Repeat("b", 64))
	suite.Must(t, api.Update(t.Context(), secret))
}

// The fleet's own rollout leaves its Redis alone, which has one of its own, and no other.
func TestUpgradeOfRedisGoesWithItsOwnChange(t *testing.T) {
	old, next := installed("1", nil), installed("2", nil)
	cluster := old.fleetOfOthers(t, managedRedisFleet)
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop-redis"}}
	suite.Must(t, get(t, config))
	next.operate(t, cluster)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Image = "shop:2" })
	suite.Eventually(t, func() error {
		next.operate(t, cluster)
		if cluster.Status.OperatorVersion != "2" {
			return fmt.Errorf("status.operatorVersion is %s", cluster.Status.OperatorVersion)
		}
		return nil
	})
	hasImages(t, cluster, "shop-redis", "valkey:1", "exporter:1")
	isUpToDate(t, cluster, v1alpha1.ReasonTemplateKept, "StatefulSet shop-redis keeps what operator 1 made")
}

// An operator of before spec.upgrade left no notes.
func TestUpgradeFromAnOperatorWithoutNotes(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*v1alpha1.LiveStashClusterSpec)
		by      string
		images  []string
		version string
	}{
		"nothing has changed":     {by: "2", images: []string{"agent:1", shopImage, "agent:1"}, version: unknownVersion},
		"the same operator":       {by: "1", images: []string{"agent:1", shopImage, "agent:1"}, version: "1"},
		"the spec changed before": {by: "2", change: func(spec *v1alpha1.LiveStashClusterSpec) { spec.Image = "shop:2" }, images: []string{"agent:2", "shop:2", "agent:2"}, version: "2"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := installed("1", nil).fleetOfOthers(t, nil)
			set := fleetSet(t, cluster)
			for annotation := range set.Annotations {
				if strings.HasPrefix(annotation, "livestash.dev/render") {
					delete(set.Annotations, annotation)
				}
			}
			set.Spec.Template.Annotations[restartedAnnotation] = "now"
			suite.Must(t, api.Update(t.Context(), set))
			isKnown(t, set, &appsv1.StatefulSet{})
			if c.change != nil {
				changeSpec(t, cluster, c.change)
				isKnown(t, cluster, &v1alpha1.LiveStashCluster{})
			}
			suite.Eventually(t, func() error {
				installed(c.by, nil).operate(t, cluster)
				if cluster.Status.OperatorVersion != c.version {
					return fmt.Errorf("status.operatorVersion is %s, want %s", cluster.Status.OperatorVersion, c.version)
				}
				return nil
			})
			hasImages(t, cluster, "shop", c.images...)

			// kubectl can still restart it.
			set = fleetSet(t, cluster)
			set.Spec.Template.Annotations[restartedAnnotation] = "again"
			suite.Must(t, api.Update(t.Context(), set))
			isKnown(t, set, &appsv1.StatefulSet{})
			installed(c.by, nil).operate(t, cluster)
			if got := fleetSet(t, cluster).Spec.Template.Annotations[restartedAnnotation]; got != "again" {
				t.Errorf("kubectl's restart has become %q", got)
			}
		})
	}
}

// fleetsOf are fleets of one pod each that the operator made, at rest.
func (o release) fleetsOf(t *testing.T, count int) []*v1alpha1.LiveStashCluster {
	t.Helper()
	var clusters []*v1alpha1.LiveStashCluster
	for range count {
		cluster := o.fleetOfOthers(t, func(spec *v1alpha1.LiveStashClusterSpec) {
			spec.Adapter, spec.Replicas, spec.Rollout.Surge = v1alpha1.AdapterNone, ptr.To[int32](1), v1alpha1.SurgeNever
			spec.Agent.Enabled = ptr.To(false)
		})
		rollsTo(t, cluster, "a")
		o.operate(t, cluster)
		clusters = append(clusters, cluster)
	}
	return clusters
}

// rollsTo ends the fleet's pod, and makes one of the template as it is, which serves and is the only revision.
func rollsTo(t *testing.T, cluster *v1alpha1.LiveStashCluster, revision string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "shop-0"}}
	suite.Must(t, client.IgnoreNotFound(api.Delete(t.Context(), pod, client.GracePeriodSeconds(0))))
	serves(t, fleetPod(t, cluster, 0, revision), wellAmong(1, "shop-0"))
	acted(t, cluster, revision, revision)
}

// upgrading are those of the fleets that the API server says are being upgraded.
func upgrading(t *testing.T, clusters []*v1alpha1.LiveStashCluster) []*v1alpha1.LiveStashCluster {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(clusters), func(c *v1alpha1.LiveStashCluster) bool {
		return fleetSet(t, c).Annotations[upgradingAnnotation] == ""
	})
}

// renewed is how many of the fleets have the new domain in their pods' environment.
func renewed(t *testing.T, clusters []*v1alpha1.LiveStashCluster) int {
	t.Helper()
	count := 0
	for _, cluster := range clusters {
		for _, variable := range fleetSet(t, cluster).Spec.Template.Spec.Containers[0].Env {
			if variable.Name == "CLUSTER_DOMAIN" && variable.Value == "next.local." {
				count++
			}
		}
	}
	return count
}

// immediate is an operator of another version that upgrades that many fleets at once.
func immediate(atOnce int) release {
	return installed("2", func(r *Reconciler) {
		r.Upgrade, r.UpgradesAtOnce, r.ClusterDomain = v1alpha1.UpgradeImmediately, atOnce, "next.local"
	})
}

// Never more fleets than allowed are rolled at once, whichever of them looks first, and however often the operator starts anew.
func TestUpgradeImmediately(t *testing.T) {
	const fleets, atOnce = 5, 2
	clusters := installed("1", nil).fleetsOf(t, fleets)
	for done := 0; done < fleets; {
		operator := immediate(atOnce)
		var all sync.WaitGroup
		for _, cluster := range clusters {
			all.Go(func() { operator.look(t, cluster) })
		}
		all.Wait()
		operator.operate(t, clusters...)
		now := upgrading(t, clusters)
		if want := min(atOnce, fleets-done); len(now) != want {
			t.Fatalf("%d fleets are upgraded at once, want %d of the %d that are left", len(now), want, fleets-done)
		}
		if got := renewed(t, clusters); got != done+len(now) {
			t.Fatalf("%d fleets have the new template, want the %d that are done and the %d whose turn it is", got, done, len(now))
		}
		rollsTo(t, now[0], "b")
		suite.Eventually(t, func() error {
			result, err := operator.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(now[0])})
			if err != nil || beingUpgraded(fleetSet(t, now[0])) == nil {
				return err
			}
			if result.RequeueAfter <= 0 || result.RequeueAfter > lookAtRollout {
				t.Fatalf("nobody looks whether the fleet has become Ready: %+v", result)
			}
			return fmt.Errorf("the fleet is still being upgraded")
		})
		operator.operate(t, now[0])
		isUpToDate(t, now[0], v1alpha1.ReasonTemplateCurrent)
		done++
	}
}

// That one does not get on is told to the others, and to other namespaces neither which nor why: its name and its troubles are not theirs.
func TestUpgradeHeldUp(t *testing.T) {
	clusters, operator := installed("1", nil).fleetsOf(t, 2), immediate(1)
	first, second := clusters[0], clusters[1]
	operator.operate(t, first)
	isUpToDate(t, first, v1alpha1.ReasonUpgrading)
	if first.Status.UpgradeStarted == nil {
		t.Error("the status does not tell since when")
	}
	operator.operate(t, second)
	isUpToDate(t, second, v1alpha1.ReasonWaitingForTurn)

	changeSpec(t, first, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Paused = true })
	suite.Eventually(t, func() error {
		operator.operate(t, second)
		if found := meta.FindStatusCondition(second.Status.Conditions, v1alpha1.ConditionUpToDate); found.Reason != v1alpha1.ReasonUpgradeHeldUp {
			return fmt.Errorf("condition UpToDate is %+v", found)
		}
		return nil
	})
	isUpToDate(t, second, v1alpha1.ReasonUpgradeHeldUp, "a fleet of another namespace is paused")
	if said := meta.FindStatusCondition(second.Status.Conditions, v1alpha1.ConditionUpToDate).Message; strings.Contains(said, first.Namespace) {
		t.Errorf("the condition tells where the other one is: %s", said)
	}
	suite.Must(t, api.Delete(t.Context(), first))
	suite.Must(t, api.Delete(t.Context(), fleetSet(t, first)))
	suite.Eventually(t, func() error {
		operator.look(t, first)
		operator.operate(t, second)
		if len(upgrading(t, clusters[1:])) == 0 {
			return fmt.Errorf("a fleet that is gone holds the turn")
		}
		return nil
	})
}

// look is one pass.
func (o release) look(t *testing.T, cluster *v1alpha1.LiveStashCluster) {
	t.Helper()
	if _, err := o.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)}); err != nil {
		t.Log(err)
	}
}
