package store

import (
	"cmp"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

func TestAdapters(t *testing.T) {
	redisURL := v1alpha1.SecretKeyReference{Name: "r", Key: "url"}
	cases := map[v1alpha1.Adapter]struct {
		name    string
		env     []string
		secrets []v1alpha1.SecretKeyReference
		home    Home
		largest int64
		tick    time.Duration
		own     []string
		lost    bool
		ages    bool
		field   string
	}{
		v1alpha1.AdapterNone:          {name: "none", home: Elsewhere, lost: true},
		v1alpha1.AdapterETS:           {name: "ets", home: OnePod, field: "shadow"},
		v1alpha1.AdapterBrowserMemory: {name: "browser_memory", home: Elsewhere, largest: 7300, field: "browserMemory", ages: true},
		v1alpha1.AdapterMnesia:        {name: "mnesia", home: EveryPod, tick: 8 * time.Second},
		v1alpha1.AdapterRedis: {
			name: "redis", home: Elsewhere, field: "redis", env: []string{"LIVE_STASH_REDIS_URL"},
			secrets: []v1alpha1.SecretKeyReference{redisURL},
		},
	}
	if len(cases) != len(adapters) {
		t.Errorf("%d adapters, %d of them tested", len(adapters), len(cases))
	}
	for kind, want := range cases {
		t.Run(string(kind), func(t *testing.T) {
			cluster := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: v1alpha1.LiveStashClusterSpec{
				Adapter: kind,
				Redis:   &v1alpha1.RedisSpec{External: &v1alpha1.ExternalRedis{URLSecretRef: &redisURL}},
			}}
			adapter := For(cluster)
			if named, found := Named(want.name); named != kind || !found {
				t.Errorf("Named(%q) = %s, %t", want.name, named, found)
			}
			if adapter.Name() != want.name {
				t.Errorf("Name = %q, want %q", adapter.Name(), want.name)
			}
			var env []string
			for _, variable := range adapter.Env(cluster) {
				env = append(env, variable.Name)
			}
			if !slices.Equal(env, want.env) {
				t.Errorf("Env sets %v, want %v", env, want.env)
			}
			if got := adapter.NetTickTime(cluster); got != cmp.Or(want.tick, 20*time.Second) {
				t.Errorf("NetTickTime = %s, want %s", got, want.tick)
			}
			if adapter.Home() != want.home || adapter.LargestStash(cluster) != want.largest {
				t.Errorf("Home = %v, LargestStash = %d, want %v and %d", adapter.Home(), adapter.LargestStash(cluster), want.home, want.largest)
			}
			if got := adapter.SecretRefs(cluster); !slices.Equal(got, want.secrets) {
				t.Errorf("SecretRefs = %v, want %v", got, want.secrets)
			}
			if got := adapter.OwnSecrets(cluster); !slices.Equal(got, want.own) {
				t.Errorf("OwnSecrets = %v, want %v", got, want.own)
			}
			if got := adapter.OwnField(); got != want.field || slices.Contains(Unread(kind), got) {
				t.Errorf("OwnField = %q, want %q, which is not among %q", got, want.field, Unread(kind))
			}
			if adapter.Renewed() == want.ages {
				t.Errorf("Renewed = %t", adapter.Renewed())
			}
			if adapter.Recovers() == want.lost {
				t.Errorf("Recovers = %t", adapter.Recovers())
			}
		})
	}
}

// The Secrets of a Redis are those that this operator writes itself.
func TestOwnSecretsOfRedis(t *testing.T) {
	cases := map[string]struct {
		redis *v1alpha1.RedisSpec
		want  []string
	}{
		"nothing said": {nil, []string{"shop-redis", "shop-redis-acl"}},
		"with TLS": {&v1alpha1.RedisSpec{Managed: &v1alpha1.ManagedRedis{TLS: &v1alpha1.RedisTLS{Enabled: true}}},
			[]string{"shop-redis", "shop-redis-acl", "shop-redis-ca", "shop-redis-tls"}},
		"redis-operator":          {&v1alpha1.RedisSpec{Operator: &v1alpha1.OperatedRedis{}}, []string{"shop-redis"}},
		"external by its parts":   {&v1alpha1.RedisSpec{External: &v1alpha1.ExternalRedis{Host: "redis"}}, []string{"shop-redis"}},
		"external by the own URL": {&v1alpha1.RedisSpec{External: &v1alpha1.ExternalRedis{URLSecretRef: &v1alpha1.SecretKeyReference{Name: "r", Key: "url"}}}, nil},
	}
	for name, c := range cases {
		cluster := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
		cluster.Spec.Adapter, cluster.Spec.Redis = v1alpha1.AdapterRedis, c.redis
		if got := For(cluster).OwnSecrets(cluster); !slices.Equal(got, c.want) {
			t.Errorf("%s: OwnSecrets = %v, want %v", name, got, c.want)
		}
	}
}

// A silent pod's users wait for it until it is given up.
func TestNetTickTimeWithShadow(t *testing.T) {
	cluster := &v1alpha1.LiveStashCluster{Spec: v1alpha1.LiveStashClusterSpec{Adapter: v1alpha1.AdapterETS, Shadow: &v1alpha1.ShadowSpec{}}}
	for enabled, want := range map[bool]time.Duration{false: 20 * time.Second, true: 8 * time.Second} {
		cluster.Spec.Shadow.Enabled = enabled
		if got := For(cluster).NetTickTime(cluster); got != want {
			t.Errorf("enabled %t: NetTickTime = %s, want %s", enabled, got, want)
		}
	}
}
