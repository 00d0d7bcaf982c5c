package redis

import (
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

const (
	configDir  = "/etc/livestash-redis"
	configFile = "redis.conf"
	dataDir    = "/data"
)

// The containers of the Redis that this operator runs.
const (
	ServerContainer   = "redis"
	ExporterContainer = "exporter"
)

// AccessAnnotation is on the pods of the Redis that this operator runs: render.Inputs.RedisAccessUID.
const AccessAnnotation = "livestash.dev/redis-access"

// Config is the ConfigMap with Redis' configuration.
func Config(c *v1alpha1.LiveStashCluster, redis *v1alpha1.ManagedRedis) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   render.ConfigMapType,
		ObjectMeta: objectMeta(c, Name(c)),
		Data: map[string]string{configFile: settings("") + ports(redis) + fmt.Sprintf(`protected-mode no
aclfile %s/%s
`, configDir, aclFileKey)},
	}
}

// CertificateFile is the server's certificate in its pod.
const CertificateFile = configDir + "/" + corev1.TLSCertKey

// ports are what the server listens on. With TLS, clients show a password and no certificate, and a server that copies another one's stashes
// does it over TLS too.
func ports(redis *v1alpha1.ManagedRedis) string {
	if !redis.TLSEnabled() {
		return fmt.Sprintf("port %d\n", redisPort)
	}
	return fmt.Sprintf(`port 0
tls-port %d
tls-cert-file %s
tls-key-file %s/%s
tls-ca-cert-file %s/%s
tls-auth-clients no
tls-replication yes
`, redisPort, CertificateFile, configDir, corev1.TLSPrivateKeyKey, configDir, store.RedisCAFile)
}

// StatefulSet is the Redis that this operator runs: one pod, and a second one while it hands over to that. Only the operator decides
// when a pod without a volume goes. The template does not change with the fleet's password, which Redis is told while it runs.
func StatefulSet(c *v1alpha1.LiveStashCluster, redis *v1alpha1.ManagedRedis, config *corev1.ConfigMap, in render.Inputs) *appsv1.StatefulSet {
	containers := []corev1.Container{server(redis, in)}
	if redis.ExporterEnabled() {
		containers = append(containers, exporter(c, redis, in))
	}
	set := &appsv1.StatefulSet{
		TypeMeta:   render.StatefulSetType,
		ObjectMeta: objectMeta(c, Name(c)),
		Spec: appsv1.StatefulSetSpec{
			Replicas:            ptr.To[int32](1),
			ServiceName:         Name(c),
			PodManagementPolicy: appsv1.ParallelPodManagement,
			UpdateStrategy:      appsv1.StatefulSetUpdateStrategy{Type: appsv1.RollingUpdateStatefulSetStrategyType},
			Selector:            &metav1.LabelSelector{MatchLabels: selectorLabels(c)},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels: render.Merged(render.Labels(c), selectorLabels(c)),
					Annotations: map[string]string{
						"livestash.dev/redis-config": render.Digest(config.Data[configFile]),
						// Another Secret has another password of the operator, which Redis only learns when it starts.
						AccessAnnotation: in.RedisAccessUID,
						"kubectl.kubernetes.io/default-container": ServerContainer,
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
					Volumes:    volumes(c, redis),
				},
			},
		},
	}
	if redis.Persistence == nil {
		place(&set.Spec, in.Redis)
	}
	return set
}

// place has a pod in each place where there is to be one.
func place(set *appsv1.StatefulSetSpec, places render.RedisPlaces) {
	set.UpdateStrategy.Type = appsv1.OnDeleteStatefulSetStrategyType
	switch {
	case places.Both:
		set.Replicas = ptr.To[int32](2)
	case places.Only > 0:
		set.Ordinals = &appsv1.StatefulSetOrdinals{Start: int32(places.Only)} //nolint:gosec // 0 or 1
	}
}

func server(redis *v1alpha1.ManagedRedis, in render.Inputs) corev1.Container {
	image := redis.Image
	if image == "" {
		image = in.RedisImage
	}
	return corev1.Container{
		Name:  ServerContainer,
		Image: image,
		// Not in the file, which is that of the server that takes over, too: one that restarts meanwhile must not throw stashes away to fit into less.
		Command: []string{"redis-server", configDir + "/" + configFile, "--maxmemory", strconv.FormatInt(maxMemory(redis.MemoryLimit()), 10)},
		Ports:   []corev1.ContainerPort{{Name: "redis", ContainerPort: redisPort, Protocol: corev1.ProtocolTCP}},
		// A server that still reads its file accepts connections and answers LOADING.
		StartupProbe:   answers(redis, 1, 600),
		ReadinessProbe: answers(redis, 5, 2),
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
		SecurityContext: render.LockedDown(),
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: configDir, ReadOnly: true},
			{Name: "data", MountPath: dataDir},
		},
	}
}

// answers is a probe that asks as a user without a password.
func answers(redis *v1alpha1.ManagedRedis, period, failures int32) *corev1.Probe {
	client := "redis-cli"
	if redis.TLSEnabled() {
		client += " --tls --cacert " + configDir + "/" + store.RedisCAFile
	}
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{
			Command: []string{"sh", "-c", fmt.Sprintf(`[ "$(%s -p %d ping)" = PONG ]`, client, redisPort)},
		}},
		PeriodSeconds:    period,
		FailureThreshold: failures,
		TimeoutSeconds:   3,
	}
}

func exporter(c *v1alpha1.LiveStashCluster, redis *v1alpha1.ManagedRedis, in render.Inputs) corev1.Container {
	image := redis.Exporter.Image
	if image == "" {
		image = in.RedisExporterImage
	}
	container := corev1.Container{
		Name:  ExporterContainer,
		Image: image,
		Env: []corev1.EnvVar{
			render.Value("REDIS_ADDR", fmt.Sprintf("%s://127.0.0.1:%d", scheme(redis), redisPort)),
			render.Value("REDIS_USER", exporterUser),
			{Name: "REDIS_PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: store.RedisAccessName(c)},
				Key:                  exporterPasswordKey,
			}}},
			// /scrape?target= would take these to any server. Variables and no flags: an older exporter does not start with flags it does not know.
			render.Value("REDIS_EXPORTER_DISABLE_SCRAPE_ENDPOINT", "true"),
			render.Value("REDIS_EXPORTER_DISABLE_EXPORTING_KEY_VALUES", "true"),
		},
		Ports: []corev1.ContainerPort{{Name: ExporterPortName, ContainerPort: exporterPort, Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("16Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
		},
		SecurityContext: render.LockedDown(),
	}
	if redis.TLSEnabled() {
		// The certificate is for the Service's name, which may lead to another server. Nobody is between two containers of a pod.
		container.Env = append(container.Env, render.Value("REDIS_EXPORTER_SKIP_TLS_VERIFICATION", "true"))
	}
	return container
}

func volumes(c *v1alpha1.LiveStashCluster, redis *v1alpha1.ManagedRedis) []corev1.Volume {
	data := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	if redis.Persistence != nil {
		data = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: DataName(c)}}
	}
	files := []corev1.VolumeProjection{
		{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: Name(c)},
			Items:                []corev1.KeyToPath{{Key: configFile, Path: configFile}},
		}},
		{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: store.RedisAccessName(c)},
			Items:                []corev1.KeyToPath{{Key: aclFileKey, Path: aclFileKey}},
		}},
	}
	if redis.TLSEnabled() {
		var certificate []corev1.KeyToPath
		for _, key := range []string{store.RedisCAFile, corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
			certificate = append(certificate, corev1.KeyToPath{Key: key, Path: key})
		}
		files = append(files, corev1.VolumeProjection{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: store.RedisCertificateName(c)},
			Items:                certificate,
		}})
	}
	return []corev1.Volume{
		{Name: "data", VolumeSource: data},
		{Name: "config", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			// Through the pod's fsGroup, Redis' user may read the passwords' digests.
			DefaultMode: ptr.To[int32](0o440),
			Sources:     files,
		}}},
	}
}
