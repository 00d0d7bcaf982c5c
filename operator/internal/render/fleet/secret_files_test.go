package fleet

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

func inFiles(t *testing.T, adapter v1alpha1.Adapter) *v1alpha1.LiveStashCluster {
	t.Helper()
	cluster := rendertest.Cluster(t, "smallest")
	cluster.Spec.Adapter, cluster.Spec.SecretsAs = adapter, v1alpha1.SecretsAsFiles
	return cluster
}

// secretVariables are those of a container that have secrets, or the paths of files with some: NAME=path, or NAME from Secret/key.
func secretVariables(container corev1.Container) []string {
	var found []string
	for _, variable := range container.Env {
		switch {
		case strings.HasPrefix(variable.Value, secretsDir):
			found = append(found, variable.Name+"="+variable.Value)
		case variable.ValueFrom != nil && variable.ValueFrom.SecretKeyRef != nil:
			found = append(found, variable.Name+" from "+variable.ValueFrom.SecretKeyRef.Name+"/"+variable.ValueFrom.SecretKeyRef.Key)
		}
	}
	return found
}

// filesOf are those of the volume with secrets: path from Secret/key.
func filesOf(t *testing.T, spec corev1.PodSpec) []string {
	t.Helper()
	var found []string
	for _, volume := range spec.Volumes {
		if volume.Name != secretsVolume {
			continue
		}
		if *volume.Projected.DefaultMode != 0o440 {
			t.Errorf("the files have the mode %o", *volume.Projected.DefaultMode)
		}
		for _, source := range volume.Projected.Sources {
			item := source.Secret.Items[0]
			found = append(found, item.Path+" from "+source.Secret.Name+"/"+item.Key)
		}
	}
	return found
}

func TestSecretsAsFiles(t *testing.T) {
	const base, url, cookie = "SECRET_KEY_BASE", "LIVE_STASH_REDIS_URL", "RELEASE_COOKIE from shop-secrets/cookie"
	paths := []string{base + "_FILE=/livestash-secrets/" + base, cookie, url + "_FILE=/livestash-secrets/" + url}
	for adapter, want := range map[v1alpha1.Adapter]struct{ app, init, files []string }{
		v1alpha1.AdapterETS:   {paths[:2], nil, []string{base + " from shop-secrets/secret-key-base"}},
		v1alpha1.AdapterRedis: {paths, paths[2:], []string{base + " from shop-secrets/secret-key-base", url + " from shop-redis/url"}},
	} {
		t.Run(string(adapter), func(t *testing.T) {
			cluster := inFiles(t, adapter)
			pods, err := podTemplate(cluster, rendertest.Inputs)
			if err != nil {
				t.Fatal(err)
			}
			init, app := pods.Spec.InitContainers[0], pods.Spec.Containers[0]
			if diff := cmp.Diff([][]string{want.app, want.init, want.files}, [][]string{secretVariables(app), secretVariables(init), filesOf(t, pods.Spec)}); diff != "" {
				t.Errorf("the application, the init container and the files (-want +got):\n%s", diff)
			}
			for _, container := range []corev1.Container{init, app} {
				if mounts, err := json.Marshal(container.VolumeMounts); err != nil || !strings.Contains(string(mounts), secretsDir) {
					t.Errorf("container %s has the volumes %s, %v", container.Name, mounts, err)
				}
			}
		})
	}
}

// The command before a rollout is in the same release, which reads its secrets in the same way.
func TestSecretsAsFilesOfTheCommandBefore(t *testing.T) {
	cluster := inFiles(t, v1alpha1.AdapterRedis)
	cluster.Spec.Rollout.Before = &v1alpha1.BeforeSpec{Command: []string{"bin/shop", "eval"}}
	before, err := BeforeRollout(cluster, rendertest.Inputs)
	if err != nil {
		t.Fatal(err)
	}
	pod := before.Job().Spec.Template.Spec
	if len(filesOf(t, pod)) != 2 || len(secretVariables(pod.Containers[0])) != 3 {
		t.Errorf("its files are %q, its variables %q", filesOf(t, pod), secretVariables(pod.Containers[0]))
	}
}
