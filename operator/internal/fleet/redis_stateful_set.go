package fleet

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

const (
	redisConfigDir  = "/etc/livestash-redis"
	redisConfigFile = "redis.conf"
	redisDataDir    = "/data"
)

// RedisConfig is the ConfigMap with Redis' configuration.
func RedisConfig(c *v1alpha1.LiveStashCluster, redis *v1alpha1.ManagedRedis) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   configMapType,
		ObjectMeta: redisMeta(c, RedisName(c)),
		Data: map[string]string{redisConfigFile: redisSettings(redis.MemoryLimit()) + fmt.Sprintf(`port %d
protected-mode no
aclfile %s/%s
`, redisPort, redisConfigDir, aclFileKey)},
	}
}

// RedisStatefulSet is the Redis that this operator runs: one pod. Its template does not change with the fleet's password, which
// Redis is told while it runs.
func RedisStatefulSet(c *v1alpha1.LiveStashCluster, redis *v1alpha1.ManagedRedis, config *corev1.ConfigMap, in Inputs) *appsv1.StatefulSet {
	containers := []corev1.Container{redisContainer(redis, in)}
	if redis.ExporterEnabled() {
		containers = append(containers, redisExporter(c, redis, in))
	}
	return &appsv1.StatefulSet{
		TypeMeta:   statefulSetType,
		ObjectMeta: redisMeta(c, RedisName(c)),
		Spec: appsv1.StatefulSetSpec{
			Replicas:            ptr.To[int32](1),
			ServiceName:         RedisName(c),
			PodManagementPolicy: appsv1.ParallelPodManagement,
			UpdateStrategy:      appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType},
			Selector:            &metav1.LabelSelector{MatchLabels: redisLabels(c)},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels: merged(Labels(c), redisLabels(c)),
					Annotations: map[string]string{
						"livestash.dev/redis-config": Digest(config.Data[redisConfigFile]),
						// Another Secret has another password of the operator, which Redis only learns when it starts.
						"livestash.dev/redis-access":              in.RedisAccessUID,
						"kubectl.kubernetes.io/default-container": "redis",
					},
				},
				Spec: corev1.PodSpec{
					ServiceAccountName:           c.Name,
					AutomountServiceAccountToken: ptr.To(false),
					ImagePullSecrets:             c.Spec.ImagePullSecrets,
					NodeSelector:                 redis.NodeSelector,
					Tolerations:                  redis.Tolerations,
					PriorityClassName:            redis.PriorityClassName,
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot:   ptr.To(true),
						RunAsUser:      ptr.To[int64](65534),
						RunAsGroup:     ptr.To[int64](65534),
						FSGroup:        ptr.To[int64](65534),
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: containers,
					Volumes:    redisVolumes(c, redis),
				},
			},
		},
	}
}

func redisContainer(redis *v1alpha1.ManagedRedis, in Inputs) corev1.Container {
	image := redis.Image
	if image == "" {
		image = in.RedisImage
	}
	return corev1.Container{
		Name:    "redis",
		Image:   image,
		Command: []string{"redis-server", redisConfigDir + "/" + redisConfigFile},
		Ports:   []corev1.ContainerPort{{Name: "redis", ContainerPort: redisPort, Protocol: corev1.ProtocolTCP}},
		// A server that still reads its file accepts connections and answers LOADING.
		StartupProbe:   redisAnswers(1, 600),
		ReadinessProbe: redisAnswers(5, 2),
		LivenessProbe: &corev1.Probe{
			ProbeHandler:     corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("redis")}},
			PeriodSeconds:    10,
			FailureThreshold: 6,
			TimeoutSeconds:   5,
		},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: redis.MemoryLimit()},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: redis.MemoryLimit()},
		},
		SecurityContext: lockedDown(),
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: redisConfigDir, ReadOnly: true},
			{Name: "data", MountPath: redisDataDir},
		},
	}
}

// redisAnswers is a probe that asks as a user without a password.
func redisAnswers(period, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{
			Command: []string{"sh", "-c", fmt.Sprintf(`[ "$(redis-cli -p %d ping)" = PONG ]`, redisPort)},
		}},
		PeriodSeconds:    period,
		FailureThreshold: failures,
		TimeoutSeconds:   3,
	}
}

func redisExporter(c *v1alpha1.LiveStashCluster, redis *v1alpha1.ManagedRedis, in Inputs) corev1.Container {
	image := redis.Exporter.Image
	if image == "" {
		image = in.RedisExporterImage
	}
	return corev1.Container{
		Name:  "exporter",
		Image: image,
		Env: []corev1.EnvVar{
			value("REDIS_ADDR", fmt.Sprintf("redis://127.0.0.1:%d", redisPort)),
			value("REDIS_USER", redisExporterUser),
			{Name: "REDIS_PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: store.RedisAccessName(c)},
				Key:                  exporterPasswordKey,
			}}},
		},
		Ports: []corev1.ContainerPort{{Name: exporterPortName, ContainerPort: exporterPort, Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("16Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
		},
		SecurityContext: lockedDown(),
	}
}

func lockedDown() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: ptr.To(false),
		ReadOnlyRootFilesystem:   ptr.To(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

func redisVolumes(c *v1alpha1.LiveStashCluster, redis *v1alpha1.ManagedRedis) []corev1.Volume {
	data := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	if redis.Persistence != nil {
		data = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: RedisDataName(c)}}
	}
	return []corev1.Volume{
		{Name: "data", VolumeSource: data},
		{Name: "config", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			// Through the pod's fsGroup, Redis' user may read the passwords' digests.
			DefaultMode: ptr.To[int32](0o440),
			Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{
					LocalObjectReference: corev1.LocalObjectReference{Name: RedisName(c)},
					Items:                []corev1.KeyToPath{{Key: redisConfigFile, Path: redisConfigFile}},
				}},
				{Secret: &corev1.SecretProjection{
					LocalObjectReference: corev1.LocalObjectReference{Name: store.RedisAccessName(c)},
					Items:                []corev1.KeyToPath{{Key: aclFileKey, Path: aclFileKey}},
				}},
			},
		}}},
	}
}
