package cluster

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"testing"

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
	again := func() ctrl.Result {
		var result ctrl.Result
		suite.Eventually(t, func() (err error) {
			result, err = underTest.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)})
			return err
		})
		return result
	}
	if result := again(); result.RequeueAfter > lookAgain {
		t.Errorf("the server is looked at in %s again", result.RequeueAfter)
	}
	if _, shown := redisServers.shows(address); shown == string(second.Data["tls.crt"]) {
		t.Fatal("the server shows a certificate that the kubelet has not brought")
	}

	redisServers.kubelet(address, true)
	suite.Eventually(t, func() error {
		again()
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
	suite.Eventually(t, func() error {
		if _, err := underTest.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)}); err != nil {
			return err
		}
		if unread := secretNamed(t, cluster, "shop-redis-tls").Annotations[unreadAnnotation]; unread != "" {
			return fmt.Errorf("the Secret is unread")
		}
		return nil
	})
}
