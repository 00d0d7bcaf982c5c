package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/livestash-dev/livestash/test/soak/users"
)

// openTime and checkTime are how long all users may take to open, and to come back once more.
const (
	openTime  = 3 * time.Minute
	checkTime = 4 * time.Minute
)

// OpenUsers opens so many users of all kinds, whose chances come from the seed, and waits until each has stashed.
func (f *Fleet) OpenUsers(ctx context.Context, count int, seed uint64) error {
	if err := f.ClientReady(ctx); err != nil {
		return err
	}
	pods, service, host, err := f.Addresses(ctx)
	if err != nil {
		return err
	}
	err = f.Order(ctx, "soak/open", users.Plan{
		Adapter: Adapters[f.Adapter], Users: count, Host: host, Pods: pods, Service: service,
		TTLMS: int(f.Options.TTL / time.Millisecond), Seed: seed,
	})
	if err != nil {
		return err
	}
	return Eventually(ctx, openTime, func(ctx context.Context) error {
		r, err := f.UsersProgress(ctx)
		if err != nil {
			return err
		}
		if r.Ready < r.Users {
			return fmt.Errorf("%d of %d users have stashed (%s)", r.Ready, r.Users, r.Problem)
		}
		return nil
	})
}

// CheckUsers has every user come back once more. It returns how many did not.
func (f *Fleet) CheckUsers(ctx context.Context) (unchecked int, err error) {
	if err := f.Order(ctx, "soak/check", nil); err != nil {
		return 0, err
	}
	_ = Eventually(ctx, checkTime, func(ctx context.Context) error {
		r, err := f.UsersProgress(ctx)
		unchecked = r.Unchecked
		if err == nil && unchecked > 0 {
			err = fmt.Errorf("%d users are not back", unchecked)
		}
		return err
	})
	return unchecked, ctx.Err()
}

// Users is the users' report.
func (f *Fleet) Users(ctx context.Context) (users.Report, error) {
	var r users.Report
	err := f.Ask(ctx, "soak/report", &r)
	return r, err
}

// UsersProgress is the same without its findings.
func (f *Fleet) UsersProgress(ctx context.Context) (users.Report, error) {
	var r users.Report
	err := f.Ask(ctx, "soak/progress", &r)
	return r, err
}

// StopUsers ends all users.
func (f *Fleet) StopUsers(ctx context.Context) error { return f.Order(ctx, "soak/stop", nil) }
