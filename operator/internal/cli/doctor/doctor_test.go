package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// healthy is a fleet with which nothing is wrong, and everything is there that checks look at.
func healthy(t *testing.T) *Facts {
	t.Helper()
	c := &v1alpha1.LiveStashCluster{}
	parse(t, `
metadata: {name: shop, namespace: web}
spec:
  image: ghcr.io/acme/shop:1.4.2
  replicas: 2
  adapter: ETS
  ttl: 5m
  http: {port: 4000, host: shop.example.com, service: {port: 80}}
  clustering: {distributionPort: 9100}
  agent: {enabled: true, port: 9568}
  drain: {keepFor: 1h, keepBytes: 256Mi}
  resources: {requests: {memory: 256Mi}, limits: {memory: 1Gi}}
  imagePullSecrets: [{name: registry}]
  secretKeyBase: {secretRef: {name: shop-env, key: SECRET_KEY_BASE}}
  envFrom: [{secretRef: {name: shop-env}}]
`, c)
	ingress := networkingv1.Ingress{}
	parse(t, `
metadata: {name: shop}
spec:
  rules: [{host: shop.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: shop, port: {name: http}}}}]}}]
`, &ingress)
	return &Facts{
		Cluster: c,
		Objects: map[string]Object{
			"Secret registry": {Exists: true, Type: corev1.SecretTypeDockerConfigJson, Keys: map[string]Value{".dockerconfigjson": {Bytes: 99}}},
			"Secret shop-env": {Exists: true, Keys: map[string]Value{"SECRET_KEY_BASE": {Bytes: 64}, "DATABASE_URL": {Bytes: 40}}},
		},
		Pods: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "shop-0"}}, {ObjectMeta: metav1.ObjectMeta{Name: "shop-1"}}},
		Agents: map[string]agentclient.Status{
			"shop-0": {Node: "shop@shop-0.shop-nodes.web.svc.cluster.local", Adapter: "ets", Store: agentclient.Store{Ready: true}, StashBytes: 1 << 20},
			"shop-1": {Node: "shop@shop-1.shop-nodes.web.svc.cluster.local", Adapter: "ets", Store: agentclient.Store{Ready: true}, StashBytes: 1 << 20},
		},
		Logs: map[string][]string{"shop-0": {
			"12:00:00.000 [info] Running ShopWeb.Endpoint with Bandit 1.5.7 at :::4000 (http)", "12:00:00.001 [notice] livestash agent: draining: 2 stashes on this node, 1 peers connected.",
		}},
		Ingresses: []networkingv1.Ingress{ingress},
		Nodes:     []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"disk": "ssd"}}}},
		Classes:   []storagev1.StorageClass{{ObjectMeta: metav1.ObjectMeta{Name: "fast"}}},
		Kinds:     map[string]bool{"cert-manager.io": false, "redis.redis.opstreelabs.in": false, "monitoring.coreos.com": false},
		Budgets: []policyv1.PodDisruptionBudget{{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{render.ClusterLabel: "shop"}},
			Spec: policyv1.PodDisruptionBudgetSpec{Selector: render.Selector(c)}}},
		Autoscalers: []autoscalingv2.HorizontalPodAutoscaler{{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "LiveStashCluster", Name: "shop"}}}},
		Policies: []networkingv1.NetworkPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *render.Selector(c), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		}}},
		Quotas: []corev1.ResourceQuota{{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Status: corev1.ResourceQuotaStatus{
			Hard: corev1.ResourceList{"pods": resource.MustParse("4"), "requests.memory": resource.MustParse("1Gi")},
			Used: corev1.ResourceList{"pods": resource.MustParse("2"), "requests.memory": resource.MustParse("512Mi")},
		}}},
	}
}

func parse(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

func TestHealthy(t *testing.T) {
	if diff := cmp.Diff([]Finding{}, Examine(healthy(t))); diff != "" {
		t.Error(diff)
	}
}

// Each misconfiguration is found alone, and what is found names what to change.
func TestSeeded(t *testing.T) {
	log := func(line string) func(*Facts) {
		return func(f *Facts) { f.Logs["shop-1"] = append(f.Logs["shop-1"], line) }
	}
	node := func(name string) func(*Facts) {
		return func(f *Facts) {
			f.Agents["shop-1"] = agentclient.Status{Node: name, Adapter: "ets", Store: agentclient.Store{Ready: true}}
		}
	}
	for _, tc := range []struct {
		name  string
		seed  func(*Facts)
		check string
		want  Severity
		// wrong and change are parts of the sentences.
		wrong, change string
	}{
		{"a spec that the API server refuses", func(f *Facts) { f.Refused = "spec.ttl: must be a duration" }, "spec-refused", Broken, "spec.ttl", "the field"},
		{"a Secret that is not there", func(f *Facts) {
			f.Cluster.Spec.SecretKeyBase.SecretRef.Name = "other"
			f.Objects["Secret other"] = Object{}
			delete(f.Objects["Secret shop-env"].Keys, "SECRET_KEY_BASE")
		}, "secret-missing", Broken, "Secret other", "Create it with the key SECRET_KEY_BASE"},
		{"a key that the Secret has not", func(f *Facts) {
			f.Cluster.Spec.SecretKeyBase.SecretRef.Key = "secret"
			delete(f.Objects["Secret shop-env"].Keys, "SECRET_KEY_BASE")
		}, "secret-missing", Broken, "no key secret", "Add the key secret"},
		{"a value that ends with a line break", func(f *Facts) {
			f.Objects["Secret shop-env"].Keys["SECRET_KEY_BASE"] = valueOf([]byte(strings.Repeat("x", 64) + "\n"))
		},
			"secret-value", Broken, "ends with a line break", "printf"},
		{"a SECRET_KEY_BASE that is too short", func(f *Facts) { f.Objects["Secret shop-env"].Keys["SECRET_KEY_BASE"] = valueOf([]byte("short")) },
			"secret-value", Broken, "has 5 bytes", "mix phx.gen.secret"},
		{"a ConfigMap that is not there", func(f *Facts) {
			f.Cluster.Spec.EnvFrom = append(f.Cluster.Spec.EnvFrom, corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}})
			f.Objects["ConfigMap settings"] = Object{}
		}, "reference-missing", Broken, "ConfigMap settings", "Create it"},
		{"a key of a variable that is not there", func(f *Facts) {
			f.Cluster.Spec.Env = []corev1.EnvVar{{Name: "MAIL_KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "shop-env"}, Key: "MAIL"}}}}
		}, "reference-missing", Broken, "the key MAIL of the Secret shop-env", "Add the key"},
		{"no pull secret", func(f *Facts) { f.Objects["Secret registry"] = Object{} }, "pull-secret", Broken, "Secret registry", "create secret docker-registry registry"},
		{"a pull secret of another type", func(f *Facts) { f.Objects["Secret registry"] = Object{Exists: true, Type: corev1.SecretTypeOpaque} }, "pull-secret", Broken, "the type Opaque", "docker-registry"},
		{"a SECRET_KEY_BASE that has no effect", func(f *Facts) { f.Cluster.Spec.SecretKeyBase = nil }, "contract-variable", Risky, "SECRET_KEY_BASE, which has no effect", "spec.secretKeyBase.secretRef"},
		{"dns_cluster is switched on", func(f *Facts) { f.Objects["Secret shop-env"].Keys["DNS_CLUSTER_QUERY"] = Value{Bytes: 9} }, "contract-variable", Broken, "starts dns_cluster", "Remove the key"},
		{"the tag latest", func(f *Facts) { f.Cluster.Spec.Image = "localhost:5000/shop:latest" }, "tag-moves", Risky, "no fixed tag", "spec.image"},
		{"no tag", func(f *Facts) { f.Cluster.Spec.Image = "localhost:5000/shop" }, "tag-moves", Risky, "no fixed tag", "spec.image"},
		{"no host behind an Ingress", func(f *Facts) { f.Cluster.Spec.HTTP.Host = "" }, "host", Broken, "check_origin", "spec.http.host: shop.example.com"},
		{"another host than the Ingress's", func(f *Facts) { f.Cluster.Spec.HTTP.Host = "www.example.com" }, "host", Broken, "Ingress shop serves the fleet as shop.example.com", "spec.http.host: shop.example.com"},
		{"an Ingress to another port", func(f *Facts) { backend(f).Port = networkingv1.ServiceBackendPort{Number: 4000} }, "ingress-backend", Broken, "port 4000", "port 80"},
		{"an Ingress to the headless Service", func(f *Facts) { backend(f).Name = "shop-nodes" }, "ingress-backend", Broken, "shop-nodes", "Service shop"},
		{"a proxy that cuts idle sockets", func(f *Facts) {
			f.Ingresses[0].Annotations = map[string]string{"nginx.ingress.kubernetes.io/proxy-read-timeout": "15"}
		}, "proxy-timeout", Risky, "15s", "proxy-read-timeout to 60 seconds or more"},
		{"a route that ends requests", func(f *Facts) {
			f.Routes = []unstructured.Unstructured{route(t, `{hostnames: [shop.example.com], rules: [{timeouts: {request: 10s}, backendRefs: [{name: shop, port: 80}]}]}`)}
		}, "proxy-timeout", Risky, "timeouts.request", "timeouts.request to 0s"},
		{"a route to another port", func(f *Facts) {
			f.Routes = []unstructured.Unstructured{route(t, `{hostnames: ["*.example.com"], rules: [{backendRefs: [{name: shop, port: 4000}]}]}`)}
		}, "ingress-backend", Broken, "HTTPRoute shop names the port 4000", "port 80"},
		{"a quota without room for the pods", func(f *Facts) { f.Cluster.Spec.Replicas = ptr.To[int32](5) }, "quota", Broken, "3 pods more (pods, requests.memory)", "Raise the quota"},
		{"a quota without room for a rollout", func(f *Facts) {
			f.Cluster.Spec.Rollout.Surge = v1alpha1.SurgeStays
			f.Quotas[0].Status.Hard["requests.memory"] = resource.MustParse("600Mi")
		}, "quota", Broken, "1 pod more (requests.memory)", "Raise the quota"},
		{"less memory than a pod may keep", func(f *Facts) { f.Cluster.Spec.Resources.Limits["memory"] = resource.MustParse("300Mi") }, "memory-limit", Risky, "300Mi", "384Mi or more"},
		{"no memory for the stashes of a pod that goes", func(f *Facts) {
			f.Agents["shop-1"] = agentclient.Status{Node: f.Agents["shop-1"].Node, Adapter: "ets", Store: agentclient.Store{Ready: true}, StashBytes: 700 << 20}
		}, "memory-limit", Risky, "701 MiB", "spec.replicas"},
		{"one pod that nobody stands in for", func(f *Facts) {
			f.Cluster.Spec.Replicas, f.Cluster.Spec.Rollout.Surge = ptr.To[int32](1), v1alpha1.SurgeNever
		}, "no-peer", Broken, "an outage", "surge: Auto"},
		{"no agent", func(f *Facts) { f.Cluster.Spec.Agent.Enabled = ptr.To(false) }, "agent-off", Broken, "adapter ETS", "Remove spec.agent.enabled"},
		{"a short TTL in the browser", func(f *Facts) {
			f.Cluster.Spec.Adapter = v1alpha1.AdapterBrowserMemory
			f.Agents = nil
		}, "ttl", Risky, "300s", "12h"},
		{"a selector that no node has", func(f *Facts) {
			f.Cluster.Spec.PodTemplate = &v1alpha1.PodTemplateOverride{}
			parse(t, `{nodeSelector: {disk: nvme}}`, &f.Cluster.Spec.PodTemplate.Spec)
		}, "spread", Broken, "disk=nvme", "Label a node"},
		{"no default StorageClass", func(f *Facts) {
			f.Cluster.Spec.Redis = &v1alpha1.RedisSpec{Managed: &v1alpha1.ManagedRedis{Persistence: &v1alpha1.RedisPersistence{}}}
		}, "storage-class", Broken, "default one", "storageClassName"},
		{"no cert-manager", func(f *Facts) { f.Cluster.Spec.Clustering.TLS.IssuerRef = &v1alpha1.IssuerReference{Name: "ca"} }, "operator-missing", Broken, "cert-manager", "remove issuerRef"},
		{"an autoscaler of the StatefulSet", func(f *Facts) { f.Autoscalers[0].Spec.ScaleTargetRef.Kind = "StatefulSet" }, "autoscaler", Broken, "scales the StatefulSet", "kind LiveStashCluster, name shop"},
		{"a second disruption budget", func(f *Facts) {
			f.Budgets = append(f.Budgets, policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: render.Selector(f.Cluster)}})
		}, "disruption-budget", Broken, "PodDisruptionBudget own", "Delete it"},
		{"a policy that lets nothing out", func(f *Facts) {
			f.Policies = append(f.Policies, networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "deny"}, Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}}})
		}, "egress", Broken, "NetworkPolicy deny", "9100 to 9109"},
		{"env.sh names the node", node("shop@10.1.2.3"), "node-name", Broken, "shop@10.1.2.3", "Remove RELEASE_NODE from rel/env.sh.eex"},
		{"env.sh turns distribution off", node("nonode@nohost"), "node-name", Broken, "no BEAM node", "RELEASE_DISTRIBUTION"},
		{"the adapter does not run", func(f *Facts) {
			f.Agents["shop-1"] = agentclient.Status{Node: f.Agents["shop-1"].Node, Adapter: "ets", Store: agentclient.Store{Reason: "the ETS table is missing."}}
		}, "adapter", Broken, "the ETS table is missing", "config/runtime.exs"},
		{"dns_cluster without distribution", log("[warning] node not running in distributed mode. Ensure the following exports are set in your rel/env.sh.eex file:"), "log", Broken, "dns_cluster", "rel/env.sh.eex"},
		{"dns_cluster looks for addresses", log(`[warning] [dns_cluster] unable to connect to :"shop@10.1.2.3"`), "log", Broken, "IP addresses", "Remove {DNSCluster, ...}"},
		{"another cookie", log("[error] ** Connection attempt from node :\"shop@x\" rejected. Invalid challenge reply. **"), "log", Broken, "another cookie", "RELEASE_COOKIE"},
		{"an origin that is refused", log("[error] Could not check origin for Phoenix.Socket transport."), "log", Broken, "origin", "spec.http.host"},
		{"a variable that is missing", log("** (RuntimeError) environment variable DATABASE_URL is missing."), "log", Broken, "DATABASE_URL", "Set DATABASE_URL in spec.env"},
		{"another port", log("[info] Running ShopWeb.Endpoint with cowboy 2.12.0 at :::4001 (http)"), "log", Broken, "port 4001", "PORT"},
		{"this machine alone", log("[info] Running ShopWeb.Endpoint with Bandit 1.5.7 at 127.0.0.1:4000 (http)"), "log", Broken, "127.0.0.1", "0, 0, 0, 0"},
		{"a port that is taken", log("[error] Failed to start Ranch listener: :eaddrinuse"), "log", Broken, "is taken", "spec.agent.port"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			facts := healthy(t)
			tc.seed(facts)
			found := Examine(facts)
			if len(found) != 1 {
				t.Fatalf("%d findings: %+v", len(found), found)
			}
			got := found[0]
			if got.Check != tc.check || got.Severity != tc.want || !strings.Contains(got.Wrong, tc.wrong) || !strings.Contains(got.Change, tc.change) {
				t.Errorf("found %+v", got)
			}
		})
	}
}

func backend(f *Facts) *networkingv1.IngressServiceBackend {
	return f.Ingresses[0].Spec.Rules[0].HTTP.Paths[0].Backend.Service
}

func route(t *testing.T, spec string) unstructured.Unstructured {
	t.Helper()
	object := unstructured.Unstructured{}
	var fields map[string]any
	parse(t, spec, &fields)
	text, err := yaml.Marshal(map[string]any{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": map[string]any{"name": "shop"}, "spec": fields})
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := object.UnmarshalJSON(asJSON); err != nil {
		t.Fatal(err)
	}
	return object
}

// What may not be read is no finding.
func TestUnread(t *testing.T) {
	facts := healthy(t)
	*facts = Facts{Cluster: facts.Cluster, Pods: facts.Pods}
	if found := Examine(facts); len(found) != 0 {
		t.Error(found)
	}
}

func TestValues(t *testing.T) {
	for text, want := range map[string]Value{"a": {Bytes: 1}, "a\n": {Bytes: 2, Break: true}, "a\r\n": {Bytes: 3, Break: true, Control: true}, "a\nb": {Bytes: 3, Control: true}, "": {}} {
		if diff := cmp.Diff(want, valueOf([]byte(text))); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"60": time.Minute, "5s": 5 * time.Second, "": -1, "soon": -1} {
		got, is := duration(text)
		if is != (want >= 0) || is && got != want {
			t.Errorf("%q: %v %v", text, got, is)
		}
	}
}
