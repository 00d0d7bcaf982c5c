package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RolloutSpec is how pods are replaced when their template changes. The operator takes one pod at a time, and only while every
// other pod can keep its users, whatever else happens to the fleet meanwhile.
type RolloutSpec struct {
	// surge is whether a fleet gets one pod more while its pods are replaced. Auto: when no other pod would be left to
	// take the users over, as with one replica, or with two of which one is away for good. Always: in every rollout, so
	// that never fewer pods serve than spec.replicas. Never: no; with one replica every rollout then is an outage, and
	// with ETS and Mnesia it loses every stash, which condition RolloutSafe says. The pod takes part as any other,
	// counts against quotas, and goes by the same hand-off; status.replicas does not count it. Default Auto.
	// +kubebuilder:default=Auto
	// +optional
	Surge Surge `json:"surge,omitempty"`
}

// Surge is when a fleet gets one pod more for a rollout.
//
// +kubebuilder:validation:Enum=Auto;Always;Never
type Surge string

// The ways to surge.
const (
	// SurgeAuto: when no other pod would be left to take the users over.
	SurgeAuto Surge = "Auto"
	// SurgeAlways: in every rollout.
	SurgeAlways Surge = "Always"
	// SurgeNever: in none.
	SurgeNever Surge = "Never"
)

// UpgradePolicy is when pods get what a new version of the operator makes of the same spec.
//
// +kubebuilder:validation:Enum=Immediately;WithNextRollout
type UpgradePolicy string

// The ways to upgrade.
const (
	// UpgradeImmediately: as soon as it is the fleet's turn.
	UpgradeImmediately UpgradePolicy = "Immediately"
	// UpgradeWithNextRollout: with the fleet's next rollout of its own.
	UpgradeWithNextRollout UpgradePolicy = "WithNextRollout"
)

// RolloutStatus is one replacement of the fleet's pods by pods of another template.
type RolloutStatus struct {
	// from is the revision of the StatefulSet that was to be replaced, as in the pods' label controller-revision-hash.
	// +optional
	From string `json:"from,omitempty"`

	// to is the revision that the pods were to have afterwards.
	// +required
	To string `json:"to"`

	// started is when the operator first saw the rollout.
	// +required
	Started metav1.Time `json:"started"`

	// finished is when it ended, in whichever way. Unset while it goes on.
	// +optional
	Finished *metav1.Time `json:"finished,omitempty"`

	// outcome is how it ended. Empty while it goes on.
	// +optional
	Outcome RolloutOutcome `json:"outcome,omitempty"`

	// podsReported is how many of the replaced pods said how their drain ended. Those that were killed, or that stopped
	// while the operator did not run, are not in the numbers below.
	// +optional
	PodsReported int32 `json:"podsReported,omitempty"`

	// stashesBefore is how many stashes the replaced pods held when each was told to stop, added up.
	// +optional
	StashesBefore int64 `json:"stashesBefore,omitempty"`

	// handedOver is how many stashes they handed over to peers. The rest went with returning users, or expired.
	// +optional
	HandedOver int64 `json:"handedOver,omitempty"`

	// lost is how many stashes could not be handed over.
	// +optional
	Lost int64 `json:"lost,omitempty"`
}

// RolloutOutcome is how a rollout ended.
//
// +kubebuilder:validation:Enum=Complete;Superseded;Reverted
type RolloutOutcome string

// The outcomes.
const (
	// RolloutComplete: every pod has the new template and can keep users.
	RolloutComplete RolloutOutcome = "Complete"
	// RolloutSuperseded: another template came before it was complete.
	RolloutSuperseded RolloutOutcome = "Superseded"
	// RolloutReverted: the template that it replaced came back before it was complete.
	RolloutReverted RolloutOutcome = "Reverted"
)
