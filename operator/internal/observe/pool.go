package observe

import (
	"context"

	"github.com/livestash-dev/livestash/operator/internal/agentclient"
)

// Figures asks the agent of a pod for its figures, or where there is none the helper for what the pod uses. It returns when ctx ends.
type Figures interface {
	Metrics(ctx context.Context, podIP string, port int32) (agentclient.Metrics, error)
	Usage(ctx context.Context, podIP string, port int32) (agentclient.Metrics, error)
}

// Pool asks for figures with room for so many questions at once, over all fleets. It is safe for concurrent use.
type Pool struct {
	agents Figures
	room   chan struct{}
}

// NewPool is a pool with that much room. Zero is 64.
func NewPool(agents Figures, parallel int) *Pool {
	if parallel <= 0 {
		parallel = defaultParallel
	}
	return &Pool{agents: agents, room: make(chan struct{}, parallel)}
}

// Metrics waits for room until ctx ends, and then two seconds at most for the agent.
func (p *Pool) Metrics(ctx context.Context, podIP string, port int32) (agentclient.Metrics, error) {
	return p.ask(ctx, podIP, port, p.agents.Metrics)
}

// Usage waits likewise.
func (p *Pool) Usage(ctx context.Context, podIP string, port int32) (agentclient.Metrics, error) {
	return p.ask(ctx, podIP, port, p.agents.Usage)
}

func (p *Pool) ask(
	ctx context.Context, podIP string, port int32, question func(context.Context, string, int32) (agentclient.Metrics, error),
) (agentclient.Metrics, error) {
	select {
	case p.room <- struct{}{}:
	case <-ctx.Done():
		return agentclient.Metrics{}, ctx.Err()
	}
	defer func() { <-p.room }()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return question(ctx, podIP, port)
}
