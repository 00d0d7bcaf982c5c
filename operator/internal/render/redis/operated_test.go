package redis

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

// operated is a fleet with a Redis of redis-operator, with the defaults that the API server sets.
func operated(t *testing.T, redis v1alpha1.OperatedRedis) *v1alpha1.LiveStashCluster {
	t.Helper()
	redis.Image, redis.SentinelImage = "redis:8", "redis-sentinel:8"
	if redis.Mode == "" {
		redis.Mode = v1alpha1.RedisReplication
	}
	return rendertest.WithRedis(t, v1alpha1.RedisSpec{Operator: &redis})
}

// everythingOperated sets each field.
func everythingOperated(t *testing.T) *v1alpha1.LiveStashCluster {
	t.Helper()
	cluster := operated(t, v1alpha1.OperatedRedis{
		Replicas:    ptr.To[int32](5),
		Memory:      ptr.To(resource.MustParse("1Gi")),
		Persistence: &v1alpha1.RedisPersistence{Size: ptr.To(resource.MustParse("2Gi")), StorageClassName: ptr.To("fast")},
		RedisScheduling: v1alpha1.RedisScheduling{
			NodeSelector:      map[string]string{"disk": "ssd"},
			Tolerations:       []corev1.Toleration{{Key: "only", Operator: corev1.TolerationOpEqual, Value: "redis", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](60)}},
			PriorityClassName: "high",
		},
	})
	cluster.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	return cluster
}

func TestOperated(t *testing.T) {
	cases := map[string]struct {
		cluster *v1alpha1.LiveStashCluster
		kind    string
		want    string
	}{
		"standalone": {operated(t, v1alpha1.OperatedRedis{Mode: v1alpha1.RedisStandalone}), "Redis", standaloneSpec},
		"everything": {everythingOperated(t), "RedisReplication", everythingSpec},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			object := Operated(c.cluster)
			if kind := object.GetKind(); kind != c.kind {
				t.Errorf("kind = %s, want %s", kind, c.kind)
			}
			got, err := yaml.Marshal(object.Object["spec"])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("the spec (-want +got):\n%s", diff)
			}
			if !metav1.IsControlledBy(object, c.cluster) {
				t.Error("it is not deleted with the LiveStashCluster")
			}
		})
	}
}

const standaloneSpec = `initContainer:
  enabled: false
  image: redis:8
  securityContext:
    allowPrivilegeEscalation: false
    capabilities:
      drop:
      - ALL
kubernetesConfig:
  ignoreAnnotations:
  - livestash.dev/applied
  image: redis:8
  redisSecret:
    key: password
    name: shop-redis
  resources:
    limits:
      memory: 512Mi
    requests:
      cpu: 100m
      memory: 512Mi
livenessProbe:
  failureThreshold: 6
  periodSeconds: 10
  tcpSocket:
    port: 6379
  timeoutSeconds: 5
podSecurityContext:
  fsGroup: 1000
  runAsGroup: 1000
  runAsNonRoot: true
  runAsUser: 1000
  seccompProfile:
    type: RuntimeDefault
readinessProbe:
  failureThreshold: 2
  periodSeconds: 5
  timeoutSeconds: 3
redisConfig:
  additionalRedisConfig: shop-redis-op
securityContext:
  allowPrivilegeEscalation: false
  capabilities:
    drop:
    - ALL
serviceAccountName: shop
storage:
  volumeMount:
    mountPath:
    - mountPath: /data
      name: data
    volume:
    - emptyDir: {}
      name: data
`

const everythingSpec = `clusterSize: 5
initContainer:
  enabled: false
  image: redis:8
  securityContext:
    allowPrivilegeEscalation: false
    capabilities:
      drop:
      - ALL
kubernetesConfig:
  ignoreAnnotations:
  - livestash.dev/applied
  image: redis:8
  imagePullSecrets:
  - name: registry
  redisSecret:
    key: password
    name: shop-redis
  resources:
    limits:
      memory: 1Gi
    requests:
      cpu: 100m
      memory: 1Gi
livenessProbe:
  failureThreshold: 6
  periodSeconds: 10
  tcpSocket:
    port: 6379
  timeoutSeconds: 5
nodeSelector:
  disk: ssd
pdb:
  enabled: true
  maxUnavailable: 1
podSecurityContext:
  fsGroup: 1000
  runAsGroup: 1000
  runAsNonRoot: true
  runAsUser: 1000
  seccompProfile:
    type: RuntimeDefault
priorityClassName: high
readinessProbe:
  failureThreshold: 2
  periodSeconds: 5
  timeoutSeconds: 3
redisConfig:
  additionalRedisConfig: shop-redis-op
securityContext:
  allowPrivilegeEscalation: false
  capabilities:
    drop:
    - ALL
sentinel:
  image: redis-sentinel:8
  imagePullSecrets:
  - name: registry
  nodeSelector:
    disk: ssd
  podSecurityContext:
    fsGroup: 1000
    runAsGroup: 1000
    runAsNonRoot: true
    runAsUser: 1000
    seccompProfile:
      type: RuntimeDefault
  priorityClassName: high
  resources:
    limits:
      memory: 64Mi
    requests:
      cpu: 20m
      memory: 64Mi
  securityContext:
    allowPrivilegeEscalation: false
    capabilities:
      drop:
      - ALL
  serviceAccountName: shop
  size: 5
  tolerations:
  - effect: NoExecute
    key: only
    operator: Equal
    tolerationSeconds: 60
    value: redis
  topologySpreadConstraints:
  - labelSelector:
      matchLabels:
        app: shop-redis-op-s
        livestash.dev/cluster: shop
    maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
  - labelSelector:
      matchLabels:
        app: shop-redis-op-s
        livestash.dev/cluster: shop
    maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
serviceAccountName: shop
storage:
  volumeClaimTemplate:
    spec:
      accessModes:
      - ReadWriteOnce
      resources:
        requests:
          storage: 2Gi
      storageClassName: fast
tolerations:
- effect: NoExecute
  key: only
  operator: Equal
  tolerationSeconds: 60
  value: redis
topologySpreadConstraints:
- labelSelector:
    matchLabels:
      app: shop-redis-op
      livestash.dev/cluster: shop
  maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
- labelSelector:
    matchLabels:
      app: shop-redis-op
      livestash.dev/cluster: shop
  maxSkew: 1
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: ScheduleAnyway
`

func TestOperatedConfig(t *testing.T) {
	const wantReplicas = "min-replicas-to-write 1"
	replication := OperatedConfig(operated(t, v1alpha1.OperatedRedis{})).Data[operatedConfigFile]
	for _, want := range []string{"maxmemory 402653184", "maxmemory-policy volatile-ttl", "appendonly yes", wantReplicas} {
		if !strings.Contains(replication, want+"\n") {
			t.Errorf("the configuration has no %q:\n%s", want, replication)
		}
	}
	standalone := OperatedConfig(operated(t, v1alpha1.OperatedRedis{Mode: v1alpha1.RedisStandalone})).Data[operatedConfigFile]
	if strings.Contains(standalone, "min-replicas") {
		t.Error("a server without replicas refuses to be written to")
	}
}

func TestNothingIsAskedOfRedisOperatorForAnotherStore(t *testing.T) {
	for name, cluster := range map[string]*v1alpha1.LiveStashCluster{
		"managed":         rendertest.WithRedis(t, v1alpha1.RedisSpec{}),
		"another adapter": rendertest.Cluster(t, "smallest"),
	} {
		if object, config := Operated(cluster), OperatedConfig(cluster); object != nil || config != nil {
			t.Errorf("%s: %v, %v", name, object, config)
		}
	}
}

// redis-operator gives pods the labels of the custom resource and two of its own.
func TestPodsOfRedisOperatorAreNobodyElses(t *testing.T) {
	cluster := operated(t, v1alpha1.OperatedRedis{})
	pods := labels.Set(Operated(cluster).GetLabels())
	if selects(t, render.Selector(cluster), pods) {
		t.Errorf("the fleet's selector takes pods with the labels %v", pods)
	}
	if managed := (&metav1.LabelSelector{MatchLabels: selectorLabels(cluster)}); selects(t, managed, pods) {
		t.Errorf("the selector of the Redis that this operator runs takes pods with the labels %v", pods)
	}
	if pods[render.ComponentLabel] != render.RedisComponent || pods[render.ClusterLabel] != "shop" {
		t.Errorf("nobody can tell from the labels %v whose Redis it is", pods)
	}
}

// What is in an annotation restarts the pods of Redis, and what is in a label cannot change.
func TestWhatRestartsTheRedisOfRedisOperator(t *testing.T) {
	base := operated(t, v1alpha1.OperatedRedis{})
	size := operated(t, v1alpha1.OperatedRedis{Replicas: ptr.To[int32](5)})
	memory := operated(t, v1alpha1.OperatedRedis{Memory: ptr.To(resource.MustParse("1Gi"))})
	if diff := cmp.Diff(Operated(base).GetAnnotations(), Operated(size).GetAnnotations()); diff != "" {
		t.Errorf("more replicas restart those that are there:\n%s", diff)
	}
	if cmp.Equal(Operated(base).GetAnnotations(), Operated(memory).GetAnnotations()) {
		t.Error("another configuration does not restart Redis")
	}
	if diff := cmp.Diff(Operated(base).GetLabels(), Operated(memory).GetLabels()); diff != "" {
		t.Errorf("labels change with the spec:\n%s", diff)
	}
}

// The schemas are not the project's to keep: CRDS names a folder that has them.
func TestRedisOperatorKnowsWhatItIsAskedFor(t *testing.T) {
	folder := os.Getenv("CRDS")
	if folder == "" {
		t.Skip("set CRDS to a folder with redis-operator's custom resource definitions to check against them")
	}
	environment := &envtest.Environment{CRDDirectoryPaths: []string{folder}, ErrorIfCRDPathMissing: true}
	config, err := environment.Start()
	defer func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if err != nil {
		t.Fatal("this test needs an API server, see `make test-operator`: ", err)
	}
	api, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, cluster := range map[string]*v1alpha1.LiveStashCluster{
		"standalone":  operated(t, v1alpha1.OperatedRedis{Mode: v1alpha1.RedisStandalone}),
		"replication": operated(t, v1alpha1.OperatedRedis{}),
		"everything":  everythingOperated(t),
	} {
		t.Run(name, func(t *testing.T) {
			object := Operated(cluster)
			object.SetNamespace("default")
			if err := api.Create(context.Background(), object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
				t.Error(err)
			}
		})
	}
}
