package upgrade

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/livestash-dev/livestash/test/internal/fleet"
	"github.com/livestash-dev/livestash/test/soak/ledger"
)

const (
	podsOfEach = 2
	// usersOfEach are two of each kind.
	usersOfEach = 40
	seed        = 1
)

// TestUpgradeAndRollback upgrades an earlier version of the operator to this one, with the CustomResourceDefinitions, while users are on fleets of
// all adapters and a benchmark runs, and goes back. No pod restarts, no connection is cut, nobody loses anything, and what is stored is read
// by both.
func TestUpgradeAndRollback(t *testing.T) {
	if os.Getenv("KUBECONFIG") == "" {
		t.Fatal("KUBECONFIG is not set: run `make test-upgrade`")
	}
	u := open(t)
	u.step("install the older operator", func() error { return u.older.Install(u.ctx) })
	u.step("bring up fleets and users", u.populate)
	u.step("a benchmark under the older operator", func() error {
		return errors.Join(u.benchmarks.begin(u.ctx, "before", "30s", "ETS"), u.benchmarks.passed(u.ctx, "before"))
	})

	u.step("upgrade in the middle of a benchmark", func() error { return u.change("upgraded", u.newer, u.newer.Install) })

	// The pods of one fleet are made by the newer operator: the older one must keep them as well.
	u.step("a deploy under the newer operator", func() error {
		before, err := u.follows.Lives(u.ctx)
		if err != nil {
			return err
		}
		u.follows.Rollout++
		delete(u.stored, nameOf(u.follows))
		return errors.Join(u.follows.Apply(u.ctx), u.follows.Replaced(u.ctx, before), u.follows.Settled(u.ctx))
	})

	u.step("roll back in the middle of a benchmark", func() error { return u.change("rolled-back", u.older, fleet.RollBackOperator) })

	u.step("check every user", func() error {
		return all(u.fleets, func(f *fleet.Fleet) error { return u.check(f) })
	})
}

// upgrade is what the test is about.
type upgrade struct {
	t            *testing.T
	ctx          context.Context
	cluster      *fleet.Cluster
	older, newer fleet.Release
	benchmarks   benchmarks
	// fleets are one of each adapter, and follows, which is deployed under the newer operator.
	fleets  []*fleet.Fleet
	follows *fleet.Fleet
	// stored are the objects as they were under the older operator. The newer one may add to them what the older does not know.
	stored map[string]any
}

func open(t *testing.T) *upgrade {
	c, err := fleet.Open()
	if err != nil {
		t.Fatal(err)
	}
	chart, err := fleet.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	o := fleet.Defaults()
	o.TTL = 2 * time.Minute
	u := &upgrade{
		t: t, ctx: t.Context(), cluster: c,
		older: release(os.Getenv("OLDER_CHART"), os.Getenv("OLDER_TAG")), newer: release(chart, o.Tag),
		benchmarks: benchmarks{Cluster: c, namespace: "upgrade-benchmarks", image: o.Image},
		follows:    fleet.New(c, o, "upgrade-follows", "ETS"),
	}
	if u.older.Chart == "" || u.older.Tag == "" {
		t.Fatal("OLDER_CHART and OLDER_TAG are not set: run `make test-upgrade`")
	}
	for _, adapter := range slices.Sorted(maps.Keys(fleet.Adapters)) {
		u.fleets = append(u.fleets, fleet.New(c, o, "upgrade", adapter))
	}
	u.fleets = append(u.fleets, u.follows)
	// The newer operator would run another Redis.
	if registry := os.Getenv("REGISTRY"); os.Getenv("CHART_VALUES") != "" {
		u.newer.Sets = append(u.newer.Sets, fmt.Sprintf("operator.redis.image=%s/livestash-test-redis:%s", registry, o.NextTag))
	}
	return u
}

// release is a version with its own load tests.
func release(chart, tag string) fleet.Release {
	registry := cmp.Or(os.Getenv("REGISTRY"), "ghcr.io/livestash-dev")
	return fleet.Release{Chart: chart, Tag: tag, Sets: []string{fmt.Sprintf("operator.benchmark.image=%s/livestash-k6:%s", registry, tag)}}
}

// step is one that the next ones need.
func (u *upgrade) step(what string, do func() error) {
	u.t.Helper()
	begun := time.Now()
	err := do()
	u.t.Logf("%s: %.0f s", what, time.Since(begun).Seconds())
	if err != nil {
		u.t.Fatalf("%s: %v", what, err)
	}
}

// populate makes the fleets, with their users.
func (u *upgrade) populate() error {
	return errors.Join(u.benchmarks.prepare(u.ctx), all(u.fleets, func(f *fleet.Fleet) error {
		if err := f.Ensure(u.ctx, podsOfEach); err != nil {
			return err
		}
		return f.OpenUsers(u.ctx, usersOfEach, seed)
	}))
}

// change brings another version of the operator while the first run of a benchmark is under way, and checks what is there afterwards.
func (u *upgrade) change(name string, to fleet.Release, bring func(context.Context) error) error {
	namespaces := make([]string, len(u.fleets))
	for i, f := range u.fleets {
		namespaces[i] = f.Namespace
	}
	if err := u.benchmarks.begin(u.ctx, name, "90s", "ETS", "BrowserMemory"); err != nil {
		return err
	}
	livesBefore, err := pods(u.ctx, u.cluster, namespaces)
	if err != nil {
		return err
	}
	if u.stored == nil {
		if u.stored, err = objects(u.ctx, u.cluster); err != nil {
			return err
		}
	}
	once := sync.OnceValue(func() error { return errors.Join(bring(u.ctx), u.benchmarks.firstRuns(u.ctx, name)) })
	if err := all(u.fleets, func(f *fleet.Fleet) error { return f.Upgrade(u.ctx, once) }); err != nil {
		return err
	}
	// What a user applies again changes nothing.
	if err := all(u.fleets, func(f *fleet.Fleet) error { return errors.Join(f.Apply(u.ctx), f.Settled(u.ctx)) }); err != nil {
		return err
	}
	passed := u.benchmarks.passed(u.ctx, name)
	lives, err := pods(u.ctx, u.cluster, namespaces)
	if err != nil {
		return err
	}
	now, err := objects(u.ctx, u.cluster)
	if err != nil {
		return err
	}
	differ, err := definitionsDiffer(u.ctx, u.cluster, to.Chart)
	return errors.Join(
		err, passed,
		complaint("these definitions are not those of the chart", differ),
		complaint("these pods were replaced, or restarted", replaced(livesBefore, lives)),
		complaint("what was stored is not there any more", missing("", u.stored, now)),
	)
}

// check has every user of a fleet come back once more, and fails when one has lost anything, or was cut off by something else than a deploy.
func (u *upgrade) check(f *fleet.Fleet) error {
	before, err := f.UsersProgress(u.ctx)
	if err != nil {
		return err
	}
	unchecked, err := f.CheckUsers(u.ctx)
	if err != nil {
		return err
	}
	r, err := f.Users(u.ctx)
	if err != nil {
		return err
	}
	u.t.Logf("%s: %d stashes, %d sockets cut, %d returns: %v", f.Namespace, r.Stashes, before.Cut, r.Returns, r.Verdicts)
	var wrong []string
	for _, c := range []struct {
		count int
		what  string
	}{
		{unchecked, "did not come back"}, {r.Verdicts[ledger.Lost], "lost"}, {r.Verdicts[ledger.Stale], "stale"}, {r.Errors, "pages without their store"},
	} {
		if c.count > 0 {
			wrong = append(wrong, fmt.Sprintf("%d %s", c.count, c.what))
		}
	}
	if f != u.follows && before.Cut > 0 {
		wrong = append(wrong, fmt.Sprintf("%d sockets were cut: %v", before.Cut, before.Endings))
	}
	if r.Stashes == 0 || r.Returns < usersOfEach {
		wrong = append(wrong, fmt.Sprintf("%d stashes, %d returns", r.Stashes, r.Returns))
	}
	for _, finding := range r.Findings[:min(len(r.Findings), 3)] {
		wrong = append(wrong, fmt.Sprintf("%+v", finding))
	}
	return complaint(f.Namespace, wrong)
}

// complaint is an error that lists what is wrong; nil when nothing is.
func complaint(what string, wrong []string) error {
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%s:\n  %s", what, strings.Join(wrong, "\n  "))
}

// all does something to all fleets at the same time.
func all(fleets []*fleet.Fleet, do func(*fleet.Fleet) error) error {
	errs := make([]error, len(fleets))
	var running sync.WaitGroup
	for i, f := range fleets {
		running.Go(func() {
			if err := do(f); err != nil {
				errs[i] = fmt.Errorf("%s: %w", f.Namespace, err)
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}
