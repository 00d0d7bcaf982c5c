package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// CookieStatus is the Erlang cookie that pods are made with, and how far its rotation is.
type CookieStatus struct {
	// secretRef is the Secret key that holds it.
	// +required
	SecretRef SecretKeyReference `json:"secretRef"`

	// made is when the operator generated it. Unset for a cookie of the user's own.
	// +optional
	Made *metav1.Time `json:"made,omitempty"`

	// previous is the Secret key with the cookie of those pods that have not been replaced yet: it must stay. Unset when every pod has
	// the one of secretRef, and none is made with another any more.
	// +optional
	Previous *SecretKeyReference `json:"previous,omitempty"`

	// rotationStarted is when pods began to be replaced by those with this cookie. Unset when it is the fleet's first.
	// +optional
	RotationStarted *metav1.Time `json:"rotationStarted,omitempty"`

	// rotationFinished is when every pod had it, and none was made with another any more.
	// +optional
	RotationFinished *metav1.Time `json:"rotationFinished,omitempty"`
}
