package cluster

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/fencing"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// unreadAnnotation is "true" on the Secret with the certificate of Redis from the moment at which it gets another one, until every server
// shows that one.
const unreadAnnotation = "livestash.dev/unread"

// ensureRedisCertificate sees to it that a Redis with TLS has a certificate before it starts, and shows another one before it ends.
func (r *Reconciler) ensureRedisCertificate(ctx context.Context, p *pass) error {
	c := p.cluster
	managed := store.ManagedRedis(c)
	if managed == nil || !managed.TLSEnabled() {
		return nil
	}
	said, err := r.ensureOwnCertificates(ctx, p, ownCertificates{
		authorityName: store.RedisAuthorityName(c), leafName: store.RedisCertificateName(c), name: redis.Host(c, p.inputs),
		subject: "redis", whose: "this fleet's Redis", leaf: "certificate of Redis", users: "Redis and the pods", every: "Redis and every pod",
		trouble: "pods may fail to connect to Redis", isTold: true,
	})
	if err != nil || said[unreadAnnotation] == "" {
		return err
	}
	return r.renewInServers(ctx, p)
}

// renewInServers has the servers of Redis read their certificate again, which they do not by themselves. The kubelet brings it within two
// minutes: until then, they show the one of before.
func (r *Reconciler) renewInServers(ctx context.Context, p *pass) error {
	c := p.cluster
	before, err := r.readSecret(ctx, c, store.RedisCertificateName(c))
	if err != nil {
		return err
	}
	_, pods, err := r.redisPlaces(ctx, c)
	if err != nil {
		return err
	}
	told := true
	for _, pod := range pods {
		if pod == nil || !pod.DeletionTimestamp.IsZero() {
			continue
		}
		shows, err := r.renewInServer(ctx, p, pod, before.Data[corev1.TLSCertKey])
		if errors.Is(err, fencing.ErrExpired) {
			return err
		}
		if err != nil && (podReady(pod) || p.seen.now.Sub(readySince(pod)) > soon) {
			p.postpone(&reconcile.Problem{
				Reason:  v1alpha1.ReasonRedisCertificateWaits,
				Message: fmt.Sprintf("pod %s could not be told to read its new certificate, and shows the old one until then, or until it restarts: %v", pod.Name, err),
				Watched: true,
			})
		}
		told = told && shows
	}
	if !told {
		p.DueIn(lookAgain)
		return nil
	}
	after := before.DeepCopy()
	after.Annotations[unreadAnnotation] = ""
	return r.writeSecret(ctx, before, after)
}

// renewInServer is whether a server shows that certificate, which it is told to read if it does not. It need not be ready: the probe
// checks its certificate too, and that one may have ended.
func (r *Reconciler) renewInServer(ctx context.Context, p *pass, pod *corev1.Pod, certificate []byte) (bool, error) {
	if pod.Status.PodIP == "" {
		return false, nil
	}
	access, err := r.redisAccess(ctx, p)
	if err != nil {
		return false, err
	}
	return r.Redis.Renew(ctx, redisLoginTo(pod.Status.PodIP, access), redis.CertificateFile, certificate)
}
