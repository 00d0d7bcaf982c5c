package cluster

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/pki"
)

func redisFleetWithTLS(spec *v1alpha1.LiveStashClusterSpec) {
	spec.Adapter = v1alpha1.AdapterRedis
	spec.Redis = &v1alpha1.RedisSpec{Managed: &v1alpha1.ManagedRedis{TLS: &v1alpha1.RedisTLS{Enabled: true}}}
}

func TestRedisWithTLS(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), redisFleetWithTLS)
	set := await(t, cluster.Namespace, "shop-redis", &appsv1.StatefulSet{})
	authority, certificate := secretNamed(t, cluster, "shop-redis-ca"), secretNamed(t, cluster, "shop-redis-tls")
	for _, secret := range []*corev1.Secret{authority, certificate} {
		if !metav1.IsControlledBy(secret, cluster) || set.CreationTimestamp.Before(ptr.To(secret.CreationTimestamp)) {
			t.Errorf("Secret %s is not the fleet's, or was made after the pods that need it", secret.Name)
		}
		if strings.Contains(logs.String(), string(secret.Data["tls.key"])) {
			t.Errorf("the key in Secret %s is in the log", secret.Name)
		}
	}
	block, _ := pem.Decode(certificate.Data["tls.crt"])
	leaf, err := x509.ParseCertificate(block.Bytes)
	suite.Must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate.Data["ca.crt"])
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: operatorTime.Now(), DNSName: "shop-redis." + cluster.Namespace + ".svc.cluster.local"})
	suite.Must(t, err)
	if url := string(secretNamed(t, cluster, "shop-redis").Data["url"]); !strings.HasPrefix(url, "rediss://livestash:") {
		t.Error("the fleet is told a URL without TLS")
	}
	hasEvent(t, cluster, v1alpha1.ReasonCertificateAuthorityGenerated)

	template := fleetTemplate(t, cluster)
	app := template.Spec.Containers[0]
	if !slices.Contains(app.Env, corev1.EnvVar{Name: "LIVE_STASH_REDIS_CACERTFILE", Value: "/livestash-redis/ca.crt"}) {
		t.Error("the application is not told what to check the certificate against")
	}
	for _, volume := range template.Spec.Volumes {
		if volume.Secret != nil && volume.Secret.SecretName == "shop-redis-tls" && (len(volume.Secret.Items) != 1 || volume.Secret.Items[0].Key != "ca.crt") {
			t.Errorf("the application gets more than the authorities: %v", volume.Secret.Items)
		}
	}

	// Without them it would send its own password to whoever answers.
	suite.Must(t, api.Delete(t.Context(), secretNamed(t, cluster, "shop-redis")))
	host := "shop-redis." + cluster.Namespace + ".svc.cluster.local"
	suite.Eventually(t, func() error {
		if login, _ := redisServers.shows(redisAddress(cluster)); login.Authorities != string(certificate.Data["ca.crt"]) || login.Host != host {
			return fmt.Errorf("the operator checks the certificate of %s against %.40q", login.Host, login.Authorities)
		}
		return nil
	})
}

// looksAgain has the operator look at the LiveStashCluster.
func looksAgain(t *testing.T, cluster *v1alpha1.LiveStashCluster) (result ctrl.Result) {
	t.Helper()
	suite.Eventually(t, func() (err error) {
		result, err = underTest.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)})
		return err
	})
	return result
}

// unreadySince plays the kubelet: the pod is not ready, since then.
func unreadySince(t *testing.T, pod *corev1.Pod, since time.Time) {
	t.Helper()
	suite.Must(t, get(t, pod))
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(since)}}
	suite.Must(t, api.Status().Update(t.Context(), pod))
}

// shownBy waits until the server shows the certificate in the Secret.
func shownBy(t *testing.T, cluster *v1alpha1.LiveStashCluster, address string) {
	t.Helper()
	suite.Eventually(t, func() error {
		looksAgain(t, cluster)
		if _, shown := redisServers.shows(address); shown != string(secretNamed(t, cluster, "shop-redis-tls").Data["tls.crt"]) {
			return fmt.Errorf("the server at %s shows another certificate", address)
		}
		return nil
	})
}

// readByAll waits until nobody has to be told of the certificate any more.
func readByAll(t *testing.T, cluster *v1alpha1.LiveStashCluster) {
	t.Helper()
	suite.Eventually(t, func() error {
		looksAgain(t, cluster)
		if unread := secretNamed(t, cluster, "shop-redis-tls").Annotations[unreadAnnotation]; unread != "" {
			return fmt.Errorf("the Secret is unread: %s", unread)
		}
		return nil
	})
}

// A new certificate is shown by a server that runs, as soon as the kubelet has brought it. No pod restarts for it.
func TestRedisShowsItsNewCertificate(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), redisFleetWithTLS)
	redisRevision(t, cluster, "a")
	_, address := redisPod(t, cluster, 0, "a")
	redisServers.kubelet(address, true)
	templates := func() []corev1.PodTemplateSpec {
		return []corev1.PodTemplateSpec{await(t, cluster.Namespace, "shop-redis", &appsv1.StatefulSet{}).Spec.Template, fleetTemplate(t, cluster)}
	}
	first := secretNamed(t, cluster, "shop-redis-tls")
	before := templates()

	redisServers.kubelet(address, false)
	later(t, cluster, pki.LeafLife/3*2+1)
	second := changedSecret(t, cluster, first, "tls.crt")
	if !bytes.Equal(first.Data["ca.crt"], second.Data["ca.crt"]) {
		t.Error("a renewal changes the authority")
	}
	if result := looksAgain(t, cluster); result.RequeueAfter > lookAgain {
		t.Errorf("the server is looked at in %s again", result.RequeueAfter)
	}
	if _, shown := redisServers.shows(address); shown == string(second.Data["tls.crt"]) {
		t.Fatal("the server shows a certificate that the kubelet has not brought")
	}

	redisServers.kubelet(address, true)
	suite.Eventually(t, func() error {
		looksAgain(t, cluster)
		login, shown := redisServers.shows(address)
		if shown != string(second.Data["tls.crt"]) {
			return fmt.Errorf("the server shows another certificate")
		}
		if login.Authorities != string(second.Data["ca.crt"]) || login.Host != "shop-redis."+cluster.Namespace+".svc.cluster.local" || login.Password == "" {
			return fmt.Errorf("the operator checks the certificate against %q, for %q", login.Authorities, login.Host)
		}
		if unread := secretNamed(t, cluster, "shop-redis-tls").Annotations[unreadAnnotation]; unread != "" {
			return fmt.Errorf("the Secret is unread: %s", unread)
		}
		return nil
	})
	if diff := cmp.Diff(before, templates()); diff != "" {
		t.Errorf("a renewal changes a template:\n%s", diff)
	}
	eventSays(t, cluster.Namespace, v1alpha1.ReasonCertificateRenewed, "certificate of Redis in Secret shop-redis-tls")
}

// A server that cannot be told is one that will have no good certificate some day: the user is told in time.
func TestRedisCannotBeToldOfItsCertificate(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), redisFleetWithTLS)
	redisRevision(t, cluster, "a")
	_, address := redisPod(t, cluster, 0, "a")
	redisServers.refuse(address, true)
	suite.Must(t, api.Delete(t.Context(), secretNamed(t, cluster, "shop-redis-tls")))
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonRedisCertificateWaits, "shop-redis-0", "connection refused")
	redisServers.refuse(address, false)
	redisServers.kubelet(address, true)
	readByAll(t, cluster)
}

// The readiness probe checks the certificate too, so a server whose certificate has ended is not ready, and is told of the new one all the same.
func TestRedisIsToldAfterTheEndOfItsCertificate(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), redisFleetWithTLS)
	redisRevision(t, cluster, "a")
	pod, address := redisPod(t, cluster, 0, "a")
	redisServers.kubelet(address, true)
	first := secretNamed(t, cluster, "shop-redis-tls")
	unreadySince(t, pod, operatorTime.Now())
	later(t, cluster, pki.LeafLife+time.Hour)
	changedSecret(t, cluster, first, "tls.crt")
	readByAll(t, cluster)
	shownBy(t, cluster, address)
}

// One that starts does not answer yet, which is no news. One that does not for long is.
func TestAStartingRedisIsNoTrouble(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), redisFleetWithTLS)
	redisRevision(t, cluster, "a")
	pod, address := redisPod(t, cluster, 0, "a")
	redisServers.refuse(address, true)
	unreadySince(t, pod, operatorTime.Now())
	suite.Must(t, api.Delete(t.Context(), secretNamed(t, cluster, "shop-redis-tls")))
	await(t, cluster.Namespace, "shop-redis-tls", &corev1.Secret{})
	if result := looksAgain(t, cluster); result.RequeueAfter > lookAgain {
		t.Errorf("the server is looked at in %s again", result.RequeueAfter)
	}
	reconciled(t, cluster)
	later(t, cluster, 2*soon)
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonRedisCertificateWaits, "shop-redis-0", "connection refused")
}

// redisBesideOneThatStarts is a Redis in place 1, at that address, and one in place 0 that is to be its heir and does not get ready.
func redisBesideOneThatStarts(t *testing.T) (*v1alpha1.LiveStashCluster, string) {
	t.Helper()
	cluster := newCluster(t, suite.Namespace(t, api), redisFleetWithTLS)
	redisRevision(t, cluster, "b")
	heir, _ := redisPod(t, cluster, 0, "b")
	unreadySince(t, heir, operatorTime.Now())
	_, address := redisPod(t, cluster, 1, "a")
	return cluster, address
}

// A server that cannot be told holds up no other one.
func TestEveryServerOfRedisIsTold(t *testing.T) {
	cluster, address := redisBesideOneThatStarts(t)
	first := secretNamed(t, cluster, "shop-redis-tls")
	redisServers.kubelet(address, true)
	suite.Must(t, api.Delete(t.Context(), secretNamed(t, cluster, "shop-redis-ca")))
	both := changedSecret(t, cluster, first, "ca.crt")
	later(t, cluster, pki.Spread+time.Second)
	changedSecret(t, cluster, both, "tls.crt")
	shownBy(t, cluster, address)
	if unread := secretNamed(t, cluster, "shop-redis-tls").Annotations[unreadAnnotation]; unread == "" {
		t.Error("the other server has been told, though it shows no certificate")
	}
}

// As long as a server may show a certificate of the authority of before, everybody accepts that one: else nobody could connect to the
// server any more, nor the operator tell it of another certificate.
func TestTheAuthorityOfWhatRedisShowsStays(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), redisFleetWithTLS)
	redisRevision(t, cluster, "a")
	_, address := redisPod(t, cluster, 0, "a")
	first := secretNamed(t, cluster, "shop-redis-tls")
	suite.Must(t, api.Delete(t.Context(), secretNamed(t, cluster, "shop-redis-ca")))
	seen := changedSecret(t, cluster, first, "ca.crt")
	later(t, cluster, pki.Spread+time.Second)
	seen = changedSecret(t, cluster, seen, "tls.crt")
	for range 3 {
		later(t, cluster, pki.Spread+time.Second)
		seen = secretNamed(t, cluster, "shop-redis-tls")
		if !bytes.Contains(seen.Data["ca.crt"], first.Data["ca.crt"]) {
			t.Fatal("nobody accepts any more what the server shows")
		}
	}

	redisServers.kubelet(address, true)
	shownBy(t, cluster, address)
	readByAll(t, cluster)
	later(t, cluster, pki.Spread+time.Second)
	if last := changedSecret(t, cluster, seen, "ca.crt"); !bytes.Equal(last.Data["ca.crt"], secretNamed(t, cluster, "shop-redis-ca").Data["tls.crt"]) {
		t.Error("in the end others than the new authority are accepted")
	}
}
