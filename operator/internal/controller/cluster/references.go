package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/named"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/render/tls"
)

// NewNamed makes what watches the ConfigMaps and Secrets that users name, and has the manager end it. It is not the manager's cache, which
// holds what carries the fleets' label. No namespaces: all.
func NewNamed(mgr ctrl.Manager, namespaces ...string) (*named.Watcher, error) {
	client, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("client of metadata: %w", err)
	}
	watcher := named.New(client, namespaces...)
	return watcher, mgr.Add(watcher)
}

// watchNamed has exactly those objects watched by name that somebody else made and this fleet reads.
func (r *Reconciler) watchNamed(_ context.Context, p *pass) error {
	c := p.cluster
	var keys []named.Key
	add := func(kind, name string) {
		keys = append(keys, named.Key{Kind: kind, Namespace: c.Namespace, Name: name})
	}
	for _, ref := range fleet.SecretRefs(c) {
		add(fleet.SecretReference, ref.Name)
	}
	// While the cookie is changed, new pods are told the one that the pods had, which no spec names any more.
	if has, _ := fleet.CookiesOf(&p.seen.statefulSet.Spec.Template.Spec); has != nil && has.Name != fleet.SecretName(c) && has.Name != fleet.CookieSecretName(c) {
		add(fleet.SecretReference, has.Name)
	}
	for _, ref := range fleet.References(c) {
		add(ref.Kind, ref.Name)
	}
	if c.TLSEnabled() && tls.IssuedCertificate(c, p.inputs) != nil {
		add(fleet.SecretReference, tls.SecretName(c))
	}
	r.Named.Watch(client.ObjectKeyFromObject(c), keys)
	return nil
}

// contents remembers what was read of ConfigMaps and Secrets: digests, never values. An object is read again when it has another
// resource version, so at rest nothing is read.
type contents struct {
	mutex sync.Mutex
	of    map[contentKey]content
}

type contentKey struct{ namespace, kind, name string }

// content is the digest of each key of an object at a version, and what is wrong with some: see fault.
type content struct {
	uid     types.UID
	version string
	keys    map[string]string
	faults  map[string]fault
}

// mostContents is how many objects are remembered. When there are more, all are read once more.
const mostContents = 10_000

func (c *contents) known(key contentKey, now client.Object) (content, bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	found, is := c.of[key]
	return found, is && found.uid == now.GetUID() && found.version == now.GetResourceVersion()
}

func (c *contents) keep(key contentKey, read content) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.of == nil || len(c.of) >= mostContents {
		c.of = map[contentKey]content{}
	}
	c.of[key] = read
}

// resolveReferences takes the digest that rolls the fleet when a ConfigMap or Secret changes that the user has the pods read.
func (r *Reconciler) resolveReferences(ctx context.Context, p *pass) error {
	ignored := p.cluster.Spec.Rollout.ConfigChanges == v1alpha1.ConfigChangesIgnore
	if ignored {
		p.inputs.ConfigDigest = p.seen.configDigest() // to say so must not roll the fleet either
	}
	references := fleet.References(p.cluster)
	if len(references) == 0 {
		return nil
	}
	digest := sha256.New()
	var missing []string
	for _, ref := range references {
		text, gap, err := r.digestOf(ctx, p, ref)
		if err != nil {
			return err
		}
		if gap != "" {
			missing = append(missing, gap)
		}
		digest.Write([]byte(text))
	}
	if !ignored {
		p.inputs.ConfigDigest = hex.EncodeToString(digest.Sum(nil)[:5])
	}
	if len(missing) == 0 {
		return nil
	}
	// Pods cannot start without it. Those that run are left alone until it is there again.
	if before := p.seen.configDigest(); before != "" {
		p.inputs.ConfigDigest = before
	}
	p.lacking = true
	p.postpone(&reconcile.Problem{
		Reason:  v1alpha1.ReasonConfigMissing,
		Message: fmt.Sprintf("pods cannot start without %s: create it, correct the name, or mark it as optional", few(missing)),
		Watched: true,
	})
	return nil
}

// configDigest is that of the template that the StatefulSet has.
func (o *observation) configDigest() string {
	return o.statefulSet.Spec.Template.Annotations[fleet.ConfigDigestAnnotation]
}

// digestOf is a text that changes with what the reference names, and what pods need of that and is missing. Objects of the fleet's own,
// such as its certificate, change without a rollout.
func (r *Reconciler) digestOf(ctx context.Context, p *pass, ref fleet.Reference) (text, missing string, err error) {
	key := types.NamespacedName{Namespace: p.cluster.Namespace, Name: ref.Name}
	known, err := r.Named.Get(ctx, named.Key{Kind: ref.Kind, Namespace: key.Namespace, Name: key.Name})
	if err != nil {
		return "", "", fmt.Errorf("looking up %s %s: %w", ref.Kind, ref.Name, err)
	}
	if known == nil {
		return ref.Kind + " " + ref.Name + " is missing\n", missingOf(ref, nil), nil
	}
	if apply.Owns(p.cluster, known) {
		return "", "", nil
	}
	now, err := r.contentOf(ctx, key, ref.Kind, known)
	if err != nil {
		return "", missingOf(ref, nil), client.IgnoreNotFound(err)
	}
	if err := checkVariables(ref, now); err != nil {
		return "", "", err
	}
	keys := ref.Keys
	if len(keys) == 0 {
		keys = slices.Sorted(maps.Keys(now.keys))
	}
	lines := []string{ref.Kind + " " + ref.Name}
	for _, name := range keys {
		lines = append(lines, name+" "+now.keys[name])
	}
	return strings.Join(lines, "\n") + "\n", missingOf(ref, now.keys), nil
}

// contentOf reads an object whose version is not known yet.
func (r *Reconciler) contentOf(ctx context.Context, key types.NamespacedName, kind string, known client.Object) (content, error) {
	at := contentKey{key.Namespace, kind, key.Name}
	if read, is := r.contents.known(at, known); is {
		return read, nil
	}
	values := map[string][]byte{}
	object := client.Object(&corev1.Secret{})
	if kind == fleet.ConfigMapReference {
		object = &corev1.ConfigMap{}
	}
	if err := r.Live.Get(ctx, key, object); err != nil {
		return content{}, fmt.Errorf("reading %s %s: %w", kind, key.Name, err)
	}
	switch object := object.(type) {
	case *corev1.Secret:
		values = object.Data
	case *corev1.ConfigMap:
		for name, value := range object.Data {
			values[name] = []byte(value)
		}
		for name, value := range object.BinaryData {
			values[name] = value
		}
	}
	read := content{uid: object.GetUID(), version: object.GetResourceVersion(), keys: map[string]string{}, faults: map[string]fault{}}
	for name, value := range values {
		read.keys[name] = render.Digest(string(value))
		if found := faultOf(value); found != (fault{}) {
			read.faults[name] = found
		}
	}
	r.contents.keep(at, read)
	return read, nil
}
