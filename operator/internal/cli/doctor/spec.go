package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

// secretKeyBaseLength is how many bytes Phoenix asks for.
const secretKeyBaseLength = 64

func specRefused(f *Facts) []Finding {
	if f.Refused == "" {
		return nil
	}
	return []Finding{broken("The API server refuses the spec: "+f.Refused, "Change the field that it names.")}
}

// secretMissing are the Secrets that fields of the spec name, and their keys.
func secretMissing(f *Facts) []Finding {
	var found []Finding
	for _, ref := range fleet.SecretRefs(f.Cluster) {
		object, known := f.Objects["Secret "+ref.Name]
		switch {
		case !known:
		case !object.Exists:
			found = append(found, broken(fmt.Sprintf("The spec names the Secret %s, which does not exist.", ref.Name),
				fmt.Sprintf("Create it with the key %s, or correct the name.", ref.Key)))
		default:
			if _, has := object.Keys[ref.Key]; !has {
				found = append(found, broken(fmt.Sprintf("The Secret %s has no key %s, which the spec names; it has %s.", ref.Name, ref.Key, few(object.Keys)),
					fmt.Sprintf("Add the key %s to the Secret, or correct the key in the spec.", ref.Key)))
			}
		}
	}
	return found
}

// secretValue are values that Erlang or Phoenix cannot do with.
func secretValue(f *Facts) []Finding {
	var found []Finding
	for _, ref := range fleet.SecretRefs(f.Cluster) {
		value, is := f.Objects["Secret "+ref.Name].Keys[ref.Key]
		at := fmt.Sprintf("The value of %s in the Secret %s", ref.Key, ref.Name)
		switch {
		case !is:
		case value.Break:
			found = append(found, broken(at+" ends with a line break.", "Write it anew without: `printf %s VALUE`, not `echo VALUE`; `--from-literal`, not a file from an editor."))
		case value.Control:
			found = append(found, broken(at+" has a control character in it.", "Write it anew as text on one line."))
		case value.Bytes < secretKeyBaseLength && isSecretKeyBase(f.Cluster, ref):
			found = append(found, broken(fmt.Sprintf("%s has %d bytes, and SECRET_KEY_BASE needs %d.", at, value.Bytes, secretKeyBaseLength),
				"Make one with `mix phx.gen.secret`."))
		}
	}
	return found
}

func isSecretKeyBase(c *v1alpha1.LiveStashCluster, ref v1alpha1.SecretKeyReference) bool {
	own := c.Spec.SecretKeyBase.Ref()
	return own != nil && *own == ref
}

// referenceMissing are ConfigMaps and Secrets of env, envFrom and podTemplate, without which pods do not start.
func referenceMissing(f *Facts) []Finding {
	var found []Finding
	for _, ref := range fleet.References(f.Cluster) {
		object, known := f.Objects[ref.Kind+" "+ref.Name]
		if !known || ref.Optional {
			continue
		}
		if !object.Exists {
			found = append(found, broken(fmt.Sprintf("%s names the %s %s, which does not exist: new pods do not start.", ref.Uses[0].Field, ref.Kind, ref.Name),
				"Create it, or correct the name."))
			continue
		}
		for _, use := range ref.Uses {
			if _, has := object.Keys[use.Key]; use.Key != "" && !use.Optional && !has {
				found = append(found, broken(fmt.Sprintf("%s reads the key %s of the %s %s, which has no such key: new pods do not start. It has %s.",
					use.Field, use.Key, ref.Kind, ref.Name, few(object.Keys)), "Add the key, or correct it in the spec."))
			}
		}
	}
	return found
}

func pullSecret(f *Facts) []Finding {
	var found []Finding
	for _, ref := range f.Cluster.Spec.ImagePullSecrets {
		object, known := f.Objects["Secret "+ref.Name]
		switch {
		case !known:
		case !object.Exists:
			found = append(found, broken(fmt.Sprintf("spec.imagePullSecrets names the Secret %s, which does not exist in this namespace: a private image cannot be pulled.", ref.Name),
				fmt.Sprintf("`kubectl create secret docker-registry %s`, in the namespace of the fleet.", ref.Name)))
		case object.Type != corev1.SecretTypeDockerConfigJson && object.Type != corev1.SecretTypeDockercfg:
			found = append(found, broken(fmt.Sprintf("The Secret %s of spec.imagePullSecrets has the type %s, which the kubelet does not read.", ref.Name, object.Type),
				fmt.Sprintf("Make it anew with `kubectl create secret docker-registry %s`.", ref.Name)))
		}
	}
	return found
}

// contract are the variables of the operator's contract that users have in Secrets of their own, and what to set instead.
var contract = map[string]string{
	"SECRET_KEY_BASE": "spec.secretKeyBase.secretRef", "RELEASE_COOKIE": "spec.clustering.cookie.secretRef", "PHX_HOST": "spec.http.host", "PORT": "spec.http.port",
	"RELEASE_NODE": "nothing: nodes are named by the operator", "RELEASE_DISTRIBUTION": "nothing: it is always name",
	"LIVE_STASH_ADAPTER": "spec.adapter", "LIVE_STASH_TTL": "spec.ttl", "LIVE_STASH_REDIS_URL": "spec.redis.external",
}

// dnsCluster is the one variable that starts dns_cluster.
const dnsCluster = "DNS_CLUSTER_QUERY"

// contractVariable are variables in ConfigMaps and Secrets that have no effect, because the operator's own win.
func contractVariable(f *Facts) []Finding {
	var found []Finding
	for _, ref := range fleet.References(f.Cluster) {
		for _, use := range ref.Uses {
			if use.Field != "spec.envFrom" {
				continue
			}
			for _, key := range slices.Sorted(maps.Keys(f.Objects[ref.Kind+" "+ref.Name].Keys)) {
				if use.Variable+key == dnsCluster {
					found = append(found, broken(fmt.Sprintf("The %s %s of spec.envFrom has %s, which starts dns_cluster: it looks for nodes by their IP addresses, which none has here.",
						ref.Kind, ref.Name, dnsCluster), "Remove the key: the agent connects the nodes."))
					continue
				}
				instead := contract[use.Variable+key]
				if instead == "" || isSecretKeyBase(f.Cluster, v1alpha1.SecretKeyReference{Name: ref.Name, Key: key}) || key == "RELEASE_COOKIE" && f.Cluster.Spec.Clustering.Cookie.Ref() != nil {
					continue
				}
				found = append(found, risky(fmt.Sprintf("The %s %s of spec.envFrom has %s%s, which has no effect: the operator sets that variable.", ref.Kind, ref.Name, use.Variable, key),
					fmt.Sprintf("Set %s; then remove the key.", instead)))
			}
		}
	}
	return found
}

func tagMoves(f *Facts) []Finding {
	image := f.Cluster.Spec.Image
	name := image[strings.LastIndex(image, "/")+1:]
	_, tag, tagged := strings.Cut(name, ":")
	if strings.Contains(name, "@") || tagged && tag != "latest" {
		return nil
	}
	return []Finding{risky(fmt.Sprintf("The image %s has no fixed tag: a pod that comes back may run another release than its peers.", image),
		"Give each release a tag of its own in spec.image, or name it by digest.")}
}

func agentOff(f *Facts) []Finding {
	if f.Cluster.AgentEnabled() || !inMemory(f.Cluster) {
		return nil
	}
	return []Finding{broken(fmt.Sprintf("spec.agent.enabled is false: with adapter %s every deploy loses the stashes of each pod.", f.Cluster.Spec.Adapter), "Remove spec.agent.enabled.")}
}

func noPeer(f *Facts) []Finding {
	c := f.Cluster
	if c.DesiredReplicas() != 1 || c.Spec.Rollout.Surge != v1alpha1.SurgeNever {
		return nil
	}
	return []Finding{broken("One pod and spec.rollout.surge: Never: every deploy is an outage, and what the pod holds is lost.", "Set spec.rollout.surge: Auto, or spec.replicas: 2.")}
}

func ttl(f *Facts) []Finding {
	c := f.Cluster
	keep := c.Spec.Drain.KeepFor
	if c.Spec.Adapter != v1alpha1.AdapterBrowserMemory || keep == nil || c.TTLSeconds() >= int64(keep.Seconds()) {
		return nil
	}
	return []Finding{risky(fmt.Sprintf("With adapter BrowserMemory nothing renews a stash, and spec.ttl is %ds: a user who stashed before that loses it in the next deploy, also while looking at the page.", c.TTLSeconds()),
		"Set spec.ttl to as long as a session may last, for example 12h; at most 24h.")}
}

// inMemory is whether the pods hold the stashes.
func inMemory(c *v1alpha1.LiveStashCluster) bool {
	return c.Spec.Adapter == v1alpha1.AdapterETS || c.Spec.Adapter == v1alpha1.AdapterMnesia
}

// few are the names of some keys.
func few(keys map[string]Value) string {
	names := slices.Sorted(maps.Keys(keys))
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > 5:
		return strings.Join(names[:5], ", ") + " and others"
	}
	return strings.Join(names, ", ")
}
