package redis

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

func secretKey(name string) *v1alpha1.SecretKeyReference {
	return &v1alpha1.SecretKeyReference{Name: name, Key: "value"}
}

func withTLS() *v1alpha1.ManagedRedis {
	return &v1alpha1.ManagedRedis{TLS: &v1alpha1.RedisTLS{Enabled: true}}
}

func TestURL(t *testing.T) {
	cases := map[string]struct {
		redis    v1alpha1.RedisSpec
		password string
		want     string
	}{
		"managed":          {v1alpha1.RedisSpec{}, "p/w#", "redis://livestash:p%2Fw%23@shop-redis.web.svc.cluster.local:6379/0"},
		"managed with TLS": {v1alpha1.RedisSpec{Managed: withTLS()}, "pw", "rediss://livestash:pw@shop-redis.web.svc.cluster.local:6379/0"},
		"standalone": {v1alpha1.RedisSpec{Operator: &v1alpha1.OperatedRedis{Mode: v1alpha1.RedisStandalone}}, "pw",
			"redis://:pw@shop-redis-op.web.svc.cluster.local:6379/0"},
		"replication": {v1alpha1.RedisSpec{Operator: &v1alpha1.OperatedRedis{Mode: v1alpha1.RedisReplication}}, "pw",
			"redis://:pw@shop-redis-op-master.web.svc.cluster.local:6379/0"},
		"external":         {v1alpha1.RedisSpec{External: &v1alpha1.ExternalRedis{Host: "redis.example.com"}}, "", "redis://redis.example.com:6379/0"},
		"external on IPv6": {v1alpha1.RedisSpec{External: &v1alpha1.ExternalRedis{Host: "fd00::1"}}, "", "redis://[fd00::1]:6379/0"},
		"external with everything": {v1alpha1.RedisSpec{External: &v1alpha1.ExternalRedis{
			Host: "redis", Port: ptr.To[int32](6380), Database: ptr.To[int32](3), Username: "shop", TLS: &v1alpha1.RedisTLS{Enabled: true}}}, "p@ss word",
			"rediss://shop:p%40ss%20word@redis:6380/3"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := URL(rendertest.WithRedis(t, c.redis), rendertest.Inputs, c.password); got != c.want {
				t.Errorf("URL = %s, want %s", got, c.want)
			}
		})
	}
}

// The digest tells whether the stashes of before are there afterwards.
func TestStore(t *testing.T) {
	byURL := v1alpha1.RedisSpec{External: &v1alpha1.ExternalRedis{URLSecretRef: secretKey("r")}}
	digest := func(redis v1alpha1.RedisSpec, url string) string {
		_, digest := Store(rendertest.WithRedis(t, redis), rendertest.Inputs, []byte(url))
		return digest
	}
	first := digest(byURL, "redis://:old@Redis.example.com")
	for name, same := range map[string]string{
		"another password":   digest(byURL, "redis://:new@redis.example.com"),
		"the default port":   digest(byURL, "redis://redis.example.com:6379"),
		"TLS":                digest(byURL, "rediss://redis.example.com"),
		"the first database": digest(byURL, "redis://redis.example.com/0"),
		"by its parts":       digest(v1alpha1.RedisSpec{External: &v1alpha1.ExternalRedis{Host: "redis.example.com"}}, ""),
	} {
		if same != first {
			t.Errorf("with %s it is taken for another store", name)
		}
	}
	for name, other := range map[string]string{
		"another host":     digest(byURL, "redis://redis2.example.com"),
		"another port":     digest(byURL, "redis://redis.example.com:6380"),
		"another database": digest(byURL, "redis://redis.example.com/1"),
		"managed":          digest(v1alpha1.RedisSpec{}, ""),
		"managed with TLS": digest(v1alpha1.RedisSpec{Managed: withTLS()}, ""),
		"operated":         digest(v1alpha1.RedisSpec{Operator: &v1alpha1.OperatedRedis{}}, ""),
	} {
		if other == first || other == "" {
			t.Errorf("with %s it is taken for the same store", name)
		}
	}
	if digest(v1alpha1.RedisSpec{Managed: withTLS()}, "") == digest(v1alpha1.RedisSpec{}, "") {
		t.Error("a server without TLS is taken for one with it")
	}
	address, _ := Store(rendertest.WithRedis(t, byURL), rendertest.Inputs, []byte("redis://shop:secret@redis.example.com:6380/3"))
	if address != "redis.example.com:6380" {
		t.Errorf("address = %s", address)
	}
	if address, digest := Store(rendertest.Cluster(t, "smallest"), rendertest.Inputs, nil); address != "" || digest != "" {
		t.Errorf("another adapter has the store %s, %s", address, digest)
	}
}

func TestCheckSecretValue(t *testing.T) {
	ref := secretKey("s")
	managed := v1alpha1.RedisSpec{Managed: &v1alpha1.ManagedRedis{Password: &v1alpha1.SecretSource{SecretRef: ref}}}
	byURL := v1alpha1.RedisSpec{External: &v1alpha1.ExternalRedis{URLSecretRef: ref}}
	byURLWithCA := v1alpha1.RedisSpec{External: &v1alpha1.ExternalRedis{URLSecretRef: ref, CASecretRef: secretKey("ca")}}
	byHost := v1alpha1.RedisSpec{External: &v1alpha1.ExternalRedis{Host: "redis", PasswordSecretRef: ref}}
	authorities := v1alpha1.RedisSpec{External: &v1alpha1.ExternalRedis{Host: "redis", TLS: &v1alpha1.RedisTLS{Enabled: true}, CASecretRef: ref}}
	cases := map[string]struct {
		redis       v1alpha1.RedisSpec
		value, says string
	}{
		"a password":                        {managed, "s3cret#/", ""},
		"a password with a line break":      {managed, "s3cret\n", "with no line break at the end"},
		"a password with a space":           {managed, "s3 cret", "without spaces"},
		"a URL":                             {byURL, "redis://:s3cret@redis:6379/3", ""},
		"a URL with TLS":                    {byURL, "rediss://shop:s3cret@redis", ""},
		"a URL of another kind":             {byURL, "http://redis", "starts with neither redis:// nor rediss://"},
		"a URL without a scheme":            {byURL, "redis:6379", "is no URL of a Redis server"},
		"a URL without a host":              {byURL, "redis:///0", "is no URL of a Redis server"},
		"a URL with a line break":           {byURL, "redis://redis\n", "has a space or a line break"},
		"a URL with a raw password":         {byURL, "redis://:s3#cret@redis", "percent-encoded"},
		"a raw / in a password":             {byURL, "redis://user:12/s3cret@redis", "is no URL of a Redis server"},
		"a raw # in a password":             {byURL, "redis://user:12#s3cret@redis", "is no URL of a Redis server"},
		"a raw ? in a password":             {byURL, "redis://user:12?s3cret@redis", "is no URL of a Redis server"},
		"a password with a scheme":          {byURL, "s3cret://redis", "starts with neither"},
		"a URL with a path":                 {byURL, "redis://redis/shop", "not the number of a database"},
		"a URL with a port that is none":    {byURL, "redis://redis:99999", "has no port from 1 to 65535"},
		"a URL with port 0":                 {byURL, "redis://redis:0", "has no port from 1 to 65535"},
		"a URL with a password for a path":  {byURL, "redis://shop/s3cret@redis", "is no URL of a Redis server"},
		"a URL with a password for a kind":  {byURL, "s3cret://redis", "starts with neither redis:// nor rediss://"},
		"a URL without TLS and authorities": {byURLWithCA, "redis://redis", "let the URL start with rediss://"},
		"an external password":              {byHost, "any thing goes", ""},
		"an external password and a line":   {byHost, "s3cret\n", "has a line break at its end"},
		"an external password with a NUL":   {byHost, "s3cret\x00", "has a NUL byte"},
		"authorities that are none":         {authorities, "s3cret", "has no certificate in PEM"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := CheckSecretValue(rendertest.WithRedis(t, c.redis), *ref, []byte(c.value))
			if (err == nil) != (c.says == "") {
				t.Fatalf("CheckSecretValue = %v, want one that says %q", err, c.says)
			}
			if err == nil {
				return
			}
			var invalid *render.SpecError
			if !errors.As(err, &invalid) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v does not say %q", err, c.says)
			}
			if strings.Contains(err.Error(), "s3") {
				t.Errorf("the error tells the password: %v", err)
			}
		})
	}
}

func TestAnExternalPasswordIsNotKeptForOthers(t *testing.T) {
	external := Secret(rendertest.WithRedis(t, v1alpha1.RedisSpec{External: &v1alpha1.ExternalRedis{Host: "redis"}}), rendertest.Inputs, "s3cret")
	if _, kept := external.Data[PasswordKey]; kept {
		t.Error("the password of somebody else's Redis would be taken for a generated one")
	}
	if string(Secret(rendertest.WithRedis(t, v1alpha1.RedisSpec{}), rendertest.Inputs, "pw").Data[PasswordKey]) != "pw" {
		t.Error("a generated password is not kept")
	}
}

func TestAccess(t *testing.T) {
	cluster := rendertest.WithRedis(t, v1alpha1.RedisSpec{})
	access := NewAccess()
	access.Fleet = []string{PasswordHash("new"), PasswordHash("old")}
	secret := AccessSecret(cluster, access)
	if diff := cmp.Diff(access, ReadAccess(secret)); diff != "" {
		t.Errorf("what is read differs from what was written:\n%s", diff)
	}
	file := string(secret.Data[aclFileKey])
	// Each may do what it needs, and nothing else.
	want := []string{
		"user default on nopass resetkeys resetchannels -@all +ping",
		"user livestash on #" + access.Fleet[0] + " #" + access.Fleet[1] + " ~live_stash:* resetchannels +@all -@admin -@dangerous +info +role",
		"user operator on #" + PasswordHash(access.Operator) + " resetkeys resetchannels -@all +ping +acl|setuser",
		"user exporter on #" + PasswordHash(access.Exporter) +
			" resetkeys resetchannels -@all +ping +info +client|setname +config|get +slowlog|len +slowlog|get +latency|latest +latency|histogram",
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(file), "\n")); diff != "" {
		t.Errorf("the list of users (-want +got):\n%s", diff)
	}
	if strings.Contains(file, access.Operator) || strings.Contains(file, access.Exporter) {
		t.Error("the list of users has a password")
	}
	if again := NewAccess(); again.Operator == access.Operator || again.Exporter == access.Exporter {
		t.Error("two fleets have the same password")
	}
}

// Pods of Redis must never get the fleet's traffic, nor be scaled or rolled with it.
func TestTheFleetDoesNotSelectRedis(t *testing.T) {
	cluster := rendertest.WithRedis(t, v1alpha1.RedisSpec{})
	set := StatefulSet(cluster, store.ManagedRedis(cluster), Config(cluster, store.ManagedRedis(cluster)), rendertest.Inputs)
	pods := labels.Set(set.Spec.Template.Labels)
	if selects(t, render.Selector(cluster), pods) {
		t.Errorf("the fleet's selector takes pods with the labels %v", pods)
	}
	if !selects(t, set.Spec.Selector, pods) {
		t.Errorf("the StatefulSet does not select its own pods, which have the labels %v", pods)
	}
}

func selects(t *testing.T, selector *metav1.LabelSelector, set labels.Set) bool {
	t.Helper()
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Matches(set)
}

// A Redis that is told a new password must not restart for it; one that gets another configuration must.
func TestWhatRestartsRedis(t *testing.T) {
	template := func(redis v1alpha1.ManagedRedis, in render.Inputs) corev1.PodTemplateSpec {
		cluster := rendertest.WithRedis(t, v1alpha1.RedisSpec{Managed: &redis})
		return StatefulSet(cluster, &redis, Config(cluster, &redis), in).Spec.Template
	}
	base := template(v1alpha1.ManagedRedis{}, rendertest.Inputs)
	other := rendertest.Inputs
	other.SecretsDigest, other.StoreDigest = "another", "another"
	if diff := cmp.Diff(base, template(v1alpha1.ManagedRedis{}, other)); diff != "" {
		t.Errorf("a change of the fleet's secrets restarts Redis:\n%s", diff)
	}
	other = rendertest.Inputs
	other.RedisAccessUID = "another"
	if cmp.Equal(base, template(v1alpha1.ManagedRedis{}, other)) {
		t.Error("new users do not restart Redis")
	}
	larger := v1alpha1.ManagedRedis{Memory: ptr.To(resource.MustParse("1Gi"))}
	if cmp.Equal(base.Spec.Containers[0].Command, template(larger, rendertest.Inputs).Spec.Containers[0].Command) {
		t.Error("more memory does not restart Redis")
	}
	// All servers read one file, also the one that is to hand over: if its container restarts, it must not throw stashes away.
	cluster := rendertest.WithRedis(t, v1alpha1.RedisSpec{Managed: &larger})
	if diff := cmp.Diff(Config(cluster, &v1alpha1.ManagedRedis{}).Data, Config(cluster, &larger).Data); diff != "" {
		t.Errorf("a server of before would start with the memory of the next one:\n%s", diff)
	}
}

// Where the servers are is no part of the template, or a hand-over would call for the next one.
func TestRedisPlaces(t *testing.T) {
	plain := v1alpha1.ManagedRedis{}
	onVolume := v1alpha1.ManagedRedis{Persistence: &v1alpha1.RedisPersistence{}}
	cases := map[string]struct {
		redis           v1alpha1.ManagedRedis
		places          render.RedisPlaces
		replicas, start int32
		strategy        appsv1.StatefulSetUpdateStrategyType
		serves          string
	}{
		"in the first place":       {plain, render.RedisPlaces{}, 1, 0, appsv1.OnDeleteStatefulSetStrategyType, "shop-redis-0"},
		"in the second place":      {plain, render.RedisPlaces{Serves: 1, Only: 1}, 1, 1, appsv1.OnDeleteStatefulSetStrategyType, "shop-redis-1"},
		"in both":                  {plain, render.RedisPlaces{Serves: 1, Both: true, Only: 1}, 2, 0, appsv1.OnDeleteStatefulSetStrategyType, "shop-redis-1"},
		"on a volume, in one only": {onVolume, render.RedisPlaces{Serves: 1, Both: true, Only: 1}, 1, 0, appsv1.RollingUpdateStatefulSetStrategyType, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster, in := rendertest.WithRedis(t, v1alpha1.RedisSpec{Managed: &c.redis}), rendertest.Inputs
			unplaced := StatefulSet(cluster, &c.redis, Config(cluster, &c.redis), in)
			in.Redis = c.places
			set := StatefulSet(cluster, &c.redis, Config(cluster, &c.redis), in)
			start := ptr.Deref(set.Spec.Ordinals, appsv1.StatefulSetOrdinals{}).Start
			if *set.Spec.Replicas != c.replicas || start != c.start || set.Spec.UpdateStrategy.Type != c.strategy {
				t.Errorf("%d pods from %d on, with the strategy %s", *set.Spec.Replicas, start, set.Spec.UpdateStrategy.Type)
			}
			if diff := cmp.Diff(unplaced.Spec.Template, set.Spec.Template); diff != "" {
				t.Errorf("the template changes with the place:\n%s", diff)
			}
			if serves := Service(cluster, &c.redis, in).Spec.Selector[appsv1.StatefulSetPodNameLabel]; serves != c.serves {
				t.Errorf("the Service leads to %q, want %q", serves, c.serves)
			}
			self := func(peer networkingv1.NetworkPolicyPeer) bool {
				return peer.PodSelector != nil && selects(t, peer.PodSelector, set.Spec.Template.Labels)
			}
			if opens := slices.ContainsFunc(NetworkPolicy(cluster, in).Spec.Ingress[0].From, self); opens != (c.serves != "") {
				t.Errorf("the network policy admits a server's successor: %t", opens)
			}
		})
	}
}

// The Secret of the fleet's login keeps what it takes to make the other one again.
func TestAccessIsKept(t *testing.T) {
	cluster, access := rendertest.WithRedis(t, v1alpha1.RedisSpec{}), NewAccess()
	login := Secret(cluster, rendertest.Inputs, "password")
	if kept, is := Kept(login); is {
		t.Errorf("a Secret without it has kept %v", kept)
	}
	access.Keep(login)
	if kept, is := Kept(login); !is || !cmp.Equal(kept, access) {
		t.Errorf("kept is %v, want %v", kept, access)
	}
}

// The exporter logs in to Redis. Whoever reaches it must not have it log in to a server of their own, nor read what is stashed.
func TestExporterServesMetricsAlone(t *testing.T) {
	cluster := rendertest.WithRedis(t, v1alpha1.RedisSpec{})
	container := exporter(cluster, &v1alpha1.ManagedRedis{}, rendertest.Inputs)
	for _, name := range []string{"REDIS_EXPORTER_DISABLE_SCRAPE_ENDPOINT", "REDIS_EXPORTER_DISABLE_EXPORTING_KEY_VALUES"} {
		if !slices.ContainsFunc(container.Env, func(one corev1.EnvVar) bool { return one.Name == name && one.Value == "true" }) {
			t.Errorf("the exporter is not told %s", name)
		}
	}
}

// With TLS nothing goes over the network as it is: not to Redis, not between two servers. What a Redis without it is made of stays as it is,
// or an upgrade of the operator would replace it.
func TestRedisWithTLS(t *testing.T) {
	cluster := rendertest.WithRedis(t, v1alpha1.RedisSpec{Managed: withTLS()})
	rendertest.CompareGolden(t, "tls", Managed(cluster, rendertest.Inputs)...)
	off := &v1alpha1.ManagedRedis{TLS: &v1alpha1.RedisTLS{}}
	if diff := cmp.Diff(Managed(rendertest.WithRedis(t, v1alpha1.RedisSpec{}), rendertest.Inputs), Managed(rendertest.WithRedis(t, v1alpha1.RedisSpec{Managed: off}), rendertest.Inputs)); diff != "" {
		t.Errorf("TLS that is off changes something:\n%s", diff)
	}
	ports := Config(cluster, withTLS()).Data[configFile]
	for _, line := range []string{"port 0", "tls-port 6379", "tls-replication yes", "tls-auth-clients no"} {
		if !slices.Contains(strings.Split(ports, "\n"), line) {
			t.Errorf("the configuration has no line %q", line)
		}
	}
}
