package cluster

import (
	"errors"
	"slices"

	"github.com/livestash-dev/livestash/operator/internal/apply"
)

// problem is an error that the user can do something about. It becomes the condition ReconcileSucceeded=False.
type problem struct {
	// reason is one of the API's reasons, in CamelCase.
	reason string
	// message says what is wrong and what to do.
	message string
	// watched is whether a watch, or a pass that is due, will tell when the problem is gone, so that it is no error to retry.
	watched bool
}

func (p *problem) Error() string { return p.message }

// healsByItself is whether the next pass comes without a retry. Of several errors, each must.
func healsByItself(err error) bool {
	if several, are := err.(interface{ Unwrap() []error }); are {
		return !slices.ContainsFunc(several.Unwrap(), func(one error) bool { return !healsByItself(one) })
	}
	var known *problem
	var taken *apply.ConflictError
	return errors.As(err, &known) && known.watched || errors.As(err, &taken)
}
