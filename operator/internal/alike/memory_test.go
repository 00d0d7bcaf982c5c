package alike

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
)

// BenchmarkMemory says how many bytes the objects of a fleet take in a cache, and which share that is of what they take when nothing is
// shared.
func BenchmarkMemory(b *testing.B) {
	const fleets = 200
	var texts [][]byte
	for i := range fleets {
		texts = append(texts, objectsOf(b, fmt.Sprintf("shop-%d", i))...)
	}
	for b.Loop() {
		alone, shared := held(b, texts, as), held(b, texts, Transform(as, nil))
		b.ReportMetric(float64(shared)/fleets, "B/fleet")
		b.ReportMetric(float64(shared)/float64(alone), "share")
	}
}

// objectsOf are the objects of a fleet as the API server has them, in JSON.
func objectsOf(b *testing.B, name string) [][]byte {
	b.Helper()
	objects, err := fleet.Render(&v1alpha1.LiveStashCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: types.UID("of-" + name)},
		Spec:       v1alpha1.LiveStashClusterSpec{Image: "registry.example.com/" + name + ":1.0.0", Adapter: v1alpha1.AdapterETS},
	}, render.Inputs{ClusterDomain: "cluster.local", AgentImage: "registry.example.com/operator:1.0.0", OperatorNamespace: "livestash-system"})
	if err != nil {
		b.Fatal(err)
	}
	texts := make([][]byte, 0, len(objects))
	for _, object := range objects {
		text, err := json.Marshal(object)
		if err != nil {
			b.Fatal(err)
		}
		texts = append(texts, text)
	}
	return texts
}

// held is how many bytes these objects take after the transform.
func held(b *testing.B, texts [][]byte, transform cache.TransformFunc) uint64 {
	b.Helper()
	objects := make([]any, len(texts))
	before := inUse()
	for i, text := range texts {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
		if err != nil {
			b.Fatal(err)
		}
		if objects[i], err = transform(object); err != nil {
			b.Fatal(err)
		}
	}
	after := inUse()
	runtime.KeepAlive(objects)
	return after - before
}

func inUse() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
