package fleet

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// flagVariables are the variables from which Erlang's virtual machine and Elixir's start script take flags, ERL_AFLAGS apart, which is
// the operator's own.
var flagVariables = regexp.MustCompile(`^(ERL_(Z|OTP[0-9]+_)?FLAGS|ELIXIR_ERL_OPTIONS)$`)

// foreignFlag is a flag that names the node, moves its ports or evaluates code. The API has the same pattern for beam.extraFlags.
var foreignFlag = regexp.MustCompile(`(?:^|[\x00- "'])(-(?:name|sname|setcookie|remsh|eval|s|run|dist_listen|erl_epmd_port))(?:[\x00- "']|$)|(inet_dist_listen_m[a-z]*)`)

// TakesFlags is whether a variable's value is flags.
func TakesFlags(variable string) bool { return flagVariables.MatchString(variable) }

// ForeignFlag is the first flag with which the pods' nodes would not find each other, or not start. Empty: there is none.
func ForeignFlag(flags string) string {
	found := foreignFlag.FindStringSubmatch(flags)
	return strings.Join(found[min(1, len(found)):], "")
}

// ForeignFlagAdvice is what to do about such a flag.
func ForeignFlagAdvice(variable, flag string) string {
	return fmt.Sprintf("sets %s in the variable %s: the operator sets the node name, the cookie and the ports (spec.clustering), and code to evaluate belongs in the release; remove that flag", flag, variable)
}

// checkFlags refuses such flags in spec.env, also in a variable that another one takes in as $(NAME). In what spec.env names, whoever reads
// it looks for them.
func checkFlags(c *v1alpha1.LiveStashCluster) error {
	for _, env := range c.Spec.Env {
		if !TakesFlags(env.Name) {
			continue
		}
		for _, part := range c.Spec.Env {
			isPart := part.Name == env.Name || strings.Contains(env.Value, "$("+part.Name+")")
			if flag := ForeignFlag(part.Value); isPart && flag != "" {
				return render.SpecErrorf("spec.env %s", ForeignFlagAdvice(env.Name, flag))
			}
		}
	}
	return nil
}
