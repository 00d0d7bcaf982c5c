// Package metricscert gives the operator's metrics a certificate that whoever scrapes can verify, so that no token is sent to somebody who
// only claims to be the operator.
//
// The certificate authority is the operator's own. Its key is in a Secret, its certificate in a ConfigMap, both in the operator's
// namespace and made, empty, by whoever installs the operator: so the operator needs no right to make any. Each replica signs a certificate
// for itself, which it keeps in memory.
package metricscert

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/internal/pki"
)

const (
	// AuthorityKey is the key of the ConfigMap with the certificates, in PEM, by which the metrics' certificate is verified.
	AuthorityKey = "ca.crt"

	// lookAgain is how often Secret and ConfigMap are looked at: somebody may have emptied them. retry is after an error.
	lookAgain = time.Hour
	retry     = time.Minute
	// mostAuthorities is how many authorities the ConfigMap keeps. Replicas that have not seen the newest have a certificate of an older one.
	mostAuthorities = 3
)

// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=livestash-operator-metrics,verbs=get;update,namespace=system
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=livestash-operator-metrics-ca,verbs=get;update,namespace=system

// Certificate is that of the metrics. It is a Runnable of the manager.
type Certificate struct {
	// Reader reads from the API server, and not from a cache, which has only objects of fleets.
	Reader client.Reader
	Writer client.Writer
	// Namespace is the operator's, Service the name of the Service that leads to the metrics. The certificate is for that one's DNS name.
	Namespace, Service string
	Clock              clock.Clock

	leaf    pki.Leaf
	again   time.Time
	current atomic.Pointer[tls.Certificate]
}

// SecretName is the name of the Secret with the authority's key, ConfigMapName that of the ConfigMap with its certificate.
func (c *Certificate) SecretName() string { return c.Service + "-metrics" }

// ConfigMapName is the name of the ConfigMap with the authority's certificate.
func (c *Certificate) ConfigMapName() string { return c.Service + "-metrics-ca" }

// Host is the name in the certificate.
func (c *Certificate) Host() string { return c.Service + "." + c.Namespace + ".svc" }

// NeedLeaderElection is false: every replica serves metrics.
func (*Certificate) NeedLeaderElection() bool { return false }

// Start makes the certificate and renews it. It never fails: metrics are no reason to stop.
func (c *Certificate) Start(ctx context.Context) error {
	log := ctrl.Log.WithName("metrics")
	for {
		wait := lookAgain
		if err := c.Renew(ctx); err != nil {
			log.Error(err, "The metrics have no certificate that can be verified", "secret", c.SecretName(), "configMap", c.ConfigMapName())
			wait = retry
		}
		if c.current.Load() == nil {
			c.makeShift()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.Clock.After(wait):
		}
	}
}

// Get is what the metrics' server asks for with each connection.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	current := c.current.Load()
	if current == nil {
		return nil, fmt.Errorf("the certificate for %s is not there yet", c.Host())
	}
	return current, nil
}

// Renew does what is due.
func (c *Certificate) Renew(ctx context.Context) error {
	now := c.Clock.Now()
	authority, err := c.authority(ctx, now)
	if err != nil {
		return err
	}
	if err := c.publish(ctx, authority); err != nil {
		return err
	}
	leaf, again, err := authority.Next(c.leaf, c.Host(), c.again, now)
	if err != nil {
		return fmt.Errorf("making the certificate: %w", err)
	}
	return c.use(leaf, again)
}

func (c *Certificate) use(leaf pki.Leaf, again time.Time) error {
	pair, err := tls.X509KeyPair(leaf.Certificate, leaf.Key)
	if err != nil {
		return fmt.Errorf("using the certificate: %w", err)
	}
	c.leaf, c.again = leaf, again
	c.current.Store(&pair)
	return nil
}

// makeShift has the metrics served while there is no authority that others know: who does not verify still gets them.
func (c *Certificate) makeShift() {
	authority, err := pki.NewAuthority("nobody knows this one", c.Clock.Now())
	if err != nil {
		return
	}
	leaf, _, err := authority.Next(pki.Leaf{}, c.Host(), time.Time{}, c.Clock.Now())
	if err != nil {
		return
	}
	_ = c.use(leaf, time.Time{})
	c.leaf = pki.Leaf{} // the next one comes as soon as it can
}

// authority reads the certificate authority. It makes one when the Secret has none, and when it is due to be replaced.
func (c *Certificate) authority(ctx context.Context, now time.Time) (*pki.Authority, error) {
	secret := &corev1.Secret{}
	if err := c.Reader.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.SecretName()}, secret); err != nil {
		return nil, fmt.Errorf("reading the Secret of the certificate authority, which whoever installs the operator makes: %w", err)
	}
	found, err := pki.ParseAuthority(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err == nil && now.Before(found.RenewAfter()) {
		return found, nil
	}
	made, err := pki.NewAuthority(c.Service+" metrics CA", now)
	if err != nil {
		return nil, fmt.Errorf("making a certificate authority: %w", err)
	}
	certificate, key, err := made.Encode()
	if err != nil {
		return nil, err
	}
	secret.Data = map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key}
	// A conflict says that another replica was faster.
	if err := c.Writer.Update(ctx, secret); err != nil {
		return nil, fmt.Errorf("writing the certificate authority: %w", err)
	}
	return made, nil
}

// publish sees to it that the ConfigMap has the authority's certificate.
func (c *Certificate) publish(ctx context.Context, authority *pki.Authority) error {
	certificate, _, err := authority.Encode()
	if err != nil {
		return err
	}
	config := &corev1.ConfigMap{}
	if err := c.Reader.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.ConfigMapName()}, config); err != nil {
		return fmt.Errorf("reading the ConfigMap of the certificate authority, which whoever installs the operator makes: %w", err)
	}
	before := []byte(config.Data[AuthorityKey])
	if bytes.Contains(before, bytes.TrimSpace(certificate)) {
		return nil
	}
	config.Data = map[string]string{AuthorityKey: string(newest(append(certificate, before...)))}
	if err := c.Writer.Update(ctx, config); err != nil {
		return fmt.Errorf("publishing the certificate authority: %w", err)
	}
	return nil
}

// newest are the first certificates of a list.
func newest(all []byte) []byte {
	var kept []byte
	for range mostAuthorities {
		block, rest := pem.Decode(all)
		if block == nil {
			break
		}
		kept, all = append(kept, pem.EncodeToMemory(block)...), rest
	}
	return kept
}
