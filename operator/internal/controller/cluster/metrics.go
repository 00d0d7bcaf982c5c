package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/tls"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// collectTimeout is how long one scrape may take to read the cache.
const collectTimeout = 5 * time.Second

// The labels under which the pods' own metrics are scraped too, so that both can be joined.
var fleetLabels = []string{"namespace", "livestash_cluster"}

// The metrics of fleets, as their status tells them. docs/reference/metrics.md lists them for readers.
var (
	operatorInfo = describe("operator_info", "The operator. Always 1.", "version")
	clusterInfo  = describe("cluster_info", "A LiveStashCluster. Always 1.", append(fleetLabels, "adapter")...)

	desiredReplicas = describe("cluster_desired_replicas", "Pods that spec.replicas asks for.", fleetLabels...)
	readyReplicas   = describe("cluster_ready_replicas", "Pods that serve.", fleetLabels...)
	updatedReplicas = describe("cluster_updated_replicas", "Pods that were made from the current pod template.", fleetLabels...)

	clusterPaused    = describe("cluster_paused", "1 while spec.paused keeps the operator from changing anything, else 0.", fleetLabels...)
	clusterCondition = describe("cluster_condition", "1 when the condition is True, 0 when it is False. Absent while it is Unknown.", append(fleetLabels, "type")...)

	largestStashBytes = describe("cluster_largest_stash_bytes", "The largest stash that a browser may still have, with adapter BrowserMemory. Absent with others.", fleetLabels...)
	maxStashBytes     = describe("cluster_max_stash_bytes", "What spec.browserMemory.maxStashBytes allows, with adapter BrowserMemory. Absent with others.", fleetLabels...)

	rolloutStarted  = describe("cluster_rollout_started_timestamp_seconds", "When the last rollout began, in Unix time.", fleetLabels...)
	rolloutFinished = describe("cluster_rollout_finished_timestamp_seconds", "When the last rollout ended, in Unix time. Absent while it goes on.", fleetLabels...)
	rolloutStashes  = describe("cluster_rollout_stashes", "Stashes in the pods that the last rollout replaced: held when each was told to stop, handed over to peers, lost.", append(fleetLabels, "outcome")...)
	rolloutReturns  = describe("cluster_rollout_returns", "Users who came back since the last rollout began, until two minutes after its end: all, those who did not get their state back, and as many of those as are a loss.", append(fleetLabels, "outcome")...)

	templateInfo   = describe("cluster_template_info", "The operator that made the template of the fleet's pods, or of those of its Redis. Always 1.", append(fleetLabels, "component", "version")...)
	upgradeStarted = describe("cluster_upgrade_started_timestamp_seconds", "When the operator began to replace the fleet's pods because it is another version, in Unix time. Absent when it does not.", fleetLabels...)

	certificateExpiry = describe("cluster_certificate_expiry_timestamp_seconds", "When the first of the fleet's certificates ends, that of its nodes or of its Redis, in Unix time. Only of those that the operator makes itself.", fleetLabels...)
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("livestash_"+name, help, labels, nil)
}

// Metrics tells Prometheus what the LiveStashClusters say in their status. It reads the cache when it is scraped, so that
// what is gone from the cluster is gone from the metrics, and costs no request.
type Metrics struct {
	// Reader reads from the cache.
	Reader client.Reader

	// Version is the operator's.
	Version string

	// Elected is closed once this replica of the operator is the one that works. The others tell only that they are there,
	// or every fleet would be counted once for each of them.
	Elected <-chan struct{}
}

// Describe implements prometheus.Collector.
func (*Metrics) Describe(descriptions chan<- *prometheus.Desc) {
	for _, description := range []*prometheus.Desc{
		operatorInfo, clusterInfo, desiredReplicas, readyReplicas, updatedReplicas, clusterPaused, clusterCondition, largestStashBytes, maxStashBytes,
		rolloutStarted, rolloutFinished, rolloutStashes, rolloutReturns, templateInfo, upgradeStarted, certificateExpiry,
	} {
		descriptions <- description
	}
}

// Collect implements prometheus.Collector. A scrape fails when the cache cannot be read: no number is better than a wrong one.
func (m *Metrics) Collect(metrics chan<- prometheus.Metric) {
	metrics <- gauge(operatorInfo, 1, m.Version)
	select {
	case <-m.Elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	if err := m.collectClusters(ctx, metrics); err != nil {
		ctrl.Log.WithName("metrics").Error(err, "Collecting the metrics of LiveStashClusters")
		metrics <- prometheus.NewInvalidMetric(clusterInfo, err)
	}
}

func (m *Metrics) collectClusters(ctx context.Context, metrics chan<- prometheus.Metric) error {
	clusters := &v1alpha1.LiveStashClusterList{}
	if err := m.Reader.List(ctx, clusters); err != nil {
		return fmt.Errorf("listing LiveStashClusters: %w", err)
	}
	for i := range clusters.Items {
		c := &clusters.Items[i]
		for _, metric := range metricsOf(c) {
			metrics <- metric
		}
		expiry, err := m.certificateExpiry(ctx, c)
		if err != nil {
			return err
		}
		if !expiry.IsZero() {
			metrics <- gauge(certificateExpiry, unix(expiry), c.Namespace, c.Name)
		}
	}
	return nil
}

// metricsOf is what a LiveStashCluster says of itself.
func metricsOf(c *v1alpha1.LiveStashCluster) []prometheus.Metric {
	of := func(description *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
		return gauge(description, value, append([]string{c.Namespace, c.Name}, labels...)...)
	}
	metrics := []prometheus.Metric{
		of(clusterInfo, 1, string(c.Spec.Adapter)),
		of(desiredReplicas, float64(c.DesiredReplicas())),
		of(readyReplicas, float64(c.Status.ReadyReplicas)),
		of(updatedReplicas, float64(c.Status.UpdatedReplicas)),
		of(clusterPaused, flag(c.Spec.Paused)),
	}
	if limit := store.For(c).LargestStash(c); limit > 0 {
		metrics = append(metrics, of(maxStashBytes, float64(limit)), of(largestStashBytes, float64(ptr.Deref(c.Status.LargestStash, v1alpha1.LargestStash{}).Bytes)))
	}
	for _, condition := range c.Status.Conditions {
		switch condition.Status {
		case metav1.ConditionTrue:
			metrics = append(metrics, of(clusterCondition, 1, condition.Type))
		case metav1.ConditionFalse:
			metrics = append(metrics, of(clusterCondition, 0, condition.Type))
		case metav1.ConditionUnknown:
		}
	}
	if version := c.Status.OperatorVersion; version != "" {
		metrics = append(metrics, of(templateInfo, 1, render.FleetComponent, version))
	}
	if redis := c.Status.Redis; redis != nil && redis.OperatorVersion != "" {
		metrics = append(metrics, of(templateInfo, 1, render.RedisComponent, redis.OperatorVersion))
	}
	if c.Status.UpgradeStarted != nil {
		metrics = append(metrics, of(upgradeStarted, unix(c.Status.UpgradeStarted.Time)))
	}
	if len(c.Status.Rollouts) == 0 {
		return metrics
	}
	rollout := c.Status.Rollouts[0]
	metrics = append(metrics,
		of(rolloutStarted, unix(rollout.Started.Time)),
		of(rolloutStashes, float64(rollout.StashesBefore), "held"),
		of(rolloutStashes, float64(rollout.HandedOver), "handed_over"),
		of(rolloutStashes, float64(rollout.Lost), "lost"),
		of(rolloutReturns, float64(rollout.Returned), "returned"),
		of(rolloutReturns, float64(rollout.NotRecovered), "not_recovered"),
		of(rolloutReturns, float64(lostReturns(&rollout)), "lost"),
	)
	if rollout.Finished != nil {
		metrics = append(metrics, of(rolloutFinished, unix(rollout.Finished.Time)))
	}
	return metrics
}

// certificateExpiry is the earliest end of the certificates that the operator makes for a fleet: the zero time when it makes none, or has
// not yet.
func (m *Metrics) certificateExpiry(ctx context.Context, c *v1alpha1.LiveStashCluster) (time.Time, error) {
	var first time.Time
	for _, name := range ownCertificateNames(c) {
		secret := secretMetadataObject()
		err := m.Reader.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, secret)
		if client.IgnoreNotFound(err) != nil {
			return time.Time{}, err
		}
		if end := timeIn(secret.Annotations, expiryAnnotation); !end.IsZero() && (first.IsZero() || end.Before(first)) {
			first = end
		}
	}
	return first, nil
}

// ownCertificateNames are the names of the Secrets with certificates that the operator makes for a fleet.
func ownCertificateNames(c *v1alpha1.LiveStashCluster) []string {
	var names []string
	if c.TLSEnabled() && c.Spec.Clustering.TLS.IssuerRef == nil {
		names = append(names, tls.SecretName(c))
	}
	if managed := store.ManagedRedis(c); managed != nil && managed.TLSEnabled() {
		names = append(names, store.RedisCertificateName(c))
	}
	return names
}

func gauge(description *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(description, prometheus.GaugeValue, value, labels...)
}

func unix(t time.Time) float64 { return float64(t.Unix()) }

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
