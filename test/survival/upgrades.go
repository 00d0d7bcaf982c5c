package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/livestash-dev/livestash/test/internal/fleet"
)

// lookEvery is how often it is looked how many fleets are being upgraded.
const lookEvery = 300 * time.Millisecond

// upgradeEvents bring another version of the operator: the fleets follow at once, or keep their pods. In this order, because fleets that
// have kept theirs are already what the version before makes.
func upgradeEvents() []event {
	return []event{
		{name: "upgrade-now", group: upgraded, replicas: 2, do: upgradeAtOnce, judge: planned},
		{name: "upgrade-later", group: upgraded, replicas: 2, do: upgradeOperator, judge: planned},
	}
}

// otherTag is the tag of the operator's image that is not installed.
func (d *driver) otherTag() string {
	if d.operatorTag == d.options.NextTag {
		return d.options.Tag
	}
	return d.options.NextTag
}

// upgradeAtOnce installs the operator under its other tag, and has all fleets follow. No more of them may be on their way at a time than
// the operator was told.
func upgradeAtOnce(ctx context.Context, d *driver, fleets []*subject) error {
	before := make(map[string]map[string]types.UID, len(fleets))
	for _, s := range fleets {
		lives, err := s.Lives(ctx)
		if err != nil {
			return err
		}
		before[s.Namespace] = lives
	}
	begun := time.Now()
	err := d.installOperator(ctx, d.otherTag(), "operator.upgrade.fleets=Immediately", fmt.Sprintf("operator.upgrade.atOnce=%d", d.options.atOnce))
	if err != nil {
		return err
	}
	most := 0
	for len(before) > 0 {
		if time.Since(begun) > fleet.SettleTime*time.Duration(len(fleets)) {
			return fmt.Errorf("only %d of %d fleets have followed after %.0f s", len(fleets)-len(before), len(fleets), time.Since(begun).Seconds())
		}
		if err := fleet.Pause(ctx, lookEvery); err != nil {
			return err
		}
		pods, err := d.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: fleet.Selector})
		if err != nil {
			return err
		}
		moving, over := onTheWay(before, pods.Items)
		// What is not ready later is so for a reason of its own.
		for _, namespace := range over {
			delete(before, namespace)
		}
		if len(moving) > most {
			most = len(moving)
			d.say("%d fleets at once: %s", most, strings.Join(moving, " "))
		}
	}
	for _, s := range fleets {
		s.remark("%d of %d fleets at once at most; all had followed after %.0f s", most, len(fleets), time.Since(begun).Seconds())
	}
	if most > d.options.atOnce {
		return fmt.Errorf("%d fleets were upgraded at once, and only %d may be", most, d.options.atOnce)
	}
	return nil
}

// onTheWay are the namespaces of the fleets of whose pods some have been replaced and not all, and of those that have nothing but new ones
// that are ready.
func onTheWay(before map[string]map[string]types.UID, pods []corev1.Pod) (moving, over []string) {
	for namespace, lives := range before {
		old, fresh, ready := 0, 0, 0
		for _, pod := range pods {
			switch {
			case pod.Namespace != namespace:
			case lives[pod.Name] != pod.UID:
				fresh++
				if pod.DeletionTimestamp == nil && fleet.IsReady(pod) {
					ready++
				}
			case pod.DeletionTimestamp == nil:
				old++
			}
		}
		switch {
		case old == len(lives) && fresh == 0:
		case old == 0 && fresh == len(lives) && ready == fresh:
			over = append(over, namespace)
		default:
			moving = append(moving, namespace)
		}
	}
	slices.Sort(moving)
	return moving, over
}

// merged has one result for all copies of a fleet: their numbers are added up, and the times are the worst ones.
func merged(results []result) []result {
	var all []result
	for _, r := range results {
		i := slices.IndexFunc(all, func(one result) bool { return one.Adapter == r.Adapter && one.Event == r.Event })
		if i < 0 {
			all = append(all, r)
			continue
		}
		sum := &all[i]
		sum.Sessions, sum.Recovered, sum.Stale, sum.Lost = sum.Sessions+r.Sessions, sum.Recovered+r.Recovered, sum.Stale+r.Stale, sum.Lost+r.Lost
		sum.report.Closed += r.report.Closed
		sum.P50, sum.P99 = longer(sum.P50, r.P50), longer(sum.P99, r.P99)
		if sum.report.Times == nil || r.report.Times != nil && r.report.Times.Max > sum.report.Times.Max {
			sum.report.Times = r.report.Times
		}
		for _, remark := range r.remarks {
			if !slices.Contains(sum.remarks, remark) {
				sum.remarks = append(sum.remarks, remark)
			}
		}
		if sum.verdict == "" {
			sum.verdict = r.verdict
		}
	}
	return all
}

func longer(one, other *float64) *float64 {
	if one == nil || other != nil && *other > *one {
		return other
	}
	return one
}
