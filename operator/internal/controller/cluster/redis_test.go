package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/redisadmin"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/render/redis"
	"github.com/livestash-dev/livestash/operator/internal/succession"
)

// toldToRedis stands for the Redis servers: it keeps what the operator tells them, by their address.
type toldToRedis struct {
	mutex sync.Mutex
	// refuses are the addresses that do not answer.
	refuses map[string]bool
	told    map[string][]string
	// logins are what the operator logged in with last, shown the certificates that servers show, by their address.
	logins map[string]redisadmin.Login
	shown  map[string]string
	// reads are the addresses of servers that the kubelet has brought their new certificate.
	reads map[string]bool
	// servers are what those say of themselves that take part in hand-overs, by their address.
	servers map[string]*succession.Says
}

// starts has a server at that address, without stashes.
func (t *toldToRedis) starts(address string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.servers == nil {
		t.servers = map[string]*succession.Says{}
	}
	t.servers[address] = &succession.Says{}
}

func (t *toldToRedis) says(address string) succession.Says {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return *t.servers[address]
}

// tell does something to the server at that address.
func (t *toldToRedis) tell(address string, do func(*succession.Says) error) error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if server := t.servers[address]; server != nil {
		return do(server)
	}
	return errors.New("connection refused")
}

func (t *toldToRedis) Look(_ context.Context, login redisadmin.Login) (says succession.Says, err error) {
	err = t.tell(login.Address, func(server *succession.Says) error {
		says = *server
		return nil
	})
	return says, err
}

func (t *toldToRedis) SetPrimary(_ context.Context, login redisadmin.Login, name string) error {
	return t.tell(login.Address, func(server *succession.Says) error {
		server.Primary = name
		return nil
	})
}

func (t *toldToRedis) Follow(_ context.Context, login, primary redisadmin.Login, _ string) error {
	from := t.says(primary.Address)
	return t.tell(login.Address, func(server *succession.Says) error {
		host, _, err := net.SplitHostPort(primary.Address)
		*server = succession.Says{Primary: from.Primary, Stashes: from.Stashes, Follows: host, InSync: true, Filed: true}
		return err
	})
}

func (t *toldToRedis) FailOver(_ context.Context, login redisadmin.Login) error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	host, _, err := net.SplitHostPort(login.Address)
	for address, server := range t.servers {
		if server.Follows != host {
			continue
		}
		server.Follows, server.InSync = "", false
		t.servers[login.Address].Follows, t.servers[login.Address].InSync = strings.TrimSuffix(address, ":6379"), true
		return err
	}
	return errors.New("nobody follows")
}

func (t *toldToRedis) Abort(_ context.Context, login redisadmin.Login) error {
	return t.tell(login.Address, func(server *succession.Says) error {
		if !server.FailingOver {
			return errors.New("nothing to abort")
		}
		server.FailingOver, server.Follows = false, ""
		return nil
	})
}

func (t *toldToRedis) Promote(_ context.Context, login redisadmin.Login) error {
	return t.tell(login.Address, func(server *succession.Says) error {
		if server.FailingOver {
			return errors.New("it is failing over")
		}
		server.Follows = ""
		return nil
	})
}

// loggedIn keeps what the operator logs in with.
func (t *toldToRedis) loggedIn(login redisadmin.Login) {
	if t.logins == nil {
		t.logins, t.shown = map[string]redisadmin.Login{}, map[string]string{}
	}
	t.logins[login.Address] = login
}

// Renew shows the wanted certificate when the kubelet has brought it.
func (t *toldToRedis) Renew(_ context.Context, login redisadmin.Login, file string, want []byte) (bool, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.refuses[login.Address] {
		return false, errors.New("connection refused")
	}
	t.loggedIn(login)
	if t.reads[login.Address] && file == "/etc/livestash-redis/tls.crt" {
		t.shown[login.Address] = string(want)
	}
	return t.shown[login.Address] == string(want), nil
}

// kubelet has brought the server at that address its new certificate, or not.
func (t *toldToRedis) kubelet(address string, brings bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.reads == nil {
		t.reads = map[string]bool{}
	}
	t.reads[address] = brings
}

func (t *toldToRedis) shows(address string) (redisadmin.Login, string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.logins[address], t.shown[address]
}

func (t *toldToRedis) SetPasswords(_ context.Context, login redisadmin.Login, user string, hashes []string) error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.refuses[login.Address] {
		return errors.New("connection refused")
	}
	t.loggedIn(login)
	if user != "livestash" || login.User != "operator" || login.Password == "" {
		return fmt.Errorf("%s tells of %s", login.User, user)
	}
	if t.told == nil {
		t.told = map[string][]string{}
	}
	t.told[login.Address] = hashes
	return nil
}

func (t *toldToRedis) refuse(address string, refuses bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.refuses == nil {
		t.refuses = map[string]bool{}
	}
	t.refuses[address] = refuses
}

func (t *toldToRedis) hashes(address string) []string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return slices.Clone(t.told[address])
}

func redisAddress(cluster *v1alpha1.LiveStashCluster) string {
	return "shop-redis." + cluster.Namespace + ".svc.cluster.local:6379"
}

func managedRedisFleet(spec *v1alpha1.LiveStashClusterSpec) { spec.Adapter = v1alpha1.AdapterRedis }

// await waits until the object is there, and reads it.
func await[T client.Object](t *testing.T, namespace, name string, object T) T {
	t.Helper()
	suite.Eventually(t, func() error {
		return api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object)
	})
	return object
}

func fleetTemplate(t *testing.T, cluster *v1alpha1.LiveStashCluster) corev1.PodTemplateSpec {
	t.Helper()
	return await(t, cluster.Namespace, cluster.Name, &appsv1.StatefulSet{}).Spec.Template
}

// rolledOut plays the StatefulSet controller: every pod has the newest template.
func rolledOut(t *testing.T, namespace, name string) {
	t.Helper()
	suite.Eventually(t, func() error {
		set := await(t, namespace, name, &appsv1.StatefulSet{})
		replicas := ptr.Deref(set.Spec.Replicas, 1)
		set.Status = appsv1.StatefulSetStatus{
			ObservedGeneration: set.Generation, Replicas: replicas, ReadyReplicas: replicas, UpdatedReplicas: replicas, AvailableReplicas: replicas,
			CurrentRevision: fmt.Sprintf("%s-%d", name, set.Generation), UpdateRevision: fmt.Sprintf("%s-%d", name, set.Generation),
		}
		return api.Status().Update(t.Context(), set)
	})
}

// conditionSays waits until a condition has the reason and says the texts.
func conditionSays(t *testing.T, cluster *v1alpha1.LiveStashCluster, kind, reason string, says ...string) {
	t.Helper()
	suite.Eventually(t, func() error {
		found := meta.FindStatusCondition(await(t, cluster.Namespace, cluster.Name, &v1alpha1.LiveStashCluster{}).Status.Conditions, kind)
		if found == nil || found.Reason != reason {
			return fmt.Errorf("%s = %v; want the reason %s", kind, found, reason)
		}
		for _, text := range says {
			if !strings.Contains(found.Message, text) {
				return fmt.Errorf("the message %q does not say %q", found.Message, text)
			}
		}
		return nil
	})
}

func TestManagedRedisIsTheDefault(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), managedRedisFleet)
	set := await(t, cluster.Namespace, "shop-redis", &appsv1.StatefulSet{})
	await(t, cluster.Namespace, "shop-redis", &corev1.Service{})
	await(t, cluster.Namespace, "shop-redis", &corev1.ConfigMap{})

	login := await(t, cluster.Namespace, "shop-redis", &corev1.Secret{})
	users := await(t, cluster.Namespace, "shop-redis-acl", &corev1.Secret{})
	hash := redis.PasswordHash(string(login.Data["password"]))
	if !strings.Contains(string(users.Data["users.acl"]), "user livestash on #"+hash+" ") {
		t.Error("Redis does not know the fleet's password")
	}
	if want := "redis://livestash:" + string(login.Data["password"]) + "@" + redisAddress(cluster) + "/0"; string(login.Data["url"]) != want {
		t.Errorf("url = %s, want %s", login.Data["url"], want)
	}
	if set.Spec.Template.Annotations["livestash.dev/redis-access"] != string(users.UID) {
		t.Error("Redis would not notice that its users were made anew")
	}
	conditionSays(t, cluster, v1alpha1.ConditionStoreReady, v1alpha1.ReasonStoreNotReady, "StatefulSet shop-redis has 0 of 1 pods ready")
	suite.Eventually(t, func() error {
		status := await(t, cluster.Namespace, "shop", &v1alpha1.LiveStashCluster{}).Status.Redis
		if status == nil || status.Mode != v1alpha1.RedisModeManaged || status.Address != redisAddress(cluster) {
			return fmt.Errorf("status.redis = %v", status)
		}
		return nil
	})
}

// withOwnRedisPassword is a fleet whose Redis has a password of the user's: first, in a Secret.
func withOwnRedisPassword(t *testing.T) (*v1alpha1.LiveStashCluster, *corev1.Secret) {
	t.Helper()
	ns := suite.Namespace(t, api)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mine"}, Data: map[string][]byte{"pw": []byte("first")}}
	suite.Must(t, api.Create(t.Context(), secret))
	return newCluster(t, ns, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Adapter = v1alpha1.AdapterRedis
		spec.Redis = &v1alpha1.RedisSpec{Managed: &v1alpha1.ManagedRedis{
			Password: &v1alpha1.SecretSource{SecretRef: &v1alpha1.SecretKeyReference{Name: "mine", Key: "pw"}}}}
	}), secret
}

// A new password reaches Redis before it reaches the fleet, and the old one is good until the fleet has rolled.
func TestANewRedisPassword(t *testing.T) {
	cluster, secret := withOwnRedisPassword(t)
	ns := cluster.Namespace
	first := fleetTemplate(t, cluster)
	rolledOut(t, ns, "shop-redis")
	rolledOut(t, ns, "shop")

	redisServers.refuse(redisAddress(cluster), true)
	secret.Data["pw"] = []byte("second")
	suite.Must(t, api.Update(t.Context(), secret))
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonRedisPasswordWaits, "connection refused", "keeps the old one")
	if got := string(await(t, ns, "shop-redis", &corev1.Secret{}).Data["password"]); got != "first" {
		t.Errorf("the fleet has the password %q before Redis takes it", got)
	}
	if fleetTemplate(t, cluster).Annotations[fleet.SecretsDigestAnnotation] != first.Annotations[fleet.SecretsDigestAnnotation] {
		t.Error("the fleet rolls before Redis takes the new password")
	}

	redisServers.refuse(redisAddress(cluster), false)
	both := []string{redis.PasswordHash("second"), redis.PasswordHash("first")}
	suite.Eventually(t, func() error {
		if got := string(await(t, ns, "shop-redis", &corev1.Secret{}).Data["password"]); got != "second" {
			return fmt.Errorf("the fleet has the password %q", got)
		}
		if fleetTemplate(t, cluster).Annotations[fleet.SecretsDigestAnnotation] == first.Annotations[fleet.SecretsDigestAnnotation] {
			return errors.New("the fleet does not roll")
		}
		return nil
	})
	if got := redisServers.hashes(redisAddress(cluster)); !slices.Equal(got, both) {
		t.Errorf("Redis takes the passwords %v, want %v", got, both)
	}
	if users := await(t, ns, "shop-redis-acl", &corev1.Secret{}); !strings.Contains(string(users.Data["users.acl"]), "#"+both[0]+" #"+both[1]) {
		t.Error("a Redis that restarts now would not take both passwords")
	}

	// A server that restarts now may read the users of before.
	rolledOut(t, ns, "shop")
	looks(t, cluster, "while the kubelet may not have brought the new password")
	if got := redisServers.hashes(redisAddress(cluster)); !slices.Equal(got, both) {
		t.Errorf("Redis takes the passwords %v, want %v", got, both)
	}

	later(t, cluster, 2*keepOldPassword)
	suite.Eventually(t, func() error {
		if got := redisServers.hashes(redisAddress(cluster)); !slices.Equal(got, both[:1]) {
			return fmt.Errorf("Redis takes the passwords %v, want %v", got, both[:1])
		}
		return nil
	})
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonReconciled)
	suite.Eventually(t, func() error {
		if due := secretNamed(t, cluster, "shop-redis-acl").Annotations[usersDueAnnotation]; due != "" {
			return fmt.Errorf("old passwords are due at %s, and there are none", due)
		}
		return nil
	})
}

// Who takes a password back that Redis had not been told yet keeps the one that the pods have: it is the newest again, and stays.
func TestARedisPasswordIsTakenBack(t *testing.T) {
	cluster, secret := withOwnRedisPassword(t)
	ns := cluster.Namespace
	rolledOut(t, ns, "shop-redis")
	rolledOut(t, ns, "shop")
	redisServers.refuse(redisAddress(cluster), true)
	secret.Data["pw"] = []byte("second")
	suite.Must(t, api.Update(t.Context(), secret))
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonRedisPasswordWaits, "keeps the old one")

	secret.Data["pw"] = []byte("first")
	suite.Must(t, api.Update(t.Context(), secret))
	redisServers.refuse(redisAddress(cluster), false)
	want := []string{redis.PasswordHash("first")}
	suite.Eventually(t, func() error {
		// A pass that was under way may still have told Redis, and then the fleet rolls to the second password and back.
		rolledOut(t, ns, "shop")
		later(t, cluster, 2*keepOldPassword)
		if got := redisServers.hashes(redisAddress(cluster)); !slices.Equal(got, want) {
			return fmt.Errorf("Redis takes the passwords %v, want %v", got, want)
		}
		return nil
	})
	if got := string(await(t, ns, "shop-redis", &corev1.Secret{}).Data["password"]); got != "first" {
		t.Errorf("the fleet has the password %q", got)
	}
}

// Redis forgets the old password when every pod has the new one, and not while one may still log in with the old.
func TestEveryPodHasRolled(t *testing.T) {
	for name, change := range map[string]func(*appsv1.StatefulSet){
		"another template":  func(set *appsv1.StatefulSet) { set.Spec.Template.Annotations[fleet.SecretsDigestAnnotation] = "old" },
		"not yet looked at": func(set *appsv1.StatefulSet) { set.Generation++ },
		"not the last one":  func(set *appsv1.StatefulSet) { set.Status.CurrentRevision = "a" },
		"not every pod":     func(set *appsv1.StatefulSet) { set.Status.UpdatedReplicas-- },
		"":                  func(*appsv1.StatefulSet) {},
	} {
		set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
		set.Spec.Template.Annotations = map[string]string{fleet.SecretsDigestAnnotation: "new"}
		set.Status = appsv1.StatefulSetStatus{ObservedGeneration: 2, CurrentRevision: "b", UpdateRevision: "b", Replicas: 2, UpdatedReplicas: 2}
		change(set)
		p := &pass{seen: observation{statefulSet: set}}
		p.inputs.SecretsDigest = "new"
		if p.hasRolled() != (name == "") {
			t.Errorf("%q: has rolled: %t", name, p.hasRolled())
		}
	}
}

// Deleting the Secret is how a generated password is changed.
func TestAGeneratedRedisPasswordIsChanged(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), managedRedisFleet)
	before := await(t, cluster.Namespace, "shop-redis", &corev1.Secret{})
	rolledOut(t, cluster.Namespace, "shop-redis")
	suite.Must(t, api.Delete(t.Context(), before.DeepCopy()))
	suite.Eventually(t, func() error {
		after := await(t, cluster.Namespace, "shop-redis", &corev1.Secret{})
		want := []string{redis.PasswordHash(string(after.Data["password"])), redis.PasswordHash(string(before.Data["password"]))}
		if got := redisServers.hashes(redisAddress(cluster)); after.UID == before.UID || !slices.Equal(got, want) {
			return fmt.Errorf("Redis takes the passwords %v, want %v", got, want)
		}
		return nil
	})
}

// Pods of two stores would give users old stashes: the last one with the old store goes before the first one with the new.
func TestNoTwoStoresAtOnce(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), managedRedisFleet)
	pod := fleetPod(t, cluster, 0, "a")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.AcceptLossOf = v1alpha1.AdapterRedis
		spec.Redis = &v1alpha1.RedisSpec{External: &v1alpha1.ExternalRedis{Host: "redis.example.com"}}
	})
	replicas := func(want int32) {
		t.Helper()
		suite.Eventually(t, func() error {
			if got := *await(t, cluster.Namespace, "shop", &appsv1.StatefulSet{}).Spec.Replicas; got != want {
				return fmt.Errorf("%d replicas, want %d", got, want)
			}
			return nil
		})
	}
	replicas(0)
	conditionSays(t, cluster, v1alpha1.ConditionProgressing, v1alpha1.ReasonStoreChanging, "every pod stops before")
	await(t, cluster.Namespace, "shop-redis", &appsv1.StatefulSet{})
	if status := await(t, cluster.Namespace, "shop", &v1alpha1.LiveStashCluster{}).Status.Redis; status.Mode != v1alpha1.RedisModeManaged {
		t.Errorf("status.redis = %v while the pods still use the managed one", status)
	}

	suite.Must(t, api.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	replicas(2)
	suite.Eventually(t, func() error {
		err := api.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: "shop-redis"}, &appsv1.StatefulSet{})
		if !apierrors.IsNotFound(err) {
			return errors.New("the managed Redis is still there")
		}
		return nil
	})
}

// Other adapters do not find stashes of Redis: pods go over one by one, and Redis stays until the last one has.
func TestFromRedisToAnotherAdapter(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), managedRedisFleet)
	pod := fleetPod(t, cluster, 0, "a")
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Adapter, spec.AcceptLossOf = v1alpha1.AdapterETS, v1alpha1.AdapterRedis
	})
	suite.Eventually(t, func() error {
		if _, redis := fleetTemplate(t, cluster).Annotations[fleet.StoreAnnotation]; redis {
			return errors.New("the pods are to use Redis still")
		}
		return nil
	})
	if replicas := *await(t, cluster.Namespace, "shop", &appsv1.StatefulSet{}).Spec.Replicas; replicas != 2 {
		t.Errorf("%d replicas", replicas)
	}
	reconciled(t, cluster)
	suite.Must(t, api.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: "shop-redis"}, &appsv1.StatefulSet{}))
	if cluster.Status.Redis == nil {
		t.Error("status.redis is gone while a pod uses it")
	}

	suite.Must(t, api.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	suite.Eventually(t, func() error {
		err := api.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: "shop-redis"}, &appsv1.StatefulSet{})
		if !apierrors.IsNotFound(err) {
			return errors.New("the managed Redis is still there")
		}
		return nil
	})
}

func TestAnotherPasswordIsNoOtherStore(t *testing.T) {
	ns := suite.Namespace(t, api)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mine"}, Data: map[string][]byte{"url": []byte("redis://:a@redis")}}
	suite.Must(t, api.Create(t.Context(), secret))
	cluster := newCluster(t, ns, func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Adapter = v1alpha1.AdapterRedis
		spec.Redis = &v1alpha1.RedisSpec{External: &v1alpha1.ExternalRedis{URLSecretRef: &v1alpha1.SecretKeyReference{Name: "mine", Key: "url"}}}
	})
	before := fleetTemplate(t, cluster)
	fleetPod(t, cluster, 0, "a")
	secret.Data["url"] = []byte("redis://:b@redis")
	suite.Must(t, api.Update(t.Context(), secret))
	suite.Eventually(t, func() error {
		set := await(t, ns, "shop", &appsv1.StatefulSet{})
		if set.Spec.Template.Annotations[fleet.SecretsDigestAnnotation] == before.Annotations[fleet.SecretsDigestAnnotation] {
			return errors.New("the fleet does not roll")
		}
		if *set.Spec.Replicas != 2 {
			return fmt.Errorf("%d replicas", *set.Spec.Replicas)
		}
		return nil
	})
}

func TestPersistenceNeedsAStorageClass(t *testing.T) {
	persistent := func(class *string) func(*v1alpha1.LiveStashClusterSpec) {
		return func(spec *v1alpha1.LiveStashClusterSpec) {
			spec.Adapter = v1alpha1.AdapterRedis
			spec.Redis = &v1alpha1.RedisSpec{Managed: &v1alpha1.ManagedRedis{Persistence: &v1alpha1.RedisPersistence{StorageClassName: class}}}
		}
	}
	unnamed := newCluster(t, suite.Namespace(t, api), persistent(nil))
	conditionSays(t, unnamed, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonStorageClassMissing, "no default one", "storageClassName", "remove persistence")
	named := newCluster(t, suite.Namespace(t, api), persistent(ptr.To("redis-test")))
	conditionSays(t, named, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonStorageClassMissing, "redis-test, which does not exist")

	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "redis-test"}, Provisioner: "example.com/none"}
	suite.Must(t, api.Create(t.Context(), class))
	t.Cleanup(func() { _ = api.Delete(context.Background(), class) })
	await(t, named.Namespace, "shop-redis-data", &corev1.PersistentVolumeClaim{})
	conditionSays(t, named, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonReconciled)
}

// redis-operator may be installed after the fleet: no restart is needed.
func TestRedisOperatorAppears(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), func(spec *v1alpha1.LiveStashClusterSpec) {
		spec.Adapter = v1alpha1.AdapterRedis
		spec.Redis = &v1alpha1.RedisSpec{Operator: &v1alpha1.OperatedRedis{Image: "redis:8", SentinelImage: "redis-sentinel:8"}}
	})
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonRedisOperatorMissing, "redis.redis.opstreelabs.in/v1beta2 RedisReplication", "install redis-operator")
	await(t, cluster.Namespace, "shop", &appsv1.StatefulSet{})

	suite.Must(t, api.Create(t.Context(), foreignDefinition("redisreplications", redis.ReplicationKind)))
	made := &unstructured.Unstructured{}
	made.SetGroupVersionKind(redis.ReplicationKind)
	suite.Eventually(t, func() error {
		return api.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace, Name: "shop-redis-op"}, made)
	})
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonReconciled)

	// What redis-operator makes tells the rest.
	conditionSays(t, cluster, v1alpha1.ConditionStoreReady, v1alpha1.ReasonStoreNotReady, "StatefulSet shop-redis-op has 0 of 1 pods ready")
	server := newRedisServer(t, cluster, made.GetLabels())
	conditionSays(t, cluster, v1alpha1.ConditionStoreReady, v1alpha1.ReasonStoreNotReady, "has not yet told which pod is the master")
	server.Labels[redis.RoleLabel] = redis.MasterRole
	suite.Must(t, api.Update(t.Context(), server))
	conditionSays(t, cluster, v1alpha1.ConditionStoreReady, v1alpha1.ReasonStoreNotReady, "no pod is up")

	login := await(t, cluster.Namespace, "shop-redis", &corev1.Secret{})
	if want := "redis://:" + string(login.Data["password"]) + "@shop-redis-op-master." + cluster.Namespace + ".svc.cluster.local:6379/0"; string(login.Data["url"]) != want {
		t.Errorf("url = %s, want %s", login.Data["url"], want)
	}

	// The first pass with another store does not get as far as to what is not wanted any more.
	noServices(t, cluster.Namespace)
	changeSpec(t, cluster, func(spec *v1alpha1.LiveStashClusterSpec) { spec.Redis, spec.AcceptLossOf = nil, v1alpha1.AdapterRedis })
	conditionSays(t, cluster, v1alpha1.ConditionReconcileSucceeded, v1alpha1.ReasonAPIError, "applying Service shop-redis", "exceeded quota: none")
	suite.Eventually(t, func() error {
		if err := get(t, cluster); err != nil {
			return err
		}
		if cluster.Status.Redis == nil || cluster.Status.Redis.Mode != v1alpha1.RedisModeManaged {
			return fmt.Errorf("status.redis is %+v", cluster.Status.Redis)
		}
		return nil
	})
	suite.Must(t, api.Delete(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "none"}}))
	suite.Eventually(t, func() error {
		err := api.Get(t.Context(), client.ObjectKeyFromObject(made), made)
		if !apierrors.IsNotFound(err) {
			return errors.New("the RedisReplication is still there")
		}
		return nil
	})
}

// newRedisServer plays redis-operator: a server that is ready, with the labels of the custom resource.
func newRedisServer(t *testing.T, cluster *v1alpha1.LiveStashCluster, labels map[string]string) *corev1.Pod {
	t.Helper()
	name := redis.OperatedName(cluster)
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "redis", Image: "x"}}}
	server := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name + "-0", Labels: labels}, Spec: spec}
	suite.Must(t, api.Create(t.Context(), server))
	server.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	suite.Must(t, api.Status().Update(t.Context(), server))
	suite.Must(t, api.Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name, Labels: labels},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}))
	rolledOut(t, cluster.Namespace, name)
	return server
}

// foreignDefinition stands for another operator's CRD: it takes any spec.
func foreignDefinition(plural string, kind schema.GroupVersionKind) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": plural + "." + kind.Group},
		"spec": map[string]any{
			"group": kind.Group,
			"scope": "Namespaced",
			"names": map[string]any{"plural": plural, "kind": kind.Kind},
			"versions": []any{map[string]any{
				"name": kind.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
}
