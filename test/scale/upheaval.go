package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/client-go/util/workqueue"
)

const (
	// maxTogether is how many LiveStashClusters are changed at once, togetherLimit how long the slowest is waited for.
	maxTogether   = 100
	togetherLimit = 2 * time.Minute
	// awayImage and togetherImage tell which change a StatefulSet has seen.
	awayImage     = "ghcr.io/acme/shop:1.4.4"
	togetherImage = "ghcr.io/acme/shop:1.4.5"
)

// upheavalFigures are what the operator does when much happens at once.
type upheavalFigures struct {
	// RestartLeads is how long it took from the order to end until the next operator led, RestartActs until a change that was made
	// meanwhile was in its StatefulSet, in seconds. RestartRequests are all requests until the idle time after that is over, for each LiveStashCluster.
	RestartLeads    float64 `json:"restart_leads_s"`
	RestartActs     float64 `json:"restart_acts_s"`
	RestartRequests float64 `json:"restart_requests_per_cluster"`
	// OutageRequests are the requests in the time in which a third of the pods is away, ReturnRequests those in the same time after they are back,
	// for each LiveStashCluster; OutageInASecond the most of both in a second.
	OutageRequests  float64 `json:"outage_requests_per_cluster"`
	ReturnRequests  float64 `json:"return_requests_per_cluster"`
	OutageInASecond int     `json:"outage_in_a_second"`
	// Together is how many LiveStashClusters got another image at once; the median and the worst time until their StatefulSets had it.
	Together       int     `json:"together"`
	TogetherMedian float64 `json:"together_median_s"`
	TogetherWorst  float64 `json:"together_worst_s"`
}

// upheave starts the operator anew, and then takes a zone away.
func (b *bench) upheave(ctx context.Context, cancel context.CancelCauseFunc) (*upheavalFigures, error) {
	figures := &upheavalFigures{}
	if err := b.restart(ctx, cancel, figures); err != nil {
		return nil, fmt.Errorf("start the operator anew: %w", err)
	}
	if err := b.outage(ctx, figures); err != nil {
		return nil, fmt.Errorf("take a zone away: %w", err)
	}
	return figures, nil
}

// restart ends the operator, changes a LiveStashCluster, and starts the next one, as the Deployment does it when it has a new image.
func (b *bench) restart(ctx context.Context, cancel context.CancelCauseFunc, figures *upheavalFigures) error {
	b.step("starting the operator anew")
	events, err := b.client.AppsV1().StatefulSets(clustersNamespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer events.Stop()
	started := time.Now()
	b.process.stop()
	if err := b.setImage(ctx, clusterName(b.clusters-1), awayImage); err != nil {
		return err
	}
	next, err := b.startOperator(b.kubeconfig, "operator-2.log")
	if err != nil {
		return err
	}
	b.process = next.process
	b.unlessEnded(ctx, cancel)
	for !next.leads(ctx) {
		if err := sleepUntil(ctx, time.Now().Add(pollInterval/5)); err != nil {
			return err
		}
	}
	figures.RestartLeads = round(time.Since(started).Seconds())
	if err := untilChanged(ctx, events, awayImage); err != nil {
		return err
	}
	figures.RestartActs = round(time.Since(started).Seconds())
	requests, err := b.requestsUntil(ctx, started, time.Now().Add(b.idle))
	figures.RestartRequests = round(float64(len(requests)) / float64(b.clusters))
	b.step("it led after %.1f s, and had acted on a change after %.1f s, with %d requests:", figures.RestartLeads, figures.RestartActs, len(requests))
	printRequests(b.progress, requests, b.clusters)
	return err
}

// outage takes a third of the pods of every fleet away, and brings them back.
func (b *bench) outage(ctx context.Context, figures *upheavalFigures) error {
	away, err := b.zone(ctx, true, "taking a third of the pods away")
	if err != nil {
		return err
	}
	back, err := b.zone(ctx, false, "bringing them back")
	if err != nil {
		return err
	}
	figures.OutageRequests = round(float64(len(away)) / float64(b.clusters))
	figures.ReturnRequests = round(float64(len(back)) / float64(b.clusters))
	var times []time.Time
	for _, one := range slices.Concat(away, back) {
		times = append(times, one.received)
	}
	figures.OutageInASecond = mostInASecond(times)
	return nil
}

// zone takes the first zone away, or brings it back, and returns the operator's requests in the idle time after that.
func (b *bench) zone(ctx context.Context, away bool, what string) ([]request, error) {
	b.step("%s", what)
	from := time.Now()
	if err := b.node.setOutage(away); err != nil {
		return nil, err
	}
	requests, err := b.requestsUntil(ctx, from, from.Add(b.idle))
	if err != nil {
		return nil, err
	}
	b.step("%s: %d requests:", what, len(requests))
	printRequests(b.progress, requests, b.clusters)
	return requests, nil
}

// together gives many LiveStashClusters another image at the same moment.
func (b *bench) together(ctx context.Context, figures *upheavalFigures) error {
	figures.Together = min(maxTogether, b.clusters)
	b.step("giving %d LiveStashClusters another image at once", figures.Together)
	ctx, stop := context.WithTimeout(ctx, togetherLimit)
	defer stop()
	// A watch of so many at once may be ended by the API server, as too slow. An informer lists again.
	sets := cache.NewListWatchFromClient(b.client.AppsV1().RESTClient(), "statefulsets", clustersNamespace, fields.Everything())
	_, known, events, _ := watchtools.NewIndexerInformerWatcher(sets, &appsv1.StatefulSet{})
	defer events.Stop()
	if !cache.WaitForCacheSync(ctx.Done(), known.HasSynced) {
		return fmt.Errorf("change many at once: %w", ctx.Err())
	}
	started := time.Now()
	failures := make(chan error, figures.Together)
	go workqueue.ParallelizeUntil(ctx, nodeWorkers, figures.Together, func(i int) {
		if err := b.setImage(ctx, clusterName(i*b.clusters/figures.Together), togetherImage); err != nil {
			failures <- err
		}
	})
	took := map[string]time.Duration{}
	for len(took) < figures.Together {
		select {
		case event, open := <-events.ResultChan():
			name, err := changedTo(togetherImage, event, open)
			if err != nil {
				return err
			}
			if _, seen := took[name]; name != "" && !seen {
				took[name] = time.Since(started)
			}
		case err := <-failures:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%d of %d StatefulSets are changed: %w", len(took), figures.Together, ctx.Err())
		}
	}
	all := slices.Collect(maps.Values(took))
	figures.TogetherMedian, figures.TogetherWorst = round(median(all).Seconds()), round(slices.Max(all).Seconds())
	b.step("the StatefulSets were changed after %.2f s, the last one after %.2f s", figures.TogetherMedian, figures.TogetherWorst)
	return nil
}

// requestsUntil waits until then, and returns the operator's requests since from, without leases and watches.
func (b *bench) requestsUntil(ctx context.Context, from, then time.Time) ([]request, error) {
	if err := sleepUntil(ctx, then); err != nil {
		return nil, err
	}
	if err := b.audit.read(); err != nil {
		return nil, err
	}
	return b.audit.between(from, then), nil
}
