package tour

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	testfleet "github.com/livestash-dev/livestash/test/internal/fleet"
)

const (
	// releaseVariable says in each pod which deploy has made it. The application does not look at it.
	releaseVariable = "TOUR_RELEASE"
	appContainer    = "app"
)

// fleets are the LiveStashClusters of the tour, with the rights of a kubeconfig.
type fleets struct {
	api       rest.Interface
	namespace string
}

// fleet is what the page shows of one of them.
type fleet struct {
	// Settled is whether it is what its spec asks for, Status says what it waits for otherwise.
	Settled bool   `json:"settled"`
	Status  string `json:"status"`
	Pods    []pod  `json:"pods"`

	release int
}

type pod struct {
	Name string `json:"name"`
	// Release is which deploy has made it; the first is 1.
	Release int `json:"release"`
	// Ready is whether users get to it, Leaving whether it was told to stop.
	Ready   bool `json:"ready"`
	Leaving bool `json:"leaving"`
}

// livestashcluster is what is read of one.
type livestashcluster struct {
	Metadata struct {
		Generation int64 `json:"generation"`
	} `json:"metadata"`
	Spec struct {
		Env []corev1.EnvVar `json:"env"`
	} `json:"spec"`
	Status struct {
		ObservedGeneration int64              `json:"observedGeneration"`
		Conditions         []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

func (f *fleets) path(name string) string {
	return fmt.Sprintf("/apis/livestash.dev/v1alpha1/namespaces/%s/livestashclusters/%s", f.namespace, name)
}

// look asks the API server about a fleet.
func (f *fleets) look(ctx context.Context, name string) (fleet, error) {
	var cluster livestashcluster
	raw, err := f.api.Get().AbsPath(f.path(name)).DoRaw(ctx)
	if err != nil {
		return fleet{}, fmt.Errorf("LiveStashCluster %s: %w", name, err)
	}
	if err := json.Unmarshal(raw, &cluster); err != nil {
		return fleet{}, fmt.Errorf("LiveStashCluster %s: %w", name, err)
	}
	var pods corev1.PodList
	path := "/api/v1/namespaces/" + f.namespace + "/pods"
	raw, err = f.api.Get().AbsPath(path).Param("labelSelector", "livestash.dev/cluster="+name).DoRaw(ctx)
	if err != nil {
		return fleet{}, fmt.Errorf("pods of %s: %w", name, err)
	}
	if err := json.Unmarshal(raw, &pods); err != nil {
		return fleet{}, fmt.Errorf("pods of %s: %w", name, err)
	}
	seen := fleet{Pods: []pod{}, release: releaseOf(cluster.Spec.Env)}
	seen.Settled, seen.Status = cluster.settled()
	for _, p := range pods.Items {
		seen.Pods = append(seen.Pods, podOf(p))
	}
	return seen, nil
}

// deploy asks for a release of this number: a change of the pod template, as a new image is one.
func (f *fleets) deploy(ctx context.Context, name string, release int) error {
	env := []corev1.EnvVar{{Name: releaseVariable, Value: strconv.Itoa(release)}}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"env": env}})
	if err != nil {
		return err
	}
	if err := f.api.Patch(types.MergePatchType).AbsPath(f.path(name)).Body(patch).Do(ctx).Error(); err != nil {
		return fmt.Errorf("LiveStashCluster %s: %w", name, err)
	}
	return nil
}

// settled is whether all pods are there, with the template that is wanted; else what the operator says about it.
func (c livestashcluster) settled() (settled bool, status string) {
	if c.Status.ObservedGeneration != c.Metadata.Generation {
		return false, "The operator has not seen the change yet."
	}
	wanted := map[string]metav1.ConditionStatus{"Progressing": metav1.ConditionFalse, "Ready": metav1.ConditionTrue}
	for kind, want := range wanted {
		condition := meta.FindStatusCondition(c.Status.Conditions, kind)
		if condition == nil {
			return false, "The operator has not seen the fleet yet."
		}
		if condition.Status != want {
			return false, condition.Message
		}
	}
	return true, "All pods run the newest release."
}

func podOf(p corev1.Pod) pod {
	shown := pod{Name: p.Name, Release: 1, Leaving: p.DeletionTimestamp != nil}
	shown.Ready = testfleet.IsReady(p) && !shown.Leaving
	for _, container := range p.Spec.Containers {
		if container.Name == appContainer {
			shown.Release = releaseOf(container.Env)
		}
	}
	return shown
}

// releaseOf is the number in an environment; 1 when there is none.
func releaseOf(env []corev1.EnvVar) int {
	for _, variable := range env {
		if number, err := strconv.Atoi(variable.Value); variable.Name == releaseVariable && err == nil {
			return number
		}
	}
	return 1
}
