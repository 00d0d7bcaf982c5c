package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/livestash-dev/livestash/test/internal/fleet"
	"github.com/livestash-dev/livestash/test/survival/internal/crowd"
)

const (
	// splitTime is how long a pod is cut off.
	splitTime = 30 * time.Second
	// allGoneP99 is the longest p99 of the time to be back when every pod was told to stop at once: that of a pod's boot, and
	// of the way to it.
	allGoneP99 = 20 * time.Second
	// wholeTime is how long the mesh and the store may take to be whole again.
	wholeTime = time.Minute

	// hiddenTTL is how long a stash of a hidden tab lives. Three of it are longer than it and a minute, after which LiveStash
	// has certainly removed what was over.
	hiddenTTL = 30 * time.Second
	// forgottenTTL and forgottenFor are the same for tabs that nobody looks at for much longer.
	forgottenTTL = time.Minute
	forgottenFor = 30 * time.Minute

	// canaryTime is how long a release is tried, and backTime is in what time the fleet must be back from a bad one.
	canaryTime = 20 * time.Second
	backTime   = 3 * time.Minute
)

// The groups of events, by which some are chosen at once.
const (
	// plain are events of one thing at a time.
	plain = "plain"
	// killing are events in which pods are killed without a word.
	killing = "killing"
	// single are rollouts of a fleet of one pod, which has no peer but the one that the operator gives it.
	single = "single"
	// paired are events of two things at once.
	paired = "pairs"
	// hidden are events after which the users come back when their stashes' TTL has long been over.
	hidden = "hidden"
	// forgotten is the same after half an hour.
	forgotten = "forgotten"
	// tried are rollouts with a canary.
	tried = "tried"
	// upgraded are upgrades of the operator under many fleets: see options.copies.
	upgraded = "upgrades"
	// moved are rollouts by which it is counted how often users are moved.
	moved = "moved"
)

// event is something that happens to a fleet.
type event struct {
	name  string
	group string
	// also is another group of it. Empty: none.
	also string
	// replicas is the number of pods before the event.
	replicas int
	// adapter is the only one that the event is about; empty for all.
	adapter string
	// needsNode is whether it needs the pods' processes on this machine.
	needsNode bool
	// without are adapters that the event is not done to, and why.
	without map[string]string
	// ttl is how long a stash lives, where that is another time than in other events. The event may take longer.
	ttl time.Duration
	// hiddenTabs is whether the users' tabs are hidden: they come back only when they are checked.
	hiddenTabs bool
	// maxP99 is the longest p99 of the time to be back, where it may be longer than that of other events.
	maxP99 time.Duration
	// do does it to some fleets at once, and returns when it has taken effect. The fleets settle afterwards. What it has
	// to say of a fleet goes to that fleet's remarks.
	do func(ctx context.Context, d *driver, fleets []*subject) error
	// judge is the verdict beside stale sessions, which no event may leave behind; empty when it is good.
	judge func(adapter string, report crowd.Report) string
}

// subject is a fleet in an event.
type subject struct {
	*fleet.Fleet
	options options
	users   users
	// rows are the users by the kind of tab, where they have tabs.
	rows  []tabRow
	watch *watch
	// lowest and highest are the first and the last of the fleet's pods by name, as they are before the event.
	lowest, highest string
	report          crowd.Report
	remarks         []string
	// faults are sentences on pods that the operator must not have taken.
	faults []string
	// skipped is why the event is not done to the fleet.
	skipped string
	// problem is why the event could not be gone through with this fleet.
	problem error
}

// name notes which pods are the first and the last: their numbers begin at 0 and at 1 in turn.
func (s *subject) name(ctx context.Context) error {
	pods, err := s.ListPods(ctx)
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		return errors.New("the fleet has no pods")
	}
	s.lowest, s.highest = pods[0].Name, pods[len(pods)-1].Name
	return nil
}

func (s *subject) remark(format string, args ...any) {
	s.remarks = append(s.remarks, fmt.Sprintf(format, args...))
}

// is whether a name means the event: its own, or that of its group.
func (e event) is(name string) bool { return name == e.name || name == e.group || name == e.also }

// events are all there are, in the order in which they are run: few changes of the number of pods.
func events(o options) []event {
	return slices.Concat(plainEvents(o), killingEvents(o), pairs(), singleEvents(), hiddenEvents(), forgottenEvents(), triedEvents(), upgradeEvents(), cookieEvents(), movedEvents(), machineEvents(o))
}

// plainEvents are in an order of their own: the worst ones late.
func plainEvents(o options) []event {
	all := []event{
		{name: "rollout-image", replicas: 3, do: each(rolloutImage), judge: planned},
		{name: "rollout-config", replicas: 3, do: each(rolloutConfig), judge: planned},
		{name: "pod-delete", replicas: 3, do: each(deletePod), judge: planned},
		{name: "eviction", replicas: 3, do: each(evictPod), judge: planned},
		{name: "delete-all", replicas: 3, do: each(deleteAll), judge: planned, maxP99: allGoneP99},
		{name: "operator-restart", replicas: 3, do: restartOperator, judge: planned},
		{name: "operator-upgrade", replicas: 3, do: upgradeOperator, judge: planned},
		{name: "scale-down", replicas: 3, do: each(scaleTo(2)), judge: planned},
		{name: "scale-up", replicas: 2, do: each(scaleTo(4)), judge: planned},
		{name: "redis-restart", replicas: 3, adapter: "Redis", do: each(restartRedis), judge: redisRestarted(o)},
		{name: "redis-change", replicas: 3, adapter: "Redis", do: each(changeRedis), judge: planned, without: withVolume(o), maxP99: pairP99},
		{name: "redis-kill", replicas: 3, adapter: "Redis", needsNode: true, do: each(killRedis), judge: redisRestarted(o)},
		{name: "kill", also: killing, replicas: 3, needsNode: true, do: each(killPod), judge: killed(o)},
		{name: "split", replicas: 3, needsNode: true, do: each(splitPod), judge: split},
	}
	for i := range all {
		all[i].group = plain
	}
	return all
}

func singleEvents() []event {
	return []event{
		{name: "rollout-image-1", group: single, replicas: 1, do: each(rolloutImage), judge: planned},
		{name: "rollout-config-1", group: single, replicas: 1, do: each(rolloutConfig), judge: planned},
	}
}

func hiddenEvents() []event { return unseenEvents(hidden, hiddenTTL, 3*hiddenTTL) }

func forgottenEvents() []event { return unseenEvents(forgotten, forgottenTTL, forgottenFor) }

// unseenEvents are rollouts that the users notice when the given time is over.
func unseenEvents(group string, ttl, away time.Duration) []event {
	rollout := func(ctx context.Context, s *subject) error {
		if err := rolloutConfig(ctx, s); err != nil {
			return err
		}
		return fleet.Pause(ctx, away)
	}
	return []event{{
		name: group, group: group, replicas: 3, ttl: ttl, hiddenTabs: true, do: each(rollout), judge: unseen,
		without: map[string]string{"BrowserMemory": "the browser has the stash, which ages from the moment it was made: nothing can keep it"},
	}}
}

func movedEvents() []event {
	return []event{
		{name: "moved-3", group: moved, replicas: 3, do: each(rolloutImage), judge: planned},
		{name: "moved-5", group: moved, replicas: 5, do: each(rolloutImage), judge: planned},
	}
}

// triedEvents need pages whose version the environment sets, those of the workload without dependencies with ETS, or an image of
// pages with another one.
func triedEvents() []event {
	return []event{{name: "canary", group: tried, replicas: 3, adapter: "ETS", do: each(rolloutOfAnotherVersion), judge: onlyItsShare}}
}

// rolloutOfAnotherVersion is a release whose pages refuse what users have stashed. The operator must find out, and go back.
func rolloutOfAnotherVersion(ctx context.Context, s *subject) error {
	good := s.Image
	back := func() { s.Image, s.Version, s.Canary = good, "", nil }
	defer back()
	s.Image, s.Canary = cmp.Or(s.options.canaryImage, good), map[string]any{"pods": 1, "duration": canaryTime.String()}
	if s.options.canaryImage == "" {
		s.Version = "2"
	}
	if err := s.Apply(ctx); err != nil {
		return err
	}
	begun := time.Now()
	why, err := s.RolledBack(ctx, backTime)
	s.remark("back after %.0f s: %s", time.Since(begun).Seconds(), why)
	if err != nil {
		return err
	}
	back()
	return s.Apply(ctx)
}

// onlyItsShare events lose at most the users of one pod of three.
func onlyItsShare(_ string, r crowd.Report) string {
	if share := r.Sessions / 3; r.Lost > share {
		return fmt.Sprintf("%d sessions lost, and the share of one pod is %d", r.Lost, share)
	}
	return ""
}

// planned events lose nothing.
func planned(_ string, r crowd.Report) string {
	if r.Lost > 0 {
		return fmt.Sprintf("%d sessions lost", r.Lost)
	}
	return ""
}

// unseen events lose nothing of those that they cut, and they cut everybody.
func unseen(adapter string, r crowd.Report) string {
	if r.Closed < r.Sessions {
		return fmt.Sprintf("%d sessions were not cut", r.Sessions-r.Closed)
	}
	return planned(adapter, r)
}

// lowest is the address of the fleet's first pod, on which sessions were opened as on any other; empty when there are none.
func lowest(r crowd.Report) string {
	addresses := slices.Sorted(maps.Keys(r.Pods))
	if len(addresses) == 0 {
		return ""
	}
	return addresses[0]
}

// split is an event after which some sessions may be lost: their users came back to the other side.
func split(string, crowd.Report) string { return "" }

// each does something to every fleet at the same time.
func each(do func(context.Context, *subject) error) func(context.Context, *driver, []*subject) error {
	return func(ctx context.Context, _ *driver, fleets []*subject) error {
		try(fleets, func(s *subject) error { return do(ctx, s) })
		return nil
	}
}

// try does something to all fleets that have no problem so far, at the same time. Who fails has one.
func try(fleets []*subject, do func(*subject) error) {
	_ = inParallel(fleets, func(s *subject) error {
		if s.problem == nil {
			s.problem = do(s)
		}
		return nil
	})
}

func rolloutImage(ctx context.Context, s *subject) error {
	s.Image = s.OtherImage()
	return s.roll(ctx)
}

func rolloutConfig(ctx context.Context, s *subject) error {
	s.Rollout++
	return s.roll(ctx)
}

// roll applies a changed spec and waits until every pod was replaced.
func (s *subject) roll(ctx context.Context) error {
	before, err := s.Lives(ctx)
	if err != nil {
		return err
	}
	if err := s.Apply(ctx); err != nil {
		return err
	}
	return s.Replaced(ctx, before)
}

func deletePod(ctx context.Context, s *subject) error {
	return s.delete(ctx, s.lowest, "--timeout=3m")
}

// deleteAll tells every pod to stop at the same moment.
func deleteAll(ctx context.Context, s *subject) error {
	before, err := s.Lives(ctx)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(before))
	for _, name := range names {
		s.watch.expect(before[name])
	}
	if _, err := s.In(ctx, "", append([]string{"delete", "pod", "--wait=false"}, names...)...); err != nil {
		return err
	}
	return s.Replaced(ctx, before)
}

// delete deletes a pod as a user does.
func (s *subject) delete(ctx context.Context, name string, flags ...string) error {
	if err := s.take(ctx, name); err != nil {
		return err
	}
	_, err := s.In(ctx, "", append([]string{"delete", "pod", name}, flags...)...)
	return err
}

// take says that the event itself is about to take a pod: that is not the operator's doing.
func (s *subject) take(ctx context.Context, name string) error {
	pod, err := s.Pod(ctx, name)
	if err == nil {
		s.watch.expect(pod.UID)
	}
	return err
}

func evictPod(ctx context.Context, s *subject) error {
	before, err := s.Pod(ctx, s.lowest)
	if err != nil {
		return err
	}
	if err := evictLowest(ctx, s); err != nil {
		return err
	}
	return fleet.Eventually(ctx, fleet.SettleTime, func(ctx context.Context) error {
		now, err := s.Pod(ctx, s.lowest)
		if err == nil && now.UID == before.UID {
			return fmt.Errorf("pod %s is still there", now.Name)
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

func scaleTo(replicas int) func(context.Context, *subject) error {
	return func(ctx context.Context, s *subject) error {
		s.Replicas = replicas
		_, err := s.In(ctx, "", "scale", "lsc/"+fleet.Name, fmt.Sprintf("--replicas=%d", replicas))
		return err
	}
}

// restartOperator deletes the operator's pod while every fleet has some pods of the old template and some of the new.
func restartOperator(ctx context.Context, d *driver, fleets []*subject) error {
	return rolled(ctx, fleets, func() error {
		try(fleets, func(s *subject) error {
			before, err := s.Lives(ctx)
			if err != nil {
				return err
			}
			s.Rollout++
			if err := s.Apply(ctx); err != nil {
				return err
			}
			return s.midway(ctx, before)
		})
		return d.DeleteOperator(ctx, "--timeout=2m")
	})
}

// midway waits until a rollout has replaced a pod of before.
func (s *subject) midway(ctx context.Context, before map[string]types.UID) error {
	return fleet.Eventually(ctx, fleet.SettleTime, func(ctx context.Context) error {
		now, err := s.Lives(ctx)
		if err != nil {
			return err
		}
		left := 0
		for name, uid := range before {
			if now[name] == uid {
				left++
			}
		}
		if left == len(before) {
			return errors.New("the rollout has not replaced a pod")
		}
		if left == 0 {
			return fmt.Errorf("the rollout had replaced all pods when the operator's was to be deleted")
		}
		return nil
	})
}

// upgradeOperator installs the operator under its other tag. It would render other pods, because their template names the operator's image
// for the agent, and must not touch those that there are.
func upgradeOperator(ctx context.Context, d *driver, fleets []*subject) error {
	install := sync.OnceValue(func() error { return d.installOperator(ctx, d.otherTag()) })
	try(fleets, func(s *subject) error { return s.Upgrade(ctx, install) })
	return nil
}

// rolled does something and waits until every pod of every fleet was replaced.
func rolled(ctx context.Context, fleets []*subject, do func() error) error {
	before := make([]map[string]types.UID, len(fleets))
	for i, s := range fleets {
		var err error
		if before[i], err = s.Lives(ctx); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	for i, s := range fleets {
		try([]*subject{s}, func(s *subject) error { return s.Replaced(ctx, before[i]) })
	}
	return nil
}

func splitPod(ctx context.Context, s *subject) error {
	heal, err := s.Cut(ctx, s.lowest)
	if err != nil {
		return err
	}
	err = s.users.effect(ctx)
	if err == nil {
		err = fleet.Pause(ctx, splitTime)
	}
	if err == nil && s.options.Agent {
		// With a net_ticktime of 20 s a node is given up after 15 to 25 s, and a busy machine is late.
		err = fleet.Eventually(ctx, time.Minute, s.noticed)
	}
	if err := errors.Join(err, heal()); err != nil {
		return err
	}
	if !s.options.Agent {
		return nil
	}
	healed := time.Now()
	err = fleet.Eventually(ctx, wholeTime, func(ctx context.Context) error {
		missing, err := s.MissingPeers(ctx)
		if err == nil && missing != "" {
			err = errors.New(missing)
		}
		return errors.Join(err, s.ConditionsHold(ctx))
	})
	if err != nil {
		return fmt.Errorf("not whole again: %w", err)
	}
	s.remark("whole again %.0f s after the split", time.Since(healed).Seconds())
	if s.Adapter != "Mnesia" {
		return nil
	}
	// LiveStash may have taken the older copy, in which a page is not the owner of its stash: until the copies are one, it refuses what
	// such a page stashes, and the page's next stash has all of it.
	return s.restash(ctx)
}

// noticed fails when the pods that were not cut off still take the one that was for a peer: such a split proves nothing.
func (s *subject) noticed(ctx context.Context) error {
	peers, err := s.PeersOf(ctx, s.highest)
	if err != nil {
		return err
	}
	if peers.Missing == 0 {
		return fmt.Errorf("after %s the peers of %s still take it for one of them: %d are connected", splitTime, s.lowest, peers.Connected)
	}
	return nil
}
