// Package redis renders the Redis of a fleet: the one that this operator runs, and the one that it asks redis-operator for.
package redis

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

const (
	redisPort    = 6379
	exporterPort = 9121
	// ExporterPortName is the name of the exporter's port, by which Prometheus finds it.
	ExporterPortName = "metrics"
)

// Name is the name of the objects of the Redis that this operator runs.
func Name(c *v1alpha1.LiveStashCluster) string { return c.Name + "-redis" }

// PodName is the name of one of its pods.
func PodName(c *v1alpha1.LiveStashCluster, place int) string {
	return Name(c) + "-" + strconv.Itoa(place)
}

// Address is where the server of a pod is.
func Address(podIP string) string { return hostPort(podIP, redisPort) }

// DataName is the name of its volume.
func DataName(c *v1alpha1.LiveStashCluster) string { return c.Name + "-redis-data" }

// StatefulSets are the names of the StatefulSets that Kubernetes runs for the fleet's store, if any. That of
// redis-operator's Sentinels is not among them: it has no labels to see it by.
func StatefulSets(c *v1alpha1.LiveStashCluster) []string {
	switch {
	case store.ManagedRedis(c) != nil:
		return []string{Name(c)}
	case store.OperatedRedis(c) != nil:
		return []string{OperatedName(c)}
	}
	return nil
}

// selectorLabels select the pods of the fleet's Redis, which the fleet's own selector must not.
func selectorLabels(c *v1alpha1.LiveStashCluster) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":     "redis",
		"app.kubernetes.io/instance": c.Name,
		render.ComponentLabel:        render.RedisComponent,
		render.ClusterLabel:          c.Name,
	}
}

func objectMeta(c *v1alpha1.LiveStashCluster, name string) metav1.ObjectMeta {
	labels := render.Merged(render.Labels(c), selectorLabels(c))
	return metav1.ObjectMeta{Name: name, Namespace: c.Namespace, Labels: labels}
}

// Managed are the objects of the Redis that this operator runs, or none.
func Managed(c *v1alpha1.LiveStashCluster, in render.Inputs) []client.Object {
	redis := store.ManagedRedis(c)
	if redis == nil {
		return nil
	}
	config := Config(c, redis)
	objects := []client.Object{config, Service(c, redis, in)}
	if policy := NetworkPolicy(c, in); policy != nil {
		objects = append(objects, policy)
	}
	if volume := Volume(c, redis, in); volume != nil {
		objects = append(objects, volume)
	}
	objects = append(objects, StatefulSet(c, redis, config, in))
	if budget := DisruptionBudget(c, redis); budget != nil {
		objects = append(objects, budget)
	}
	return objects
}

// settings are the lines of Redis' configuration that matter to stashes, whoever runs it, and more lines, each with a new line before it.
//
// When the memory that Redis may fill is full, the stashes go that would expire first: all of LiveStash's keys have an end.
//
// The append-only file is written without persistence too: in a folder of the pod it outlives a crash of the server. Without
// it, a master that crashes is back, empty, before Sentinel misses it, and its replicas copy that.
func settings(more string) string {
	return fmt.Sprintf(`# Made by the LiveStash operator.
dir %s%s
maxmemory-policy volatile-ttl
save ""
appendonly yes
appendfsync everysec
tcp-keepalive 60
`, dataDir, more)
}

// maxMemory is how many bytes Redis may fill. A quarter of the container's memory is left to clients' buffers, fragmentation and the copy that a child
// process has while the append-only file is rewritten.
func maxMemory(memory resource.Quantity) int64 { return memory.Value() / 4 * 3 }

// Volume is what the stashes are kept on. It is no template of the StatefulSet, so that it can grow and go. Nil without
// persistence.
func Volume(c *v1alpha1.LiveStashCluster, redis *v1alpha1.ManagedRedis, in render.Inputs) *corev1.PersistentVolumeClaim {
	if redis.Persistence == nil {
		return nil
	}
	return &corev1.PersistentVolumeClaim{
		TypeMeta:   render.PersistentVolumeClaimType,
		ObjectMeta: objectMeta(c, DataName(c)),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: redis.Persistence.StorageClassName,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: ptr.Deref(in.RedisVolumeSize, redis.Persistence.VolumeSize())},
			},
		},
	}
}

// DisruptionBudget keeps node drains from a Redis that would lose every stash by moving, also while it restarts or reads its file: the stashes are in the
// pod's folder. Nil when it would keep them, or when spec.disruptionBudget is disabled.
func DisruptionBudget(c *v1alpha1.LiveStashCluster, redis *v1alpha1.ManagedRedis) *policyv1.PodDisruptionBudget {
	if redis.Persistence != nil || !ptr.Deref(c.Spec.DisruptionBudget.Enabled, true) {
		return nil
	}
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   render.PodDisruptionBudgetType,
		ObjectMeta: objectMeta(c, Name(c)),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: ptr.To(intstr.FromInt32(0)),
			Selector:       &metav1.LabelSelector{MatchLabels: selectorLabels(c)},
		},
	}
}

// Store is which store the fleet uses: the address without its password, and a digest for StoreAnnotation that changes
// when stashes of before are not there afterwards. Both are empty with other adapters. urlValue is the content of
// spec.redis.external.urlSecretRef.
func Store(c *v1alpha1.LiveStashCluster, in render.Inputs, urlValue []byte) (address, digest string) {
	database := "0"
	switch {
	case store.ManagedRedis(c) != nil:
		address = hostPort(Host(c, in), redisPort)
		if store.ManagedRedis(c).TLSEnabled() {
			database += "/tls" // a server without TLS is another one, whose pods could not log in to this one
		}
	case store.OperatedRedis(c) != nil:
		address = hostPort(operatedHost(c, in), redisPort)
	case store.ExternalRedis(c) != nil && store.ExternalRedis(c).URLSecretRef == nil:
		external := store.ExternalRedis(c)
		address = hostPort(external.Host, ptr.Deref(external.Port, redisPort))
		database = strconv.Itoa(int(ptr.Deref(external.Database, 0)))
	case store.ExternalRedis(c) != nil:
		parsed, err := url.Parse(string(urlValue))
		if err != nil {
			return "", "" // CheckSecretValue has refused it
		}
		address = net.JoinHostPort(parsed.Hostname(), portOr(parsed, redisPort))
		database = databaseOf(parsed)
	default:
		return "", ""
	}
	return address, render.Digest(strings.ToLower(address) + "/" + database)
}

// Host is the DNS name of the Redis that this operator runs, which its certificate is for.
func Host(c *v1alpha1.LiveStashCluster, in render.Inputs) string {
	return render.ServiceHost(c, in, Name(c))
}

func hostPort(host string, port int32) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

func portOr(parsed *url.URL, port int) string {
	if parsed.Port() != "" {
		return parsed.Port()
	}
	return strconv.Itoa(port)
}

func databaseOf(parsed *url.URL) string {
	if database := strings.Trim(parsed.Path, "/"); database != "" {
		return database
	}
	return "0"
}

// URL is what the application connects to, where the operator makes it of parts.
func URL(c *v1alpha1.LiveStashCluster, in render.Inputs, password string) string {
	address, _ := Store(c, in, nil)
	made := url.URL{Scheme: "redis", Host: address, Path: "/0"}
	switch external := store.ExternalRedis(c); {
	case external != nil:
		made.Path = "/" + strconv.Itoa(int(ptr.Deref(external.Database, 0)))
		if external.TLSEnabled() {
			made.Scheme = "rediss"
		}
		if password != "" {
			made.User = url.UserPassword(external.Username, password)
		}
	case store.OperatedRedis(c) != nil:
		made.User = url.UserPassword("", password)
	default:
		made.Scheme = scheme(store.ManagedRedis(c))
		made.User = url.UserPassword(FleetUser, password)
	}
	return made.String()
}

func scheme(redis *v1alpha1.ManagedRedis) string {
	if redis.TLSEnabled() {
		return "rediss"
	}
	return "redis"
}

// CheckSecretValue refuses a user's value with which no pod could reach its Redis.
func CheckSecretValue(c *v1alpha1.LiveStashCluster, ref v1alpha1.SecretKeyReference, value []byte) error {
	if managed := store.ManagedRedis(c); managed != nil && is(managed.Password.Ref(), ref) && !passwordText.Match(value) {
		return render.SpecErrorf("the key %s of Secret %s is no password for Redis: use up to 512 printable ASCII characters without spaces, with no line break at the end",
			ref.Key, ref.Name)
	}
	external := store.ExternalRedis(c)
	if external == nil {
		return nil
	}
	if is(external.URLSecretRef, ref) {
		return checkURL(external, ref, value)
	}
	if unprintable := render.Unprintable(value); is(external.PasswordSecretRef, ref) && unprintable != "" {
		return render.SpecErrorf("the key %s of Secret %s has %s, and is used as the password as it is: remove that", ref.Key, ref.Name, unprintable)
	}
	if is(external.CASecretRef, ref) {
		block, _ := pem.Decode(value)
		if block == nil || !x509.NewCertPool().AppendCertsFromPEM(value) {
			return render.SpecErrorf("the key %s of Secret %s has no certificate in PEM: put in those of the authorities that signed the Redis server's certificate",
				ref.Key, ref.Name)
		}
	}
	return nil
}

// checkURL tells no part of the URL: a password that is not percent-encoded may be anywhere in it.
func checkURL(external *v1alpha1.ExternalRedis, ref v1alpha1.SecretKeyReference, value []byte) error {
	const form = "redis://[[user]:password@]host[:port][/database], or rediss:// for TLS"
	if bytes.ContainsAny(value, " \t\r\n") {
		return render.SpecErrorf("the key %s of Secret %s has a space or a line break: remove it, and percent-encode those of the password", ref.Key, ref.Name)
	}
	parsed, err := url.Parse(string(value))
	if err != nil || parsed.Hostname() == "" || strings.Contains(parsed.Path+parsed.RawQuery+parsed.Fragment, "@") {
		// The parser's own words would tell the value, and what it takes for the path of a URL may be the rest of a password.
		return render.SpecErrorf("the key %s of Secret %s is no URL of a Redis server: use %s; characters of the password like # and / are percent-encoded", ref.Key, ref.Name, form)
	}
	if parsed.Scheme != "redis" && parsed.Scheme != "rediss" {
		return render.SpecErrorf("the URL in the key %s of Secret %s starts with neither redis:// nor rediss://, which is all that LiveStash knows: use %s", ref.Key, ref.Name, form)
	}
	if port := parsed.Port(); port != "" && !isPort(port) {
		return render.SpecErrorf("the URL in the key %s of Secret %s has no port from 1 to 65535: correct it, or leave it out for %d", ref.Key, ref.Name, redisPort)
	}
	if !databasePath.MatchString(parsed.Path) {
		return render.SpecErrorf("the URL in the key %s of Secret %s has a path that is not the number of a database: use %s; characters of the password like # and / are percent-encoded",
			ref.Key, ref.Name, form)
	}
	if external.CASecretRef != nil && parsed.Scheme != "rediss" {
		return render.SpecErrorf("the URL in the key %s of Secret %s is without TLS, and caSecretRef is only read with it: let the URL start with rediss://, or remove caSecretRef", ref.Key, ref.Name)
	}
	return nil
}

func isPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return err == nil && port > 0
}

// IsPassword is whether the fleet's password for Redis comes from that key, and reaches the pods in a URL.
func IsPassword(c *v1alpha1.LiveStashCluster, ref v1alpha1.SecretKeyReference) bool {
	if managed := store.ManagedRedis(c); managed != nil {
		return is(managed.Password.Ref(), ref)
	}
	external := store.ExternalRedis(c)
	return external != nil && is(external.PasswordSecretRef, ref)
}

func is(own *v1alpha1.SecretKeyReference, ref v1alpha1.SecretKeyReference) bool {
	return own != nil && *own == ref
}

var (
	passwordText = regexp.MustCompile(`^[!-~]{1,512}$`)
	databasePath = regexp.MustCompile(`^/?[0-9]{0,5}$`)
)

const certificatesVolume = "livestash-redis"

// CertificateMounts are where a container finds the authorities that the Redis server's certificate is checked against.
func CertificateMounts(c *v1alpha1.LiveStashCluster) []corev1.VolumeMount {
	if store.RedisAuthorities(c) == nil {
		return nil
	}
	return []corev1.VolumeMount{{Name: certificatesVolume, MountPath: store.RedisDir, ReadOnly: true}}
}

// AddCertificates gives the pods those authorities.
func AddCertificates(spec *corev1.PodSpec, c *v1alpha1.LiveStashCluster) {
	mounts := CertificateMounts(c)
	if mounts == nil {
		return
	}
	authorities := store.RedisAuthorities(c)
	app := &spec.Containers[0]
	app.VolumeMounts = append(app.VolumeMounts, mounts...)
	spec.Volumes = append(spec.Volumes, corev1.Volume{
		Name: certificatesVolume,
		VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: authorities.Name,
			Items:      []corev1.KeyToPath{{Key: authorities.Key, Path: store.RedisCAFile}},
		}},
	})
}
