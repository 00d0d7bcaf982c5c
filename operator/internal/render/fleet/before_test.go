package fleet

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

func migrating(t *testing.T, name string) *v1alpha1.LiveStashCluster {
	t.Helper()
	cluster := rendertest.Cluster(t, name)
	cluster.Spec.Rollout.Before = &v1alpha1.BeforeSpec{
		Command: []string{"/app/bin/migrate"},
		Env:     []corev1.EnvVar{{Name: "POOL_SIZE", Value: "2"}, {Name: "PORT", Value: "0"}},
	}
	return cluster
}

func beforeRollout(t *testing.T, cluster *v1alpha1.LiveStashCluster, in render.Inputs) *Before {
	t.Helper()
	before, err := BeforeRollout(cluster, in)
	if err != nil {
		t.Fatal(err)
	}
	return before
}

func TestJobBeforeARollout(t *testing.T) {
	for _, name := range []string{"smallest", "full"} {
		t.Run(name, func(t *testing.T) {
			rendertest.CompareGolden(t, "before-"+name, beforeRollout(t, migrating(t, name), rendertest.Inputs).Job())
		})
	}
}

// The command gets no token, also where the application does.
func TestCommandHasNoToken(t *testing.T) {
	cluster := migrating(t, "smallest")
	cluster.Spec.PodTemplate = &v1alpha1.PodTemplateOverride{Spec: override(t, `{"automountServiceAccountToken": true}`)}
	if pod := beforeRollout(t, cluster, rendertest.Inputs).Job().Spec.Template.Spec; ptr.Deref(pod.AutomountServiceAccountToken, true) {
		t.Error("the command before a rollout gets a token of the ServiceAccount")
	}
}

// The command runs again when what the application gets has changed, and is worth another try when it is another command.
func TestWhatTheCommandRunsFor(t *testing.T) {
	type changed struct{ Template, Attempt bool }
	cases := map[string]struct {
		change func(*v1alpha1.LiveStashClusterSpec, *render.Inputs)
		want   changed
	}{
		"nothing":     {func(*v1alpha1.LiveStashClusterSpec, *render.Inputs) {}, changed{}},
		"the image":   {func(s *v1alpha1.LiveStashClusterSpec, _ *render.Inputs) { s.Image += "1" }, changed{true, true}},
		"a variable":  {func(s *v1alpha1.LiveStashClusterSpec, _ *render.Inputs) { s.Env[0].Value += "1" }, changed{true, true}},
		"a Secret":    {func(_ *v1alpha1.LiveStashClusterSpec, in *render.Inputs) { in.SecretsDigest = "1" }, changed{true, true}},
		"a ConfigMap": {func(_ *v1alpha1.LiveStashClusterSpec, in *render.Inputs) { in.ConfigDigest = "1" }, changed{true, true}},
		"the command": {func(s *v1alpha1.LiveStashClusterSpec, _ *render.Inputs) { s.Rollout.Before.Args = []string{"again"} }, changed{false, true}},
		"the number of pods": {func(s *v1alpha1.LiveStashClusterSpec, in *render.Inputs) {
			s.Replicas, in.Replicas = ptr.To[int32](7), 7
		},
			changed{}},
		"the agent":       {func(_ *v1alpha1.LiveStashClusterSpec, in *render.Inputs) { in.AgentImage = "agent:2" }, changed{}},
		"the operator":    {func(_ *v1alpha1.LiveStashClusterSpec, in *render.Inputs) { in.ClusterDomain = "example.org" }, changed{}},
		"the drain":       {func(s *v1alpha1.LiveStashClusterSpec, _ *render.Inputs) { s.Drain.BatchSize = 7 }, changed{}},
		"the probes":      {func(s *v1alpha1.LiveStashClusterSpec, _ *render.Inputs) { s.Probes = nil }, changed{}},
		"the mode":        {func(_ *v1alpha1.LiveStashClusterSpec, in *render.Inputs) { in.Replacing = true }, changed{}},
		"what is known":   {func(_ *v1alpha1.LiveStashClusterSpec, in *render.Inputs) { in.Prepared = []string{"1"} }, changed{}},
		"no agent":        {func(s *v1alpha1.LiveStashClusterSpec, _ *render.Inputs) { s.Agent.Enabled = ptr.To(false) }, changed{}},
		"another command": {func(s *v1alpha1.LiveStashClusterSpec, _ *render.Inputs) { s.Rollout.Before = nil }, changed{false, true}},
	}
	base := beforeRollout(t, migrating(t, "full"), rendertest.Inputs)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cluster, in := migrating(t, "full"), rendertest.Inputs
			c.change(&cluster.Spec, &in)
			after := beforeRollout(t, cluster, in)
			got := changed{after.Template != base.Template, after.Attempt != base.Attempt}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("what changed (-want +got):\n%s", diff)
			}
		})
	}
}
