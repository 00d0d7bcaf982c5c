package cluster

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
	"github.com/livestash-dev/livestash/operator/internal/render/tls"
)

// cached is a cache that holds objects.
func cached(t *testing.T, objects ...client.Object) *fake.ClientBuilder {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...)
}

// scrape is what Prometheus would read, without comments.
func scrape(t *testing.T, m *Metrics) (string, error) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		return "", err
	}
	var text bytes.Buffer
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			t.Fatal(err)
		}
	}
	return regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(text.String(), ""), nil
}

func elected() <-chan struct{} {
	works := make(chan struct{})
	close(works)
	return works
}

// everything are LiveStashClusters that together have every metric, with the Secret of a certificate.
func everything() []client.Object {
	shop := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop"}}
	shop.Spec.Adapter, shop.Spec.Replicas = v1alpha1.AdapterETS, ptr.To[int32](3)
	shop.Spec.Clustering.TLS.Enabled = true
	shop.Status = v1alpha1.LiveStashClusterStatus{
		ReadyReplicas:   2,
		UpdatedReplicas: 1,
		OperatorVersion: "1.2.2", UpgradeStarted: ptr.To(metav1.Unix(900, 0)), Redis: &v1alpha1.RedisStatus{OperatorVersion: "1.2.1"},
		Rollouts: []v1alpha1.RolloutStatus{
			{To: "b", Started: metav1.Unix(1000, 0), Finished: ptr.To(metav1.Unix(1060, 0)), StashesBefore: 10, HandedOver: 7, Lost: 1, Returned: 20, NotRecovered: 12, UsuallyNotRecovered: ptr.To[int32](5)},
			{To: "a", Started: metav1.Unix(500, 0), Finished: ptr.To(metav1.Unix(560, 0)), StashesBefore: 90},
		},
		Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue},
			{Type: v1alpha1.ConditionClustered, Status: metav1.ConditionFalse},
			{Type: v1alpha1.ConditionStoreReady, Status: metav1.ConditionUnknown},
		},
	}
	nodes := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "web", Name: tls.SecretName(shop), Annotations: map[string]string{expiryAnnotation: "1970-01-02T00:00:00Z"},
	}}
	browsers := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "page"}}
	browsers.Spec.Adapter, browsers.Spec.BrowserMemory = v1alpha1.AdapterBrowserMemory, &v1alpha1.BrowserMemorySpec{MaxStashBytes: 9500}
	browsers.Status.LargestStash = &v1alpha1.LargestStash{Bytes: 9000, Pod: "page-0"}
	return []client.Object{shop, nodes, browsers}
}

func TestMetricsTellTheStatus(t *testing.T) {
	plain := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "cart"}}
	plain.Spec.Adapter, plain.Spec.Paused = v1alpha1.AdapterRedis, true
	plain.Status.Rollouts = []v1alpha1.RolloutStatus{{To: "b", Started: metav1.Unix(2000, 0)}}

	got, err := scrape(t, &Metrics{Reader: cached(t, append(everything(), plain)...).Build(), Version: "1.2.3", Elected: elected()})
	if err != nil {
		t.Fatal(err)
	}
	want := `livestash_cluster_certificate_expiry_timestamp_seconds{livestash_cluster="shop",namespace="web"} 86400
livestash_cluster_condition{livestash_cluster="shop",namespace="web",type="Available"} 1
livestash_cluster_condition{livestash_cluster="shop",namespace="web",type="Clustered"} 0
livestash_cluster_desired_replicas{livestash_cluster="cart",namespace="web"} 2
livestash_cluster_desired_replicas{livestash_cluster="page",namespace="web"} 2
livestash_cluster_desired_replicas{livestash_cluster="shop",namespace="web"} 3
livestash_cluster_info{adapter="BrowserMemory",livestash_cluster="page",namespace="web"} 1
livestash_cluster_info{adapter="ETS",livestash_cluster="shop",namespace="web"} 1
livestash_cluster_info{adapter="Redis",livestash_cluster="cart",namespace="web"} 1
livestash_cluster_largest_stash_bytes{livestash_cluster="page",namespace="web"} 9000
livestash_cluster_max_stash_bytes{livestash_cluster="page",namespace="web"} 9500
livestash_cluster_paused{livestash_cluster="cart",namespace="web"} 1
livestash_cluster_paused{livestash_cluster="page",namespace="web"} 0
livestash_cluster_paused{livestash_cluster="shop",namespace="web"} 0
livestash_cluster_ready_replicas{livestash_cluster="cart",namespace="web"} 0
livestash_cluster_ready_replicas{livestash_cluster="page",namespace="web"} 0
livestash_cluster_ready_replicas{livestash_cluster="shop",namespace="web"} 2
livestash_cluster_rollout_finished_timestamp_seconds{livestash_cluster="shop",namespace="web"} 1060
livestash_cluster_rollout_returns{livestash_cluster="cart",namespace="web",outcome="lost"} 0
livestash_cluster_rollout_returns{livestash_cluster="cart",namespace="web",outcome="not_recovered"} 0
livestash_cluster_rollout_returns{livestash_cluster="cart",namespace="web",outcome="returned"} 0
livestash_cluster_rollout_returns{livestash_cluster="shop",namespace="web",outcome="lost"} 12
livestash_cluster_rollout_returns{livestash_cluster="shop",namespace="web",outcome="not_recovered"} 12
livestash_cluster_rollout_returns{livestash_cluster="shop",namespace="web",outcome="returned"} 20
livestash_cluster_rollout_started_timestamp_seconds{livestash_cluster="cart",namespace="web"} 2000
livestash_cluster_rollout_started_timestamp_seconds{livestash_cluster="shop",namespace="web"} 1000
livestash_cluster_rollout_stashes{livestash_cluster="cart",namespace="web",outcome="handed_over"} 0
livestash_cluster_rollout_stashes{livestash_cluster="cart",namespace="web",outcome="held"} 0
livestash_cluster_rollout_stashes{livestash_cluster="cart",namespace="web",outcome="lost"} 0
livestash_cluster_rollout_stashes{livestash_cluster="shop",namespace="web",outcome="handed_over"} 7
livestash_cluster_rollout_stashes{livestash_cluster="shop",namespace="web",outcome="held"} 10
livestash_cluster_rollout_stashes{livestash_cluster="shop",namespace="web",outcome="lost"} 1
livestash_cluster_template_info{component="fleet",livestash_cluster="shop",namespace="web",version="1.2.2"} 1
livestash_cluster_template_info{component="redis",livestash_cluster="shop",namespace="web",version="1.2.1"} 1
livestash_cluster_updated_replicas{livestash_cluster="cart",namespace="web"} 0
livestash_cluster_updated_replicas{livestash_cluster="page",namespace="web"} 0
livestash_cluster_updated_replicas{livestash_cluster="shop",namespace="web"} 1
livestash_cluster_upgrade_started_timestamp_seconds{livestash_cluster="shop",namespace="web"} 900
livestash_operator_info{version="1.2.3"} 1
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

// A replica that waits for its turn must not tell of fleets: another one does.
func TestMetricsOfAReplicaThatWaits(t *testing.T) {
	got, err := scrape(t, &Metrics{Reader: cached(t, everything()...).Build(), Version: "1.2.3", Elected: make(chan struct{})})
	if want := "livestash_operator_info{version=\"1.2.3\"} 1\n"; err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

// The end of a certificate is left out where the operator does not know it; the other metrics stay.
func TestMetricsWithoutCertificate(t *testing.T) {
	objects := everything()
	for name, reader := range map[string]client.Reader{
		"no Secret yet": cached(t, objects[0]).Build(),
		"cert-manager makes it": func() client.Reader {
			shop := objects[0].DeepCopyObject().(*v1alpha1.LiveStashCluster)
			shop.Spec.Clustering.TLS.IssuerRef = &v1alpha1.IssuerReference{Name: "fleets"}
			return cached(t, shop, objects[1]).Build()
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := scrape(t, &Metrics{Reader: reader, Elected: elected()})
			if err != nil || strings.Contains(got, "certificate") || !strings.Contains(got, "livestash_cluster_info") {
				t.Errorf("%v in:\n%s", err, got)
			}
		})
	}
}

func TestMetricsFailWithTheCache(t *testing.T) {
	broken := errors.New("no cache")
	for name, fails := range map[string]interceptor.Funcs{
		"list": {List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return broken }},
		"get": {Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return broken
		}},
	} {
		t.Run(name, func(t *testing.T) {
			reader := cached(t, everything()...).WithInterceptorFuncs(fails).Build()
			if got, err := scrape(t, &Metrics{Reader: reader, Elected: elected()}); err == nil || !strings.Contains(err.Error(), broken.Error()) {
				t.Errorf("%v, want %v:\n%s", err, broken, got)
			}
		})
	}
}

// docs/reference/metrics.md lists the operator's own metrics and no others, with their labels.
func TestMetricsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "reference", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(livestash_(?:operator|cluster)_[a-z_]+)` \\| gauge \\| [^|]+ \\| [^|]+ \\| ([^|]*) \\|$").FindAllStringSubmatch(string(page), -1) {
		labels := regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[2], -1)
		names := make([]string, 0, len(labels))
		for _, label := range labels {
			names = append(names, label[1])
		}
		slices.Sort(names)
		listed = append(listed, row[1]+"{"+strings.Join(names, ",")+"}")
	}

	emitted := map[string]bool{}
	text, err := scrape(t, &Metrics{Reader: cached(t, everything()...).Build(), Elected: elected()})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		emitted[regexp.MustCompile(`="[^"]*"`).ReplaceAllString(line[:strings.LastIndex(line, "}")+1], "")] = true
	}
	names := make([]string, 0, len(emitted))
	for name := range emitted {
		names = append(names, name)
	}
	slices.Sort(names)
	slices.Sort(listed)
	if diff := cmp.Diff(listed, names); diff != "" {
		t.Errorf("metrics (-docs/reference/metrics.md +emitted):\n%s", diff)
	}
}

// The Secret of the nodes' certificate says when it ends.
func TestCertificateTellsItsEnd(t *testing.T) {
	cluster := newCluster(t, suite.Namespace(t, api), withTLS)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: tls.SecretName(cluster)}}
	suite.Eventually(t, func() error { return get(t, secret) })
	end := tls.ReadCertificate(secret).NotAfter()
	if got := timeIn(secret.Annotations, expiryAnnotation); end.IsZero() || !got.Equal(end.Truncate(time.Second)) {
		t.Errorf("the Secret says %s, its certificate ends %s", got, end)
	}
}

// Of two certificates, the one that ends first is told.
func TestMetricsTellTheFirstEnd(t *testing.T) {
	cluster := &v1alpha1.LiveStashCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "cart"}}
	redisFleetWithTLS(&cluster.Spec)
	for _, c := range []struct {
		betweenNodes bool
		nodes, redis string
		want         int64
	}{
		{false, "1970-01-01T00:00:10Z", "1970-01-01T00:00:20Z", 20}, {true, "1970-01-01T00:00:10Z", "1970-01-01T00:00:20Z", 10},
		{true, "1970-01-01T00:00:30Z", "1970-01-01T00:00:20Z", 20}, {true, "", "1970-01-01T00:00:20Z", 20}, {true, "1970-01-01T00:00:30Z", "", 30},
	} {
		cluster.Spec.Clustering.TLS.Enabled = c.betweenNodes
		objects := []client.Object{cluster}
		for name, end := range map[string]string{"cart-distribution-tls": c.nodes, "cart-redis-tls": c.redis} {
			if end != "" {
				objects = append(objects, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, Annotations: map[string]string{expiryAnnotation: end}}})
			}
		}
		got, err := (&Metrics{Reader: cached(t, objects...).Build()}).certificateExpiry(t.Context(), cluster)
		if err != nil || got.Unix() != c.want {
			t.Errorf("%+v: %s, %v", c, got, err)
		}
	}
}
