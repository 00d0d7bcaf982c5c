package reconcile

import (
	"errors"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// Problem is an error that the user can do something about. It becomes the condition ReconcileSucceeded=False.
type Problem struct {
	// Reason is one of the API's reasons, in CamelCase.
	Reason string
	// Message says what is wrong and what to do.
	Message string
	// Watched is whether a watch, or a pass that is due, will tell when the problem is gone, so that it is no error to retry.
	Watched bool
}

func (p *Problem) Error() string { return p.Message }

func healsByItself(err error) bool {
	var known *Problem
	return errors.As(err, &known) && known.Watched
}

// ReasonAndMessage are what a condition says of an error.
func ReasonAndMessage(err error) (reason, message string) {
	var known *Problem
	if errors.As(err, &known) {
		return known.Reason, known.Message
	}
	return v1alpha1.ReasonAPIError, err.Error()
}
