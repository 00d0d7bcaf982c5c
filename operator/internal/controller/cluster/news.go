package cluster

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// News carries from the observer to the reconciler of which fleets the agents have something else to say.
type News struct {
	// Told are the LiveStashClusters of those fleets.
	Told chan event.GenericEvent
}

// NewNews makes one with room for a thousand: the controller's queue takes them out at once, and knows each fleet only once.
func NewNews() News { return News{Told: make(chan event.GenericEvent, 1000)} }

// Tell is the observer's Changed.
func (n News) Tell(fleet types.NamespacedName) {
	c := &v1alpha1.LiveStashCluster{}
	c.Namespace, c.Name = fleet.Namespace, fleet.Name
	n.Told <- event.GenericEvent{Object: c}
}
