package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LiveStashClusterStatus is what the operator has seen of the fleet.
type LiveStashClusterStatus struct {
	// observedGeneration is the generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// replicas is the number of pods that exist, of those that spec.replicas asks for: a pod that is there for a rollout
	// only (spec.rollout.surge), or that is on its way out, does not count.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// readyReplicas is the number of pods that serve.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// podsReady is readyReplicas of spec.replicas, as kubectl shows them: "2/3".
	// +optional
	PodsReady string `json:"podsReady,omitempty"`

	// updatedReplicas is the number of pods that were made from the template that is wanted now.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas,omitempty"`

	// selector matches the fleet's pods, for the scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`

	// stashes is the number of stashes that the pods hold. With Mnesia every pod holds all of them: then it is the
	// greatest number that a pod holds. 0 with adapters whose stashes are elsewhere.
	// +optional
	Stashes int64 `json:"stashes,omitempty"`

	// largestStash is the largest stash that a browser may still have, with adapter BrowserMemory. Unset with others, and while
	// nobody has stashed anything.
	// +optional
	LargestStash *LargestStash `json:"largestStash,omitempty"`

	// pods are the fleet's pods, in the order of their ordinals. Of a fleet of more than 256, those that are not well go
	// first, and the rest is left out: the metrics tell of all.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +optional
	Pods []PodStatus `json:"pods,omitempty"`

	// redis is the Redis that the pods use. Unset with other adapters.
	// +optional
	Redis *RedisStatus `json:"redis,omitempty"`

	// podMonitor is the name of the PodMonitor that the operator made. Empty when there is none.
	// +optional
	PodMonitor string `json:"podMonitor,omitempty"`

	// certificate is the name of the Certificate that cert-manager was asked for. Empty when there is none.
	// +optional
	Certificate string `json:"certificate,omitempty"`

	// cookie is the Erlang cookie that pods are made with, and how far its rotation is.
	// +optional
	Cookie *CookieStatus `json:"cookie,omitempty"`

	// revision is that of the StatefulSet's template, as in the pods' label controller-revision-hash.
	// +optional
	Revision string `json:"revision,omitempty"`

	// operatorVersion is that of the operator that made the pods' template, which may be older than the one that runs: see
	// spec.upgrade. "unknown": one that did not note it, before there was spec.upgrade.
	// +optional
	OperatorVersion string `json:"operatorVersion,omitempty"`

	// upgradeStarted is when the operator began to replace the pods because it is another version. Unset when that does not go on.
	// +optional
	UpgradeStarted *metav1.Time `json:"upgradeStarted,omitempty"`

	// rollouts are the last ten, the newest first. One without finished is under way.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +optional
	Rollouts []RolloutStatus `json:"rollouts,omitempty"`

	// conditions: Ready, Reconciling and Stalled, which tools read that know nothing of fleets (kstatus); Available,
	// Progressing, Clustered, StoreReady, AgentHealthy, RolloutSafe, UpToDate, ReconcileSucceeded; with adapter BrowserMemory also
	// StashesFit; with spec.shadow also ShadowsCurrent; while a pod is on a node that is cordoned, or that an autoscaler is about
	// to remove, also Placed, which says what becomes of it, and which says it too when a node has two pods more than another one
	// that would take some (NotSpread).
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PodStatus is what is seen of one pod.
type PodStatus struct {
	// name of the pod.
	// +required
	Name string `json:"name"`

	// ready is whether the pod serves: by the kubelet's word, and by its agent's.
	// +optional
	Ready bool `json:"ready,omitempty"`

	// updated is whether the pod was made from the template that is wanted now.
	// +optional
	Updated bool `json:"updated,omitempty"`

	// draining is whether the pod is moving its users to the others because it stops.
	// +optional
	Draining bool `json:"draining,omitempty"`

	// stashes is the number of stashes in the pod's memory. It follows with up to a minute's delay.
	// +optional
	Stashes int64 `json:"stashes,omitempty"`

	// missingPeers is how many BEAM nodes this one should see and does not. Condition Clustered names some.
	// +optional
	MissingPeers int32 `json:"missingPeers,omitempty"`

	// problem says why the pod is not well, shortened. Empty when it is.
	// +optional
	Problem string `json:"problem,omitempty"`
}
