// Package migrate makes the LiveStashCluster for a Deployment. It is pure.
package migrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

// fields are those of an object, as in its YAML, without those that were not set.
type fields = map[string]any

// Cluster is the LiveStashCluster for a Deployment, as YAML has it, and what somebody has to look at.
func Cluster(d *appsv1.Deployment, adapter v1alpha1.Adapter) (fields, []string, error) {
	pod := d.Spec.Template.Spec
	app := application(pod.Containers)
	if app == nil {
		return nil, nil, errors.New("the Deployment has no container")
	}
	m := &migration{spec: fields{"image": app.Image, "adapter": string(adapter)}, http: fields{}, app: fields{"name": fleet.AppContainer}, pod: fields{}}
	if d.Spec.Replicas != nil {
		m.spec["replicas"] = *d.Spec.Replicas
	}
	m.container(app)
	m.environment(app)
	m.probes(app)
	m.podSpec(&pod, app)
	m.metadata(&d.Spec.Template)
	m.notef("Check spec.adapter (%s) and set spec.ttl: for how long a user may be away (default 5m).", adapter)
	m.notef("The operator makes a Service and a ServiceAccount named %s, and takes none that is there already: rename the LiveStashCluster, or delete yours first. An Ingress of yours can stay: let it lead to that Service.", d.Name)
	m.notef("Delete the Deployment, and its autoscaler and PodDisruptionBudget, when the fleet serves: both would count pods of their own.")
	metadata := fields{"name": d.Name}
	if d.Namespace != "" {
		metadata["namespace"] = d.Namespace
	}
	return fields{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "LiveStashCluster", "metadata": metadata, "spec": m.assembled()}, m.notes, nil
}

// migration is what is made, and what is said of it.
type migration struct {
	spec, http, app, pod fields
	template             fields
	notes                []string
}

func (m *migration) notef(format string, args ...any) {
	m.notes = append(m.notes, fmt.Sprintf(format, args...))
}

// application is the container that serves: the one with a port for HTTP, else the first.
func application(containers []corev1.Container) *corev1.Container {
	for i := range containers {
		for _, port := range containers[i].Ports {
			if port.Name == "http" || port.ContainerPort == 4000 {
				return &containers[i]
			}
		}
	}
	if len(containers) == 0 {
		return nil
	}
	return &containers[0]
}

// set sets a field to what JSON makes of a value, unless that is empty.
func set(into fields, name string, value any) {
	text, err := json.Marshal(value)
	if err != nil || slices.Contains([]string{"null", "{}", "[]", `""`, "0", "false"}, string(text)) {
		return
	}
	var plain any
	if json.Unmarshal(text, &plain) == nil {
		into[name] = plain
	}
}

func (m *migration) container(app *corev1.Container) {
	set(m.spec, "imagePullPolicy", app.ImagePullPolicy)
	set(m.spec, "resources", app.Resources)
	set(m.spec, "envFrom", app.EnvFrom)
	set(m.app, "command", app.Command)
	set(m.app, "args", app.Args)
	set(m.app, "volumeMounts", app.VolumeMounts)
	set(m.app, "securityContext", app.SecurityContext)
	for _, port := range app.Ports {
		if port.Name == "http" || len(app.Ports) == 1 {
			m.port(port.ContainerPort)
		}
	}
	if app.Lifecycle != nil && app.Lifecycle.PreStop != nil {
		m.notef("The preStop hook is left out: the agent drains the pod (spec.drain).")
	}
	for _, from := range app.EnvFrom {
		if from.SecretRef != nil {
			m.notef("If the Secret %s has SECRET_KEY_BASE or RELEASE_COOKIE, name it in spec.secretKeyBase.secretRef and spec.clustering.cookie.secretRef: "+
				"the operator sets these variables, and with another SECRET_KEY_BASE everybody is logged out.", from.SecretRef.Name)
		}
	}
}

func (m *migration) port(port int32) {
	if port != 4000 {
		m.http["port"] = port
	}
}

// secretKeyBase is the variable with which Phoenix signs and encrypts.
const secretKeyBase = "SECRET_KEY_BASE"

// dropped are variables that the operator sets in each pod.
var dropped = []string{"PHX_SERVER", "RELEASE_DISTRIBUTION", "RELEASE_NODE", "RELEASE_TMP", "DNS_CLUSTER_QUERY", "POD_IP", "POD_NAME", "POD_NAMESPACE",
	"LIBCLUSTER_SERVICE", "LIBCLUSTER_NAMESPACE", "LIBCLUSTER_APP", "CLUSTER_DOMAIN", "ERL_AFLAGS", "ERL_FULLSWEEP_AFTER", "LIVE_STASH_ADAPTER", "LIVE_STASH_TTL",
	"LIVE_STASH_REDIS_URL", "LIVE_STASH_REDIS_URL_FILE", "LIVE_STASH_REDIS_CACERTFILE", "SECRET_KEY_BASE_FILE"}

// inHTTP are variables that the operator sets from fields of spec.http.
var inHTTP = map[string]string{"PHX_HOST": "host", "PORT": "port"}

// environment is the variables, each where the spec has it.
func (m *migration) environment(app *corev1.Container) {
	var kept []corev1.EnvVar
	for _, variable := range app.Env {
		switch {
		case variable.Name == secretKeyBase:
			m.secret(variable, "secretKeyBase", m.spec)
		case variable.Name == "RELEASE_COOKIE":
			clustering := fields{}
			m.secret(variable, "cookie", clustering)
			set(m.spec, "clustering", clustering)
		case variable.ValueFrom != nil && inHTTP[variable.Name] != "":
			m.notef("The variable %s is left out: write its value into spec.http.%s.", variable.Name, inHTTP[variable.Name])
		case variable.Name == "PHX_HOST" && variable.Value != "":
			m.http["host"] = variable.Value
		case variable.Name == "PORT":
			if port, err := strconv.ParseInt(variable.Value, 10, 32); err == nil {
				m.port(int32(port))
			}
		case slices.Contains(dropped, variable.Name) || strings.HasPrefix(variable.Name, "LIVESTASH_"):
			m.notef("The variable %s is left out: the operator sets it.", variable.Name)
		default:
			kept = append(kept, variable)
		}
	}
	set(m.spec, "env", kept)
}

// secret is a variable that the spec takes from a Secret alone.
func (m *migration) secret(variable corev1.EnvVar, field string, into fields) {
	if variable.ValueFrom == nil || variable.ValueFrom.SecretKeyRef == nil {
		m.notef("The value of %s is left out: put it into a Secret and name that in %s.secretRef, or the operator makes another one.", variable.Name, field)
		if variable.Name == secretKeyBase {
			m.notef("Another SECRET_KEY_BASE logs everybody out.")
		}
		return
	}
	ref := variable.ValueFrom.SecretKeyRef
	into[field] = fields{"secretRef": fields{"name": ref.Name, "key": ref.Key}}
}

func (m *migration) probes(app *corev1.Container) {
	if probe := app.ReadinessProbe; probe != nil && probe.HTTPGet != nil {
		set(m.http, "readinessPath", probe.HTTPGet.Path)
	} else if probe != nil {
		m.notef("The readiness probe is left out: the agent's own asks for the port, the peers and the store. Set spec.http.readinessPath, if the application has such a path.")
	}
	if app.LivenessProbe != nil || app.StartupProbe != nil {
		m.notef("Liveness and startup probes are left out: the operator has its own. If the application boots for more than two minutes, set spec.probes.startup.")
	}
}

func (m *migration) podSpec(pod *corev1.PodSpec, app *corev1.Container) {
	set(m.spec, "imagePullSecrets", pod.ImagePullSecrets)
	set(m.pod, "volumes", pod.Volumes)
	set(m.pod, "nodeSelector", pod.NodeSelector)
	set(m.pod, "tolerations", pod.Tolerations)
	set(m.pod, "affinity", pod.Affinity)
	set(m.pod, "priorityClassName", pod.PriorityClassName)
	set(m.pod, "securityContext", pod.SecurityContext)
	set(m.pod, "hostAliases", pod.HostAliases)
	set(m.pod, "dnsConfig", pod.DNSConfig)
	if len(pod.TopologySpreadConstraints) > 0 {
		set(m.pod, "topologySpreadConstraints", pod.TopologySpreadConstraints)
		m.spec["topologySpread"] = string(v1alpha1.SpreadDisabled)
		m.notef("topologySpreadConstraints select by labels: those of the fleet's pods are livestash.dev/cluster and app.kubernetes.io/*.")
	}
	m.initContainers(pod.InitContainers)
	if name := pod.ServiceAccountName; name != "" && name != "default" {
		m.notef("The ServiceAccount %s is left out: the pods get one of the fleet's name. Bind what they need to that, and see spec.serviceAccount.annotations.", name)
	}
	if pod.Hostname != "" || pod.Subdomain != "" || pod.HostNetwork {
		m.notef("hostname, subdomain and hostNetwork are left out: they are the pod's identity in the BEAM cluster.")
	}
	if pod.TerminationGracePeriodSeconds != nil && *pod.TerminationGracePeriodSeconds != 30 {
		m.notef("terminationGracePeriodSeconds (%d) is left out: it follows from spec.drain.", *pod.TerminationGracePeriodSeconds)
	}
	var containers []any
	if len(m.app) > 1 {
		containers = append(containers, m.app)
	}
	for i := range pod.Containers {
		if pod.Containers[i].Name != app.Name {
			sidecar := fields{}
			set(sidecar, "container", pod.Containers[i])
			containers = append(containers, sidecar["container"])
		}
	}
	if len(containers) > 0 {
		m.pod["containers"] = containers
	}
}

// initContainers are kept, but for one that migrates: that belongs before a rollout, once and not in each pod.
func (m *migration) initContainers(all []corev1.Container) {
	var kept []corev1.Container
	for _, container := range all {
		words := strings.Join(slices.Concat(container.Command, container.Args), " ")
		if _, has := m.spec["rollout"]; has || !strings.Contains(words, "migrate") {
			kept = append(kept, container)
			continue
		}
		before := fields{}
		set(before, "command", slices.Concat(container.Command, container.Args))
		m.spec["rollout"] = fields{"before": before}
		m.notef("The init container %s became spec.rollout.before: it runs once before each rollout, with the application's image and environment.", container.Name)
	}
	set(m.pod, "initContainers", kept)
}

// reserved begin the labels and annotations that are Kubernetes' or the operator's.
var reserved = []string{"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component", "app.kubernetes.io/part-of",
	"app.kubernetes.io/managed-by", "livestash.dev/", "pod-template-hash", "kubectl.kubernetes.io/"}

func (m *migration) metadata(template *corev1.PodTemplateSpec) {
	m.template = fields{}
	set(m.template, "labels", own(template.Labels))
	set(m.template, "annotations", own(template.Annotations))
}

func own(all map[string]string) map[string]string {
	kept := maps.Clone(all)
	maps.DeleteFunc(kept, func(name, _ string) bool {
		return slices.ContainsFunc(reserved, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	})
	return kept
}

// assembled is the spec, with what is not empty.
func (m *migration) assembled() fields {
	override := fields{}
	set(override, "metadata", m.template)
	set(override, "spec", m.pod)
	set(m.spec, "podTemplate", override)
	set(m.spec, "http", m.http)
	return m.spec
}
