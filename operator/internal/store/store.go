// Package store holds what each LiveStash adapter needs from Kubernetes, one file per adapter. Whoever makes or watches fleets asks it
// and does not tell adapters apart. Others do: the rules of the API (operator/api), which know Redis and BrowserMemory by name, the load
// tests' reports (operator/internal/loadtest), which have a colour and a sentence for each, and the advice of kubectl livestash
// (operator/internal/cli), which has its own. Whoever loses the volume of a Redis is asked for that word (store_change.go).
package store

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// Adapter is what one LiveStash adapter needs.
type Adapter interface {
	// Name is the value of LIVE_STASH_ADAPTER.
	Name() string

	// Env are the variables that the application needs for this adapter, beyond those of every fleet.
	Env(c *v1alpha1.LiveStashCluster) []corev1.EnvVar

	// SecretRefs are the Secret keys of the user's own that must exist before pods are made.
	SecretRefs(c *v1alpha1.LiveStashCluster) []v1alpha1.SecretKeyReference

	// OwnSecrets are the names of the Secrets that the operator itself keeps for this adapter.
	OwnSecrets(c *v1alpha1.LiveStashCluster) []string

	// OwnField is the field of the spec that only this adapter reads. Empty: there is none.
	OwnField() string

	// Recovers is whether a user who comes back may find what was stashed.
	Recovers() bool

	// Home is where the stashes are, and so what a stopping pod has to do about them.
	Home() Home

	// Renewed is whether a stash lives on while its user is there, and can be kept longer than its TTL for one who comes back late.
	// Any other ages from the moment it was made.
	Renewed() bool

	// NetTickTime is after how long a silent peer is given up, unless the user says so: what needs a peer waits as long.
	NetTickTime(c *v1alpha1.LiveStashCluster) time.Duration

	// LargestStash is the size in bytes above which a browser cannot bring a stash back. 0: any size will do.
	LargestStash(c *v1alpha1.LiveStashCluster) int64
}

// Home is where stashes are.
type Home int

const (
	// Elsewhere is not in the pods, which come and go as they like.
	Elsewhere Home = iota
	// OnePod is the memory of one pod for each stash. A pod that stops hands its stashes over to peers.
	OnePod
	// EveryPod is the memory of all pods for every stash. A pod that starts must load them from a peer before it serves.
	EveryPod
)

var adapters = map[v1alpha1.Adapter]Adapter{
	v1alpha1.AdapterNone:          none{},
	v1alpha1.AdapterETS:           ets{},
	v1alpha1.AdapterBrowserMemory: browserMemory{},
	v1alpha1.AdapterRedis:         redis{},
	v1alpha1.AdapterMnesia:        mnesia{},
}

// For is the adapter of a LiveStashCluster.
func For(c *v1alpha1.LiveStashCluster) Adapter {
	return Of(c.Spec.Adapter)
}

// Of is the adapter of that name. The API refuses any that is not known here.
func Of(name v1alpha1.Adapter) Adapter {
	return adapters[name]
}

// Named is the adapter that LIVE_STASH_ADAPTER calls so.
func Named(value string) (v1alpha1.Adapter, bool) {
	for name, adapter := range adapters {
		if adapter.Name() == value {
			return name, true
		}
	}
	return "", false
}

// Unread are the fields of the spec that only other adapters read.
func Unread(name v1alpha1.Adapter) []string {
	var fields []string
	for other, adapter := range adapters {
		if field := adapter.OwnField(); other != name && field != "" {
			fields = append(fields, field)
		}
	}
	return fields
}

// storeless is embedded by the adapters that need nothing besides the pods.
type storeless struct {
	anySize
	patient
}

// patient is embedded by the adapters that seldom need a peer, or none.
type patient struct{}

func (patient) NetTickTime(*v1alpha1.LiveStashCluster) time.Duration { return 20 * time.Second }

// anySize is embedded by the adapters that keep stashes of any size.
type anySize struct{}

func (anySize) LargestStash(*v1alpha1.LiveStashCluster) int64 { return 0 }

func (storeless) Env(*v1alpha1.LiveStashCluster) []corev1.EnvVar { return nil }

func (storeless) SecretRefs(*v1alpha1.LiveStashCluster) []v1alpha1.SecretKeyReference { return nil }

func (storeless) OwnSecrets(*v1alpha1.LiveStashCluster) []string { return nil }

func (storeless) OwnField() string { return "" }

func (storeless) Recovers() bool { return true }

func (storeless) Renewed() bool { return true }
