package cluster

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

const (
	// mark is in every value of every Secret below, and nowhere else.
	mark = "Kx9qWm7T"
	// marked is a value of which no part is without the mark that is worth having.
	marked = mark + mark + mark + mark + mark + mark + mark + mark
)

// secretUse is one place of the spec in which a Secret can be named, here Secret own with the key it.
type secretUse struct {
	spec func(*v1alpha1.LiveStashClusterSpec, v1alpha1.SecretKeyReference)
	// values are good ones, and ones with which no pod could start. A URL's host is not among what is kept: the status tells it.
	values map[string]string
	// then is done when the fleet has been looked at.
	then func(*testing.T, *v1alpha1.LiveStashCluster)
}

func external(spec *v1alpha1.LiveStashClusterSpec, redis v1alpha1.ExternalRedis) {
	spec.Adapter, spec.Redis = v1alpha1.AdapterRedis, &v1alpha1.RedisSpec{External: &redis}
}

func fromOwn(name string, ref v1alpha1.SecretKeyReference) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: ref.Name}, Key: ref.Key}}}
}

var variableValues = map[string]string{"good": marked, "nul": marked + "\x00" + marked, "binary": "\xff" + marked, "flags": "-eval " + marked, "lines": marked + "\n" + marked}

var secretUses = map[string]secretUse{
	"cookie": {
		spec: func(spec *v1alpha1.LiveStashClusterSpec, ref v1alpha1.SecretKeyReference) {
			spec.Clustering.Cookie = &v1alpha1.SecretSource{SecretRef: &ref}
		},
		values: map[string]string{"good": marked, "line": marked + "\n", "quote": marked + `"'` + marked, "flag": "-" + marked, "nul": marked + "\x00"},
	},
	"key base": {
		spec: func(spec *v1alpha1.LiveStashClusterSpec, ref v1alpha1.SecretKeyReference) {
			spec.SecretKeyBase = &v1alpha1.SecretSource{SecretRef: &ref}
		},
		values: map[string]string{"good": marked, "line": marked + "\n", "short": mark, "nul": marked + "\x00", "binary": "\xff" + marked},
	},
	"managed": {
		spec: func(spec *v1alpha1.LiveStashClusterSpec, ref v1alpha1.SecretKeyReference) {
			spec.Adapter = v1alpha1.AdapterRedis
			spec.Redis = &v1alpha1.RedisSpec{Managed: &v1alpha1.ManagedRedis{Password: &v1alpha1.SecretSource{SecretRef: &ref}}}
		},
		values: map[string]string{"good": marked, "line": marked + "\n", "space": marked + " " + marked, "long": strings.Repeat(marked, 20)},
		then: func(t *testing.T, cluster *v1alpha1.LiveStashCluster) {
			t.Helper()
			redisServers.refuse(redisAddress(cluster), true)
			changeOwn(t, cluster, mark+marked)
		},
	},
	"url": {
		spec: func(spec *v1alpha1.LiveStashClusterSpec, ref v1alpha1.SecretKeyReference) {
			external(spec, v1alpha1.ExternalRedis{URLSecretRef: &ref})
		},
		values: map[string]string{
			"good": "redis://u:" + marked + "@redis:6379/1", "line": "redis://u:" + marked + "@redis\n", "hash": "redis://u:" + marked + "#" + marked + "@redis:6379",
			"slash": "redis://u:" + marked + "/" + marked + "@redis", "percent": "redis://u:%zz" + marked + "@redis", "port": "redis://u:" + marked + "@redis:" + mark,
			"scheme": marked + "://u:" + marked + "@redis", "path": "redis://u:p@redis/" + marked, "query": "redis://redis?password=" + marked,
			"nothing": marked, "bracket": "redis://u:" + marked + "[" + marked + "@redis", "control": "redis://u:" + marked + "\x01@redis", "colon": ":" + marked,
		},
	},
	"password": {
		spec: func(spec *v1alpha1.LiveStashClusterSpec, ref v1alpha1.SecretKeyReference) {
			external(spec, v1alpha1.ExternalRedis{Host: "redis", Username: "u", PasswordSecretRef: &ref})
		},
		values: map[string]string{"good": marked, "line": marked + "\n", "nul": "\x00" + marked, "url": "redis://u:" + marked + "@redis", "binary": "\xff" + marked},
	},
	"authorities": {
		spec: func(spec *v1alpha1.LiveStashClusterSpec, ref v1alpha1.SecretKeyReference) {
			external(spec, v1alpha1.ExternalRedis{Host: "redis", TLS: &v1alpha1.RedisTLS{Enabled: true}, CASecretRef: &ref})
		},
		values: map[string]string{"nothing": marked, "key": "-----BEGIN PRIVATE KEY-----\n" + marked + "\n-----END PRIVATE KEY-----\n",
			"certificate": "-----BEGIN CERTIFICATE-----\n" + marked + "\n-----END CERTIFICATE-----\n"},
	},
	"env": {
		spec: func(spec *v1alpha1.LiveStashClusterSpec, ref v1alpha1.SecretKeyReference) {
			spec.Env = []corev1.EnvVar{fromOwn("ERL_ZFLAGS", ref)}
		},
		values: variableValues,
	},
	"envFrom": {
		spec: func(spec *v1alpha1.LiveStashClusterSpec, ref v1alpha1.SecretKeyReference) {
			spec.EnvFrom = []corev1.EnvFromSource{{Prefix: "ERL_FLAGS_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: ref.Name}}}}
		},
		values: variableValues,
	},
	"before": {
		spec: func(spec *v1alpha1.LiveStashClusterSpec, ref v1alpha1.SecretKeyReference) {
			migrates(spec)
			spec.Rollout.Before.Env = []corev1.EnvVar{fromOwn("TOKEN", ref)}
			spec.Env = []corev1.EnvVar{fromOwn("OTHER", ref)}
		},
		values: variableValues,
	},
	"volume": {
		spec: func(spec *v1alpha1.LiveStashClusterSpec, ref v1alpha1.SecretKeyReference) {
			spec.PodTemplate = &v1alpha1.PodTemplateOverride{Spec: &v1alpha1.PodSpecOverride{}}
			patch, err := json.Marshal(corev1.PodSpec{
				Volumes:    []corev1.Volume{{Name: "own", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: ref.Name}}}},
				Containers: []corev1.Container{{Name: "side", Image: "side", Env: []corev1.EnvVar{fromOwn("TOKEN", ref)}}},
			})
			if err == nil {
				err = spec.PodTemplate.Spec.UnmarshalJSON(patch)
			}
			if err != nil {
				panic(err)
			}
		},
		values: variableValues,
	},
	"key of the authority": {
		spec:   func(spec *v1alpha1.LiveStashClusterSpec, _ v1alpha1.SecretKeyReference) { withTLS(spec) },
		values: map[string]string{"unused": marked},
		then: func(t *testing.T, cluster *v1alpha1.LiveStashCluster) {
			t.Helper()
			for _, name := range []string{"shop-distribution-ca", "shop-distribution-tls"} {
				secret := secretNamed(t, cluster, name)
				secret.Data["tls.key"] = []byte("-----BEGIN PRIVATE KEY-----\n" + marked + "\n-----END PRIVATE KEY-----\n")
				secret.Data["tls.crt"] = []byte(marked)
				secret.Annotations["livestash.dev/due"] = marked
				suite.Must(t, api.Update(t.Context(), secret))
			}
		},
	},
}

func changeOwn(t *testing.T, cluster *v1alpha1.LiveStashCluster, value string) {
	t.Helper()
	own := secretNamed(t, cluster, "own")
	own.Data["it"] = []byte(value)
	suite.Must(t, api.Update(t.Context(), own))
}

// No value of a Secret is in anything but Secrets, and neither is a part of one that cannot be used: not in objects, their status and
// conditions, not in events, metrics and the operator's log.
func TestNoSecretIsLeftBehind(t *testing.T) {
	fleets := map[string]*v1alpha1.LiveStashCluster{}
	left := map[string][]string{}
	rounds := 0
	for place, use := range secretUses {
		namespace := suite.Namespace(t, api)
		suite.Must(t, api.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"}, Data: map[string][]byte{"it": []byte(marked)}}))
		fleets[place] = newCluster(t, namespace, func(spec *v1alpha1.LiveStashClusterSpec) {
			use.spec(spec, v1alpha1.SecretKeyReference{Name: "own", Key: "it"})
		})
		left[place] = slices.Sorted(maps.Values(use.values))
		rounds = max(rounds, len(left[place]))
	}
	for round := range rounds {
		for place, cluster := range fleets {
			isLookedAt(t, place, cluster)
			if round < len(left[place]) {
				changeOwn(t, cluster, left[place][round])
				changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Replicas = ptr.To(int32(round + 3)) })
			}
		}
	}
	for place, cluster := range fleets {
		isLookedAt(t, place, cluster)
		if then := secretUses[place].then; then != nil {
			then(t, cluster)
			isLookedAt(t, place, cluster)
		}
	}
	for place, cluster := range fleets {
		for where, text := range leftIn(t, cluster.Namespace) {
			veiled(t, place+": "+where, text, generated(t, cluster.Namespace)...)
		}
	}
	metrics, err := scrape(t, &Metrics{Reader: underTest.Client})
	suite.Must(t, err)
	veiled(t, "metrics", metrics)
	veiled(t, "the log", logs.String())
}

// isLookedAt waits until the operator has gone as far with the spec as it can, and reads what it says.
func isLookedAt(t *testing.T, place string, cluster *v1alpha1.LiveStashCluster) {
	t.Helper()
	suite.Eventually(t, func() error {
		if err := get(t, cluster); err != nil {
			return err
		}
		found := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionReconcileSucceeded)
		if found == nil || found.ObservedGeneration != cluster.Generation {
			return fmt.Errorf("%s has not been looked at: %+v", cluster.Namespace, found)
		}
		return nil
	})
	text, err := json.Marshal(cluster.Status)
	suite.Must(t, err)
	veiled(t, place, string(text))
}

// leftIn is everything in a namespace but the values of Secrets.
func leftIn(t *testing.T, namespace string) map[string]string {
	t.Helper()
	left := map[string]string{}
	for _, kind := range []schema.GroupVersionKind{
		v1alpha1.GroupVersion.WithKind("LiveStashCluster"), {Group: "apps", Version: "v1", Kind: "StatefulSet"}, {Group: "batch", Version: "v1", Kind: "Job"},
		{Group: "events.k8s.io", Version: "v1", Kind: "Event"}, {Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
		{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}, {Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Service"},
		{Version: "v1", Kind: "ServiceAccount"}, {Version: "v1", Kind: "PersistentVolumeClaim"}, {Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "Secret"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		suite.Must(t, api.List(t.Context(), list, client.InNamespace(namespace)))
		for _, object := range list.Items {
			if kind.Kind == "Secret" {
				delete(object.Object, "data")
				annotations := object.GetAnnotations()
				maps.DeleteFunc(annotations, func(_, value string) bool { return value == marked }) // the one with which a test has marked them
				object.SetAnnotations(annotations)
			}
			text, err := json.Marshal(object.Object)
			suite.Must(t, err)
			left[kind.Kind+" "+object.GetName()] = string(text)
		}
	}
	return left
}

// generated are the values that the operator has made up.
func generated(t *testing.T, namespace string) []string {
	t.Helper()
	secrets := &corev1.SecretList{}
	suite.Must(t, api.List(t.Context(), secrets, client.InNamespace(namespace)))
	var values []string
	for _, secret := range secrets.Items {
		for _, key := range []string{"cookie", "secret-key-base", "password", "operator-password", "exporter-password"} {
			if value := string(secret.Data[key]); secret.Name != "own" && value != "" {
				values = append(values, value[:min(12, len(value))], base64.StdEncoding.EncodeToString([]byte(value))[:12])
			}
		}
		if key := string(secret.Data["tls.key"]); !strings.Contains(key, mark) && len(key) > 100 {
			values = append(values, key[60:80])
		}
	}
	return values
}

// base64Of is what a text looks like within base64, wherever it begins.
func base64Of(text string) []string {
	var all []string
	for skipped := range 3 {
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("-", skipped) + text))
		all = append(all, encoded[4:len(encoded)-4])
	}
	return all
}

// veiled checks that neither the mark nor one of the values is in a text.
func veiled(t *testing.T, where, text string, values ...string) {
	t.Helper()
	for _, part := range append(append(base64Of(mark), mark), values...) {
		if at := strings.Index(text, part); at >= 0 {
			t.Errorf("%s: a part of a Secret is in %s", where, text[max(0, at-120):min(len(text), at+120)])
			return
		}
	}
}
