package cluster

import "errors"

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

func healsByItself(err error) bool {
	var known *problem
	return errors.As(err, &known) && known.watched
}
