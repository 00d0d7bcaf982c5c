package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// The Redis that the operator runs: what it holds outlives a restart, a new password reaches everybody without a gap, and a
// fleet that goes over to another Redis never uses two.
func TestManagedRedis(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "redis")
	s.apply("adapter: Redis\nredis: {managed: {memory: 128Mi, persistence: {size: 100Mi}}}")
	s.settled()
	s.must("", "wait", "lsc/shop", "--for=condition=StoreReady", "--timeout=1m")
	s.redis("set", "live_stash:e2e", "kept", "EX", "600")

	t.Run("users move between pods", func(t *testing.T) {
		s := s.in(t)
		outcome := s.load("redis")
		if !outcome.Passed || outcome.Recovered.No != 0 || outcome.WrongCount != 0 || outcome.Error != 0 || outcome.Recovered.Yes < 50 {
			t.Errorf("load test: %+v", outcome)
		}
	})

	t.Run("what it holds outlives a restart", func(t *testing.T) {
		s := s.in(t)
		s.lose("shop-redis-0")
		if got := s.redis("get", "live_stash:e2e"); got != "kept" {
			t.Errorf("the stash is %q after the restart", got)
		}
	})

	t.Run("it serves metrics", func(t *testing.T) {
		s := s.in(t)
		metrics := s.must("", "get", "--raw", "/api/v1/namespaces/"+s.name+"/pods/shop-redis-0:9121/proxy/metrics")
		for _, want := range []string{"redis_up 1", "redis_memory_max_bytes 1.00663296e+08"} {
			if !strings.Contains(metrics, want) {
				t.Errorf("the metrics have no %q", want)
			}
		}
	})

	t.Run("a new password leaves no gap", func(t *testing.T) {
		s := s.in(t)
		s.newPassword()
	})

	t.Run("another store", func(t *testing.T) {
		s := s.in(t)
		s.otherStore()
	})
}

// A managed Redis without a volume keeps what it holds when it is changed; what a deleted pod costs is told.
func TestRedisWithoutAVolume(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "redis-memory")
	s.apply("adapter: Redis\nreplicas: 1\nredis: {managed: {memory: 64Mi}}")
	s.settled()
	s.must("", "wait", "lsc/shop", "--for=condition=StoreReady", "--timeout=1m")
	for _, change := range []string{"{memory: 96Mi}", "{memory: 64Mi, exporter: {enabled: false}}"} {
		before := s.redisServer()
		s.redis("set", "live_stash:e2e", change, "EX", "600")
		s.apply("adapter: Redis\nreplicas: 1\nredis: {managed: " + change + "}")
		s.eventually(2*time.Minute, func() error {
			now, pods := s.redisServer(), s.must("", "get", "pods", "-l", "app.kubernetes.io/name=redis", "-o", "name")
			if now == before || pods != "pod/"+now {
				return fmt.Errorf("the server was %s and is %s; the pods are %s", before, now, pods)
			}
			return nil
		})
		if got := s.redis("get", "live_stash:e2e"); got != change {
			t.Errorf("the stash is %q after the change %s", got, change)
		}
	}
	s.must("", "wait", "lsc/shop", "--for=condition=StoreReady", "--timeout=1m")
	s.must("", "delete", "pod", s.redisServer())
	s.eventually(time.Minute, func() error {
		if told := s.must("", "get", "events", "--field-selector", "reason=StashesLost", "-o", "jsonpath={.items[*].message}"); !strings.Contains(told, "was gone without having been asked") {
			return fmt.Errorf("told is %q", told)
		}
		return nil
	})
}

// redisServer is the pod that has the stashes of a managed Redis.
func (s space) redisServer() string {
	s.t.Helper()
	if pod := s.must("", "get", "lsc", "shop", "-o", "jsonpath={.status.redis.server.pod}"); pod != "" {
		return pod
	}
	return "shop-redis-0"
}

// redis is what redis-cli says, run in the pod of the managed Redis as the fleet.
func (s space) redis(command ...string) string {
	s.t.Helper()
	return s.redisAs(s.secretValue("shop-redis", "password"), command...)
}

func (s space) redisAs(password string, command ...string) string {
	s.t.Helper()
	args := []string{"exec", s.redisServer(), "-c", "redis", "--", "redis-cli", "--no-auth-warning", "--user", "livestash", "--pass", password}
	return s.must("", append(args, command...)...)
}

func (s space) secretValue(secret, key string) string {
	s.t.Helper()
	return s.must("", "get", "secret", secret, "-o", "go-template={{index .data \""+key+"\" | base64decode}}")
}

// newPassword has the generated password changed, and looks all the while whether pods can log in.
func (s space) newPassword() {
	s.t.Helper()
	s.storeReadyFor(10 * time.Second)
	redis, old := s.must("", "get", "pod", "shop-redis-0", "-o", "jsonpath={.metadata.uid}"), s.secretValue("shop-redis", "password")
	before := s.must("", "get", "statefulset", "shop", "-o", "jsonpath={.status.updateRevision}")

	stop := s.watch(func() error {
		const condition = `jsonpath={range .status.conditions[?(@.type=="StoreReady")]}{.status} {.message}{end}`
		ready, err := s.kubectl("", "get", "lsc", "shop", "-o", condition)
		// Who has another password is refused. On a busy machine a question may take too long, of Redis or of the pod that tells of it.
		late := slices.ContainsFunc([]string{"within 2 seconds", "no pod tells", "has not been asked yet"}, func(why string) bool { return strings.Contains(ready, why) })
		if err == nil && !strings.HasPrefix(ready, "True") && !late {
			err = fmt.Errorf("StoreReady was %s", ready)
		}
		return err
	})
	s.must("", "delete", "secret", "shop-redis")
	s.eventually(time.Minute, func() error {
		if s.must("", "get", "statefulset", "shop", "-o", "jsonpath={.status.updateRevision}") == before {
			return errors.New("the fleet does not roll")
		}
		return nil
	})
	// Pods of both templates are there now.
	current := s.secretValue("shop-redis", "password")
	for _, password := range []string{old, current} {
		if got := s.redisAs(password, "ping"); got != "PONG" {
			s.t.Errorf("Redis answers %q while the fleet rolls", got)
		}
	}
	s.settled()
	if err := stop(); err != nil {
		s.t.Error(err)
	}
	if current == old {
		s.t.Error("the password is the same")
	}
	if now := s.must("", "get", "pod", "shop-redis-0", "-o", "jsonpath={.metadata.uid}"); now != redis {
		s.t.Error("Redis restarted for a new password")
	}
}

// storeReadyFor waits until StoreReady has been true for that long. Pods check Redis, and the operator asks pods, every five seconds, so
// one may still have to tell of a restart that another knows to be over.
func (s space) storeReadyFor(long time.Duration) {
	s.t.Helper()
	const condition = `jsonpath={range .status.conditions[?(@.type=="StoreReady")]}{.status} {.lastTransitionTime}{end}`
	s.eventually(time.Minute, func() error {
		got := s.must("", "get", "lsc", "shop", "-o", condition)
		status, transition, _ := strings.Cut(got, " ")
		since, err := time.Parse(time.RFC3339, transition)
		if err != nil || status != "True" || time.Since(since) < long {
			return fmt.Errorf("StoreReady is %s", got)
		}
		return nil
	})
}

// otherStore goes over to a Redis that somebody else runs, in which the password is wrong at first.
func (s space) otherStore() {
	s.t.Helper()
	s.must("", "create", "secret", "generic", "other", "--from-literal=password=wrong", "--from-literal=right=s3cret")
	s.must(s.plainRedis("other", "other", "right"), "apply", "-f", "-")
	s.must("", "wait", "pod/other", "--for=condition=Ready", "--timeout=1m")

	stop := s.watch(func() error {
		used, err := s.kubectl("", "get", "pods", "-l", "app.kubernetes.io/component=fleet", "-o", `jsonpath={range .items[*]}{.metadata.annotations.livestash\.dev/store}{" "}{end}`)
		stores := strings.Fields(used)
		slices.Sort(stores)
		if stores = slices.Compact(stores); err == nil && len(stores) > 1 {
			err = fmt.Errorf("pods with the stores %v at the same time", stores)
		}
		return err
	})
	const external = "adapter: Redis\nredis: {external: {host: other, passwordSecretRef: {name: other, key: password}}}"
	s.apply(external)
	s.eventually(time.Minute, func() error {
		held := s.condition("ReconcileSucceeded")
		if !strings.HasPrefix(held, "False StoreChangeHeld") || !strings.Contains(held, "PersistentVolumeClaim shop-redis-data") {
			return fmt.Errorf("ReconcileSucceeded is %s", held)
		}
		return nil
	})
	s.apply(external + "\nacceptLossOf: Redis")
	s.eventually(2*time.Minute, func() error {
		condition := s.condition("StoreReady")
		if !strings.HasPrefix(condition, "False StoreNotReady") || !strings.Contains(condition, "refuses the user or the password") {
			return fmt.Errorf("StoreReady is %s", condition)
		}
		return nil
	})
	if ready := s.must("", "get", "lsc", "shop", "-o", "jsonpath={.status.readyReplicas}"); ready != "" {
		s.t.Errorf("%s pods are ready without their store", ready)
	}

	s.must(`{"stringData": {"password": "s3cret"}}`, "patch", "secret", "other", "--patch-file", "/dev/stdin")
	s.settled()
	s.must("", "wait", "lsc/shop", "--for=condition=StoreReady", "--timeout=1m")
	if err := stop(); err != nil {
		s.t.Error(err)
	}
	if left := s.must("", "get", "statefulset,service,configmap,pvc", "-l", "app.kubernetes.io/component=redis", "-o", "name"); left != "" {
		s.t.Errorf("of the managed Redis there is left: %s", left)
	}
}

// watch runs check again and again until stop is called, which returns the first error.
func (s space) watch(check func() error) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	first := make(chan error, 1)
	go func() {
		defer close(first)
		for ctx.Err() == nil {
			if err := check(); err != nil && ctx.Err() == nil {
				first <- err
				return
			}
			time.Sleep(200 * time.Millisecond)
		}
	}()
	return func() error {
		cancel()
		return <-first
	}
}

// plainRedis is a pod with a Redis of the user's own, and its Service. The password is under that key of a Secret.
func (s space) plainRedis(name, secret, key string) string {
	s.t.Helper()
	return strings.NewReplacer("NAME", name, "IMAGE", s.redisImage(), "SECRET", secret, "KEY", key).Replace(`
apiVersion: v1
kind: Service
metadata: {name: NAME}
spec: {selector: {app: NAME}, ports: [{port: 6379}]}
---
apiVersion: v1
kind: Pod
metadata: {name: NAME, labels: {app: NAME}}
spec:
  securityContext: {runAsNonRoot: true, runAsUser: 65534, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: redis
    image: IMAGE
    command: [redis-server, --protected-mode, "no", --save, "", --requirepass, $(PASSWORD)]
    env: [{name: PASSWORD, valueFrom: {secretKeyRef: {name: SECRET, key: KEY}}}]
    workingDir: /tmp
    readinessProbe: {tcpSocket: {port: 6379}, periodSeconds: 1}
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`)
}

// redisImage is what the operator takes by default on this cluster.
func (s space) redisImage() string {
	s.t.Helper()
	args, err := run("", "kubectl", "get", "deployments", "--namespace", releaseNamespace, "-o", "jsonpath={.items[*].spec.template.spec.containers[*].args[*]}")
	if err != nil {
		s.t.Fatal(err, args)
	}
	for _, arg := range strings.Fields(args) {
		if image, found := strings.CutPrefix(arg, "--redis-image="); found {
			return image
		}
	}
	s.t.Fatalf("the operator was given no image of Redis: %s", args)
	return ""
}

// redis-operator is played by the test: its kind is a stand-in that takes anything, and what it would make for the fleet's
// custom resource is made by hand. The real one was tried too, see docs/reference/verified.md.
func TestOperatedRedis(t *testing.T) {
	s := newSpace(t, "redis-op")
	s.apply("adapter: Redis\nredis: {operator: {image: redis, mode: Standalone}}")
	s.eventually(time.Minute, func() error {
		if condition := s.condition("ReconcileSucceeded"); !strings.HasPrefix(condition, "False RedisOperatorMissing") || !strings.Contains(condition, "install redis-operator") {
			return fmt.Errorf("ReconcileSucceeded is %s", condition)
		}
		return nil
	})

	s.must(redisDefinition, "apply", "-f", "-")
	t.Cleanup(func() { _, _ = s.kubectl("", "delete", "crd", "redis.redis.redis.opstreelabs.in", "--wait=false") })
	s.eventually(time.Minute, func() error {
		_, err := s.kubectl("", "get", "redis.redis.redis.opstreelabs.in", "shop-redis-op")
		return err
	})
	asked := func(path string) string {
		return s.must("", "get", "redis.redis.redis.opstreelabs.in", "shop-redis-op", "-o", "jsonpath="+path)
	}
	if cluster := asked(`{.metadata.labels.livestash\.dev/cluster}`); cluster != "shop" {
		t.Errorf("the StatefulSet would have the label of cluster %q", cluster)
	}

	s.must(s.plainRedis("shop-redis-op", asked("{.spec.kubernetesConfig.redisSecret.name}"), asked("{.spec.kubernetesConfig.redisSecret.key}")), "apply", "-f", "-")
	s.eventually(time.Minute, func() error {
		if condition := s.condition("StoreReady"); !strings.Contains(condition, "StatefulSet shop-redis-op has 0 of 1 pods ready") {
			return fmt.Errorf("StoreReady is %s", condition)
		}
		return nil
	})
	s.must("", "wait", "lsc/shop", "--for=condition=Available", "--timeout=2m")
	if condition := s.condition("ReconcileSucceeded"); !strings.HasPrefix(condition, "True ") {
		t.Errorf("ReconcileSucceeded is %s", condition)
	}
}

const redisDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: redis.redis.redis.opstreelabs.in}
spec:
  group: redis.redis.opstreelabs.in
  scope: Namespaced
  names: {plural: redis, singular: redis, kind: Redis, listKind: RedisList}
  versions:
  - name: v1beta2
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`
