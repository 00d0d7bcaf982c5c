// Package rival renders what a run needs beside fleets: a server that is measured in place of one, and the proxy in front of either. Each is a
// StatefulSet, a Service and a NetworkPolicy. It is pure: nothing here talks to anybody.
package rival

import (
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

const (
	// ServerLabel is on a server's pods; its value is the name of the run.
	ServerLabel = "livestash.dev/benchmark-server"
	// UsagePort is where a pod tells what it uses.
	UsagePort = 9568

	// ServerContainer is the container of the server in its pod.
	ServerContainer = "server"
	// RedisContainer is that of its Redis.
	RedisContainer = "redis"
	// UsageContainer is the one that tells what the others use.
	UsageContainer = "livestash-usage"

	httpPort  = "http"
	redisPort = 6379
)

// Rival is the server of a run.
type Rival struct {
	// Name is that of the run, and of all objects.
	Name, Namespace string
	// Labels are on all objects, besides ServerLabel.
	Labels map[string]string
	// Owner ends the server when it is deleted.
	Owner  metav1.OwnerReference
	Server v1alpha1.BenchmarkServer
	// Place is where its pods are, and how they are pulled: those of the fleets beside it.
	Place Place
	// Command is what the server's container runs. Empty: what the image says.
	Command []string
	// UsageImage holds the program that counts: the operator's own. Empty: what the server uses is not counted. RedisImage is that of a Redis.
	UsageImage, RedisImage string
	// ByPod is whether users reach the pods by their names, and not through the Service.
	ByPod bool
	// OperatorNamespace is where the questions about usage come from. Empty when the operator runs outside of the cluster.
	OperatorNamespace string
	// ClusterDomain is the DNS domain of the Kubernetes cluster.
	ClusterDomain string
}

// Place is what a server has of the fleets beside it.
type Place struct {
	PullPolicy   corev1.PullPolicy
	PullSecrets  []corev1.LocalObjectReference
	Resources    corev1.ResourceRequirements
	NodeSelector map[string]string
	Tolerations  []corev1.Toleration
}

// Objects are all that the server is made of.
func (r Rival) Objects() []client.Object {
	return []client.Object{r.networkPolicy(), r.service(), r.statefulSet()}
}

// URLs are where users reach the server.
func (r Rival) URLs() []string {
	host := fmt.Sprintf("%s.%s.svc.%s:%d", r.Name, r.Namespace, r.ClusterDomain, r.Server.Port)
	if !r.ByPod {
		return []string{"http://" + host}
	}
	urls := make([]string, 0, r.Server.Replicas)
	for number := range r.Server.Replicas {
		urls = append(urls, fmt.Sprintf("http://%s-%d.%s", r.Name, number, host))
	}
	return urls
}

func (r Rival) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: r.Name, Namespace: r.Namespace, Labels: r.labels(), OwnerReferences: []metav1.OwnerReference{r.Owner}}
}

func (r Rival) labels() map[string]string { return render.Merged(r.Labels, r.selector()) }

func (r Rival) selector() map[string]string { return map[string]string{ServerLabel: r.Name} }

// service is what gives the pods their names, or where there are to be none, their one address.
func (r Rival) service() *corev1.Service {
	service := &corev1.Service{
		TypeMeta: render.ServiceType, ObjectMeta: r.meta(),
		Spec: corev1.ServiceSpec{Selector: r.selector(), Ports: []corev1.ServicePort{render.ServicePort(httpPort, r.Server.Port, httpPort)}},
	}
	if r.ByPod {
		service.Spec.ClusterIP = corev1.ClusterIPNone
	}
	return service
}

// networkPolicy opens the server's port to all, as that of a fleet is, and what the pod tells of itself to the operator.
func (r Rival) networkPolicy() *networkingv1.NetworkPolicy {
	open := []networkingv1.NetworkPolicyIngressRule{{Ports: render.PolicyPorts(r.Server.Port)}}
	if r.isCounted() {
		open = append(open, networkingv1.NetworkPolicyIngressRule{
			Ports: render.PolicyPorts(UsagePort), From: render.ReadersOnly(render.Inputs{OperatorNamespace: r.OperatorNamespace}),
		})
	}
	return &networkingv1.NetworkPolicy{
		TypeMeta: render.NetworkPolicyType, ObjectMeta: r.meta(),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: r.selector()},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     open,
		},
	}
}

func (r Rival) isCounted() bool { return r.UsageImage != "" }

// statefulSet and not a Deployment: its pods are its own without a ReplicaSet between, and the operator has the rights for it anyway.
func (r Rival) statefulSet() *appsv1.StatefulSet {
	containers := []corev1.Container{r.server()}
	if r.Server.Redis != nil {
		containers = append(containers, r.redis())
	}
	if r.isCounted() {
		containers = append(containers, r.usage(len(containers)+1))
	}
	return &appsv1.StatefulSet{
		TypeMeta: render.StatefulSetType, ObjectMeta: r.meta(),
		Spec: appsv1.StatefulSetSpec{
			Replicas:            ptr.To(r.Server.Replicas),
			ServiceName:         r.Name,
			PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector:            &metav1.LabelSelector{MatchLabels: r.selector()},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: r.labels(), Annotations: map[string]string{"kubectl.kubernetes.io/default-container": ServerContainer}},
				Spec: corev1.PodSpec{
					AutomountServiceAccountToken: ptr.To(false),
					EnableServiceLinks:           ptr.To(false),
					// So that one container can see the control groups of the others.
					ShareProcessNamespace: ptr.To(r.isCounted()),
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot:   ptr.To(true),
						RunAsUser:      ptr.To(r.Server.RunAsUser),
						RunAsGroup:     ptr.To(r.Server.RunAsUser),
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					ImagePullSecrets: r.Place.PullSecrets,
					NodeSelector:     r.Place.NodeSelector,
					Tolerations:      r.Place.Tolerations,
					Containers:       containers,
					Volumes:          []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
				},
			},
		},
	}
}

func (r Rival) server() corev1.Container {
	env := []corev1.EnvVar{render.Value("PORT", strconv.Itoa(int(r.Server.Port)))}
	if r.Server.Redis != nil {
		env = append(env, render.Value("REDIS_URL", fmt.Sprintf("redis://127.0.0.1:%d/0", redisPort)))
	}
	for _, variable := range r.Server.Env {
		env = append(env, render.Value(variable.Name, variable.Value))
	}
	security := render.LockedDown()
	security.ReadOnlyRootFilesystem = ptr.To(r.Server.RootFilesystem != v1alpha1.RootWritable)
	return corev1.Container{
		Name:            ServerContainer,
		Image:           r.Server.Image,
		ImagePullPolicy: r.Place.PullPolicy,
		Command:         r.Command,
		Env:             env,
		Ports:           []corev1.ContainerPort{{Name: httpPort, ContainerPort: r.Server.Port, Protocol: corev1.ProtocolTCP}},
		Resources:       r.resources(),
		SecurityContext: security,
		VolumeMounts:    []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}},
		// Whatever it speaks. Patient, because a server that is busy must not be taken from its users.
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString(httpPort)}},
			PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 60,
		},
		// A server that cannot start says why in its log.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}

// resources are the server's own, those of the fleets beside it, or as much as any pod needs.
func (r Rival) resources() corev1.ResourceRequirements {
	switch place := r.Place.Resources; {
	case r.Server.Resources != nil:
		return *r.Server.Resources
	case len(place.Requests)+len(place.Limits) > 0:
		return place
	}
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi"),
	}}
}

// redis is reached from its own pod alone, so it has no password, and keeps nothing.
func (r Rival) redis() corev1.Container {
	return corev1.Container{
		Name:    RedisContainer,
		Image:   r.RedisImage,
		Command: []string{"redis-server", "--bind", "127.0.0.1", "--port", strconv.Itoa(redisPort), "--save", "", "--appendonly", "no", "--dir", "/tmp"},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
		},
		SecurityContext: render.LockedDown(),
		VolumeMounts:    []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}},
	}
}

// usage tells what so many containers use.
func (r Rival) usage(containers int) corev1.Container {
	return corev1.Container{
		Name:    UsageContainer,
		Image:   r.UsageImage,
		Command: []string{"/podagent", "usage", "--port", strconv.Itoa(UsagePort), "--containers", strconv.Itoa(containers)},
		Ports:   []corev1.ContainerPort{{Name: "usage", ContainerPort: UsagePort, Protocol: corev1.ProtocolTCP}},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("16Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("48Mi")},
		},
		SecurityContext:          render.LockedDown(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}
