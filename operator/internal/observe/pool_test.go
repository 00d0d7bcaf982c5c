package observe

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/livestash-dev/livestash/operator/internal/agentclient"
)

// figures are asked for in vain, but for those of one pod.
type figures struct {
	mu             sync.Mutex
	out, most, all int
}

const answers = "10.0.0.1"

func (f *figures) Metrics(ctx context.Context, ip string, _ int32) (agentclient.Metrics, error) {
	f.count(1)
	defer f.count(-1)
	if ip == answers {
		return agentclient.Metrics{Processes: 5}, nil
	}
	<-ctx.Done()
	return agentclient.Metrics{}, ctx.Err()
}

func (f *figures) Usage(ctx context.Context, ip string, port int32) (agentclient.Metrics, error) {
	metrics, err := f.Metrics(ctx, ip, port)
	metrics.PodOnly = true
	return metrics, err
}

func (f *figures) count(more int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.out += more
	f.most, f.all = max(f.most, f.out), f.all+max(more, 0)
}

func TestPoolHasRoomBySetting(t *testing.T) {
	for parallel, want := range map[int]int{0: 64, -1: 64, 1: 1} {
		if got := cap(NewPool(nil, parallel).room); got != want {
			t.Errorf("with %d there is room for %d, want %d", parallel, got, want)
		}
	}
}

func TestPoolHasRoomForSoMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agents := &figures{}
		pool := NewPool(agents, 8)
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience+time.Second)
		defer cancel()
		var asked sync.WaitGroup
		for place := range 50 {
			ask := pool.Metrics
			if place%2 == 0 {
				ask = pool.Usage // they share the room
			}
			asked.Go(func() {
				if _, err := ask(ctx, "10.0.0.2", 9568); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a silent agent: %v", err)
				}
			})
		}
		asked.Wait()
		// Each has two seconds, and there were five.
		if agents.most != 8 || agents.all != 24 {
			t.Errorf("%d at once and %d in all, want 8 and 24", agents.most, agents.all)
		}
		got, err := pool.Metrics(t.Context(), answers, 9568)
		if err != nil || got.Processes != 5 {
			t.Errorf("afterwards: %+v, %v", got, err)
		}
	})
}
