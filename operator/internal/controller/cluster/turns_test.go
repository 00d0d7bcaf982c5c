package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// Of a hundred fleets that ask again and again, all at once, one has its turn, and another one only when that one's has ended.
func TestTurnsOfAHundredFleets(t *testing.T) {
	const fleets = 100
	var all turns
	var held []types.NamespacedName
	for range fleets {
		var mutex sync.Mutex
		var asking sync.WaitGroup
		var taken []types.NamespacedName
		for number := range fleets {
			fleet := types.NamespacedName{Namespace: "web", Name: fmt.Sprintf("shop-%d", number)}
			if slices.Contains(held, fleet) {
				continue // it is up to date
			}
			asking.Go(func() {
				others, mine := all.take(fleet, 1, nil)
				mutex.Lock()
				defer mutex.Unlock()
				if mine {
					taken = append(taken, fleet)
				} else if len(others) != 1 {
					t.Errorf("%v are in the way of %s", others, fleet)
				}
			})
		}
		asking.Wait()
		if len(taken) != 1 {
			t.Fatalf("%v have their turn after %d fleets", taken, len(held))
		}
		held = append(held, taken[0])
		all.end(taken[0])
		if waiting := all.wake(); len(waiting) != fleets-len(held) {
			t.Fatalf("%d are woken, want the %d that are left", len(waiting), fleets-len(held))
		}
	}
}

// One whose new pod never gets ready keeps its turn: all others wait, keep their pods and name it. They go on when it is Ready.
func TestUpgradeOfAFleetThatNeverGetsReady(t *testing.T) {
	clusters, operator := installed("1", nil).fleetsOf(t, 6), immediate(1)
	bad, others := clusters[0], clusters[1:]
	operator.operate(t, bad)
	isUpToDate(t, bad, v1alpha1.ReasonUpgrading)
	old := &corev1.Pod{}
	old.Namespace, old.Name = bad.Namespace, "shop-0"
	gone(t, old, "")
	pod := fleetPod(t, bad, 0, "b")
	pod.Status = waiting("ImagePullBackOff")
	suite.Must(t, api.Status().Update(t.Context(), pod))
	acted(t, bad, "a", "b")
	t.Cleanup(func() { operatorTime.Ahead.Add(-int64(2 * soon)) })
	operator.operate(t, bad)
	operatorTime.Ahead.Add(int64(2 * soon))
	suite.Eventually(t, func() error {
		operator.operate(t, bad)
		if found := meta.FindStatusCondition(bad.Status.Conditions, v1alpha1.ConditionStalled); found == nil || !strings.Contains(found.Message, "shop-0") {
			return fmt.Errorf("condition Stalled is %+v", found)
		}
		isKnown(t, bad, &v1alpha1.LiveStashCluster{})
		return nil
	})
	operator.operate(t, others...)
	for _, cluster := range others {
		isUpToDate(t, cluster, v1alpha1.ReasonUpgradeHeldUp, "a fleet of another namespace is stalled")
		eventSays(t, cluster.Namespace, v1alpha1.ReasonUpgradeHeldUp, "a fleet of another namespace is stalled")
	}
	if now := upgrading(t, clusters); len(now) != 1 || renewed(t, clusters) != 1 {
		t.Fatalf("%d fleets are upgraded at once, and %d have the new template", len(now), renewed(t, clusters))
	}

	rollsTo(t, bad, "b")
	suite.Eventually(t, func() error {
		operator.operate(t, clusters...)
		if now := upgrading(t, clusters); len(now) != 1 || now[0].Namespace == bad.Namespace {
			return fmt.Errorf("%d fleets are being upgraded, the bad one is %+v", len(now), bad.Status.Conditions)
		}
		return nil
	})
	noTurnsAreLeft(t, clusters)
}

// Who may edit one namespace may make StatefulSets there, with whatever labels, owners and annotations, and so say that they are being upgraded.
// That keeps nobody waiting: a turn is a fleet's that there is, and ends when its pods are as wanted.
func TestTurnsOfNoFleet(t *testing.T) {
	clusters, operator := installed("1", nil).fleetsOf(t, 3), immediate(1)
	hers, leaving, others := clusters[0], clusters[1], clusters[2:]
	operator.operate(t, hers)
	rollsTo(t, hers, "b")
	operator.operate(t, hers)
	isUpToDate(t, hers, v1alpha1.ReasonTemplateCurrent)

	mallory := suite.Tenant(t, connection, api.Scheme(), hers.Namespace)
	upgrading := map[string]string{upgradingAnnotation: "2020-01-01T00:00:00Z"}
	var forged []client.Object
	cart := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: hers.Namespace, Name: "cart"}, Spec: *hers.Spec.DeepCopy()}
	suite.Must(t, mallory.Create(t.Context(), cart))
	for name, of := range map[string]string{"nobodys": "nobody", "second": "shop", "shop-redis": "shop", "cart": "cart"} {
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: hers.Namespace, Name: name, Annotations: upgrading, Labels: map[string]string{render.ClusterLabel: of}}}
		set.OwnerReferences = []metav1.OwnerReference{render.OwnerReference(hers)}
		set.OwnerReferences[0].BlockOwnerDeletion = nil // for that she has no right
		set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
		set.Spec.Template.Labels = set.Spec.Selector.MatchLabels
		set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Image: "wolf"}}
		suite.Must(t, mallory.Create(t.Context(), set))
		forged = append(forged, set)
	}
	own := fleetSet(t, hers)
	before := own.DeepCopy()
	own.Annotations[upgradingAnnotation] = upgrading[upgradingAnnotation]
	suite.Must(t, mallory.Patch(t.Context(), own, client.MergeFrom(before)))
	for _, set := range append(forged, own) {
		isKnown(t, set, &appsv1.StatefulSet{})
	}
	operator.operate(t, hers)
	if since := fleetSet(t, hers).Annotations[upgradingAnnotation]; since != "" {
		t.Errorf("her fleet is up to date, and is being upgraded since %s", since)
	}

	// One that is being deleted, and stays because somebody holds it, has no turn either.
	leaving.Finalizers = []string{"mallory/stays"}
	suite.Must(t, api.Update(t.Context(), leaving))
	operator.operate(t, leaving)
	isUpToDate(t, leaving, v1alpha1.ReasonUpgrading)
	suite.Must(t, api.Delete(t.Context(), leaving))
	suite.Must(t, get(t, leaving))
	isKnown(t, leaving, &v1alpha1.LiveStashCluster{})
	operator.look(t, leaving)

	operator.operate(t, others...)
	isUpToDate(t, others[0], v1alpha1.ReasonUpgrading)

	leaving.Finalizers = nil
	suite.Must(t, api.Update(t.Context(), leaving))
	for _, object := range append(forged, cart) {
		suite.Must(t, api.Delete(t.Context(), object))
	}
	noTurnsAreLeft(t, clusters)
}

// noTurnsAreLeft removes the fleets: turns are those of all fleets, also of other tests'.
func noTurnsAreLeft(t *testing.T, clusters []*v1alpha1.LiveStashCluster) {
	t.Helper()
	for _, cluster := range clusters {
		suite.Must(t, api.Delete(t.Context(), fleetSet(t, cluster)))
	}
	suite.Eventually(t, func() error {
		left := &appsv1.StatefulSetList{}
		err := underTest.List(t.Context(), left, client.MatchingFields{upgradingIndex: "yes"})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d StatefulSets are still known as being upgraded", len(left.Items))
		}
		return err
	})
}
