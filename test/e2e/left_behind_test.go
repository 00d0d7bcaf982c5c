package e2e

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/livestash-dev/livestash/test/internal/leak"
)

const (
	// mark is in every value of a Secret that TestNoSecretIsLeftBehind makes, and nowhere else.
	mark = "Kx9qWm7TzR4vBn2L"
	// marked is a value of which no part is without the mark that is worth having.
	marked = mark + mark + mark + mark
)

// leaks sees what all tests leave behind. TestMain says what it has found.
var leaks *leak.Watch

func openLeaks(kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	leaks, err = leak.New(config)
	return err
}

// placed is a fleet that has one of its secrets from the key "it" of a Secret of its own.
type placed struct {
	// spec are further lines; OWN stands for the Secret. Pod other is a Redis whose password is marked.
	spec, value string
	// condition says this, after its status, when the fleet is as far as it gets.
	condition, says string
}

const (
	ownVariable = "adapter: ETS\nenv: [{name: TOKEN, valueFrom: {secretKeyRef: {name: OWN, key: it}}}]"
	ownCookie   = "adapter: ETS\nclustering: {cookie: {secretRef: {name: OWN, key: it}}}"
	ownBase     = "adapter: ETS\nsecretKeyBase: {secretRef: {name: OWN, key: it}}"
	ownManaged  = "adapter: Redis\nredis: {managed: {memory: 64Mi, password: {secretRef: {name: OWN, key: it}}}}"
	ownURL      = "adapter: Redis\nredis: {external: {urlSecretRef: {name: OWN, key: it}}}"
	ownPassword = "adapter: Redis\nredis: {external: {host: other, passwordSecretRef: {name: OWN, key: it}}}"
	ownCA       = "adapter: Redis\nredis: {external: {host: other, tls: {enabled: true}, caSecretRef: {name: OWN, key: it}}}"
	ownPull     = "adapter: ETS\nimage: registry.invalid/shop:1\nimagePullSecrets: [{name: OWN}]"
	ownBefore   = `adapter: ETS
rollout: {before: {command: [/bin/sh, -c, "exit 3"], env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: OWN, key: it}}}]}}`

	written = "ReconcileSucceeded"
	refused = "False SecretInvalid "
	reached = "StoreReady"
	wrong   = "refuses the user or the password"
)

// Good values and malformed ones, wherever a Secret can be named, in pods that really start, and others that do not.
var placesOfSecrets = map[string]placed{
	"cookie-quote":   {ownCookie, marked + `"` + marked, written, refused},
	"base-short":     {ownBase, marked[:60], written, refused},
	"base-line":      {ownBase, marked + "\n", written, refused},
	"variable-nul":   {ownVariable, marked + "\x00" + marked, written, "False InvalidSpec "},
	"managed":        {ownManaged, marked, reached, "True "},
	"managed-space":  {ownManaged, marked + " " + marked, written, refused},
	"url-slash":      {ownURL, "redis://u:" + marked + "/" + marked + "@other", written, refused},
	"url-port":       {ownURL, "redis://u:" + marked + "@other:" + mark, written, refused},
	"url-percent":    {ownURL, "redis://u:%zz" + marked + "@other", written, refused},
	"url-nobody":     {ownURL, "redis://u:" + marked + "@nobody", reached, "DNS does not know the host"},
	"url-wrong":      {ownURL, "redis://u:" + marked + "wrong@other", reached, wrong},
	"url-plain":      {ownURL, "rediss://:" + marked + "@other", reached, "TLS"},
	"password":       {ownPassword, "\xff" + marked, written, refused},
	"password-wrong": {ownPassword, marked + "wrong", reached, wrong},
	"authorities":    {ownCA, marked, written, refused},
	"pull":           {ownPull, marked, "Progressing", "True PodFailing "},
	"before-fails":   {ownBefore, marked, "Stalled", "True BeforeFailed "},
}

// goodPlaces is a fleet with good values in every place of its pods; KEY is that of the cookie.
const goodPlaces = `secretsAs: Files
adapter: Redis
replicas: 2
clustering: {cookie: {secretRef: {name: good, key: KEY}}, tls: {enabled: true}}
secretKeyBase: {secretRef: {name: good, key: base}}
redis: {external: {host: other, passwordSecretRef: {name: good, key: password}}}
env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: good, key: token}}}]
envFrom: [{prefix: FROM_, secretRef: {name: good}}]
rollout:
  surge: Auto
  before: {command: [bin/workload, eval, ":ok"], env: [{name: OTHER, valueFrom: {secretKeyRef: {name: good, key: token}}}]}
podTemplate: {spec: {volumes: [{name: own, secret: {secretName: good}}]}}`

// Values of Secrets are in nothing but Secrets, whatever is wrong with them, and neither is a part of one: not in what pods, the
// operator and Redis log, not in objects and their status, not in events, metrics and reports.
func TestNoSecretIsLeftBehind(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "secrets")
	leaks.Secret("a marked value", mark)
	s.secret("good", map[string]string{
		"cookie": marked, "next": "n" + marked, "base": marked, "password": marked, "token": marked,
	})
	s.must(s.plainRedis("other", "good", "password"), "apply", "-f", "-")
	s.must("", "wait", "pod/other", "--for=condition=Ready", "--timeout=1m")
	s.apply(strings.Replace(goodPlaces, "KEY", "cookie", 1))
	for name, place := range placesOfSecrets {
		key := "it"
		if strings.Contains(place.spec, "imagePullSecrets") {
			key = ".dockerconfigjson"
		}
		s.secret("own-"+name, map[string]string{key: place.value})
		manifest := s.fleet(strings.ReplaceAll(place.spec, "OWN", "own-"+name) + "\nreplicas: 1")
		s.must(strings.Replace(manifest, "{name: shop}", "{name: "+name+"}", 1), "apply", "-f", "-")
	}
	for _, name := range slices.Sorted(maps.Keys(placesOfSecrets)) {
		place := placesOfSecrets[name]
		s.eventually(3*time.Minute, func() error {
			if says := s.conditionOf(name, place.condition); !strings.Contains(says, place.says) {
				return fmt.Errorf("%s of %s is %q", place.condition, name, says)
			}
			return nil
		})
	}
	s.settled()
	const told = `{System.get_env("SECRET_KEY_BASE"), System.get_env("LIVE_STASH_REDIS_URL"), File.stat!(System.fetch_env!("SECRET_KEY_BASE_FILE")).access}`
	if answer, err := s.rpc("shop-0", told); err != nil || answer != "{nil, nil, :read}" {
		t.Errorf("the application was told %s, %v", answer, err)
	}

	s.benchmark("marked", fmt.Sprintf(`matrix: {adapters: [ETS], runs: [{users: 10, ttl: 10s, ramp: 1s, duration: 12s}]}
runnerTemplate: {imagePullSecrets: [{name: own-pull}]}
target: {template: {spec: {image: "%s/livestash-workload-otp:%s", replicas: 1, http: {readinessPath: /healthz},
  secretKeyBase: {secretRef: {name: good, key: base}}, env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: good, key: token}}}]}}}`, registry, version))
	s.apply(strings.Replace(goodPlaces, "KEY", "next", 1))
	s.eventually(4*time.Minute, func() error {
		if finished := s.must("", "get", "lsc", "shop", "-o", "jsonpath={.status.cookie.rotationFinished}"); finished == "" {
			return fmt.Errorf("the cookie is still being changed")
		}
		return nil
	})
	s.ended("marked", "Passed", "")
	if err := leaks.Metrics(t.Context(), s.name, "agent", "metrics"); err != nil {
		t.Error(err)
	}
	s.must(fmt.Sprintf(`{"stringData": {"password": "wrong%s"}}`, marked), "patch", "secret", "good", "--patch-file", "/dev/stdin")
	s.eventually(2*time.Minute, func() error {
		if says := s.condition(reached); !strings.Contains(says, wrong) {
			return fmt.Errorf("StoreReady is %q", says)
		}
		return nil
	})
}

// What looks for values of Secrets finds them where there are some.
func TestLeaksAreFound(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	watch, err := leak.New(config)
	if err != nil {
		t.Fatal(err)
	}
	s := space{t, "e2e-leaks"}
	s.makeNamespace()
	t.Cleanup(func() { _, _ = s.kubectl("", "delete", "namespace", s.name, "--wait=false") })
	stop := watch.Namespace(s.name)
	const secret = "h3V9cQ1xLw5Tn8Zr0KmY"
	s.secret("own", map[string]string{"it": secret})
	s.must("", "create", "configmap", "leaky", "--from-literal=it="+secret)
	s.must(fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: leaky}
spec:
  restartPolicy: Never
  containers:
  - name: leaky
    image: %s
    command: [sh, -c, 'echo "$TOKEN"']
    env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: own, key: it}}}]
`, s.redisImage()), "apply", "-f", "-")
	s.must("", "wait", "pod/leaky", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=2m")
	s.must("", "delete", "secret", "own")
	s.eventually(time.Minute, func() error {
		if found := watch.Found(); len(found) < 2 {
			return fmt.Errorf("found: %q", found)
		}
		return nil
	})
	stop()
	found := watch.Found()
	if len(found) != 2 {
		t.Errorf("found: %q", found)
	}
	for _, where := range []string{"ConfigMap e2e-leaks/leaky", "the log of e2e-leaks/leaky leaky"} {
		want := "a part of Secret e2e-leaks/own it is in " + where
		if !slices.ContainsFunc(found, func(one string) bool { return strings.HasPrefix(one, want) }) {
			t.Errorf("what was found does not say %q: %q", want, found)
		}
	}
}

// secret makes a Secret with these values, which need not be text.
func (s space) secret(name string, values map[string]string) {
	s.t.Helper()
	var lines strings.Builder
	for _, key := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(&lines, "  %s: %s\n", key, base64.StdEncoding.EncodeToString([]byte(values[key])))
	}
	manifest := fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s}\ndata:\n%s", name, lines.String())
	s.must(manifest, "create", "-f", "-")
}
