package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DefaultMaxStashBytes is that of spec.browserMemory.maxStashBytes.
const DefaultMaxStashBytes = 7300

// BrowserMemorySpec is what adapter BrowserMemory needs to know.
type BrowserMemorySpec struct {
	// maxStashBytes is how large a stash may become, in bytes, before its user cannot reconnect: the browser sends it in the URL of its
	// WebSocket, and whatever is on the way refuses longer URLs, with 414, for as long as the page is open. The operator refuses no
	// stash for it: from nine tenths of it on it warns, and above it StashesFit is False.
	// Default 7300, which nginx and ingress-nginx let through as they come, for WebSockets and for long polling, whose URL has a
	// token more: 8 kB for the whole line. Without any proxy, Bandit takes 10000 bytes: 9500. Raise it together with the limit of every proxy and of
	// the web server.
	// +kubebuilder:default=7300
	// +kubebuilder:validation:Minimum=1000
	// +kubebuilder:validation:Maximum=1000000
	// +optional
	MaxStashBytes int32 `json:"maxStashBytes,omitempty"`
}

// LargestStash is the largest stash that a browser may still have.
type LargestStash struct {
	// bytes is its size. It follows with up to a minute's delay, unless it reaches nine tenths of the limit or the limit.
	// +required
	Bytes int64 `json:"bytes"`

	// pod that made it.
	// +required
	Pod string `json:"pod"`

	// podGone is when that pod was no longer there, or no longer the same. Unset while it is. It is forgotten spec.ttl later: then no
	// pod takes it any more.
	// +optional
	PodGone *metav1.Time `json:"podGone,omitempty"`
}

// MaxStashBytes is spec.browserMemory.maxStashBytes, or its default.
func (c *LiveStashCluster) MaxStashBytes() int64 {
	if c.Spec.BrowserMemory == nil || c.Spec.BrowserMemory.MaxStashBytes == 0 {
		return DefaultMaxStashBytes
	}
	return int64(c.Spec.BrowserMemory.MaxStashBytes)
}
