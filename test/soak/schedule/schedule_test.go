package schedule

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The beginning of one seed. A change here means that old seeds no longer mean what they did.
func TestSeed(t *testing.T) {
	want := `    4.0 s  delete 2
   14.5 s  scale to 4
   20.5 s  operator
   28.8 s  evict 2
   37.6 s  image
   48.4 s  config
   54.0 s  delete-two 1 2
`
	if diff := cmp.Diff(want, Print(New(Config{Seed: 7, Length: time.Minute, Pods: 3}))); diff != "" {
		t.Errorf("the schedule of a seed has changed (-want +got):\n%s", diff)
	}
}

func TestTheSameSeedIsTheSameSchedule(t *testing.T) {
	c := Config{Seed: 1, Length: time.Hour, Pods: 3, Redis: true, Persistent: true, TLS: true, Faults: true}
	if diff := cmp.Diff(New(c), New(c)); diff != "" {
		t.Errorf("two schedules of one seed differ:\n%s", diff)
	}
	other := c
	other.Seed = 2
	if cmp.Equal(New(c), New(other)) {
		t.Error("two seeds have one schedule")
	}
}

// A longer run begins as the shorter one did, so that a failure can be met again without waiting for the end.
func TestALongerRunBeginsAsAShorterOne(t *testing.T) {
	short := New(Config{Seed: 3, Length: 3 * time.Minute, Pods: 3})
	long := New(Config{Seed: 3, Length: time.Hour, Pods: 3})
	if diff := cmp.Diff(short, long[:len(short)]); diff != "" {
		t.Errorf("the beginnings differ:\n%s", diff)
	}
}

// Fleets that share a machine have no more events in all than one would have.
func TestStretch(t *testing.T) {
	c := Config{Seed: 4, Length: time.Hour, Pods: 3}
	alone := len(New(c))
	c.Stretch, c.Length = 4, 4*time.Hour
	steps := New(c)
	if len(steps) != alone {
		t.Errorf("%d events in four times the time, want %d", len(steps), alone)
	}
	for i, step := range steps[1:] {
		if gap := step.At - steps[i].At; gap < 4*shortestGap || gap > 4*longestGap {
			t.Errorf("%s comes %s after the one before", step, gap)
		}
	}
}

func TestSchedule(t *testing.T) {
	ofOne := []Kind{Image, ConfigChange, BadImage, Delete, DeleteAll, Scale, Restart, Operator}
	graceful := append(slices.Clone(ofOne), Evict)
	for name, c := range map[string]struct {
		config Config
		want   []Kind
		sizes  []int
	}{
		"one pod":                {Config{Pods: 1}, ofOne, []int{1, 2}},
		"two pods":               {Config{Pods: 2}, graceful, []int{2, 3}},
		"three pods":             {Config{Pods: 3}, slices.Concat(graceful, []Kind{DeleteTwo}), []int{2, 3, 4}},
		"TLS":                    {Config{Pods: 2, TLS: true}, slices.Concat(graceful, []Kind{Certificate}), []int{2, 3}},
		"Redis":                  {Config{Pods: 2, Redis: true, Persistent: true}, slices.Concat(graceful, []Kind{Redis, Password}), []int{2, 3}},
		"Redis without a volume": {Config{Pods: 2, Redis: true}, slices.Concat(graceful, []Kind{Password}), []int{2, 3}},
		"faults":                 {Config{Pods: 2, Faults: true}, slices.Concat(graceful, []Kind{Kill, Freeze, Split, CutOff, Slow}), []int{2, 3}},
		"faults of one pod":      {Config{Pods: 1, Faults: true}, slices.Concat(ofOne, []Kind{Kill, Freeze}), []int{1, 2}},
		"faults of Redis":        {Config{Pods: 1, Faults: true, Redis: true}, slices.Concat(ofOne, []Kind{Password, Kill, Freeze, RedisKill, RedisFreeze}), []int{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			c.config.Length = 10 * time.Hour
			var kinds []Kind
			var sizes []int
			last, replicas := time.Duration(0), c.config.Pods
			for _, step := range New(c.config) {
				if gap := step.At - last; gap < shortestGap || gap > longestGap {
					t.Errorf("%s comes %s after the one before", step, gap)
				}
				last = step.At
				kinds = append(kinds, step.Kind)
				for i, pod := range step.Pods {
					if pod >= c.config.Pods || slices.Contains(step.Pods[:i], pod) {
						t.Errorf("%s is about pods %v of %d", step, step.Pods, c.config.Pods)
					}
				}
				if step.Kind == Scale {
					if step.Replicas == replicas {
						t.Errorf("%s, which it already has", step)
					}
					replicas = step.Replicas
					sizes = append(sizes, replicas)
				}
			}
			slices.Sort(c.want)
			slices.Sort(kinds)
			slices.Sort(sizes)
			if diff := cmp.Diff(c.want, slices.Compact(kinds)); diff != "" {
				t.Errorf("the kinds differ (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.sizes, slices.Compact(sizes)); diff != "" {
				t.Errorf("the numbers of pods differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUngraceful(t *testing.T) {
	ungraceful := []Kind{Kill, Freeze, Split, CutOff, Slow, RedisKill, RedisFreeze}
	for _, k := range kinds {
		if got := k.Ungraceful(); got != slices.Contains(ungraceful, k.Kind) {
			t.Errorf("%s is ungraceful: %t", k.Kind, got)
		}
	}
}
