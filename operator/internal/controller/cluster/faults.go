package cluster

import (
	"bytes"
	"fmt"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/reconcile"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

// fault is why a value cannot be a variable of the application. It is remembered instead of the value.
type fault struct {
	// nul is whether it has a NUL byte, which ends a variable.
	nul bool
	// flag is what the operator's own flags of the virtual machine are at odds with, if it becomes a variable for flags.
	flag string
}

func faultOf(value []byte) fault {
	return fault{nul: bytes.IndexByte(value, 0) >= 0, flag: fleet.ForeignFlag(string(value))}
}

// checkVariables refuses values with which the application would not start, as the variables that they are to be.
func checkVariables(ref fleet.Reference, now content) error {
	for _, use := range ref.Uses {
		for key, found := range now.faults {
			if !use.Environment || use.Key != "" && use.Key != key {
				continue
			}
			variable := use.Variable
			if use.Key == "" {
				variable += key
			}
			what := ""
			if fleet.TakesFlags(variable) && found.flag != "" {
				what = fleet.ForeignFlagAdvice(variable, found.flag)
			}
			if found.nul {
				what = fmt.Sprintf("has a NUL byte, which the variable %s cannot have: write the value again without it", variable)
			}
			if what != "" {
				return &reconcile.Problem{
					Reason:  v1alpha1.ReasonInvalidSpec,
					Message: fmt.Sprintf("the key %s of %s %s (%s) %s", key, ref.Kind, ref.Name, use.Field, what),
					Watched: true,
				}
			}
		}
	}
	return nil
}

// missingOf says what pods need of an object and is not among its keys, the first of it. Without keys, there is no such object.
func missingOf(ref fleet.Reference, keys map[string]string) string {
	for _, use := range ref.Uses {
		_, found := keys[use.Key]
		switch {
		case use.Optional:
		case keys == nil:
			return fmt.Sprintf("%s %s (%s)", ref.Kind, ref.Name, use.Field)
		case use.Key != "" && !found:
			return fmt.Sprintf("the key %s of %s %s (%s)", use.Key, ref.Kind, ref.Name, use.Field)
		}
	}
	return ""
}
