package reconcile

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/apply"
)

// Problem is an error that the user can do something about. It becomes the condition ReconcileSucceeded=False.
type Problem struct {
	// Reason is one of the API's reasons, in CamelCase.
	Reason string
	// Message says what is wrong and what to do.
	Message string
	// Watched is whether a watch, or a pass that is due, will tell when the problem is gone, so that it need not be looked at again.
	Watched bool
}

func (p *Problem) Error() string { return p.Message }

// HealsByItself is whether the next pass comes without a retry. Of several errors, each must.
func HealsByItself(err error) bool {
	return every(err, func(one error) bool {
		var known *Problem
		var taken *apply.ConflictError
		return errors.As(one, &known) && known.Watched || errors.As(one, &taken)
	})
}

// IsMistake is whether users can do something about the error, and the operator cannot: a problem, a name that is taken, an object that
// the API server refuses as it is wanted. Of several errors, each must be one.
func IsMistake(err error) bool {
	return every(err, func(one error) bool {
		var known *Problem
		var taken *apply.ConflictError
		if apierrors.HasStatusCause(one, corev1.NamespaceTerminatingCause) {
			return false
		}
		refused := apierrors.IsInvalid(one) || apierrors.IsForbidden(one) || apierrors.IsBadRequest(one) || apierrors.IsRequestEntityTooLargeError(one)
		return refused || errors.As(one, &known) || errors.As(one, &taken)
	})
}

// every is whether something holds for each of the errors that this one is made of.
func every(err error, holds func(error) bool) bool {
	if several, are := err.(interface{ Unwrap() []error }); are {
		return !slices.ContainsFunc(several.Unwrap(), func(one error) bool { return !every(one, holds) })
	}
	if inner := errors.Unwrap(err); inner != nil {
		return every(inner, holds)
	}
	return holds(err)
}

// Worse is the error to tell first of two that did not hold up a pass, of which either may be nil: one that calls for a retry
// must not hide behind one that does not.
func Worse(first, second error) error {
	if first == nil || second != nil && HealsByItself(first) && !HealsByItself(second) {
		return second
	}
	return first
}

// ReasonAndMessage are what a condition says of an error.
func ReasonAndMessage(err error) (reason, message string) {
	var known *Problem
	if errors.As(err, &known) {
		return known.Reason, known.Message
	}
	var taken *apply.ConflictError
	if errors.As(err, &taken) {
		return v1alpha1.ReasonNameConflict, taken.Error()
	}
	return v1alpha1.ReasonAPIError, err.Error()
}
