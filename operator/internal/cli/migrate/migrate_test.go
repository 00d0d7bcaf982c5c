package migrate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

// What a Deployment becomes, with what is said of it before.
func TestCluster(t *testing.T) {
	files, err := filepath.Glob("testdata/*.deployment.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".deployment.yaml")
		t.Run(name, func(t *testing.T) {
			in, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			deployment := &appsv1.Deployment{}
			if err := yaml.UnmarshalStrict(in, deployment); err != nil {
				t.Fatal(err)
			}
			cluster, notes, err := Cluster(deployment, v1alpha1.AdapterETS)
			if err != nil {
				t.Fatal(err)
			}
			text, err := yaml.Marshal(cluster)
			if err != nil {
				t.Fatal(err)
			}
			if err := yaml.UnmarshalStrict(text, &v1alpha1.LiveStashCluster{}); err != nil {
				t.Error(err)
			}
			rendertest.Golden(t, name+".golden.yaml", []byte("# "+strings.Join(notes, "\n# ")+"\n"+string(text)))
		})
	}
}

func TestNoContainer(t *testing.T) {
	if _, _, err := Cluster(&appsv1.Deployment{}, v1alpha1.AdapterETS); err == nil {
		t.Error("a Deployment without a container is taken")
	}
}
