package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RolloutSpec is how pods are replaced when their template changes. The operator takes one pod at a time, and only while every
// other pod can keep its users, whatever else happens to the fleet meanwhile.
type RolloutSpec struct {
	// surge is whether a fleet gets one pod more while its pods are replaced. Stays: in every rollout, and it stays: the
	// last pod of the old template goes in its place, so that each user is moved once. The pods' numbers then begin at 0
	// and at 1 in turn. With more than one replica, a rollout that finds no room for it goes on without it. Auto: when no
	// other pod would be left to take the users over, as with one replica, or with two of which one is away for
	// good; it goes in the end, and the pods keep their names. Always: as Auto, but in every rollout, so that never fewer pods
	// serve than spec.replicas. Never: no; with one replica every rollout then is an outage, and with ETS and Mnesia it
	// loses every stash, which condition RolloutSafe says. The pod takes part as any other, counts against quotas,
	// and goes by the same hand-off; status.replicas does not count it. Default Stays.
	// +kubebuilder:default=Stays
	// +optional
	Surge Surge `json:"surge,omitempty"`

	// before is a command of the new image that must have succeeded before any pod gets a new template, such as database
	// migrations. Until then, and when it fails, users stay on the pods that there are. Default none.
	// +optional
	Before *BeforeSpec `json:"before,omitempty"`

	// maxLoadFactor is how many times its share of all connections a pod of the new template may have while the Service
	// sends those who connect to pods of the new template alone; from there on, all pods that are ready are sent some again, and
	// whoever gets to an old one is moved once more (event UsersSpread). "1" sends them to all pods in every rollout. Fewer than 50 connections
	// are never too many. Without spec.agent.enabled nobody counts, and all pods are sent some. From "1" to "100". Default "2".
	// +kubebuilder:default="2"
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([1-9][0-9]?([.][0-9]+)?|100([.]0+)?)$')",message="rollout.maxLoadFactor must be a number from \"1\" to \"100\", for example \"2.5\""
	// +optional
	MaxLoadFactor string `json:"maxLoadFactor,omitempty"`

	// configChanges is what happens when a Secret or ConfigMap changes that env, envFrom or podTemplate (variables and volumes,
	// sidecars included) name. Roll: the pods are replaced, as for any other change, so that they have the new values. Ignore:
	// pods get them whenever they restart, and files of volumes follow by themselves. The values that fields of the spec name
	// (cookie, secretKeyBase, Redis) roll the fleet in any case. Default Roll.
	// +kubebuilder:default=Roll
	// +optional
	ConfigChanges ConfigChanges `json:"configChanges,omitempty"`

	// paused stops the rollout between two pods, before its first one too: pods that have the new template keep it, and one
	// that comes back unasked gets the old one. Nothing is rolled back meanwhile either. Pods are still added and taken away
	// (spec.replicas), and everything but pods is changed as ever; spec.paused stops all of that. Default false.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// canary tries a new template in its first pods, and goes back to the template before when they do not prove it.
	// Default: none; then a rollout stops only at a pod that does not get ready.
	// +optional
	Canary *CanarySpec `json:"canary,omitempty"`
}

// ConfigChanges is what happens when configuration changes that pods are made with.
//
// +kubebuilder:validation:Enum=Roll;Ignore
type ConfigChanges string

// What can happen.
const (
	// ConfigChangesRoll: the pods are replaced.
	ConfigChangesRoll ConfigChanges = "Roll"
	// ConfigChangesIgnore: nothing.
	ConfigChangesIgnore ConfigChanges = "Ignore"
)

// BeforeSpec is a command that runs once for each new template, in the Job <name>-before, with the image, environment,
// volumes and Secrets that the application's container will have. A template that has had its run, or that was rolled out
// before there was this command, needs none to come back. Never two run at the same time: one that runs for an older
// template is waited for.
//
// +kubebuilder:validation:XValidation:rule="has(self.command) && size(self.command) > 0 && size(self.command[0]) > 0",message="rollout.before.command is missing: name the program of the image that is to run before a rollout, for example ['/app/bin/migrate'], or remove rollout.before"
type BeforeSpec struct {
	// command is the program and its first arguments, for example ["/app/bin/migrate"]. It is not run in a shell.
	// Required.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=8192
	// +listType=atomic
	// +optional
	Command []string `json:"command,omitempty"`

	// args are further arguments. Default none.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=8192
	// +listType=atomic
	// +optional
	Args []string `json:"args,omitempty"`

	// env are environment variables beside those that the application has; of the same name, these win. Default none.
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	// +optional
	Env []corev1.EnvVar `json:"env,omitempty"`

	// resources are the requests and limits of the command. Default: the application's (spec.resources).
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`

	// deadline is how long it may take, retries and the pull of the image included, as a duration with a unit ("90s", "10m").
	// What takes longer is ended and has failed. From 1s to 24h. Default 10m.
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}([.][0-9]+)?(ms|s|m)|[0-9]{1,5}([.][0-9]+)?h)+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="rollout.before.deadline must be a duration from 1s to 24h with a unit, for example 90s or 10m"
	// +optional
	Deadline *metav1.Duration `json:"deadline,omitempty"`

	// retries is how often it is tried again when it fails, each time in a new pod and after a growing pause. Default 0:
	// what failed is looked at by somebody first.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	// +optional
	Retries int32 `json:"retries,omitempty"`
}

// CanarySpec is how a new template is tried before the whole fleet gets it. While pods of the template before are left, its
// pods are judged; when one of the limits is broken, the operator goes back to the template before by itself, pod by pod as in
// every rollout, and does not try that template again: see condition Stalled, reason RolledBack. Another template is
// tried anew, and so is the same one after `kubectl rollout restart`. Removing canary rolls it out untried.
type CanarySpec struct {
	// pods is how many pods get the new template before it has proved itself. Must be less than spec.replicas. With
	// one replica it is 1: the additional pod of spec.rollout.surge. Where an autoscaler lowers spec.replicas afterwards, one
	// pod fewer than that is taken. Default 1.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=999
	// +optional
	Pods int32 `json:"pods,omitempty"`

	// duration is how long these pods must have been ready, one beside the other, before the next pod goes, as a duration
	// with a unit. One that crashes begins anew. From 1s to 24h. Default 5m.
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}([.][0-9]+)?(ms|s|m)|[0-9]{1,5}([.][0-9]+)?h)+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="duration must be from 1s to 24h with a unit, for example 5m"
	// +optional
	Duration *metav1.Duration `json:"duration,omitempty"`

	// minRecovered is the share of the users who come back to pods of the new template that must find their state there, at
	// least, from "0" to "1". It is judged from the tenth of them on; where fewer come back, the other limits and the
	// time decide. Unless it is "0", a template whose pages have another LiveStash version than those of the pods before
	// is rejected as soon as the agents see it: such pages refuse what users have stashed. Judged with
	// spec.agent.enabled, and with adapters other than None. Default "0.9".
	// +kubebuilder:default="0.9"
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0([.][0-9]+)?|1([.]0+)?)$')",message="minRecovered must be a share from \"0\" to \"1\", for example \"0.9\""
	// +optional
	MinRecovered string `json:"minRecovered,omitempty"`

	// maxCrashes is how often the application's containers of the new pods may restart, all together, at most. Default 0.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	MaxCrashes int32 `json:"maxCrashes,omitempty"`
}

// Surge is when a fleet gets one pod more for a rollout.
//
// +kubebuilder:validation:Enum=Auto;Always;Never;Stays
type Surge string

// The ways to surge.
const (
	// SurgeAuto: when no other pod would be left to take the users over.
	SurgeAuto Surge = "Auto"
	// SurgeAlways: in every rollout.
	SurgeAlways Surge = "Always"
	// SurgeNever: in none.
	SurgeNever Surge = "Never"
	// SurgeStays: in every rollout that has room for it, and another pod goes for it.
	SurgeStays Surge = "Stays"
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

	// outcome is how it ended. Complete: every pod has the new template and can keep users. Superseded: another template came before
	// that. Reverted: the template before came back. RolledBack: the canary did not prove it, so the operator went back, or has begun
	// to. Empty while it goes on.
	// +optional
	Outcome RolloutOutcome `json:"outcome,omitempty"`

	// message says why it was rolled back, with the numbers. Empty with other outcomes.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`

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

	// lost is how many stashes could not be handed over. Of those that were handed over, the new release's pages may refuse some:
	// that is in notRecovered.
	// +optional
	Lost int64 `json:"lost,omitempty"`

	// returned is how often a user came back to a pod of the fleet, new or old, from the beginning of the rollout until two minutes
	// after its end, while the operator ran. Who comes for the first time, or loads the page anew, does not come back.
	// +optional
	Returned int64 `json:"returned,omitempty"`

	// notRecovered is how many of these returns were not given a state. Some are nobody's loss: of users who had stashed nothing yet,
	// or who were away for longer than the TTL. So it is told as a loss (a Warning event ReturnsNotRecovered, the alert
	// LiveStashReturnsNotRecovered) only of ten returns and more, when it is more than a tenth of them and more than twice the usual
	// share; where that is above a third, when it is nearer to all of them than to the usual share; where it is not known, when it is
	// more than half of them.
	// +optional
	NotRecovered int64 `json:"notRecovered,omitempty"`

	// usuallyNotRecovered is what share of returns to expect without a state, in percent, rounded up: the least of the rollouts
	// in this list and of what the replaced pods had counted since they started, each of at least ten returns. 0: none. Unset: too few
	// have come back yet to know, as with a new fleet.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	UsuallyNotRecovered *int32 `json:"usuallyNotRecovered,omitempty"`
}

// RolloutOutcome is how a rollout ended.
//
// +kubebuilder:validation:Enum=Complete;Superseded;Reverted;RolledBack
type RolloutOutcome string

// The outcomes.
const (
	// RolloutComplete: every pod has the new template and can keep users.
	RolloutComplete RolloutOutcome = "Complete"
	// RolloutSuperseded: another template came before it was complete.
	RolloutSuperseded RolloutOutcome = "Superseded"
	// RolloutReverted: the template that it replaced came back before it was complete.
	RolloutReverted RolloutOutcome = "Reverted"
	// RolloutRolledBack: its canary did not prove it, so the operator went back to the template before.
	RolloutRolledBack RolloutOutcome = "RolledBack"
)
