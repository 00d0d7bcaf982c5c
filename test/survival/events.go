package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/livestash-dev/livestash/test/survival/internal/crowd"
)

const (
	operatorRelease   = "livestash"
	operatorNamespace = "livestash-system"
	operatorPods      = "app.kubernetes.io/name=livestash-operator"

	// splitTime is how long a pod is cut off.
	splitTime = 30 * time.Second
	// wholeTime is how long the mesh and the store may take to be whole again.
	wholeTime = time.Minute
)

// event is something that happens to a fleet.
type event struct {
	name string
	// replicas is the number of pods before the event.
	replicas int
	// adapter is the only one that the event is about; empty for all.
	adapter string
	// needsNode is whether it needs the pods' processes on this machine.
	needsNode bool
	// do does it to some fleets at once, and returns when it has taken effect. The fleets settle afterwards. What it has
	// to say of a fleet goes to that fleet's remarks.
	do func(ctx context.Context, d *driver, fleets []*subject) error
	// judge is the verdict beside stale sessions, which no event may leave behind; empty when it is good.
	judge func(adapter string, report crowd.Report) string
}

// subject is a fleet in an event.
type subject struct {
	*fleet
	report  crowd.Report
	remarks []string
	// problem is why the event could not be gone through with this fleet.
	problem error
}

func (s *subject) remark(format string, args ...any) {
	s.remarks = append(s.remarks, fmt.Sprintf(format, args...))
}

// events are all there are, in the order in which they are run: few changes of the number of pods, the worst ones late.
func events(o options) []event {
	return []event{
		{name: "rollout-image", replicas: 3, do: each(rolloutImage), judge: planned},
		{name: "rollout-config", replicas: 3, do: each(rolloutConfig), judge: planned},
		{name: "pod-delete", replicas: 3, do: each(deletePod), judge: planned},
		{name: "eviction", replicas: 3, do: each(evictPod), judge: planned},
		{name: "operator-restart", replicas: 3, do: restartOperator, judge: planned},
		{name: "operator-upgrade", replicas: 3, do: upgradeOperator, judge: planned},
		{name: "scale-down", replicas: 3, do: each(scaleTo(2)), judge: planned},
		{name: "scale-up", replicas: 2, do: each(scaleTo(4)), judge: planned},
		{name: "redis-restart", replicas: 3, adapter: "Redis", do: each(restartRedis), judge: redisRestarted(o)},
		{name: "redis-kill", replicas: 3, adapter: "Redis", needsNode: true, do: each(killRedis), judge: redisRestarted(o)},
		{name: "kill", replicas: 3, needsNode: true, do: each(killPod), judge: killed},
		{name: "split", replicas: 3, needsNode: true, do: each(splitPod), judge: split},
	}
}

// planned events lose nothing.
func planned(_ string, r crowd.Report) string {
	if r.Lost > 0 {
		return fmt.Sprintf("%d sessions lost", r.Lost)
	}
	return ""
}

// killed is an event that loses what only the killed pod had: with ETS its sessions, else nothing.
func killed(adapter string, r crowd.Report) string {
	if adapter != "ETS" {
		return planned(adapter, r)
	}
	for address, pod := range r.Pods {
		if pod.Lost > 0 && !strings.HasPrefix(address, podHost(0)+":") {
			return fmt.Sprintf("%d sessions lost of %s, which was not killed", pod.Lost, address)
		}
	}
	return ""
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
	next := s.options.nextImage
	if s.image == next {
		next = s.options.image
	}
	s.image = next
	return s.roll(ctx)
}

func rolloutConfig(ctx context.Context, s *subject) error {
	s.rollout++
	return s.roll(ctx)
}

// roll applies a changed spec and waits until every pod was replaced.
func (s *subject) roll(ctx context.Context) error {
	before, err := s.lives(ctx)
	if err != nil {
		return err
	}
	if err := s.apply(ctx); err != nil {
		return err
	}
	return s.replaced(ctx, before)
}

func deletePod(ctx context.Context, s *subject) error {
	_, err := s.in(ctx, "", "delete", "pod", s.lowest(), "--timeout=3m")
	return err
}

func evictPod(ctx context.Context, s *subject) error {
	before, err := s.pod(ctx, s.lowest())
	if err != nil {
		return err
	}
	if err := s.evict(ctx, s.lowest()); err != nil {
		return err
	}
	return eventually(ctx, settleTime, func(ctx context.Context) error {
		now, err := s.pod(ctx, s.lowest())
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
		s.replicas = replicas
		_, err := s.in(ctx, "", "scale", "lsc/"+fleetName, fmt.Sprintf("--replicas=%d", replicas))
		return err
	}
}

// restartOperator deletes the operator's pod while every fleet has some pods of the old template and some of the new.
func restartOperator(ctx context.Context, d *driver, fleets []*subject) error {
	return rolled(ctx, fleets, func() error {
		try(fleets, func(s *subject) error {
			before, err := s.lives(ctx)
			if err != nil {
				return err
			}
			s.rollout++
			if err := s.apply(ctx); err != nil {
				return err
			}
			return s.midway(ctx, before)
		})
		_, err := d.kubectl(ctx, "", "--namespace", operatorNamespace, "delete", "pod", "--selector", operatorPods, "--timeout=2m")
		return err
	})
}

// midway waits until a rollout has replaced a pod of before.
func (s *subject) midway(ctx context.Context, before map[string]types.UID) error {
	return eventually(ctx, settleTime, func(ctx context.Context) error {
		now, err := s.lives(ctx)
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

// upgradeOperator installs the operator under its other tag. The pods' template names the operator's image for the agent,
// so that the new operator rolls every fleet that has an agent.
func upgradeOperator(ctx context.Context, d *driver, fleets []*subject) error {
	tag := d.options.nextTag
	if d.operatorTag == tag {
		tag = d.options.tag
	}
	upgrade := func() error { return d.installOperator(ctx, tag) }
	if !d.options.agent {
		return upgrade()
	}
	return rolled(ctx, fleets, upgrade)
}

// rolled does something and waits until every pod of every fleet was replaced.
func rolled(ctx context.Context, fleets []*subject, do func() error) error {
	before := make([]map[string]types.UID, len(fleets))
	for i, s := range fleets {
		var err error
		if before[i], err = s.lives(ctx); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	for i, s := range fleets {
		try([]*subject{s}, func(s *subject) error { return s.replaced(ctx, before[i]) })
	}
	return nil
}

func killPod(ctx context.Context, s *subject) error {
	before, err := s.restarts(ctx)
	if err != nil {
		return err
	}
	if err := s.kill(ctx, s.lowest(), appContainer, beam); err != nil {
		return err
	}
	if err := s.order(ctx, "effect", nil); err != nil {
		return err
	}
	return eventually(ctx, settleTime, func(ctx context.Context) error {
		now, err := s.restarts(ctx)
		if err == nil && now == before {
			return fmt.Errorf("the container of pod %s was not restarted", s.lowest())
		}
		return err
	})
}

func (s *subject) restarts(ctx context.Context) (int32, error) {
	pod, err := s.pod(ctx, s.lowest())
	if err != nil {
		return 0, err
	}
	app, err := container(pod, appContainer)
	return app.RestartCount, err
}

func splitPod(ctx context.Context, s *subject) error {
	heal, err := s.cut(ctx, s.lowest())
	if err != nil {
		return err
	}
	err = s.order(ctx, "effect", nil)
	if err == nil {
		err = pause(ctx, splitTime)
	}
	if err == nil && s.options.agent {
		err = s.noticed(ctx)
	}
	if err := errors.Join(err, heal()); err != nil {
		return err
	}
	if !s.options.agent {
		return nil
	}
	healed := time.Now()
	err = eventually(ctx, wholeTime, func(ctx context.Context) error {
		missing, err := s.missingPeers(ctx)
		if err == nil && missing != "" {
			err = errors.New(missing)
		}
		return errors.Join(err, s.conditionsHold(ctx))
	})
	if err != nil {
		return fmt.Errorf("not whole again: %w", err)
	}
	s.remark("whole again %.0f s after the split", time.Since(healed).Seconds())
	return nil
}

// noticed fails when the pods that were not cut off still take the one that was for a peer: such a split proves nothing.
func (s *subject) noticed(ctx context.Context) error {
	peers, err := s.peers(ctx, fmt.Sprintf("%s-%d", fleetName, s.replicas-1))
	if err != nil {
		return err
	}
	if peers.Missing == 0 {
		return fmt.Errorf("after %s the peers of %s still take it for one of them: %d are connected", splitTime, s.lowest(), peers.Connected)
	}
	return nil
}

func pause(ctx context.Context, wait time.Duration) error {
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
