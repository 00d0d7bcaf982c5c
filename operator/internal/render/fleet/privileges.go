package fleet

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/internal/render"
)

// appArmorAnnotation is the prefix of those that older kubelets take for a container's AppArmor profile.
const appArmorAnnotation = "container.apparmor.security.beta.kubernetes.io/"

// safeSysctls are those that concern nobody but the pod, by the Pod Security Standards.
var safeSysctls = []string{
	"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports", "net.ipv4.ip_unprivileged_port_start",
	"net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
	"net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_syncookies",
}

// confinedTypes are those of SELinux that containers may choose, by the Pod Security Standards.
var confinedTypes = []string{"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}

// checkPrivileges refuses pods that have more than their namespace: the node's files, network, processes or kernel, or the rights of a
// ServiceAccount that is not the fleet's own. It is the operator that makes the pods, with its own rights: whoever may write a
// LiveStashCluster need not have the right to make such pods. The measure is the baseline of the Pod Security Standards, and of what
// restricted adds to it the kinds of volumes and the capabilities.
func checkPrivileges(template *corev1.PodTemplateSpec, account string) error {
	asked := podPrivileges(&template.Spec, account)
	for name, value := range template.Annotations {
		if strings.HasPrefix(name, appArmorAnnotation) && value == "unconfined" {
			asked = append(asked, "the annotation "+name)
		}
	}
	for _, volume := range template.Spec.Volumes {
		if !ordinaryVolume(volume.VolumeSource) {
			asked = append(asked, fmt.Sprintf("volumes[%s] of that kind", volume.Name))
		}
	}
	for i := range template.Spec.InitContainers {
		asked = append(asked, containerPrivileges("initContainers", &template.Spec.InitContainers[i])...)
	}
	for i := range template.Spec.Containers {
		asked = append(asked, containerPrivileges("containers", &template.Spec.Containers[i])...)
	}
	if len(asked) == 0 {
		return nil
	}
	slices.Sort(asked)
	return render.SpecErrorf("spec.podTemplate or spec.probes asks for what this operator gives no fleet: %s; remove it, or ask whoever runs "+
		"the operator to set allowPrivilegedPodTemplates of its chart, which allows it to all fleets", strings.Join(asked, ", "))
}

// podPrivileges are those that the fields of a pod ask for.
func podPrivileges(spec *corev1.PodSpec, account string) []string {
	var asked []string
	for field, is := range map[string]bool{
		"hostNetwork":        spec.HostNetwork,
		"hostPID":            spec.HostPID,
		"hostIPC":            spec.HostIPC,
		"serviceAccountName": spec.ServiceAccountName != account,
		"serviceAccount":     spec.DeprecatedServiceAccount != "" && spec.DeprecatedServiceAccount != account,
	} {
		if is {
			asked = append(asked, field)
		}
	}
	security := ptr.Deref(spec.SecurityContext, corev1.PodSecurityContext{})
	for _, sysctl := range security.Sysctls {
		if !slices.Contains(safeSysctls, sysctl.Name) {
			asked = append(asked, "securityContext.sysctls "+sysctl.Name)
		}
	}
	return append(asked, confinement("securityContext", security.SeccompProfile, security.AppArmorProfile, security.SELinuxOptions, security.WindowsOptions)...)
}

// containerPrivileges are those that a container asks for.
func containerPrivileges(list string, container *corev1.Container) []string {
	at := fmt.Sprintf("%s[%s]", list, container.Name)
	var asked []string
	for _, port := range container.Ports {
		if port.HostPort != 0 {
			asked = append(asked, at+".ports.hostPort")
		}
	}
	for name, probe := range map[string]*corev1.Probe{
		"startupProbe": container.StartupProbe, "readinessProbe": container.ReadinessProbe, "livenessProbe": container.LivenessProbe,
	} {
		if probe != nil && elsewhere(probe.HTTPGet, probe.TCPSocket) {
			asked = append(asked, at+"."+name+" with a host")
		}
	}
	lifecycle := ptr.Deref(container.Lifecycle, corev1.Lifecycle{})
	for _, hook := range []*corev1.LifecycleHandler{lifecycle.PostStart, lifecycle.PreStop} {
		if hook != nil && elsewhere(hook.HTTPGet, hook.TCPSocket) {
			asked = append(asked, at+".lifecycle with a host")
		}
	}
	security := ptr.Deref(container.SecurityContext, corev1.SecurityContext{})
	at += ".securityContext"
	if ptr.Deref(security.Privileged, false) {
		asked = append(asked, at+".privileged")
	}
	if ptr.Deref(security.ProcMount, corev1.DefaultProcMount) != corev1.DefaultProcMount {
		asked = append(asked, at+".procMount")
	}
	for _, capability := range ptr.Deref(security.Capabilities, corev1.Capabilities{}).Add {
		if capability != "NET_BIND_SERVICE" {
			asked = append(asked, fmt.Sprintf("%s.capabilities.add %s", at, capability))
		}
	}
	return append(asked, confinement(at, security.SeccompProfile, security.AppArmorProfile, security.SELinuxOptions, security.WindowsOptions)...)
}

// confinement are the ways out of what the kernel allows a container.
func confinement(at string, seccomp *corev1.SeccompProfile, armor *corev1.AppArmorProfile, linux *corev1.SELinuxOptions, windows *corev1.WindowsSecurityContextOptions) []string {
	var asked []string
	if seccomp != nil && seccomp.Type == corev1.SeccompProfileTypeUnconfined {
		asked = append(asked, at+".seccompProfile")
	}
	if armor != nil && armor.Type == corev1.AppArmorProfileTypeUnconfined {
		asked = append(asked, at+".appArmorProfile")
	}
	if linux != nil && (linux.User != "" || linux.Role != "" || !slices.Contains(confinedTypes, linux.Type)) {
		asked = append(asked, at+".seLinuxOptions")
	}
	if windows != nil && ptr.Deref(windows.HostProcess, false) {
		asked = append(asked, at+".windowsOptions.hostProcess")
	}
	return asked
}

// elsewhere is whether the kubelet, which is on the node's network, is sent to another address than the pod's.
func elsewhere(get *corev1.HTTPGetAction, socket *corev1.TCPSocketAction) bool {
	return get != nil && get.Host != "" || socket != nil && socket.Host != ""
}

// ordinaryVolume is whether a volume is of a kind that restricted pods may have. One of a kind to come is not.
func ordinaryVolume(source corev1.VolumeSource) bool {
	source.ConfigMap, source.Secret, source.EmptyDir, source.DownwardAPI, source.Projected = nil, nil, nil, nil, nil
	source.PersistentVolumeClaim, source.Ephemeral, source.CSI, source.Image = nil, nil, nil, nil
	return source == corev1.VolumeSource{}
}
