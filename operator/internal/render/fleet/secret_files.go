package fleet

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

const (
	secretsVolume = "livestash-secrets"
	secretsDir    = "/livestash-secrets"

	secretKeyBaseVariable = "SECRET_KEY_BASE"
	// fileSuffix is what the name of a variable ends with that has the path of a file, instead of the value.
	fileSuffix = "_FILE"
)

// fileVariables are those whose value may be in a file, which has the variable's name. The start script of a release takes the cookie
// from its variable alone, and puts it on the command line.
var fileVariables = []string{secretKeyBaseVariable, store.RedisURLVariable}

// variablesOfSecrets are the variables as spec.secretsAs wants those that have secrets.
func variablesOfSecrets(c *v1alpha1.LiveStashCluster, env []corev1.EnvVar) []corev1.EnvVar {
	if c.Spec.SecretsAs != v1alpha1.SecretsAsFiles {
		return env
	}
	env = slices.Clone(env)
	for i, variable := range env {
		if slices.Contains(fileVariables, variable.Name) {
			env[i] = render.Value(variable.Name+fileSuffix, secretsDir+"/"+variable.Name)
		}
	}
	return env
}

// addSecretFiles gives the pods, and the application, those of the contract's secrets that are to be files.
func addSecretFiles(spec *corev1.PodSpec, c *v1alpha1.LiveStashCluster) {
	mounts := secretMounts(c)
	if mounts == nil {
		return
	}
	secrets := append([]corev1.EnvVar{store.FromSecret(secretKeyBaseVariable, secretKeyBaseRef(c))}, store.For(c).Env(c)...)
	// Through the pod's fsGroup, the application's user may read them.
	files := &corev1.ProjectedVolumeSource{DefaultMode: ptr.To[int32](0o440)}
	for _, variable := range secrets {
		if !slices.Contains(fileVariables, variable.Name) {
			continue
		}
		files.Sources = append(files.Sources, corev1.VolumeProjection{Secret: &corev1.SecretProjection{
			LocalObjectReference: variable.ValueFrom.SecretKeyRef.LocalObjectReference,
			Items:                []corev1.KeyToPath{{Key: variable.ValueFrom.SecretKeyRef.Key, Path: variable.Name}},
		}})
	}
	app := &spec.Containers[0]
	app.VolumeMounts = append(app.VolumeMounts, mounts...)
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: secretsVolume, VolumeSource: corev1.VolumeSource{Projected: files}})
}

// secretMounts are where a container finds those files. None: they are variables.
func secretMounts(c *v1alpha1.LiveStashCluster) []corev1.VolumeMount {
	if c.Spec.SecretsAs != v1alpha1.SecretsAsFiles {
		return nil
	}
	return []corev1.VolumeMount{{Name: secretsVolume, MountPath: secretsDir, ReadOnly: true}}
}
