package redis

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// The kinds of redis-operator that a fleet may ask for.
var (
	StandaloneKind  = schema.GroupVersionKind{Group: "redis.redis.opstreelabs.in", Version: "v1beta2", Kind: "Redis"}
	ReplicationKind = schema.GroupVersionKind{Group: "redis.redis.opstreelabs.in", Version: "v1beta2", Kind: "RedisReplication"}
)

// RoleLabel is on the pods that redis-operator runs: which of them is the master, once redis-operator knows.
const (
	RoleLabel  = "redis-role"
	MasterRole = "master"
)

// operatedConfigFile is the file that redis-operator includes into its own configuration, at the end of it.
const operatedConfigFile = "redis-additional.conf"

// operatedBy is the application's name in the labels of what redis-operator runs.
const operatedBy = "redis-operated"

// operatedUser is the user of redis-operator's images.
const operatedUser int64 = 1000

// OperatedName is the name of the custom resource that redis-operator makes Redis of. It differs from Name, so that
// the objects of both can be there while a fleet goes over from one to the other.
func OperatedName(c *v1alpha1.LiveStashCluster) string { return c.Name + "-redis-op" }

// operatedMeta has labels that redis-operator copies to its Services, their selectors, the pods and the selector of the
// Sentinels: they can never change. By their name they differ from those of the Redis that this operator runs, whose
// selectors must not match.
func operatedMeta(c *v1alpha1.LiveStashCluster) metav1.ObjectMeta {
	meta := objectMeta(c, OperatedName(c))
	meta.Labels["app.kubernetes.io/name"] = operatedBy
	return meta
}

// OperatedConfig is the ConfigMap with what Redis' configuration needs besides that of redis-operator. Nil when the fleet
// has another Redis.
//
// A master without a replica takes no writes. After a failover the old master goes on until it is told, and without this
// everything that it takes in that time is acknowledged and then lost.
func OperatedConfig(c *v1alpha1.LiveStashCluster) *corev1.ConfigMap {
	operated := store.OperatedRedis(c)
	if operated == nil {
		return nil
	}
	config := settings(fmt.Sprintf("\nmaxmemory %d", maxMemory(operated.MemoryLimit())))
	if operated.Mode != v1alpha1.RedisStandalone {
		config += `min-replicas-to-write 1
min-replicas-max-lag 10
`
	}
	return &corev1.ConfigMap{
		TypeMeta:   render.ConfigMapType,
		ObjectMeta: operatedMeta(c),
		Data:       map[string]string{operatedConfigFile: config},
	}
}

// Operated is what redis-operator is asked for. Nil when the fleet has another Redis.
func Operated(c *v1alpha1.LiveStashCluster) *unstructured.Unstructured {
	operated := store.OperatedRedis(c)
	if operated == nil {
		return nil
	}
	kind, spec := StandaloneKind, operatedSpec(c, operated)
	if operated.Mode != v1alpha1.RedisStandalone {
		kind = ReplicationKind
		addReplication(spec, c, operated)
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(kind)
	meta := operatedMeta(c)
	object.SetNamespace(meta.Namespace)
	object.SetName(meta.Name)
	object.SetLabels(meta.Labels)
	// redis-operator copies annotations to the pods: another configuration restarts them.
	object.SetAnnotations(map[string]string{"livestash.dev/redis-config": render.Digest(OperatedConfig(c).Data[operatedConfigFile])})
	object.SetOwnerReferences([]metav1.OwnerReference{render.OwnerReference(c)})
	return object
}

// operatedSpec is what both kinds have in common.
func operatedSpec(c *v1alpha1.LiveStashCluster, operated *v1alpha1.OperatedRedis) map[string]any {
	kubernetes := operatedImage(c, operated.Image)
	kubernetes["redisSecret"] = map[string]any{"name": store.RedisSecretName(c), "key": PasswordKey}
	kubernetes["resources"] = operatedResources("100m", ptr.To(operated.MemoryLimit()).String())
	// This one changes with every field of the custom resource. Copied to the pods, it would restart them for nothing.
	kubernetes["ignoreAnnotations"] = []any{render.AppliedAnnotation}
	spec := map[string]any{
		"kubernetesConfig":   kubernetes,
		"redisConfig":        map[string]any{"additionalRedisConfig": OperatedName(c)},
		"storage":            operatedStorage(operated.Persistence),
		"serviceAccountName": c.Name,
		"podSecurityContext": operatedPodSecurity(),
		"securityContext":    operatedSecurity(),
		// Not to have one: with its feature GenerateConfigInInitContainer, redis-operator takes the security context of its own
		// from here.
		"initContainer": map[string]any{"enabled": false, "image": operated.Image, "securityContext": operatedSecurity()},
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
	sentinel := operatedImage(c, operated.SentinelImage)
	sentinel["size"] = servers
	sentinel["resources"] = operatedResources("20m", "64Mi")
	sentinel["serviceAccountName"] = c.Name
	sentinel["podSecurityContext"] = operatedPodSecurity()
	sentinel["securityContext"] = operatedSecurity()
	addScheduling(sentinel, operated.RedisScheduling)
	spec["sentinel"] = sentinel
	addSpread(spec, c, OperatedName(c))
	addSpread(sentinel, c, sentinelName(c))
}

func operatedImage(c *v1alpha1.LiveStashCluster, image string) map[string]any {
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

func operatedResources(cpu, memory string) map[string]any {
	return map[string]any{
		"requests": map[string]any{"cpu": cpu, "memory": memory},
		"limits":   map[string]any{"memory": memory},
	}
}

// operatedStorage is where the append-only file is: on a volume for each server, or in a folder that goes with the pod.
func operatedStorage(persistence *v1alpha1.RedisPersistence) map[string]any {
	if persistence == nil {
		return map[string]any{"volumeMount": map[string]any{
			"volume":    []any{map[string]any{"name": "data", "emptyDir": map[string]any{}}},
			"mountPath": []any{map[string]any{"name": "data", "mountPath": dataDir}},
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

func operatedPodSecurity() map[string]any {
	return map[string]any{
		"runAsNonRoot":   true,
		"runAsUser":      operatedUser,
		"runAsGroup":     operatedUser,
		"fsGroup":        operatedUser,
		"seccompProfile": map[string]any{"type": string(corev1.SeccompProfileTypeRuntimeDefault)},
	}
}

// operatedSecurity lets the root file system be written: the images put their configuration there when they start, and
// on a read-only one they start without it, that is without a password.
func operatedSecurity() map[string]any {
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
	for _, constraint := range render.TopologySpread(c) {
		constraints = append(constraints, map[string]any{
			"maxSkew":           int64(constraint.MaxSkew),
			"topologyKey":       constraint.TopologyKey,
			"whenUnsatisfiable": string(constraint.WhenUnsatisfiable),
			"labelSelector":     map[string]any{"matchLabels": map[string]any{"app": statefulSet, render.ClusterLabel: c.Name}},
		})
	}
	if constraints != nil {
		spec["topologySpreadConstraints"] = constraints
	}
}

func sentinelName(c *v1alpha1.LiveStashCluster) string { return OperatedName(c) + "-s" }

// operatedHost is the DNS name of the Redis that redis-operator runs: with replication, of its master. That name has
// an address only while redis-operator knows which pod the master is, which it looks up every 30 seconds while all pods
// are ready.
func operatedHost(c *v1alpha1.LiveStashCluster, in render.Inputs) string {
	if store.OperatedRedis(c).Mode == v1alpha1.RedisStandalone {
		return render.ServiceHost(c, in, OperatedName(c))
	}
	return render.ServiceHost(c, in, OperatedName(c)+"-master")
}
