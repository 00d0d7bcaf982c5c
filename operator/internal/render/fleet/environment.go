package fleet

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/tls"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// scratchDir is writable in every pod: releases write pipes and rendered configuration there.
const scratchDir = "/tmp"

// environment is the contract with the application (docs/reference/environment.md), then the user's own variables.
// Variables that others refer to with $(NAME) come first.
func environment(c *v1alpha1.LiveStashCluster, in render.Inputs) []corev1.EnvVar {
	adapter := store.For(c)
	contract := []corev1.EnvVar{
		fromField("POD_NAME", "metadata.name"),
		fromField("POD_NAMESPACE", "metadata.namespace"),
		fromField("POD_IP", "status.podIP"),

		render.Value("LIVE_STASH_ADAPTER", adapter.Name()),
		render.Value("LIVE_STASH_TTL", strconv.FormatInt(c.TTLSeconds(), 10)),

		render.Value("PORT", strconv.Itoa(int(c.Spec.HTTP.Port))),
		render.Value("PHX_SERVER", "true"),
		render.Value("PHX_HOST", publicHost(c, in)),
		store.FromSecret(secretKeyBaseVariable, secretKeyBaseRef(c)),

		store.FromSecret(cookieVariable, CookieRef(c)),
		render.Value("RELEASE_DISTRIBUTION", "name"),
		render.Value("RELEASE_NODE", NodeName(c, in, "$(POD_NAME)")),
		render.Value("RELEASE_TMP", scratchDir),

		render.Value("LIBCLUSTER_SERVICE", render.HeadlessName(c)),
		render.Value("LIBCLUSTER_NAMESPACE", c.Namespace),
		render.Value("LIBCLUSTER_APP", c.Name),
		// libcluster reads the domain from here alone, whatever its configuration says, and wants the final dot.
		render.Value("CLUSTER_DOMAIN", in.ClusterDomain+"."),

		render.Value("ERL_AFLAGS", erlangFlags(c)),
	}
	if sweep := c.Spec.BEAM.FullsweepAfter; sweep != nil {
		contract = append(contract, render.Value("ERL_FULLSWEEP_AFTER", strconv.Itoa(int(*sweep))))
	}
	contract = variablesOfSecrets(c, append(contract, adapter.Env(c)...))
	if c.AgentEnabled() {
		contract = append(contract, agentEnvironment(c, in)...)
		contract = append(contract, previousCookie(in)...)
	}

	contract = append(contract, crashDumpEnvironment(c)...)
	return append(contract, c.Spec.Env...)
}

// previousCookie is for the agent. A pod that starts when no other needs it any more, and it is gone, starts without.
func previousCookie(in render.Inputs) []corev1.EnvVar {
	if in.PreviousCookie == nil {
		return nil
	}
	variable := store.FromSecret(previousCookieVariable, *in.PreviousCookie)
	variable.ValueFrom.SecretKeyRef.Optional = ptr.To(true)
	return []corev1.EnvVar{variable}
}

// erlangFlags are emulator flags for a release that was not made for a container.
func erlangFlags(c *v1alpha1.LiveStashCluster) string {
	flags := machineFlags(c)
	if c.TLSEnabled() {
		flags = append(flags, tls.Flags)
	}
	if c.AgentEnabled() {
		flags = append(flags, agentFlags)
	}
	return joined(flags, c.Spec.BEAM.ExtraFlags)
}

// machineFlags are those of them that have nothing to do with being a node.
func machineFlags(c *v1alpha1.LiveStashCluster) []string {
	port := c.Spec.Clustering.DistributionPort
	flags := []string{
		// The first virtual machine of a pod, the application, gets the first port; `bin/app rpc` starts a second one.
		fmt.Sprintf("-kernel inet_dist_listen_min %d", port),
		fmt.Sprintf("-kernel inet_dist_listen_max %d", port+9),
		fmt.Sprintf("+P %d", c.Spec.BEAM.ProcessLimit),
		fmt.Sprintf("+Q %d", c.Spec.BEAM.PortLimit),
	}
	if !c.Spec.BEAM.BusyWait {
		flags = append(flags, "+sbwt none +sbwtdcpu none +sbwtdio none")
	}
	return flags
}

// joined are the flags, the user's own last.
func joined(flags []string, extra string) string {
	if extra = strings.TrimSpace(extra); extra != "" {
		flags = append(flags, extra)
	}
	return strings.Join(flags, " ")
}

func publicHost(c *v1alpha1.LiveStashCluster, in render.Inputs) string {
	if c.Spec.HTTP.Host != "" {
		return c.Spec.HTTP.Host
	}
	return render.ServiceHost(c, in, c.Name)
}

func fromField(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}
