package v1alpha1_test

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

// clusters and benchmarks are the API of a real API server, where these tests apply good and bad objects.
var clusters, benchmarks dynamic.ResourceInterface

func TestMain(m *testing.M) {
	environment := &envtest.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	config, err := environment.Start()
	if err != nil {
		_ = environment.Stop()
		panic("these tests need an API server, see `make test-operator`: " + err.Error())
	}
	resource := func(name string) dynamic.ResourceInterface {
		kind := schema.GroupVersionResource{Group: "livestash.dev", Version: "v1alpha1", Resource: name}
		return dynamic.NewForConfigOrDie(config).Resource(kind).Namespace("default")
	}
	clusters, benchmarks = resource("livestashclusters"), resource("livestashbenchmarks")

	code := m.Run()
	if err := environment.Stop(); err != nil {
		panic(err)
	}
	os.Exit(code)
}

func TestBadClustersAreRefused(t *testing.T) {
	cases := []struct {
		name string
		// object is the metadata.name, or "shop" when empty.
		object string
		spec   string
		// says are the parts that the refusal must have: what is wrong, and what to do.
		says []string
	}{
		{
			name: "unknown adapter",
			spec: `{image: a, adapter: Memcached}`,
			says: []string{"spec.adapter", `"ETS", "BrowserMemory", "Redis", "Mnesia", "None"`},
		},
		{
			name: "a grace period too short for the drain",
			spec: `{image: a, adapter: ETS, drain: {gracePeriod: 50s}}`,
			says: []string{"spec.drain", "drain.gracePeriod of 50s is too short: endpointWait 3s + closeTimeout 30s + handOffTimeout 20s + 7s to stop", "make gracePeriod at least that long"},
		},
		{
			name: "a wait that is no duration",
			spec: `{image: a, adapter: ETS, drain: {endpointWait: soon, gracePeriod: 1m}}`,
			says: []string{"spec.drain", "must be durations of at most 1h with a unit"},
		},
		{
			name: "a grace period that is no duration",
			spec: `{image: a, adapter: ETS, drain: {gracePeriod: "60"}}`,
			says: []string{"spec.drain.gracePeriod", "with a unit"},
		},
		{
			name: "stashes kept for more than a week",
			spec: `{image: a, adapter: ETS, drain: {keepFor: 169h}}`,
			says: []string{"spec.drain.keepFor", "at most 168h with a unit"},
		},
		{
			name: "stashes kept for a number",
			spec: `{image: a, adapter: ETS, drain: {keepFor: "3600"}}`,
			says: []string{"spec.drain.keepFor", "with a unit"},
		},
		{
			name: "less than no bytes of kept stashes",
			spec: `{image: a, adapter: ETS, drain: {keepBytes: -1Mi}}`,
			says: []string{"spec.drain.keepBytes", "must not be negative"},
		},
		{
			name: "a grace period in the pod template",
			spec: `{image: a, adapter: ETS, podTemplate: {spec: {terminationGracePeriodSeconds: 5}}}`,
			says: []string{"spec.podTemplate.spec", "set spec.drain.gracePeriod"},
		},
		{
			name: "the agent on the application's port",
			spec: `{image: a, adapter: ETS, agent: {port: 4000}}`,
			says: []string{"spec.agent", "choose another agent.port"},
		},
		{
			name: "the agent's probe on the application's port",
			spec: `{image: a, adapter: ETS, http: {port: 9569}}`,
			says: []string{"spec.agent", "and the port after it must not be http.port"},
		},
		{
			name: "a PodMonitor without agents",
			spec: `{image: a, adapter: ETS, agent: {enabled: false}, monitoring: {podMonitor: {enabled: true}}}`,
			says: []string{"spec.monitoring", "enable the agent, or remove monitoring.podMonitor"},
		},
		{
			name: "scraped every half second",
			spec: `{image: a, adapter: ETS, monitoring: {podMonitor: {enabled: true, interval: 500ms}}}`,
			says: []string{"spec.monitoring.podMonitor.interval", "15s or 1m"},
		},
		{
			name: "a PodMonitor with a label of the operator's",
			spec: `{image: a, adapter: ETS, monitoring: {podMonitor: {enabled: true, labels: {livestash.dev/cluster: other}}}}`,
			says: []string{"spec.monitoring.podMonitor.labels", "the operator's own"},
		},
		{
			name: "a tick of half a second",
			spec: `{image: a, adapter: ETS, clustering: {netTickTime: 500ms}}`,
			says: []string{"spec.clustering.netTickTime", "whole seconds from 5s to 1h"},
		},
		{
			name: "a variable of the agent",
			spec: `{image: a, adapter: ETS, env: [{name: LIVESTASH_ANYTHING, value: x}]}`,
			says: []string{"spec.env", "operator's contract"},
		},
		{
			name: "no adapter",
			spec: `{image: a}`,
			says: []string{"spec.adapter: Required value"},
		},
		{
			name: "no image",
			spec: `{adapter: ETS}`,
			says: []string{"spec.image: Required value"},
		},
		{
			name: "empty image",
			spec: `{image: "", adapter: ETS}`,
			says: []string{"spec.image", "image must be the reference of an Elixir release image"},
		},
		{
			name: "image with a space",
			spec: `{image: "shop 1.0", adapter: ETS}`,
			says: []string{"spec.image", "without spaces"},
		},
		{
			name: "ttl of zero",
			spec: `{image: a, adapter: ETS, ttl: 0s}`,
			says: []string{"spec.ttl", "from 1s to 720h", "90s, 5m or 1h"},
		},
		{
			name: "negative ttl",
			spec: `{image: a, adapter: ETS, ttl: -5m}`,
			says: []string{"spec.ttl", "from 1s to 720h"},
		},
		{
			name: "ttl without a unit",
			spec: `{image: a, adapter: ETS, ttl: "300"}`,
			says: []string{"spec.ttl", "with a unit"},
		},
		{
			name: "ttl as a number",
			spec: `{image: a, adapter: ETS, ttl: 300}`,
			says: []string{"spec.ttl", "must be of type string"},
		},
		{
			name: "ttl that is no duration",
			spec: `{image: a, adapter: BrowserMemory, ttl: soon}`,
			says: []string{"spec.ttl", "must be a duration"},
		},
		{
			name: "ttl over a day in the browser",
			spec: `{image: a, adapter: BrowserMemory, ttl: 24h1s}`,
			says: []string{"spec.ttl", "at most 24h with adapter BrowserMemory"},
		},
		{
			name: "negative replicas",
			spec: `{image: a, adapter: ETS, replicas: -1}`,
			says: []string{"spec.replicas", "greater than or equal to 0"},
		},
		{
			name:   "a name too long for node names",
			object: strings.Repeat("a", 46),
			spec:   `{image: a, adapter: ETS}`,
			says:   []string{"metadata.name must be at most 45 characters"},
		},
		{
			name:   "name of every namespace's ServiceAccount",
			object: "default",
			spec:   `{image: a, adapter: ETS}`,
			says:   []string{"metadata.name must not be default", "ServiceAccount", "choose another name"},
		},
		{
			name:   "a name that is no host name",
			object: "shop.eu",
			spec:   `{image: a, adapter: ETS}`,
			says:   []string{"only a-z, 0-9 and '-'"},
		},
		{
			name:   "a name that starts with a digit",
			object: "1shop",
			spec:   `{image: a, adapter: ETS}`,
			says:   []string{"starting with a letter"},
		},
		{
			name: "redis with another adapter",
			spec: `{image: a, adapter: ETS, redis: {external: {urlSecretRef: {name: r, key: url}}}}`,
			says: []string{"spec.redis", "only read with adapter Redis: remove spec.redis"},
		},
		{
			name: "browserMemory with another adapter",
			spec: `{image: a, adapter: ETS, browserMemory: {maxStashBytes: 9000}}`,
			says: []string{"spec.browserMemory", "only read with adapter BrowserMemory: remove spec.browserMemory"},
		},
		{
			name: "stashes of no size",
			spec: `{image: a, adapter: BrowserMemory, browserMemory: {maxStashBytes: 0}}`,
			says: []string{"spec.browserMemory.maxStashBytes", "greater than or equal to 1000"},
		},
		{
			name: "two Redis stores at once",
			spec: `{image: a, adapter: Redis, redis: {managed: {}, external: {host: redis}}}`,
			says: []string{"spec.redis", "at most one of managed", "remove the others"},
		},
		{
			name: "managed Redis with little memory",
			spec: `{image: a, adapter: Redis, redis: {managed: {memory: 10Mi}}}`,
			says: []string{"spec.redis.managed.memory", "at least 64Mi"},
		},
		{
			name: "managed Redis with an unreadable amount of memory",
			spec: `{image: a, adapter: Redis, redis: {managed: {memory: lots}}}`,
			says: []string{"spec.redis.managed.memory"},
		},
		{
			name: "own and generated Redis password",
			spec: `{image: a, adapter: Redis, redis: {managed: {password: {generate: true, secretRef: {name: s, key: k}}}}}`,
			says: []string{"spec.redis.managed.password", "exactly one of generate: true"},
		},
		{
			name: "replication with two replicas",
			spec: `{image: a, adapter: Redis, redis: {operator: {replicas: 2}}}`,
			says: []string{"spec.redis.operator.replicas", "at least 3", "use mode Standalone"},
		},
		{
			name:   "a name too long for redis-operator",
			object: strings.Repeat("a", 42),
			spec:   `{image: a, adapter: Redis, redis: {operator: {}}}`,
			says:   []string{"at most 41 characters with spec.redis.operator"},
		},
		{
			name: "replicas of a single server",
			spec: `{image: a, adapter: Redis, redis: {operator: {mode: Standalone, replicas: 3}}}`,
			says: []string{"spec.redis.operator.replicas", "only read with mode Replication"},
		},
		{
			name: "external Redis by two names",
			spec: `{image: a, adapter: Redis, redis: {external: {host: redis, urlSecretRef: {name: r, key: url}}}}`,
			says: []string{"spec.redis.external", "exactly one of urlSecretRef", "remove one of them"},
		},
		{
			name: "external Redis by no name",
			spec: `{image: a, adapter: Redis, redis: {external: {}}}`,
			says: []string{"spec.redis.external", "exactly one of urlSecretRef"},
		},
		{
			name: "external Redis with parts beside the URL",
			spec: `{image: a, adapter: Redis, redis: {external: {database: 1, urlSecretRef: {name: r, key: url}}}}`,
			says: []string{"spec.redis.external", "only read with host"},
		},
		{
			name: "external Redis with a user without a password",
			spec: `{image: a, adapter: Redis, redis: {external: {host: redis, username: shop}}}`,
			says: []string{"spec.redis.external", "username needs passwordSecretRef"},
		},
		{
			name: "external Redis with authorities but without TLS",
			spec: `{image: a, adapter: Redis, redis: {external: {host: redis, caSecretRef: {name: ca, key: ca.crt}}}}`,
			says: []string{"spec.redis.external", "only read with tls.enabled: true"},
		},
		{
			name: "external Redis with a URL for a host",
			spec: `{image: a, adapter: Redis, redis: {external: {host: "redis://redis:6379"}}}`,
			says: []string{"spec.redis.external.host", "a DNS name or an address alone"},
		},
		{
			name: "own and generated cookie",
			spec: `{image: a, adapter: ETS, clustering: {cookie: {generate: true, secretRef: {name: s, key: k}}}}`,
			says: []string{"spec.clustering.cookie", "exactly one of generate: true"},
		},
		{
			name: "neither own nor generated cookie",
			spec: `{image: a, adapter: ETS, clustering: {cookie: {generate: false}}}`,
			says: []string{"spec.clustering.cookie", "exactly one of generate: true"},
		},
		{
			name: "own and generated secret key base",
			spec: `{image: a, adapter: ETS, secretKeyBase: {generate: true, secretRef: {name: s, key: k}}}`,
			says: []string{"spec.secretKeyBase", "exactly one of generate: true"},
		},
		{
			name: "secret reference without a key",
			spec: `{image: a, adapter: ETS, secretKeyBase: {secretRef: {name: s}}}`,
			says: []string{"spec.secretKeyBase.secretRef.key: Required value"},
		},
		{
			name: "podTemplate that renames the app container",
			spec: `{image: a, adapter: ETS, podTemplate: {spec: {containers: [{name: web, resources: {}}]}}}`,
			says: []string{"spec.podTemplate.spec", "named app and cannot be renamed"},
		},
		{
			name: "podTemplate that changes the image",
			spec: `{image: a, adapter: ETS, podTemplate: {spec: {containers: [{name: app, image: b}]}}}`,
			says: []string{"spec.podTemplate.spec", "in spec.image"},
		},
		{
			name: "podTemplate that sets the cookie",
			spec: `{image: a, adapter: ETS, podTemplate: {spec: {containers: [{name: app, env: [{name: RELEASE_COOKIE, value: x}]}]}}}`,
			says: []string{"spec.podTemplate.spec", "in spec.env"},
		},
		{
			name: "podTemplate that changes the selector",
			spec: `{image: a, adapter: ETS, podTemplate: {metadata: {labels: {app.kubernetes.io/instance: x}}}}`,
			says: []string{"spec.podTemplate.metadata.labels", "the selector is made of them"},
		},
		{
			name: "podTemplate that takes a label of the operator",
			spec: `{image: a, adapter: ETS, podTemplate: {metadata: {labels: {livestash.dev/cluster: x}}}}`,
			says: []string{"spec.podTemplate.metadata.labels", "use other labels"},
		},
		{
			name: "podTemplate that changes the host name",
			spec: `{image: a, adapter: ETS, podTemplate: {spec: {hostname: x}}}`,
			says: []string{"spec.podTemplate.spec", "must not set hostname"},
		},
		{
			name: "podTemplate with another's rights",
			spec: `{image: a, adapter: ETS, podTemplate: {spec: {serviceAccountName: admin}}}`,
			says: []string{"spec.podTemplate.spec", "set a cloud's identity in spec.serviceAccount.annotations"},
		},
		{
			name: "podTemplate with another's rights, the old way",
			spec: `{image: a, adapter: ETS, podTemplate: {spec: {serviceAccount: admin}}}`,
			says: []string{"spec.podTemplate.spec", "bind what they need to that one"},
		},
		{
			name: "an annotation of the operator's on the ServiceAccount",
			spec: `{image: a, adapter: ETS, serviceAccount: {annotations: {livestash.dev/prepared: x}}}`,
			says: []string{"spec.serviceAccount.annotations", "those are the operator's"},
		},
		{
			name: "podTemplate on the host's network",
			spec: `{image: a, adapter: ETS, podTemplate: {spec: {hostNetwork: true}}}`,
			says: []string{"spec.podTemplate.spec", "hostNetwork"},
		},
		{
			name: "http port equal to the distribution port",
			spec: `{image: a, adapter: ETS, http: {port: 9100}}`,
			says: []string{"spec.http", "http.port must not be 4369 (epmd) nor one of the ten ports"},
		},
		{
			name: "http port among the ports of further virtual machines",
			spec: `{image: a, adapter: ETS, http: {port: 5009}, clustering: {distributionPort: 5000}}`,
			says: []string{"spec.http", "choose another port"},
		},
		{
			name: "http port of epmd",
			spec: `{image: a, adapter: ETS, http: {port: 4369}}`,
			says: []string{"spec.http", "4369 (epmd)"},
		},
		{
			name: "distribution port of epmd",
			spec: `{image: a, adapter: ETS, clustering: {distributionPort: 4365}}`,
			says: []string{"spec.clustering.distributionPort", "4369, epmd's port"},
		},
		{
			name: "an issuer without TLS",
			spec: `{image: a, adapter: ETS, clustering: {tls: {issuerRef: {name: ca}}}}`,
			says: []string{"spec.clustering.tls", "issuerRef is only read with enabled: true"},
		},
		{
			name: "an issuer without a name",
			spec: `{image: a, adapter: ETS, clustering: {tls: {enabled: true, issuerRef: {kind: Issuer}}}}`,
			says: []string{"spec.clustering.tls.issuerRef.name: Required value"},
		},
		{
			name: "an issuer of a kind that cert-manager does not have",
			spec: `{image: a, adapter: ETS, clustering: {tls: {enabled: true, issuerRef: {name: ca, kind: VaultIssuer}}}}`,
			says: []string{"spec.clustering.tls.issuerRef.kind", "kind must be Issuer or ClusterIssuer"},
		},
		{
			name: "readiness path that is no path",
			spec: `{image: a, adapter: ETS, http: {readinessPath: healthz}}`,
			says: []string{"spec.http.readinessPath", "must start with '/'"},
		},
		{
			name: "extra flags with a cookie",
			spec: `{image: a, adapter: ETS, beam: {extraFlags: "+A 4 -setcookie x"}}`,
			says: []string{"spec.beam.extraFlags", "must not set the node name, the cookie"},
		},
		{
			name: "an upgrade that there is not",
			spec: `{image: a, adapter: ETS, upgrade: Now}`,
			says: []string{"spec.upgrade", `"Immediately", "WithNextRollout"`},
		},
		{
			name: "a surge that there is not",
			spec: `{image: a, adapter: ETS, rollout: {surge: Sometimes}}`,
			says: []string{"spec.rollout.surge", `"Auto", "Always", "Never"`},
		},
		{
			name: "a word for a store that there is not",
			spec: `{image: a, adapter: ETS, acceptLossOf: all}`,
			says: []string{"spec.acceptLossOf", `"ETS", "BrowserMemory", "Redis", "Mnesia", "None"`},
		},
		{
			name: "configuration that does something else",
			spec: `{image: a, adapter: ETS, rollout: {configChanges: Restart}}`,
			says: []string{"spec.rollout.configChanges", `"Roll", "Ignore"`},
		},
		{
			name: "before a rollout, without a command",
			spec: `{image: a, adapter: ETS, rollout: {before: {deadline: 1m}}}`,
			says: []string{"rollout.before.command is missing", "or remove rollout.before"},
		},
		{
			name: "before a rollout, an empty command",
			spec: `{image: a, adapter: ETS, rollout: {before: {command: [""]}}}`,
			says: []string{"rollout.before.command is missing"},
		},
		{
			name: "before a rollout, for ever",
			spec: `{image: a, adapter: ETS, rollout: {before: {command: [migrate], deadline: 25h}}}`,
			says: []string{"rollout.before.deadline must be a duration from 1s to 24h"},
		},
		{
			name: "before a rollout, no deadline's unit",
			spec: `{image: a, adapter: ETS, rollout: {before: {command: [migrate], deadline: "600"}}}`,
			says: []string{"rollout.before.deadline must be", "90s or 10m"},
		},
		{
			name: "before a rollout, again and again",
			spec: `{image: a, adapter: ETS, rollout: {before: {command: [migrate], retries: 11}}}`,
			says: []string{"spec.rollout.before.retries", "less than or equal to 10"},
		},
		{
			name: "a canary of all pods",
			spec: `{image: a, adapter: ETS, replicas: 3, rollout: {canary: {pods: 3}}}`,
			says: []string{"spec.rollout.canary", "must be less than replicas"},
		},
		{
			name: "a canary of all pods of the default",
			spec: `{image: a, adapter: ETS, rollout: {canary: {pods: 2}}}`,
			says: []string{"spec.rollout.canary", "must be less than replicas"},
		},
		{
			name: "a canary of no pod",
			spec: `{image: a, adapter: ETS, rollout: {canary: {pods: 0}}}`,
			says: []string{"spec.rollout.canary.pods", "greater than or equal to 1"},
		},
		{
			name: "a canary for ever",
			spec: `{image: a, adapter: ETS, rollout: {canary: {duration: 48h}}}`,
			says: []string{"spec.rollout.canary.duration", "from 1s to 24h"},
		},
		{
			name: "a canary without a unit",
			spec: `{image: a, adapter: ETS, rollout: {canary: {duration: "5"}}}`,
			says: []string{"spec.rollout.canary.duration", "from 1s to 24h"},
		},
		{
			name: "more than everybody recovered",
			spec: `{image: a, adapter: ETS, rollout: {canary: {minRecovered: "1.5"}}}`,
			says: []string{"spec.rollout.canary.minRecovered", `from "0" to "1"`},
		},
		{
			name: "less than its share",
			spec: `{image: a, adapter: ETS, rollout: {maxLoadFactor: "0.5"}}`,
			says: []string{"spec.rollout.maxLoadFactor", `from "1" to "100"`},
		},
		{
			name: "a load factor that is no number",
			spec: `{image: a, adapter: ETS, rollout: {maxLoadFactor: twice}}`,
			says: []string{"spec.rollout.maxLoadFactor", `from "1" to "100"`},
		},
		{
			name: "fewer crashes than none",
			spec: `{image: a, adapter: ETS, rollout: {canary: {maxCrashes: -1}}}`,
			says: []string{"spec.rollout.canary.maxCrashes", "greater than or equal to 0"},
		},
		{
			name: "more than all pods unavailable",
			spec: `{image: a, adapter: ETS, disruptionBudget: {maxUnavailable: "150%"}}`,
			says: []string{"spec.disruptionBudget.maxUnavailable", "a percentage from 0% to 100% in quotes"},
		},
		{
			name: "fewer than no pods unavailable",
			spec: `{image: a, adapter: ETS, disruptionBudget: {maxUnavailable: -1}}`,
			says: []string{"spec.disruptionBudget.maxUnavailable", "a number of pods from 0 on"},
		},
		{
			name: "more pods unavailable than can be counted",
			spec: `{image: a, adapter: ETS, disruptionBudget: {maxUnavailable: 1099511627776}}`,
			says: []string{"spec.disruptionBudget.maxUnavailable", "a number of pods from 0 on"},
		},
		{
			name: "a number in quotes unavailable",
			spec: `{image: a, adapter: ETS, disruptionBudget: {maxUnavailable: "1"}}`,
			says: []string{"spec.disruptionBudget.maxUnavailable", "for example 1 or '25%'"},
		},
		{
			name: "fewer than no pods in quotes unavailable",
			spec: `{image: a, adapter: ETS, disruptionBudget: {maxUnavailable: "-1"}}`,
			says: []string{"spec.disruptionBudget.maxUnavailable", "for example 1 or '25%'"},
		},
		{
			name: "some pods unavailable",
			spec: `{image: a, adapter: ETS, disruptionBudget: {maxUnavailable: x}}`,
			says: []string{"spec.disruptionBudget.maxUnavailable", "for example 1 or '25%'"},
		},
		{
			name: "external Redis with TLS as a word",
			spec: `{image: a, adapter: Redis, redis: {external: {host: redis, tls: true}}}`,
			says: []string{"spec.redis.external.tls", "must be of type object"},
		},
		{
			name: "external Redis with authorities and TLS off",
			spec: `{image: a, adapter: Redis, redis: {external: {host: redis, tls: {enabled: false}, caSecretRef: {name: ca, key: ca.crt}}}}`,
			says: []string{"spec.redis.external", "only read with tls.enabled: true"},
		},
		{
			name: "external Redis with TLS beside the URL",
			spec: `{image: a, adapter: Redis, redis: {external: {tls: {enabled: true}, urlSecretRef: {name: r, key: url}}}}`,
			says: []string{"spec.redis.external", "tls are only read with host"},
		},
		{
			name: "two variables of one name",
			spec: `{image: a, adapter: ETS, env: [{name: A, value: x}, {name: A, value: y}]}`,
			says: []string{"spec.env[1]", "Duplicate value"},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			refused(t, c.object, c.spec, c.says...)
		})
	}
}

func TestReservedEnvironmentIsRefused(t *testing.T) {
	for _, name := range []string{
		"LIVE_STASH_ADAPTER", "LIVE_STASH_TTL", "LIVE_STASH_REDIS_URL", "LIVE_STASH_REDIS_CACERTFILE", "PORT", "PHX_SERVER", "PHX_HOST", "SECRET_KEY_BASE",
		"RELEASE_COOKIE", "RELEASE_DISTRIBUTION", "RELEASE_NODE", "RELEASE_TMP", "LIBCLUSTER_SERVICE", "LIBCLUSTER_NAMESPACE",
		"LIBCLUSTER_APP", "CLUSTER_DOMAIN", "DNS_CLUSTER_QUERY", "POD_NAME", "POD_NAMESPACE", "POD_IP", "ERL_AFLAGS", "ERL_FULLSWEEP_AFTER",
	} {
		t.Run(name, func(t *testing.T) {
			refusal := apply(t, "", `{image: a, adapter: ETS, env: [{name: MINE, value: x}, {name: `+name+`, value: x}]}`)
			if refusal == nil {
				t.Fatal("it was accepted")
			}
			if !strings.Contains(refusal.Error(), "use the field of the spec that stands for it") {
				t.Errorf("the refusal does not say what to do:\n%v", refusal)
			}
		})
	}
}

func TestGoodClustersAreAccepted(t *testing.T) {
	cases := map[string]string{
		"the smallest":              `{image: a, adapter: ETS}`,
		"a name at its limit":       `{image: a, adapter: ETS}`,
		"a day in the browser":      `{image: a, adapter: BrowserMemory, ttl: 24h}`,
		"long ttl elsewhere":        `{image: a, adapter: Mnesia, ttl: 720h}`,
		"fractions":                 `{image: a, adapter: ETS, ttl: 1.5h}`,
		"no pods":                   `{image: a, adapter: None, replicas: 0}`,
		"redis":                     `{image: a, adapter: Redis}`,
		"empty redis":               `{image: a, adapter: Redis, redis: {}}`,
		"managed redis":             `{image: a, adapter: Redis, redis: {managed: {memory: 1Gi, persistence: {size: 2Gi}, password: {secretRef: {name: s, key: k}}}}}`,
		"operated redis":            `{image: a, adapter: Redis, redis: {operator: {replicas: 5, persistence: {storageClassName: fast}}}}`,
		"external redis by its URL": `{image: a, adapter: Redis, redis: {external: {urlSecretRef: {name: r, key: url}, caSecretRef: {name: r, key: ca}}}}`,
		"external redis":            `{image: a, adapter: Redis, redis: {external: {host: redis.example.com, port: 6380, database: 3, username: shop, passwordSecretRef: {name: r, key: p}, tls: {enabled: true}}}}`,
		"external redis on IPv6":    `{image: a, adapter: Redis, redis: {external: {host: "fd00::1"}}}`,
		"own cookie":                `{image: a, adapter: ETS, clustering: {cookie: {secretRef: {name: s, key: k}}}}`,
		"generated cookie":          `{image: a, adapter: ETS, clustering: {cookie: {generate: true}}}`,
		"a sidecar":                 `{image: a, adapter: ETS, podTemplate: {spec: {nodeSelector: {disk: ssd}, containers: [{name: log, image: b}, {name: app, lifecycle: {}}]}}}`,
		"TLS":                       `{image: a, adapter: ETS, clustering: {tls: {enabled: true}}}`,
		"TLS of a ClusterIssuer":    `{image: a, adapter: ETS, clustering: {tls: {enabled: true, issuerRef: {name: ca, kind: ClusterIssuer}}}}`,
		"TLS of another issuer":     `{image: a, adapter: ETS, clustering: {tls: {enabled: true, issuerRef: {name: ca, kind: AWSPCAIssuer, group: awspca.cert-manager.io}}}}`,
		"no agent":                  `{image: a, adapter: ETS, agent: {enabled: false}}`,
		"no agent, no PodMonitor":   `{image: a, adapter: ETS, agent: {enabled: false}, monitoring: {podMonitor: {labels: {a: b}}}}`,
		"a PodMonitor":              `{image: a, adapter: ETS, monitoring: {podMonitor: {enabled: true, interval: 1m30s}}}`,
		"external redis, TLS off":   `{image: a, adapter: Redis, redis: {external: {host: redis, tls: {enabled: false}}}}`,
		"external redis, own CA":    `{image: a, adapter: Redis, redis: {external: {host: redis, tls: {enabled: true}, caSecretRef: {name: ca, key: ca.crt}}}}`,
		"a word for Redis":          `{image: a, adapter: ETS, acceptLossOf: Redis}`,
		"upgraded immediately":      `{image: a, adapter: ETS, upgrade: Immediately}`,
		"upgraded with a rollout":   `{image: a, adapter: ETS, upgrade: WithNextRollout}`,
		"a surge by itself":         `{image: a, adapter: ETS, rollout: {surge: Auto}}`,
		"a surge always":            `{image: a, adapter: ETS, rollout: {surge: Always}}`,
		"no surge":                  `{image: a, adapter: ETS, replicas: 1, rollout: {surge: Never}}`,
		"configuration is ignored":  `{image: a, adapter: ETS, rollout: {configChanges: Ignore}}`,
		"before a rollout":          `{image: a, adapter: ETS, rollout: {before: {command: [migrate]}}}`,
		"before a rollout, in full": `{image: a, adapter: ETS, rollout: {before: {command: [/app/bin/shop, eval], args: ["Shop.Release.migrate()"], env: [{name: POOL_SIZE, value: "2"}], resources: {limits: {memory: 256Mi}}, deadline: 1h30m, retries: 3}}}`,
		"users anywhere":            `{image: a, adapter: ETS, rollout: {maxLoadFactor: "1"}}`,
		"a pod that stays":          `{image: a, adapter: ETS, replicas: 1, rollout: {surge: Stays, maxLoadFactor: "2.5", canary: {}}}`,
		"a paused rollout":          `{image: a, adapter: ETS, rollout: {paused: true}}`,
		"a canary by itself":        `{image: a, adapter: ETS, rollout: {canary: {}}}`,
		"a canary of one replica":   `{image: a, adapter: ETS, replicas: 1, rollout: {canary: {}}}`,
		"a canary of no replicas":   `{image: a, adapter: ETS, replicas: 0, rollout: {canary: {pods: 1}}}`,
		"a canary of half the pods": `{image: a, adapter: ETS, replicas: 6, rollout: {canary: {pods: 3, duration: 1h30m, minRecovered: "0", maxCrashes: 2}}}`,
		"a week for hidden tabs":    `{image: a, adapter: ETS, drain: {keepFor: 168h, keepBytes: 2Gi}}`,
		"nothing for hidden tabs":   `{image: a, adapter: ETS, drain: {keepFor: 0s, keepBytes: 0}}`,
		"stashes through no proxy":  `{image: a, adapter: BrowserMemory, browserMemory: {maxStashBytes: 9500}}`,
		"a quarter unavailable":     `{image: a, adapter: ETS, disruptionBudget: {maxUnavailable: "25%"}}`,
		"all unavailable":           `{image: a, adapter: ETS, disruptionBudget: {maxUnavailable: "100%"}}`,
		"none unavailable":          `{image: a, adapter: ETS, disruptionBudget: {maxUnavailable: 0}}`,
		"three unavailable":         `{image: a, adapter: ETS, disruptionBudget: {maxUnavailable: 3}}`,
		"a distribution port below": `{image: a, adapter: ETS, clustering: {distributionPort: 4359}}`,
	}
	for name, spec := range cases {
		t.Run(name, func(t *testing.T) {
			object := ""
			if name == "a name at its limit" {
				object = strings.Repeat("a", 45)
			}
			if refusal := apply(t, object, spec); refusal != nil {
				t.Errorf("it was refused:\n%v", refusal)
			}
		})
	}
}

// Nodes with and without TLS, or with certificates of two issuers, cannot talk to each other.
func TestTLSChangesOnlyWithoutPods(t *testing.T) {
	const plain, tls = `{}`, `{tls: {enabled: true}}`
	const issued, issuedByOther = `{tls: {enabled: true, issuerRef: {name: a}}}`, `{tls: {enabled: true, issuerRef: {name: b}}}`
	cases := map[string]struct {
		replicas, clustering       string
		newReplicas, newClustering string
		refused                    bool
	}{
		"on while pods run":                {"3", plain, "3", tls, true},
		"off while pods run":               {"3", tls, "3", plain, true},
		"an issuer while pods run":         {"3", tls, "3", issued, true},
		"another issuer while pods run":    {"3", issued, "3", issuedByOther, true},
		"on while scaling":                 {"3", plain, "2", tls, true},
		"on when scaling to zero":          {"3", plain, "0", tls, false},
		"on when scaling from zero":        {"0", plain, "3", tls, false},
		"off at zero":                      {"0", tls, "0", plain, false},
		"another issuer when back from it": {"0", issued, "3", issuedByOther, false},
		"scaling with TLS":                 {"3", tls, "5", tls, false},
		"another change with TLS":          {"3", tls, "3", `{tls: {enabled: true}, distributionPort: 9200}`, false},
	}
	spec := func(replicas, clustering string) string {
		return "{image: a, adapter: ETS, replicas: " + replicas + ", clustering: " + clustering + "}"
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			created, err := clusters.Create(t.Context(), clusterObject(t, "tls", spec(c.replicas, c.clustering)), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = clusters.Delete(context.Background(), "tls", metav1.DeleteOptions{}) }()

			changed := clusterObject(t, "tls", spec(c.newReplicas, c.newClustering))
			changed.SetResourceVersion(created.GetResourceVersion())
			_, err = clusters.Update(t.Context(), changed, metav1.UpdateOptions{})
			if !c.refused && err != nil {
				t.Errorf("it was refused: %v", err)
			}
			if c.refused && (err == nil || !strings.Contains(err.Error(), "scale to 0 replicas first")) {
				t.Errorf("Update = %v, want a refusal that says what to do", err)
			}
		})
	}
}

// What exists for a store cannot be changed in every way.
func TestRedisChanges(t *testing.T) {
	cases := map[string]struct{ before, after, says string }{
		"another mode of redis-operator":           {`{operator: {}}`, `{operator: {mode: Standalone}}`, "make a new LiveStashCluster"},
		"a volume for redis-operator":              {`{operator: {}}`, `{operator: {persistence: {}}}`, "persistence cannot be added or removed"},
		"another StorageClass":                     {`{managed: {persistence: {storageClassName: a}}}`, `{managed: {persistence: {storageClassName: b}}}`, "storageClassName cannot change"},
		"the default StorageClass":                 {`{managed: {persistence: {storageClassName: a}}}`, `{managed: {persistence: {}}}`, "storageClassName cannot change"},
		"a smaller volume, of which there is none": {`{managed: {persistence: {size: 2Gi}}}`, `{managed: {persistence: {size: 2000Mi}}}`, ""},
		"a smaller volume for redis-operator":      {`{operator: {persistence: {size: 2Gi}}}`, `{operator: {persistence: {size: 1Gi}}}`, "size cannot become smaller"},
		"a larger volume":                          {`{managed: {persistence: {size: 2Gi}}}`, `{managed: {persistence: {size: 3Gi}}}`, ""},
		"no volume":                                {`{managed: {persistence: {}}}`, `{managed: {}}`, ""},
		"another store":                            {`{managed: {persistence: {}}}`, `{external: {host: redis}}`, ""},
	}
	spec := func(redis string) string { return "{image: a, adapter: Redis, redis: " + redis + "}" }
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			created, err := clusters.Create(t.Context(), clusterObject(t, "redis", spec(c.before)), metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = clusters.Delete(context.Background(), "redis", metav1.DeleteOptions{}) }()

			changed := clusterObject(t, "redis", spec(c.after))
			changed.SetResourceVersion(created.GetResourceVersion())
			_, err = clusters.Update(t.Context(), changed, metav1.UpdateOptions{})
			switch {
			case c.says == "" && err != nil:
				t.Errorf("it was refused: %v", err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("Update = %v, want a refusal that says %q", err, c.says)
			}
		})
	}
}

func TestPodTemplateIsKeptWhole(t *testing.T) {
	spec := `{image: a, adapter: ETS, podTemplate: {spec: {priorityClassName: gold, containers: [{name: app, lifecycle: {preStop: {sleep: {seconds: 3}}}}]}}}`
	object := clusterObject(t, "kept", spec)
	created, err := clusters.Create(context.Background(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	want, _, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "podTemplate", "spec", "priorityClassName")
	got, found, err := unstructured.NestedString(created.Object, "spec", "podTemplate", "spec", "priorityClassName")
	if err != nil || !found || got != want {
		t.Errorf("priorityClassName = %q, %v, %v", got, found, err)
	}
	containers, _, _ := unstructured.NestedSlice(created.Object, "spec", "podTemplate", "spec", "containers")
	if len(containers) != 1 || containers[0].(map[string]any)["lifecycle"] == nil {
		t.Errorf("the container's lifecycle is gone: %v", containers)
	}
}

func TestDefaults(t *testing.T) {
	created, err := clusters.Create(t.Context(), clusterObject(t, "", `{image: a, adapter: ETS, rollout: {}}`), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		t.Fatal(err)
	}
	if surge, _, _ := unstructured.NestedString(created.Object, "spec", "rollout", "surge"); surge != "Stays" {
		t.Errorf("surge is %q", surge)
	}
	if most, _, _ := unstructured.NestedInt64(created.Object, "spec", "disruptionBudget", "maxUnavailable"); most != 1 {
		t.Errorf("maxUnavailable is %d", most)
	}
}

// An autoscaler may lower the replicas below what a canary asks for; who changes the canary is told.
func TestCanaryAndReplicas(t *testing.T) {
	made, err := clusters.Create(t.Context(), clusterObject(t, "canary", `{image: a, adapter: ETS, replicas: 4, rollout: {canary: {pods: 3}}}`), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = clusters.Delete(context.Background(), made.GetName(), metav1.DeleteOptions{}) })
	made.Object["status"] = map[string]any{"replicas": int64(4)}
	if made, err = clusters.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change string
		says   string
	}{
		{change: `{"spec":{"replicas":2}}`},
		{change: `{"spec":{"rollout":{"canary":{"duration":"1m"}}}}`},
		{change: `{"spec":{"rollout":{"canary":{"pods":2}}}}`, says: "must be less than replicas"},
		{change: `{"spec":{"rollout":{"canary":{"pods":1}}}}`},
	} {
		_, err := clusters.Patch(t.Context(), made.GetName(), types.MergePatchType, []byte(c.change), metav1.PatchOptions{})
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", c.change, err)
		}
	}
}

// apply tries to create a LiveStashCluster and returns the API server's refusal.
func apply(t *testing.T, name, spec string) error {
	t.Helper()
	_, err := clusters.Create(context.Background(), clusterObject(t, name, spec), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func clusterObject(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	return objectOf(t, "LiveStashCluster", name, spec)
}

// objectOf is an object of this API. It is named shop unless it has another name.
func objectOf(t *testing.T, kind, name, spec string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{Object: map[string]any{}}
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(spec), &fields); err != nil {
		t.Fatal(err)
	}
	object.SetAPIVersion("livestash.dev/v1alpha1")
	object.SetKind(kind)
	object.SetName(cmp.Or(name, "shop"))
	object.Object["spec"] = fields
	return object
}
