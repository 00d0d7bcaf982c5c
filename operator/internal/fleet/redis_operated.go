package fleet

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/stash"
)

// The kinds of redis-operator that a fleet may ask for.
var (
	RedisStandaloneKind  = schema.GroupVersionKind{Group: "redis.redis.opstreelabs.in", Version: "v1beta2", Kind: "Redis"}
	RedisReplicationKind = schema.GroupVersionKind{Group: "redis.redis.opstreelabs.in", Version: "v1beta2", Kind: "RedisReplication"}
)

// RedisRoleLabel is on the pods that redis-operator runs: which of them is the master, once redis-operator knows.
const (
	RedisRoleLabel  = "redis-role"
	RedisMasterRole = "master"
)

// redisOperatedConfigFile is the file that redis-operator includes into its own configuration, at the end of it.
const redisOperatedConfigFile = "redis-additional.conf"

// redisOperatedUser is the user of redis-operator's images.
const redisOperatedUser int64 = 1000

// RedisOperatedName is the name of the custom resource that redis-operator makes Redis of. It differs from RedisName, so that
// the objects of both can be there while a fleet goes over from one to the other.
func RedisOperatedName(c *v1alpha1.LiveStashCluster) string { return c.Name + "-redis-op" }

// redisOperatedMeta has labels that redis-operator copies to its Services, their selectors, the pods and the selector of the
// Sentinels: they can never change. By their name they differ from those of the Redis that this operator runs, whose
// selectors must not match.
func redisOperatedMeta(c *v1alpha1.LiveStashCluster) metav1.ObjectMeta {
	meta := redisMeta(c, RedisOperatedName(c))
	meta.Labels["app.kubernetes.io/name"] = "redis-operated"
	return meta
}

// RedisOperatedConfig is the ConfigMap with what Redis' configuration needs besides that of redis-operator. Nil when the fleet
// has another Redis.
//
// A master without a replica takes no writes. After a failover the old master goes on until it is told, and without this
// everything that it takes in that time is acknowledged and then lost.
func RedisOperatedConfig(c *v1alpha1.LiveStashCluster) *corev1.ConfigMap {
	operated := c.OperatedRedis()
	if operated == nil {
		return nil
	}
	config := redisSettings(operated.MemoryLimit())
	if operated.Mode != v1alpha1.RedisStandalone {
		config += `min-replicas-to-write 1
min-replicas-max-lag 10
`
	}
	return &corev1.ConfigMap{
		TypeMeta:   configMapType,
		ObjectMeta: redisOperatedMeta(c),
		Data:       map[string]string{redisOperatedConfigFile: config},
	}
}

// RedisOperated is what redis-operator is asked for. Nil when the fleet has another Redis.
func RedisOperated(c *v1alpha1.LiveStashCluster) *unstructured.Unstructured {
	operated := c.OperatedRedis()
	if operated == nil {
		return nil
	}
	kind, spec := RedisStandaloneKind, redisOperatedSpec(c, operated)
	if operated.Mode != v1alpha1.RedisStandalone {
		kind = RedisReplicationKind
		addReplication(spec, c, operated)
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(kind)
	meta := redisOperatedMeta(c)
	object.SetNamespace(meta.Namespace)
	object.SetName(meta.Name)
	object.SetLabels(meta.Labels)
	// redis-operator copies annotations to the pods: another configuration restarts them.
	object.SetAnnotations(map[string]string{"livestash.dev/redis-config": Digest(RedisOperatedConfig(c).Data[redisOperatedConfigFile])})
	object.SetOwnerReferences([]metav1.OwnerReference{ownerReference(c)})
	return object
}

// redisOperatedSpec is what both kinds have in common.
func redisOperatedSpec(c *v1alpha1.LiveStashCluster, operated *v1alpha1.OperatedRedis) map[string]any {
	kubernetes := redisOperatedImage(c, operated.Image)
	kubernetes["redisSecret"] = map[string]any{"name": stash.RedisSecretName(c), "key": RedisPasswordKey}
	kubernetes["resources"] = redisOperatedResources("100m", ptr.To(operated.MemoryLimit()).String())
	// This one changes with every field of the custom resource. Copied to the pods, it would restart them for nothing.
	kubernetes["ignoreAnnotations"] = []any{apply.Annotation}
	spec := map[string]any{
		"kubernetesConfig":   kubernetes,
		"redisConfig":        map[string]any{"additionalRedisConfig": RedisOperatedName(c)},
		"storage":            redisOperatedStorage(operated.Persistence),
		"serviceAccountName": c.Name,
		"podSecurityContext": redisOperatedPodSecurity(),
		"securityContext":    redisOperatedSecurity(),
		// Not to have one: with its feature GenerateConfigInInitContainer, redis-operator takes the security context of its own
		// from here.
		"initContainer": map[string]any{"enabled": false, "image": operated.Image, "securityContext": redisOperatedSecurity()},
		// redis-operator's own command, which asks with the password, with more time than the second that it gives.
		"readinessProbe": map[string]any{"periodSeconds": int64(5), "failureThreshold": int64(2), "timeoutSeconds": int64(3)},
		// By its own command, a server that still reads its file is not alive.
		"livenessProbe": map[string]any{
			"tcpSocket":     map[string]any{"port": int64(redisPort)},
			"periodSeconds": int64(10), "failureThreshold": int64(6), "timeoutSeconds": int64(5),
		},
	}
	addScheduling(spec, operated.RedisScheduling)
	return spec
}

// addReplication makes it a master with replicas, and Sentinels that choose another master when it is gone.
func addReplication(spec map[string]any, c *v1alpha1.LiveStashCluster, operated *v1alpha1.OperatedRedis) {
	servers := int64(operated.Servers())
	spec["clusterSize"] = servers
	if ptr.Deref(c.Spec.DisruptionBudget.Enabled, true) {
		spec["pdb"] = map[string]any{"enabled": true, "maxUnavailable": int64(1)}
	}
	sentinel := redisOperatedImage(c, operated.SentinelImage)
	sentinel["size"] = servers
	sentinel["resources"] = redisOperatedResources("20m", "64Mi")
	sentinel["serviceAccountName"] = c.Name
	sentinel["podSecurityContext"] = redisOperatedPodSecurity()
	sentinel["securityContext"] = redisOperatedSecurity()
	addScheduling(sentinel, operated.RedisScheduling)
	spec["sentinel"] = sentinel
	addSpread(spec, c, RedisOperatedName(c))
	addSpread(sentinel, c, redisSentinelName(c))
}

func redisOperatedImage(c *v1alpha1.LiveStashCluster, image string) map[string]any {
	config := map[string]any{"image": image}
	var secrets []any
	for _, secret := range c.Spec.ImagePullSecrets {
		secrets = append(secrets, map[string]any{"name": secret.Name})
	}
	if secrets != nil {
		config["imagePullSecrets"] = secrets
	}
	return config
}

func redisOperatedResources(cpu, memory string) map[string]any {
	return map[string]any{
		"requests": map[string]any{"cpu": cpu, "memory": memory},
		"limits":   map[string]any{"memory": memory},
	}
}

// redisOperatedStorage is where the append-only file is: on a volume for each server, or in a folder that goes with the pod.
func redisOperatedStorage(persistence *v1alpha1.RedisPersistence) map[string]any {
	if persistence == nil {
		return map[string]any{"volumeMount": map[string]any{
			"volume":    []any{map[string]any{"name": "data", "emptyDir": map[string]any{}}},
			"mountPath": []any{map[string]any{"name": "data", "mountPath": redisDataDir}},
		}}
	}
	claim := map[string]any{
		"accessModes": []any{string(corev1.ReadWriteOnce)},
		"resources":   map[string]any{"requests": map[string]any{"storage": ptr.To(persistence.VolumeSize()).String()}},
	}
	if persistence.StorageClassName != nil {
		claim["storageClassName"] = *persistence.StorageClassName
	}
	return map[string]any{"volumeClaimTemplate": map[string]any{"spec": claim}}
}

func redisOperatedPodSecurity() map[string]any {
	return map[string]any{
		"runAsNonRoot":   true,
		"runAsUser":      redisOperatedUser,
		"runAsGroup":     redisOperatedUser,
		"fsGroup":        redisOperatedUser,
		"seccompProfile": map[string]any{"type": string(corev1.SeccompProfileTypeRuntimeDefault)},
	}
}

// redisOperatedSecurity lets the root file system be written: the images put their configuration there when they start, and
// on a read-only one they start without it, that is without a password.
func redisOperatedSecurity() map[string]any {
	return map[string]any{
		"allowPrivilegeEscalation": false,
		"capabilities":             map[string]any{"drop": []any{"ALL"}},
	}
}

func addScheduling(spec map[string]any, scheduling v1alpha1.RedisScheduling) {
	if len(scheduling.NodeSelector) > 0 {
		labels := map[string]any{}
		for key, value := range scheduling.NodeSelector {
			labels[key] = value
		}
		spec["nodeSelector"] = labels
	}
	var tolerations []any
	for _, toleration := range scheduling.Tolerations {
		tolerations = append(tolerations, tolerationFields(toleration))
	}
	if tolerations != nil {
		spec["tolerations"] = tolerations
	}
	if scheduling.PriorityClassName != "" {
		spec["priorityClassName"] = scheduling.PriorityClassName
	}
}

func tolerationFields(toleration corev1.Toleration) map[string]any {
	fields := map[string]any{}
	for name, value := range map[string]string{
		"key":      toleration.Key,
		"operator": string(toleration.Operator),
		"value":    toleration.Value,
		"effect":   string(toleration.Effect),
	} {
		if value != "" {
			fields[name] = value
		}
	}
	if toleration.TolerationSeconds != nil {
		fields["tolerationSeconds"] = *toleration.TolerationSeconds
	}
	return fields
}

// addSpread keeps the pods of one StatefulSet on different nodes and zones, as the spec wants it of the fleet's. The label is
// redis-operator's.
func addSpread(spec map[string]any, c *v1alpha1.LiveStashCluster, statefulSet string) {
	var constraints []any
	for _, constraint := range topologySpread(c) {
		constraints = append(constraints, map[string]any{
			"maxSkew":           int64(constraint.MaxSkew),
			"topologyKey":       constraint.TopologyKey,
			"whenUnsatisfiable": string(constraint.WhenUnsatisfiable),
			"labelSelector":     map[string]any{"matchLabels": map[string]any{"app": statefulSet, ClusterLabel: c.Name}},
		})
	}
	if constraints != nil {
		spec["topologySpreadConstraints"] = constraints
	}
}

func redisSentinelName(c *v1alpha1.LiveStashCluster) string { return RedisOperatedName(c) + "-s" }

// redisOperatedHost is the DNS name of the Redis that redis-operator runs: with replication, of its master. That name has
// an address only while redis-operator knows which pod the master is, which it looks up every 30 seconds while all pods
// are ready.
func redisOperatedHost(c *v1alpha1.LiveStashCluster, in Inputs) string {
	if c.OperatedRedis().Mode == v1alpha1.RedisStandalone {
		return serviceHost(c, in, RedisOperatedName(c))
	}
	return serviceHost(c, in, RedisOperatedName(c)+"-master")
}
