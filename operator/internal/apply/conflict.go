package apply

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// ConflictRetry is when to try again after a ConflictError, or when the API server has refused an object: nothing tells when an object of
// somebody else is gone, or when a quota has room.
const ConflictRetry = 20 * time.Second

// ConflictError is about objects that have a name that is wanted, and are somebody else's.
type ConflictError struct {
	// Owner is the kind that wants the names.
	Owner string
	// Objects are the kinds and names of the objects.
	Objects []string
}

func (e *ConflictError) Error() string {
	if len(e.Objects) == 1 {
		return fmt.Sprintf("%s exists and does not belong to this %s: delete it, or give the %s another name", e.Objects[0], e.Owner, e.Owner)
	}
	return fmt.Sprintf("%s exist and do not belong to this %s: delete them, or give the %s another name", strings.Join(e.Objects, ", "), e.Owner, e.Owner)
}

// and is both errors in one. The first may be nil.
func (e *ConflictError) and(other *ConflictError) *ConflictError {
	if e == nil {
		return other
	}
	return &ConflictError{Owner: e.Owner, Objects: slices.Concat(e.Objects, other.Objects)}
}
