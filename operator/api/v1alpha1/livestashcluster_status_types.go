package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// LiveStashClusterStatus is what the operator has seen of the fleet.
type LiveStashClusterStatus struct {
	// observedGeneration is the generation of the spec that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// replicas is the number of pods that exist.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// readyReplicas is the number of pods that serve.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// updatedReplicas is the number of pods that were made from the current pod template.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas,omitempty"`

	// selector matches the fleet's pods, for the scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`

	// stashes is the number of stashes that the pods hold. With Mnesia every pod holds all of them: then it is the
	// greatest number that a pod holds. 0 with adapters whose stashes are elsewhere.
	// +optional
	Stashes int64 `json:"stashes,omitempty"`

	// nodes is what the agents say of the pods, in the order of their ordinals.
	// +listType=map
	// +listMapKey=pod
	// +optional
	Nodes []NodeStatus `json:"nodes,omitempty"`

	// redis is the Redis that the pods use. Unset with other adapters.
	// +optional
	Redis *RedisStatus `json:"redis,omitempty"`

	// podMonitor is the name of the PodMonitor that the operator made. Empty when there is none.
	// +optional
	PodMonitor string `json:"podMonitor,omitempty"`

	// lastRollout is the last replacement of all pods, or the one that is under way.
	// +optional
	LastRollout *RolloutStatus `json:"lastRollout,omitempty"`

	// conditions: Available, Progressing, Clustered, StoreReady, AgentHealthy, ReconcileSucceeded; with adapter
	// BrowserMemory also StashesFit.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NodeStatus is what the agent says of one pod.
type NodeStatus struct {
	// pod is the pod's name.
	// +required
	Pod string `json:"pod"`

	// ready is whether the agent calls the pod ready.
	// +optional
	Ready bool `json:"ready,omitempty"`

	// draining is whether the pod is moving its users to the others because it stops.
	// +optional
	Draining bool `json:"draining,omitempty"`

	// stashes is the number of stashes in the pod's memory.
	// +optional
	Stashes int64 `json:"stashes,omitempty"`

	// stashBytes is the memory that those take, in bytes.
	// +optional
	StashBytes int64 `json:"stashBytes,omitempty"`

	// missing are the BEAM nodes that this one should see and does not.
	// +listType=atomic
	// +optional
	Missing []string `json:"missing,omitempty"`

	// agentVersion is the version of the agent that answered.
	// +optional
	AgentVersion string `json:"agentVersion,omitempty"`

	// problem says why the agent does not answer, or why the pod is not ready. Empty when all is well.
	// +optional
	Problem string `json:"problem,omitempty"`
}

// RolloutStatus is one replacement of all pods.
type RolloutStatus struct {
	// from is the revision of the StatefulSet that was replaced, as in the pods' label controller-revision-hash.
	// +optional
	From string `json:"from,omitempty"`

	// to is the revision that the pods have afterwards.
	// +required
	To string `json:"to"`

	// started is when the operator first saw the rollout.
	// +required
	Started metav1.Time `json:"started"`

	// finished is when every pod was ready with the new revision. Unset while the rollout goes on.
	// +optional
	Finished *metav1.Time `json:"finished,omitempty"`

	// podsReported is how many of the replaced pods said how their drain ended. Those that were killed, or that stopped
	// while the operator did not run, are not in the numbers below.
	// +optional
	PodsReported int32 `json:"podsReported,omitempty"`

	// sessionsBefore is how many stashes the replaced pods held when each was told to stop, added up.
	// +optional
	SessionsBefore int64 `json:"sessionsBefore,omitempty"`

	// handedOff is how many stashes they handed over to peers. The rest went with returning users, or ended.
	// +optional
	HandedOff int64 `json:"handedOff,omitempty"`

	// notHandedOff is how many stashes could not be handed over: they are lost unless their users come back with them.
	// +optional
	NotHandedOff int64 `json:"notHandedOff,omitempty"`
}
