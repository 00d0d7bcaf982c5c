package fleet

import (
	"math"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
	"github.com/livestash-dev/livestash/operator/internal/render/tls"
)

// unreached is a partition that no pod's ordinal reaches.
const unreached = math.MaxInt32

// StatefulSet is the fleet's pods. Parallel pod management starts all nodes at once and lets a rollout that got stuck
// on a broken image go on when the image is mended (with OrderedReady it would wait for ever: kubernetes issue 67250).
// Which pod is replaced when is the operator's business alone: see updateStrategy.
func StatefulSet(c *v1alpha1.LiveStashCluster, in render.Inputs) (*appsv1.StatefulSet, error) {
	template, err := podTemplate(c, in)
	if err != nil {
		return nil, err
	}
	if err := checkProbes(c, &template.Spec); err != nil {
		return nil, err
	}
	metadata := render.ObjectMeta(c, c.Name)
	metadata.Annotations = annotations(in)
	return &appsv1.StatefulSet{
		TypeMeta:   render.StatefulSetType,
		ObjectMeta: metadata,
		Spec: appsv1.StatefulSetSpec{
			Replicas:            ptr.To(in.Replicas),
			Ordinals:            ordinals(in.Start),
			ServiceName:         render.HeadlessName(c),
			PodManagementPolicy: appsv1.ParallelPodManagement,
			UpdateStrategy:      updateStrategy(in.Replacing),
			Selector:            render.Selector(c),
			Template:            template,
		},
	}, nil
}

// ordinals is nothing where the lowest is 0, as ever.
func ordinals(start int32) *appsv1.StatefulSetOrdinals {
	if start == 0 {
		return nil
	}
	return &appsv1.StatefulSetOrdinals{Start: start}
}

// annotations are what the StatefulSet remembers for the operator.
func annotations(in render.Inputs) map[string]string {
	kept := render.Merged(nil, preparedAnnotation(in))
	if in.Rejected != "" {
		kept = render.Merged(kept, map[string]string{RejectedAnnotation: in.Rejected})
	}
	if in.Cookie != "" {
		kept = render.Merged(kept, map[string]string{CookieAnnotation: in.Cookie})
	}
	if in.SecretKeyBase != "" {
		kept = render.Merged(kept, map[string]string{SecretKeyBaseAnnotation: in.SecretKeyBase})
	}
	return kept
}

// preparedAnnotation keeps for which templates spec.rollout.before needs not run.
func preparedAnnotation(in render.Inputs) map[string]string {
	if len(in.Prepared) == 0 {
		return nil
	}
	return map[string]string{PreparedAnnotation: strings.Join(in.Prepared, ",")}
}

// updateStrategy keeps the StatefulSet controller from replacing pods, and says what a pod gets that comes back: the wanted
// template while pods are being replaced, else the last one that was rolled out completely.
func updateStrategy(replacing bool) appsv1.StatefulSetUpdateStrategy {
	if replacing {
		return appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}
	}
	return appsv1.StatefulSetUpdateStrategy{
		Type:          appsv1.RollingUpdateStatefulSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: ptr.To[int32](unreached)},
	}
}

// podTemplate is the operator's own template with the user's podTemplate merged over it.
func podTemplate(c *v1alpha1.LiveStashCluster, in render.Inputs) (corev1.PodTemplateSpec, error) {
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels: render.Labels(c),
			Annotations: map[string]string{
				SecretsDigestAnnotation:                   in.SecretsDigest,
				"kubectl.kubernetes.io/default-container": AppContainer,
			},
		},
		Spec: corev1.PodSpec{
			ServiceAccountName:           c.Name,
			AutomountServiceAccountToken: ptr.To(false),
			ImagePullSecrets:             c.Spec.ImagePullSecrets,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr.To(true),
				// `mix phx.gen.release --docker` ends with USER nobody. The kubelet cannot tell that a name is not root, so
				// the number is given: nobody's.
				RunAsUser:      ptr.To[int64](65534),
				RunAsGroup:     ptr.To[int64](65534),
				FSGroup:        ptr.To[int64](65534),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			TopologySpreadConstraints:     render.TopologySpread(c),
			TerminationGracePeriodSeconds: ptr.To(gracePeriodSeconds(c)),
			Containers:                    []corev1.Container{appContainer(c, in)},
			Volumes: []corev1.Volume{{
				Name:         "tmp",
				VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
			}},
		},
	}
	if in.ConfigDigest != "" {
		template.Annotations[ConfigDigestAnnotation] = in.ConfigDigest
	}
	if in.StoreDigest != "" {
		template.Annotations[StoreAnnotation] = in.StoreDigest
	}
	addSecretFiles(&template.Spec, c)
	redis.AddCertificates(&template.Spec, c)
	if c.TLSEnabled() {
		tls.AddCertificate(&template.Spec, c)
	}
	if c.AgentEnabled() {
		withAgent(&template.Spec, c, in)
	}
	template, err := withOverride(template, c)
	if err != nil || in.AllowPrivileged {
		return template, err
	}
	return template, checkPrivileges(&template, c.Name)
}

func appContainer(c *v1alpha1.LiveStashCluster, in render.Inputs) corev1.Container {
	startup, readiness, liveness := probes(c)
	return corev1.Container{
		Name:            AppContainer,
		Image:           c.Spec.Image,
		ImagePullPolicy: c.Spec.ImagePullPolicy,
		Env:             environment(c, in),
		EnvFrom:         c.Spec.EnvFrom,
		Ports: []corev1.ContainerPort{
			{Name: HTTPPort, ContainerPort: c.Spec.HTTP.Port, Protocol: corev1.ProtocolTCP},
			{Name: "epmd", ContainerPort: epmdPort, Protocol: corev1.ProtocolTCP},
			{Name: DistributionPort, ContainerPort: c.Spec.Clustering.DistributionPort, Protocol: corev1.ProtocolTCP},
		},
		StartupProbe:   startup,
		ReadinessProbe: readiness,
		LivenessProbe:  liveness,
		Resources:      c.Spec.Resources,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "tmp", MountPath: scratchDir}},
	}
}
