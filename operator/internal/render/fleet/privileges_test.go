package fleet

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

// Whoever may write a LiveStashCluster has the operator make pods. They get no more than the fleet's namespace has.
func TestPrivilegedPodTemplates(t *testing.T) {
	cases := map[string]struct{ spec, says string }{
		"the node's processes":             {`{"hostPID": true}`, "hostPID"},
		"the node's memory":                {`{"hostIPC": true}`, "hostIPC"},
		"the node's network":               {`{"hostNetwork": true}`, "hostNetwork"},
		"the node's files":                 {`{"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}`, "volumes[root]"},
		"a server's files":                 {`{"volumes": [{"name": "root", "nfs": {"server": "a", "path": "/"}}]}`, "volumes[root]"},
		"files in place of the operator's": {`{"volumes": [{"name": "tmp", "emptyDir": null, "hostPath": {"path": "/"}}]}`, "volumes[tmp]"},
		"another's rights":                 {`{"serviceAccountName": "admin"}`, "serviceAccountName"},
		"another's rights, the old way":    {`{"serviceAccount": "admin"}`, "serviceAccount"},
		"nobody's, which is the default's": {`{"serviceAccountName": null}`, "serviceAccountName"},
		"a privileged application":         {`{"containers": [{"name": "app", "securityContext": {"privileged": true}}]}`, "containers[app].securityContext.privileged"},
		"a privileged sidecar":             {`{"containers": [{"name": "log", "image": "x", "securityContext": {"privileged": true}}]}`, "containers[log].securityContext.privileged"},
		"a privileged start":               {`{"initContainers": [{"name": "first", "image": "x", "securityContext": {"privileged": true}}]}`, "initContainers[first].securityContext.privileged"},
		"a privileged helper":              {`{"containers": [{"name": "livestash-probe", "securityContext": {"privileged": true}}]}`, "containers[livestash-probe].securityContext.privileged"},
		"a capability":                     {`{"containers": [{"name": "app", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]}`, "capabilities.add SYS_ADMIN"},
		"the processes unmasked":           {`{"containers": [{"name": "app", "securityContext": {"procMount": "Unmasked"}}]}`, "procMount"},
		"a port of the node":               {`{"containers": [{"name": "log", "image": "x", "ports": [{"containerPort": 4001, "hostPort": 80}]}]}`, "hostPort"},
		"no seccomp":                       {`{"securityContext": {"seccompProfile": {"type": "Unconfined"}}}`, "securityContext.seccompProfile"},
		"no seccomp in the application":    {`{"containers": [{"name": "app", "securityContext": {"seccompProfile": {"type": "Unconfined"}}}]}`, "seccompProfile"},
		"no AppArmor":                      {`{"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}`, "appArmorProfile"},
		"another user for SELinux":         {`{"securityContext": {"seLinuxOptions": {"user": "system_u"}}}`, "seLinuxOptions"},
		"another role for SELinux":         {`{"securityContext": {"seLinuxOptions": {"role": "sysadm_r"}}}`, "seLinuxOptions"},
		"another type for SELinux":         {`{"securityContext": {"seLinuxOptions": {"type": "container_runtime_t"}}}`, "seLinuxOptions"},
		"a setting of the kernel":          {`{"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}`, "sysctls"},
		"a process of a Windows node":      {`{"securityContext": {"windowsOptions": {"hostProcess": true}}}`, "hostProcess"},
		"the kubelet sent elsewhere": {
			`{"containers": [{"name": "app", "lifecycle": {"preStop": {"httpGet": {"host": "169.254.169.254", "port": 80}}}}]}`, "lifecycle",
		},
		"the kubelet's probe sent elsewhere": {
			`{"containers": [{"name": "log", "image": "x", "livenessProbe": {"tcpSocket": {"host": "169.254.169.254", "port": 80}}}]}`, "livenessProbe",
		},
		"its first probe": {
			`{"containers": [{"name": "log", "image": "x", "startupProbe": {"httpGet": {"host": "169.254.169.254", "port": 80}}}]}`, "startupProbe",
		},
		"its question whether it is ready": {
			`{"containers": [{"name": "log", "image": "x", "readinessProbe": {"httpGet": {"host": "169.254.169.254", "port": 80}}}]}`, "readinessProbe",
		},
		"its hook at the start": {
			`{"containers": [{"name": "app", "lifecycle": {"postStart": {"tcpSocket": {"host": "169.254.169.254", "port": 80}}}}]}`, "lifecycle",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster := patched(t, c.spec)
			_, err := Render(cluster, rendertest.Inputs)
			var invalid *render.SpecError
			if !errors.As(err, &invalid) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "allowPrivilegedPodTemplates") {
				t.Errorf("Render = %v, want a *SpecError that says %q and who may allow it", err, c.says)
			}
			// Nor does it run before a rollout.
			if _, err := BeforeRollout(cluster, rendertest.Inputs); !errors.As(err, &invalid) {
				t.Errorf("BeforeRollout = %v", err)
			}
			allowed := rendertest.Inputs
			allowed.AllowPrivileged = true
			if _, err := Render(cluster, allowed); err != nil {
				t.Errorf("where it is allowed: %v", err)
			}
		})
	}
}

// Every kind of volume is refused but these, one of a Kubernetes to come included.
func TestKindsOfVolumes(t *testing.T) {
	ordinary := []string{"ConfigMap", "Secret", "EmptyDir", "DownwardAPI", "Projected", "PersistentVolumeClaim", "Ephemeral", "CSI", "Image"}
	kinds := reflect.TypeFor[corev1.VolumeSource]()
	for i := range kinds.NumField() {
		var source corev1.VolumeSource
		reflect.ValueOf(&source).Elem().Field(i).Set(reflect.New(kinds.Field(i).Type.Elem()))
		if name := kinds.Field(i).Name; ordinaryVolume(source) != slices.Contains(ordinary, name) {
			t.Errorf("a volume of kind %s is taken: %t", name, ordinaryVolume(source))
		}
	}
}

// What the pods may have without asking anybody.
func TestOrdinaryPodTemplates(t *testing.T) {
	for name, spec := range map[string]string{
		"a sidecar":         `{"containers": [{"name": "log", "image": "x", "ports": [{"containerPort": 8080}], "livenessProbe": {"httpGet": {"port": 8080}}}]}`,
		"a low port":        `{"containers": [{"name": "app", "securityContext": {"capabilities": {"add": ["NET_BIND_SERVICE"]}}}]}`,
		"a safe sysctl":     `{"securityContext": {"sysctls": [{"name": "net.ipv4.tcp_keepalive_time", "value": "60"}]}}`,
		"the usual volumes": `{"volumes": [{"name": "a", "secret": {"secretName": "x"}}, {"name": "b", "configMap": {"name": "x"}}, {"name": "c", "persistentVolumeClaim": {"claimName": "x"}}, {"name": "d", "csi": {"driver": "x"}}]}`,
		"its own token":     `{"automountServiceAccountToken": true, "serviceAccountName": "shop", "volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}`,
		"another user":      `{"securityContext": {"runAsUser": 1000, "seLinuxOptions": {"level": "s0:c1"}, "seccompProfile": {"type": "Localhost", "localhostProfile": "x"}}}`,
		"a place":           `{"nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}], "priorityClassName": "gold"}`,
	} {
		if _, err := Render(patched(t, spec), rendertest.Inputs); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Fields of the spec beside podTemplate reach the pods too.
func TestProbesGoToThePodAlone(t *testing.T) {
	cluster := rendertest.Cluster(t, "smallest")
	cluster.Spec.Probes = &v1alpha1.ProbesSpec{Liveness: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Host: "169.254.169.254"}}}}
	if _, err := Render(cluster, rendertest.Inputs); err == nil || !strings.Contains(err.Error(), "livenessProbe") {
		t.Errorf("Render = %v", err)
	}
	annotated := rendertest.Cluster(t, "smallest")
	annotated.Spec.PodTemplate = &v1alpha1.PodTemplateOverride{Metadata: v1alpha1.PodMetadataOverride{
		Annotations: map[string]string{"container.apparmor.security.beta.kubernetes.io/app": "unconfined"},
	}}
	if _, err := Render(annotated, rendertest.Inputs); err == nil || !strings.Contains(err.Error(), "apparmor") {
		t.Errorf("Render = %v", err)
	}
}

// A cloud knows the pods by annotations of their ServiceAccount.
func TestServiceAccountAnnotations(t *testing.T) {
	cluster := rendertest.Cluster(t, "smallest")
	cluster.Spec.ServiceAccount.Annotations = map[string]string{"eks.amazonaws.com/role-arn": "arn"}
	cluster.Spec.Rollout.Before = &v1alpha1.BeforeSpec{Command: []string{"x"}}
	inputs := rendertest.Inputs
	inputs.Prepared = []string{"digest"}
	got := ServiceAccount(cluster, inputs).Annotations
	if got["eks.amazonaws.com/role-arn"] != "arn" || got[PreparedAnnotation] != "digest" {
		t.Errorf("the annotations are %v", got)
	}
}
