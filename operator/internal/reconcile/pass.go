// Package reconcile is what the controllers have in common: a pass is a list of named steps, and how it ends decides when the
// next one comes and what the user is told.
package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/fencing"
)

// mostBackoff is how long a pass is put off at most that has failed again and again: what hindered it may be over at any time, and
// nothing may tell.
const mostBackoff = 30 * time.Second

// staleRetry is when a pass is tried again that went by something that had changed already, as happens when a StatefulSet's status is
// written a moment before. It is no error. What changed mostly brings the next pass sooner, when the cache knows it.
const staleRetry = 100 * time.Millisecond

// expiredRetry is when a pass is tried again of an operator whose Lease has expired. It is no error: another operator sees to the object, and this
// one ends within some seconds, or renews it.
const expiredRetry = time.Second

// Backoff is when a pass is tried again that has failed.
func Backoff() workqueue.TypedRateLimiter[ctrl.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](5*time.Millisecond, mostBackoff)
}

// Step is one part of a pass; P is what the steps of a pass hand on to each other.
type Step[P any] struct {
	Name string
	Run  func(context.Context, P) error
}

// Run runs the steps in order. One that fails is the last, and its name is in the error.
func Run[P any](ctx context.Context, p P, steps []Step[P]) error {
	for _, step := range steps {
		if err := step.Run(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", step.Name, err)
		}
	}
	return nil
}

// Pass is embedded by what the steps hand on.
type Pass struct {
	// again is when the next pass is due though nothing has changed. Zero: never.
	again time.Duration
}

// DueIn sees to it that the next pass comes no later than in that time: at once when that is over.
func (p *Pass) DueIn(after time.Duration) {
	after = max(after, time.Millisecond)
	if p.again == 0 || after < p.again {
		p.again = after
	}
}

// End is what controller-runtime is told about a pass whose steps ended with err. tell writes that into the object's status; it is
// not asked to when no user needs to know.
func (p *Pass) End(err error, tell func(error) error) (ctrl.Result, error) {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return ctrl.Result{}, nil // the object goes with its namespace
	}
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	}
	if errors.Is(err, fencing.ErrExpired) {
		return ctrl.Result{RequeueAfter: expiredRetry}, nil
	}
	if apierrors.IsAlreadyExists(err) {
		return ctrl.Result{}, err // a cache that lags behind: the next try will do
	}
	if taken := (*apply.ConflictError)(nil); errors.As(err, &taken) || err != nil && !HealsByItself(err) {
		p.DueIn(apply.ConflictRetry)
	}
	statusErr := tell(err)
	if errors.Is(statusErr, fencing.ErrExpired) {
		return ctrl.Result{RequeueAfter: expiredRetry}, nil
	}
	if statusErr != nil {
		return ctrl.Result{}, errors.Join(err, statusErr)
	}
	if err != nil && !IsMistake(err) {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: p.again}, nil
}
