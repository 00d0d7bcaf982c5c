package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusteringSpec is how the pods form one BEAM cluster.
//
// +kubebuilder:validation:XValidation:rule="!has(self.cookieGeneration) || !has(self.cookie) || !has(self.cookie.secretRef)",message="cookieGeneration is for a cookie that the operator generates: remove it; to change a cookie of your own, name another Secret or key in cookie.secretRef",fieldPath=".cookieGeneration"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.cookieGeneration) || (has(self.cookie) && has(self.cookie.secretRef)) || (has(self.cookieGeneration) && self.cookieGeneration >= oldSelf.cookieGeneration)",message="cookieGeneration can only grow, because cookies of before are gone: raise it to get another cookie, or leave it",fieldPath=".cookieGeneration"
type ClusteringSpec struct {
	// cookie is where the Erlang cookie (RELEASE_COOKIE) comes from: who knows it can run code in the pods. A cookie of
	// your own has up to 255 letters, digits and the signs _ . @ = + / -, and starts with a letter or digit. To change it, put the new
	// one under another key or into another Secret, and name that: pods are replaced one by one, new ones can talk to both, and
	// nobody loses anything. The old one must stay until status.cookie.previous is gone. With adapters ETS and Mnesia another value
	// in the same place is refused while there are pods, because their stashes would be lost. Default: generated once.
	// +optional
	Cookie *SecretSource `json:"cookie,omitempty"`

	// cookieGeneration is raised to have another generated cookie: pods are replaced one by one, new ones can talk to both, and nobody
	// loses anything. Needs the agent. status.cookie says how far that is. Default 1.
	// +kubebuilder:validation:Minimum=1
	// +optional
	CookieGeneration *int32 `json:"cookieGeneration,omitempty"`

	// distributionPort is the port on which a pod's node listens for its peers. The nine ports after it are left to
	// further virtual machines in the pod, such as `bin/app remote`; peers are not admitted to those. Default 9100.
	// +kubebuilder:default=9100
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65526
	// +kubebuilder:validation:XValidation:rule="self > 4369 || self + 9 < 4369",message="distributionPort and the nine ports after it must not include 4369, epmd's port: the default is 9100"
	// +optional
	DistributionPort int32 `json:"distributionPort,omitempty"`

	// netTickTime is after how long a silent peer is given up (kernel's net_ticktime): until then a lookup on a frozen
	// peer waits. Whole seconds, 5s to 1h; the BEAM's own default of a minute blocked lookups for 70 s. Needs the agent.
	// Default 20s; with adapter Mnesia 8s, because there each stash waits for the silent peer, and LiveView's client takes
	// a server that is silent for 10 s for gone; with spec.shadow 8s, because copies are taken over then.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,7}(s|m)|[0-9]{1,5}h)+$') && duration(self) >= duration('5s') && duration(self) <= duration('1h')",message="netTickTime must be whole seconds from 5s to 1h, for example 20s"
	// +optional
	NetTickTime *metav1.Duration `json:"netTickTime,omitempty"`

	// preventOverlappingPartitions is whether a pod also gives up peers that it can reach, when one of them has lost a third pod
	// (kernel's parameter of this name). Then one frozen pod takes the whole mesh apart for a moment, and who comes back in it finds
	// no stash that is on another pod. Erlang does so to keep the names of its module global unique: true is for applications that
	// register names there. Needs the agent. Default: with adapter ETS false; else Erlang's own, which is true since OTP 25.
	// +optional
	PreventOverlappingPartitions *bool `json:"preventOverlappingPartitions,omitempty"`

	// tls encrypts what the pods' nodes say to each other, and admits only nodes with a certificate of this fleet. The
	// release must contain the OTP application ssl; those of Phoenix applications do. Nodes with and without TLS cannot
	// talk to each other, so it can only change while there are no pods: with replicas 0 before or after the change.
	// +kubebuilder:default={}
	// +optional
	TLS DistributionTLSSpec `json:"tls,omitempty"`
}

// DistributionTLSSpec is mutual TLS between the nodes of a fleet.
//
// +kubebuilder:validation:XValidation:rule="self.enabled || !has(self.issuerRef)",message="issuerRef is only read with enabled: true: set clustering.tls.enabled, or remove clustering.tls.issuerRef"
type DistributionTLSSpec struct {
	// enabled turns it on. Default false.
	// +kubebuilder:default=false
	// +optional
	Enabled bool `json:"enabled,omitempty"`

	// issuerRef names the issuer of cert-manager that signs the nodes' certificate. Every certificate of that issuer with
	// the fleet's name in it is admitted, so it should be one that signs nothing on behalf of others. Default none: the
	// operator makes a certificate authority for this fleet alone.
	// +optional
	IssuerRef *IssuerReference `json:"issuerRef,omitempty"`
}

// IssuerReference names an issuer of cert-manager.
//
// +kubebuilder:validation:XValidation:rule="self.group != 'cert-manager.io' || self.kind in ['Issuer', 'ClusterIssuer']",message="kind must be Issuer or ClusterIssuer; an issuer of another kind needs its group too",fieldPath=".kind"
type IssuerReference struct {
	// name of the issuer.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`

	// kind of the issuer: Issuer (in the namespace of the LiveStashCluster) or ClusterIssuer, or that of an external
	// issuer. Default Issuer.
	// +kubebuilder:default=Issuer
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Kind string `json:"kind,omitempty"`

	// group of the issuer's API. Default cert-manager.io.
	// +kubebuilder:default=cert-manager.io
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Group string `json:"group,omitempty"`
}
