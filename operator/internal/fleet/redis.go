package fleet

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
	"github.com/livestash-dev/livestash/operator/internal/store"
)

const (
	// ComponentLabel tells a fleet's own pods from those of its Redis.
	ComponentLabel = "app.kubernetes.io/component"
	// FleetComponent is the ComponentLabel of the pods that serve.
	FleetComponent = "fleet"
	// RedisComponent is the ComponentLabel of the pods of Redis.
	RedisComponent = "redis"

	// StoreAnnotation is on the pods of a fleet with Redis: which store they use, as a digest.
	StoreAnnotation = "livestash.dev/store"

	redisPort        = 6379
	exporterPort     = 9121
	exporterPortName = "metrics"
)

// RedisName is the name of the objects of the Redis that this operator runs.
func RedisName(c *v1alpha1.LiveStashCluster) string { return c.Name + "-redis" }

// RedisDataName is the name of its volume.
func RedisDataName(c *v1alpha1.LiveStashCluster) string { return c.Name + "-redis-data" }

// RedisStatefulSets are the names of the StatefulSets that Kubernetes runs for the fleet's store, if any. That of
// redis-operator's Sentinels is not among them: it has no labels to see it by.
func RedisStatefulSets(c *v1alpha1.LiveStashCluster) []string {
	switch {
	case store.ManagedRedis(c) != nil:
		return []string{RedisName(c)}
	case store.OperatedRedis(c) != nil:
		return []string{RedisOperatedName(c)}
	}
	return nil
}

// redisLabels select the pods of the fleet's Redis, which the fleet's own selector must not.
func redisLabels(c *v1alpha1.LiveStashCluster) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name":     "redis",
		"app.kubernetes.io/instance": c.Name,
		ComponentLabel:               RedisComponent,
		ClusterLabel:                 c.Name,
	}
}

func redisMeta(c *v1alpha1.LiveStashCluster, name string) metav1.ObjectMeta {
	labels := merged(Labels(c), redisLabels(c))
	return metav1.ObjectMeta{Name: name, Namespace: c.Namespace, Labels: labels}
}

// managedRedis are the objects of the Redis that this operator runs, or none.
func managedRedis(c *v1alpha1.LiveStashCluster, in Inputs) []client.Object {
	redis := store.ManagedRedis(c)
	if redis == nil {
		return nil
	}
	config := RedisConfig(c, redis)
	objects := []client.Object{config, RedisService(c)}
	if policy := RedisNetworkPolicy(c, in); policy != nil {
		objects = append(objects, policy)
	}
	if volume := RedisVolume(c, redis); volume != nil {
		objects = append(objects, volume)
	}
	objects = append(objects, RedisStatefulSet(c, redis, config, in))
	if budget := RedisDisruptionBudget(c, redis); budget != nil {
		objects = append(objects, budget)
	}
	return objects
}

// redisSettings are the lines of Redis' configuration that matter to stashes, whoever runs it.
//
// A quarter of the container's memory is left to clients' buffers, fragmentation and the copy that a child process has while
// the append-only file is rewritten. When the rest is full, the stashes go that would end first: all of LiveStash's keys have
// an end.
//
// The append-only file is written without persistence too: in a folder of the pod it outlives a crash of the server. Without
// it, a master that crashes is back, empty, before Sentinel misses it, and its replicas copy that.
func redisSettings(memory resource.Quantity) string {
	return fmt.Sprintf(`# Made by the LiveStash operator.
dir %s
maxmemory %d
maxmemory-policy volatile-ttl
save ""
appendonly yes
appendfsync everysec
tcp-keepalive 60
`, redisDataDir, memory.Value()/4*3)
}

// RedisVolume is what the stashes are kept on. It is no template of the StatefulSet, so that it can grow and go. Nil without
// persistence.
func RedisVolume(c *v1alpha1.LiveStashCluster, redis *v1alpha1.ManagedRedis) *corev1.PersistentVolumeClaim {
	if redis.Persistence == nil {
		return nil
	}
	return &corev1.PersistentVolumeClaim{
		TypeMeta:   persistentVolumeClaimType,
		ObjectMeta: redisMeta(c, RedisDataName(c)),
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: redis.Persistence.StorageClassName,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: redis.Persistence.VolumeSize()},
			},
		},
	}
}

// RedisDisruptionBudget keeps node drains from a Redis that would lose every stash by moving. Nil when it would keep them, or
// when spec.disruptionBudget is disabled.
func RedisDisruptionBudget(c *v1alpha1.LiveStashCluster, redis *v1alpha1.ManagedRedis) *policyv1.PodDisruptionBudget {
	if redis.Persistence != nil || !ptr.Deref(c.Spec.DisruptionBudget.Enabled, true) {
		return nil
	}
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   podDisruptionBudgetType,
		ObjectMeta: redisMeta(c, RedisName(c)),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable:             ptr.To(intstr.FromInt32(0)),
			Selector:                   &metav1.LabelSelector{MatchLabels: redisLabels(c)},
			UnhealthyPodEvictionPolicy: ptr.To(policyv1.AlwaysAllow),
		},
	}
}

// RedisStore is which store the fleet uses: the address without its password, and a digest for StoreAnnotation that changes
// when stashes of before are not there afterwards. Both are empty with other adapters. urlValue is the content of
// spec.redis.external.urlSecretRef.
func RedisStore(c *v1alpha1.LiveStashCluster, in Inputs, urlValue []byte) (address, digest string) {
	database := "0"
	switch {
	case store.ManagedRedis(c) != nil:
		address = hostPort(redisHost(c, in), redisPort)
	case store.OperatedRedis(c) != nil:
		address = hostPort(redisOperatedHost(c, in), redisPort)
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
	return address, Digest(strings.ToLower(address) + "/" + database)
}

// redisHost is the DNS name of the Redis that this operator runs.
func redisHost(c *v1alpha1.LiveStashCluster, in Inputs) string {
	return serviceHost(c, in, RedisName(c))
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

// RedisURL is what the application connects to, where the operator makes it of parts.
func RedisURL(c *v1alpha1.LiveStashCluster, in Inputs, password string) string {
	address, _ := RedisStore(c, in, nil)
	made := url.URL{Scheme: "redis", Host: address, Path: "/0"}
	switch external := store.ExternalRedis(c); {
	case external != nil:
		made.Path = "/" + strconv.Itoa(int(ptr.Deref(external.Database, 0)))
		if ptr.Deref(external.TLS, false) {
			made.Scheme = "rediss"
		}
		if password != "" {
			made.User = url.UserPassword(external.Username, password)
		}
	case store.OperatedRedis(c) != nil:
		made.User = url.UserPassword("", password)
	default:
		made.User = url.UserPassword(RedisFleetUser, password)
	}
	return made.String()
}

// checkRedisValue refuses a user's value with which no pod could reach its Redis.
func checkRedisValue(c *v1alpha1.LiveStashCluster, ref v1alpha1.SecretKeyReference, value []byte) error {
	if managed := store.ManagedRedis(c); managed != nil && is(managed.Password.Ref(), ref) && !redisPassword.Match(value) {
		return specErrorf("the key %s of Secret %s is no password for Redis: use up to 512 printable ASCII characters without spaces, with no line break at the end",
			ref.Key, ref.Name)
	}
	external := store.ExternalRedis(c)
	if external == nil {
		return nil
	}
	if is(external.URLSecretRef, ref) {
		return checkRedisURL(external, ref, value)
	}
	if is(external.PasswordSecretRef, ref) && bytes.ContainsAny(value, "\r\n") {
		return specErrorf("the key %s of Secret %s has a line break, and is used as the password as it is: remove it", ref.Key, ref.Name)
	}
	if is(external.CASecretRef, ref) {
		block, _ := pem.Decode(value)
		if block == nil || !x509.NewCertPool().AppendCertsFromPEM(value) {
			return specErrorf("the key %s of Secret %s has no certificate in PEM: put in those of the authorities that signed the Redis server's certificate",
				ref.Key, ref.Name)
		}
	}
	return nil
}

func checkRedisURL(external *v1alpha1.ExternalRedis, ref v1alpha1.SecretKeyReference, value []byte) error {
	const form = "redis://[[user]:password@]host[:port][/database], or rediss:// for TLS"
	if bytes.ContainsAny(value, " \t\r\n") {
		return specErrorf("the key %s of Secret %s has a space or a line break: remove it, and percent-encode those of the password", ref.Key, ref.Name)
	}
	parsed, err := url.Parse(string(value))
	if err != nil || parsed.Hostname() == "" {
		// The parser's own words would tell the value.
		return specErrorf("the key %s of Secret %s is no URL of a Redis server: use %s; characters of the password like # and / are percent-encoded", ref.Key, ref.Name, form)
	}
	if parsed.Scheme != "redis" && parsed.Scheme != "rediss" {
		return specErrorf("the URL in the key %s of Secret %s starts with %s://, which LiveStash does not know: use %s", ref.Key, ref.Name, parsed.Scheme, form)
	}
	if !redisDatabase.MatchString(parsed.Path) {
		return specErrorf("the URL in the key %s of Secret %s has the path %s, which is not the number of a database: use %s", ref.Key, ref.Name, parsed.Path, form)
	}
	if external.CASecretRef != nil && parsed.Scheme != "rediss" {
		return specErrorf("the URL in the key %s of Secret %s is without TLS, and caSecretRef is only read with it: let the URL start with rediss://, or remove caSecretRef", ref.Key, ref.Name)
	}
	return nil
}

// IsRedisPassword is whether the fleet's password for Redis comes from that key, and reaches the pods in a URL.
func IsRedisPassword(c *v1alpha1.LiveStashCluster, ref v1alpha1.SecretKeyReference) bool {
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
	redisPassword = regexp.MustCompile(`^[!-~]{1,512}$`)
	redisDatabase = regexp.MustCompile(`^/?[0-9]{0,5}$`)
)

const redisVolume = "livestash-redis"

// redisCertificates are where a container finds the authorities that the Redis server's certificate is checked against.
func redisCertificates(c *v1alpha1.LiveStashCluster) []corev1.VolumeMount {
	if external := store.ExternalRedis(c); external == nil || external.CASecretRef == nil {
		return nil
	}
	return []corev1.VolumeMount{{Name: redisVolume, MountPath: store.RedisDir, ReadOnly: true}}
}

// withRedisCertificates gives the pods those authorities.
func withRedisCertificates(spec *corev1.PodSpec, c *v1alpha1.LiveStashCluster) {
	mounts := redisCertificates(c)
	if mounts == nil {
		return
	}
	authorities := store.ExternalRedis(c).CASecretRef
	app := &spec.Containers[0]
	app.VolumeMounts = append(app.VolumeMounts, mounts...)
	spec.Volumes = append(spec.Volumes, corev1.Volume{
		Name: redisVolume,
		VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: authorities.Name,
			Items:      []corev1.KeyToPath{{Key: authorities.Key, Path: store.RedisCAFile}},
		}},
	})
}
