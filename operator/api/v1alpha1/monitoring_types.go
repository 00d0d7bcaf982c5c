package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MonitoringSpec is how a Prometheus in the cluster finds the fleet.
type MonitoringSpec struct {
	// podMonitor makes a PodMonitor of prometheus-operator for the fleet's pods.
	// +kubebuilder:default={}
	// +optional
	PodMonitor PodMonitorSpec `json:"podMonitor,omitempty"`
}

// PodMonitorSpec is a PodMonitor for the agents of the fleet, and for the exporter of the Redis that this operator runs for it.
// All series get the label livestash_cluster with the LiveStashCluster's name.
type PodMonitorSpec struct {
	// enabled makes the PodMonitor. Where the kind PodMonitor is not served, condition ReconcileSucceeded says so, and the fleet
	// runs all the same. Default false.
	// +optional
	Enabled bool `json:"enabled,omitempty"`

	// labels are added to the PodMonitor. A Prometheus of kube-prometheus-stack only looks at those with the label `release`
	// and the name of its Helm release, unless it was told otherwise. Default none.
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('livestash.dev/') && !k.startsWith('app.kubernetes.io/'))",message="labels must not start with livestash.dev/ or app.kubernetes.io/: those are the operator's own"
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// interval is how often the pods are scraped, from 1s on. Default: Prometheus' own.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,5}h)?([0-9]{1,7}m)?([0-9]{1,7}s)?$') && self != '' && duration(self) >= duration('1s')",message="interval must be a duration of at least one second in whole hours, minutes and seconds, for example 15s or 1m"
	// +optional
	Interval *metav1.Duration `json:"interval,omitempty"`
}
