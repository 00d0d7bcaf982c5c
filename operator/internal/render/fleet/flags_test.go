package fleet

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

func TestForeignFlags(t *testing.T) {
	for name, c := range map[string]struct{ variable, value, want string }{
		"a node name":            {"ERL_FLAGS", "+fnu -sname x", "-sname"},
		"a cookie behind a tab":  {"ERL_ZFLAGS", "+A 4\t-setcookie\tx", "-setcookie"},
		"a cookie in quotes":     {"ELIXIR_ERL_OPTIONS", `"-setcookie" x`, "-setcookie"},
		"a port":                 {"ERL_OTP27_FLAGS", "-kernel inet_dist_listen_min 1", "inet_dist_listen_min"},
		"code":                   {"ERL_FLAGS", "-s", "-s"},
		"none":                   {"ERL_FLAGS", "+fnu -shared -names x -kernel shell_history enabled", ""},
		"a variable of no flags": {"FLAGS", "-sname x", ""},
	} {
		got := ForeignFlag(c.value)
		if !TakesFlags(c.variable) {
			got = ""
		}
		if got != c.want {
			t.Errorf("%s: ForeignFlag = %q, want %q", name, got, c.want)
		}
	}
	cluster := rendertest.Cluster(t, "smallest")
	cluster.Spec.Env = []corev1.EnvVar{{Name: "ERL_FLAGS", Value: "-name x@y"}}
	_, err := Render(cluster, rendertest.Inputs)
	var invalid *render.SpecError
	if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "spec.env sets -name in the variable ERL_FLAGS") {
		t.Errorf("Render = %v", err)
	}
}

// The API and the operator must refuse the same flags.
func TestForeignFlagsAreThoseOfTheAPI(t *testing.T) {
	types := read(t, filepath.Join("..", "..", "..", "api", "v1alpha1", "livestashcluster_types.go"))
	const flags = "name|sname|setcookie|remsh|eval|s|run|dist_listen|erl_epmd_port"
	if !strings.Contains(types, "-("+flags+")") || !strings.Contains(foreignFlag.String(), "-(?:"+flags+")") {
		t.Error("the pattern of beam.extraFlags and foreignFlag have other flags than this test, or than each other")
	}
}
