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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

// NewConfigsCache makes the cache of the metadata of ConfigMaps, and has the manager run it. It is not the manager's own, which holds
// those of fleets alone: a cache has one label per kind.
func NewConfigsCache(mgr ctrl.Manager, namespaces map[string]cache.Config) (cache.Cache, error) {
	configs, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme:            mgr.GetScheme(),
		Mapper:            mgr.GetRESTMapper(),
		DefaultNamespaces: namespaces,
		DefaultTransform:  slimMetadata,
	})
	if err != nil {
		return nil, err
	}
	return configs, mgr.Add(configs)
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
	if p.cluster.Spec.Rollout.ConfigChanges == v1alpha1.ConfigChangesIgnore {
		p.inputs.ConfigDigest = p.seen.configDigest() // to say so must not roll the fleet either
		return nil
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
	p.inputs.ConfigDigest = hex.EncodeToString(digest.Sum(nil)[:5])
	if len(missing) == 0 {
		return nil
	}
	// Pods cannot start without it. Those that run are left alone until it is there again.
	if before := p.seen.configDigest(); before != "" {
		p.inputs.ConfigDigest = before
	}
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
	reader := client.Reader(r.Client)
	if ref.Kind == fleet.ConfigMapReference {
		reader = r.Configs
	}
	known := metadataObject(ref.Kind)
	key := types.NamespacedName{Namespace: p.cluster.Namespace, Name: ref.Name}
	err = reader.Get(ctx, key, known)
	if apierrors.IsNotFound(err) {
		return ref.Kind + " " + ref.Name + " is missing\n", missingOf(ref, nil), nil
	}
	if err != nil {
		return "", "", fmt.Errorf("looking up %s %s: %w", ref.Kind, ref.Name, err)
	}
	if metav1.IsControlledBy(known, p.cluster) {
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
