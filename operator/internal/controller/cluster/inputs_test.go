package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// refused waits until what the user wrote is refused for that reason, and checks what is said.
func refused(t *testing.T, cluster *v1alpha1.LiveStashCluster, reason string, says ...string) {
	t.Helper()
	message := condition(t, cluster, v1alpha1.ConditionReconcileSucceeded, metav1.ConditionFalse, reason)
	for _, part := range says {
		if !strings.Contains(message, part) {
			t.Errorf("the condition does not say %q: %s", part, message)
		}
	}
	condition(t, cluster, v1alpha1.ConditionStalled, metav1.ConditionTrue, reason)
}

func TestUnknownFieldOfThePodsIsNamed(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.PodTemplate = podTemplate(t, `{"nodeSelectr": {"disk": "ssd"}}`)
	})
	refused(t, cluster, v1alpha1.ReasonInvalidSpec, "spec.podTemplate.spec", `unknown field "nodeSelectr"`, "correct its name")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.PodTemplate = podTemplate(t, `{"nodeSelector": {"disk": "ssd"}}`)
	})
	reconciled(t, cluster)
}

func TestMissingConfigurationIsNamed(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.PodTemplate = podTemplate(t, `{"volumes": [{"name": "settings", "configMap": {"name": "settings", "items": [{"key": "a", "path": "a"}]}},
			{"name": "extra", "configMap": {"name": "extra", "optional": true}}]}`)
	})
	refused(t, cluster, v1alpha1.ReasonConfigMissing, "ConfigMap settings", "spec.podTemplate.spec", "create it")
	fleetSet(t, cluster) // what does not need it goes on

	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "settings"}, Data: map[string]string{"a": "1"}}
	suite.Must(t, api.Create(t.Context(), settings))
	reconciled(t, cluster)
}

// Pods that run are not taken for what they could not come back without.
func TestMissingKeyTakesNoPods(t *testing.T) {
	namespace := suite.Namespace(t, api)
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "settings"}, Data: map[string]string{"a": "1"}}
	suite.Must(t, api.Create(t.Context(), settings))
	cluster := newCluster(t, namespace, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Env = []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "a"}}}}
	})
	reconciled(t, cluster)
	digest := digestOtherThan(t, cluster, "", "the first")
	settings.Data = map[string]string{"b": "1"}
	suite.Must(t, api.Update(t.Context(), settings))
	refused(t, cluster, v1alpha1.ReasonConfigMissing, "the key a of ConfigMap settings", "spec.env")
	staysAt(t, cluster, digest, "a key is missing")
}

// A variable of the virtual machine may come from anywhere.
func TestFlagsThatMoveTheNodeAreNamed(t *testing.T) {
	namespace := suite.Namespace(t, api)
	flags := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "flags"}, Data: map[string]string{"FLAGS": "+fnu -kernel inet_dist_listen_max 5000"}}
	suite.Must(t, api.Create(t.Context(), flags))
	cluster := newCluster(t, namespace, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.EnvFrom = []corev1.EnvFromSource{{Prefix: "ERL_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "flags"}}}}
	})
	refused(t, cluster, v1alpha1.ReasonInvalidSpec, "the key FLAGS of ConfigMap flags", "ERL_FLAGS", "spec.envFrom", "inet_dist_listen_max")
	flags.Data["FLAGS"] = "+fnu"
	suite.Must(t, api.Update(t.Context(), flags))
	reconciled(t, cluster)

	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Env = []corev1.EnvVar{{Name: "ERL_ZFLAGS", Value: "-eval halt()."}}
	})
	refused(t, cluster, v1alpha1.ReasonInvalidSpec, "spec.env", "ERL_ZFLAGS", "-eval")
}

func TestNULInAVariableIsNamed(t *testing.T) {
	namespace := suite.Namespace(t, api)
	payments := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "payments"}, Data: map[string][]byte{"token": []byte("s3cret\x00")}}
	suite.Must(t, api.Create(t.Context(), payments))
	cluster := newCluster(t, namespace, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Env = []corev1.EnvVar{{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "payments"}, Key: "token"}}}}
	})
	refused(t, cluster, v1alpha1.ReasonInvalidSpec, "the key token of Secret payments (spec.env) has a NUL byte")
	if strings.Contains(logs.String(), "s3cret") {
		t.Error("the value is in the log")
	}
}

// While pods are replaced, those of the old template have their agent where it was.
func TestAgentsAreAskedWhereTheyListen(t *testing.T) {
	cluster, pods := fleetAtRest(t, 2, nil)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Agent.Port = 9700 })
	suite.Eventually(t, func() error {
		if got := fleetSet(t, cluster).Spec.Template.Spec.Containers[0].Ports; !slices.ContainsFunc(got, func(port corev1.ContainerPort) bool { return port.ContainerPort == 9700 }) {
			return fmt.Errorf("the template has the ports %v", got)
		}
		return nil
	})
	suite.Must(t, api.Delete(t.Context(), pods[1], client.GracePeriodSeconds(0)))
	renewed := fleetPod(t, cluster, 1, "b")
	serves(t, renewed, wellAmong(2, renewed.Name))
	agents.askedAt(t, renewed, 9700)
	later(t, cluster, 0)
	agents.askedAt(t, pods[0], 9568)
	condition(t, cluster, v1alpha1.ConditionAgentHealthy, metav1.ConditionTrue, v1alpha1.ReasonAllAnswer)
}

// The agent is well, and the application says 404 to the kubelet's question.
func TestReadinessPathThatAnswersNothingIsNamed(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) { spec.HTTP.ReadinessPath = "/healthz" })
	reconciled(t, cluster)
	for ordinal := range 2 {
		pod := fleetPod(t, cluster, ordinal, "a")
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		hasAddress(t, pod, wellAmong(2, pod.Name))
	}
	acted(t, cluster, "a", "a")
	suite.Eventually(t, func() error {
		later(t, cluster, tellAfter)
		suite.Must(t, get(t, cluster))
		for _, condition := range cluster.Status.Conditions {
			if condition.Type == v1alpha1.ConditionReady && strings.Contains(condition.Message, "(spec.http.readinessPath)") {
				return nil
			}
		}
		return fmt.Errorf("the conditions say %+v", cluster.Status.Conditions)
	})
	if pod := cluster.Status.Pods[0]; pod.Ready || !strings.Contains(pod.Problem, "/healthz") {
		t.Errorf("the status says of the pod: %+v", pod)
	}
}
