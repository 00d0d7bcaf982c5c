package reconcile

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/fencing"
)

var errBroken = errors.New("broken")

func TestRunEndsWithTheFirstStepThatFails(t *testing.T) {
	var ran []string
	step := func(name string, err error) Step[*Pass] {
		return Step[*Pass]{Name: name, Run: func(context.Context, *Pass) error {
			ran = append(ran, name)
			return err
		}}
	}
	err := Run(t.Context(), &Pass{}, []Step[*Pass]{step("look", nil), step("write", errBroken), step("tell", nil)})
	if !errors.Is(err, errBroken) || err.Error() != "write: broken" {
		t.Errorf("Run = %v, want the error with the step's name", err)
	}
	if diff := cmp.Diff([]string{"look", "write"}, ran); diff != "" {
		t.Errorf("steps that ran (-want +got):\n%s", diff)
	}
}

// What hindered a pass may be over at any time, however often it has hindered one.
func TestBackoffEnds(t *testing.T) {
	backoff, shop := Backoff(), ctrl.Request{}
	var longest time.Duration
	for range 100 {
		longest = max(longest, backoff.When(shop))
	}
	if longest != 30*time.Second {
		t.Errorf("a pass is put off by up to %s", longest)
	}
}

func TestEnd(t *testing.T) {
	children := schema.GroupResource{Resource: "services"}
	terminating := apierrors.NewForbidden(children, "shop", errBroken)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	cases := map[string]struct {
		err     error
		untold  error
		told    bool
		again   time.Duration
		retried bool
	}{
		"all is well":             {told: true, again: time.Minute},
		"an error":                {err: errBroken, told: true, retried: true},
		"a problem":               {err: &Problem{}, told: true, again: apply.ConflictRetry},
		"a refused object":        {err: fmt.Errorf("write: %w", apierrors.NewForbidden(children, "shop", errBroken)), told: true, again: apply.ConflictRetry},
		"a name that is taken":    {err: fmt.Errorf("write: %w", &apply.ConflictError{}), told: true, again: apply.ConflictRetry},
		"several of users":        {err: errors.Join(apierrors.NewInvalid(schema.GroupKind{}, "shop", nil), &apply.ConflictError{}), told: true, again: apply.ConflictRetry},
		"one of users, an error":  {err: fmt.Errorf("write: %w", errors.Join(&apply.ConflictError{}, errBroken)), told: true, retried: true},
		"a watched problem":       {err: fmt.Errorf("look: %w", &Problem{Watched: true}), told: true, again: time.Minute},
		"the namespace goes":      {err: fmt.Errorf("write: %w", terminating)},
		"the cache lags":          {err: fmt.Errorf("write: %w", apierrors.NewConflict(children, "shop", errBroken)), again: staleRetry},
		"the cache knows it not":  {err: apierrors.NewAlreadyExists(children, "shop"), retried: true},
		"the Lease has expired":   {err: fmt.Errorf("write: %w", &url.Error{Err: fencing.ErrExpired}), again: expiredRetry},
		"it has just expired":     {untold: fmt.Errorf("status: %w", fencing.ErrExpired), told: true, again: expiredRetry},
		"the status is not taken": {untold: errBroken, told: true, retried: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pass := &Pass{}
			pass.DueIn(time.Hour)
			told := false
			result, err := pass.End(c.err, func(err error) error {
				told = errors.Is(err, c.err)
				pass.DueIn(time.Minute)
				return c.untold
			})
			if told != c.told || (err != nil) != c.retried {
				t.Errorf("told = %t, want %t; the error is %v", told, c.told, err)
			}
			if diff := cmp.Diff(ctrl.Result{RequeueAfter: c.again}, result); diff != "" {
				t.Errorf("the result (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDueIn(t *testing.T) {
	pass := &Pass{}
	for _, step := range []struct{ in, want time.Duration }{
		{time.Minute, time.Minute}, {time.Hour, time.Minute}, {time.Second, time.Second}, {-time.Second, time.Millisecond},
	} {
		if pass.DueIn(step.in); pass.again != step.want {
			t.Errorf("after DueIn(%s) the next pass is due in %s, want %s", step.in, pass.again, step.want)
		}
	}
}
