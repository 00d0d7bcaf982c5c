package kept

import (
	"bytes"
	"compress/flate"
	"encoding/base64"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

// want is what an operator of that version would render of the fleet's pods.
func want(t *testing.T, c *v1alpha1.LiveStashCluster, version string, change func(*render.Inputs)) Wanted {
	t.Helper()
	in := rendertest.Inputs
	in.AgentImage = "agent:" + version
	if change != nil {
		change(&in)
	}
	objects, err := fleet.Render(c, in)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if set, ok := object.(*appsv1.StatefulSet); ok && set.Name == c.Name {
			return Want(Operator{Version: version, Identity: version}, c, set.Spec.Template, objects)
		}
	}
	t.Fatal("no StatefulSet is rendered")
	return Wanted{}
}

func TestKeeps(t *testing.T) {
	anotherImage := func(c *v1alpha1.LiveStashCluster) {
		c.Spec.Image = "another"
		c.Generation++
	}
	morePods := func(c *v1alpha1.LiveStashCluster) {
		c.Spec.Replicas = ptr.To[int32](9)
		c.Generation++
	}
	anotherSecret := func(in *render.Inputs) { in.SecretsDigest = "another" }
	type look struct {
		version string
		spec    func(*v1alpha1.LiveStashCluster)
		inputs  func(*render.Inputs)
		// keeps is whether the pods keep what the first look made.
		keeps bool
	}
	for name, looks := range map[string][]look{
		"another operator":                        {{version: "2", keeps: true}, {version: "2", keeps: true}},
		"two other operators":                     {{version: "2", keeps: true}, {version: "3", keeps: true}, {version: "3", keeps: true}},
		"the same operator, another image":        {{version: "1", spec: anotherImage}},
		"the same operator, more pods":            {{version: "1", spec: morePods}}, // nothing to keep: it is the same
		"another operator, then another image":    {{version: "2", keeps: true}, {version: "2", spec: anotherImage}},
		"another operator, then more pods":        {{version: "2", keeps: true}, {version: "2", spec: morePods, keeps: true}},
		"another operator and another image":      {{version: "2", spec: anotherImage}},
		"another operator and more pods":          {{version: "2", spec: morePods, keeps: true}},
		"more pods, then another operator":        {{version: "2", keeps: true}, {version: "2", spec: morePods, keeps: true}, {version: "3", keeps: true}},
		"another operator, then another Secret":   {{version: "2", keeps: true}, {version: "2", inputs: anotherSecret}},
		"another operator and another Secret":     {{version: "2", inputs: anotherSecret}},
		"another operator, and the first is back": {{version: "2", keeps: true}, {version: "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := rendertest.Cluster(t, "full")
			first := want(t, c, "1", nil)
			note := first.Note()
			for i, l := range looks {
				if l.spec != nil {
					l.spec(c)
				}
				noted, keeps := want(t, c, l.version, l.inputs).Keeps(note, first.Rendering)
				if keeps != l.keeps {
					t.Fatalf("look %d: keeps = %v", i, keeps)
				}
				if keeps && (noted.Version != "1" || noted.Digest != note.Digest) {
					t.Errorf("look %d notes %+v", i, noted)
				}
				if keeps {
					note = noted
				}
			}
		})
	}
}

// A digest that the older operator did not have is no change of the user's.
func TestOutsideDiffers(t *testing.T) {
	template := func(annotations map[string]string) corev1.PodTemplateSpec {
		var made corev1.PodTemplateSpec
		made.Annotations = annotations
		return made
	}
	secrets := map[string]string{fleet.SecretsDigestAnnotation: "a"}
	for name, c := range map[string]struct {
		before, now map[string]string
		want        bool
	}{
		"the same":         {secrets, secrets, false},
		"another":          {secrets, map[string]string{fleet.SecretsDigestAnnotation: "b"}, true},
		"gone":             {secrets, nil, true},
		"new":              {nil, secrets, false},
		"one of another's": {map[string]string{"livestash.dev/redis-config": "a"}, map[string]string{"livestash.dev/redis-config": "b"}, false},
	} {
		if got := outsideDiffers(template(c.before), template(c.now)); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// What is left out of the spec's digest must change nothing in a template.
func TestSpecDigestLeavesOutWhatNoTemplateDependsOn(t *testing.T) {
	for _, name := range []string{"smallest", "full"} {
		whole, less := rendertest.Cluster(t, name), rendertest.Cluster(t, name)
		less.Spec = relevant(less.Spec)
		if a, b := want(t, whole, "1", nil), want(t, less, "1", nil); a.Digest != b.Digest || a.Spec != b.Spec {
			t.Errorf("%s: rendered %s and %s of specs with the digests %s and %s", name, a.Digest, b.Digest, a.Spec, b.Spec)
		}
		less.Spec.Image = "another"
		if a, b := want(t, whole, "1", nil), want(t, less, "1", nil); a.Spec == b.Spec {
			t.Errorf("%s: another image has the same digest", name)
		}
	}
}

func TestNotesAreReadBack(t *testing.T) {
	wanted := want(t, rendertest.Cluster(t, "full"), "1", nil)
	if len(wanted.Rendering.Files) != 1 {
		t.Errorf("a fleet with TLS reads the files %v", wanted.Rendering.Files)
	}
	annotations, err := wanted.Note().Annotations(wanted.Rendering, nil)
	if err != nil {
		t.Fatal(err)
	}
	note := Read(annotations)
	if diff := cmp.Diff(wanted.Note(), note); diff != "" {
		t.Errorf("the note (-want +got):\n%s", diff)
	}
	had := note.Rendering(annotations)
	if diff := cmp.Diff(&wanted.Rendering, had); diff != "" {
		t.Errorf("the rendering (-want +got):\n%s", diff)
	}
	// There are thousands of them in the operator's memory.
	if size := len(annotations[noteAnnotation]) + len(annotations[RenderingAnnotation]); size > 3<<10 {
		t.Errorf("the notes of a fleet with every setting take %d bytes", size)
	}
	again, err := note.Annotations(Rendering{}, annotations)
	if err != nil || !cmp.Equal(again, annotations) {
		t.Errorf("a rendering that is noted already is noted as %v, %v", again, err)
	}
}

func TestWhatIsNoNote(t *testing.T) {
	wanted := want(t, rendertest.Cluster(t, "smallest"), "1", nil)
	good, err := wanted.Note().Annotations(wanted.Rendering, nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Note{Digest: "other"}.Annotations(Rendering{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, rendering := range map[string]string{
		"nothing": "", "no base64": "?", "nothing compressed": "aGk=", "half of it": good[RenderingAnnotation][:len(good[RenderingAnnotation])/2], "another": other[RenderingAnnotation],
	} {
		annotations := map[string]string{noteAnnotation: good[noteAnnotation], RenderingAnnotation: rendering}
		if had := Read(annotations).Rendering(annotations); had != nil {
			t.Errorf("%s is read as %+v", name, had)
		}
	}
	if note := Read(map[string]string{noteAnnotation: "{"}); note != (Note{}) {
		t.Errorf("half a note is read as %+v", note)
	}
}

// Whoever may edit a StatefulSet may write something small that becomes very large.
func TestNotesDoNotGrow(t *testing.T) {
	var packed bytes.Buffer
	packer, err := flate.NewWriterDict(&packed, flate.BestCompression, dictionary)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(packer, `{"template":`+strings.Repeat(" ", 2*mostUnpacked)+`{}}`); err != nil {
		t.Fatal(err)
	}
	if err := packer.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := unpack(base64.StdEncoding.EncodeToString(packed.Bytes())); err == nil {
		t.Errorf("%d bytes are taken for a rendering of %d", packed.Len(), 2*mostUnpacked)
	}
}

// What was compressed with it must stay readable.
func TestTheDictionaryIsTheSameForEver(t *testing.T) {
	if got := render.Digest(string(dictionary)); got != "2521120b58" {
		t.Errorf("the dictionary is %s", got)
	}
}

// More than the API server takes as annotations is not noted.
func TestAHugeRenderingIsNotNoted(t *testing.T) {
	var huge Rendering
	random := strings.Builder{}
	for range 100 {
		random.Write(render.RandomText(2000))
	}
	huge.Template.Annotations = map[string]string{"huge": random.String()}
	annotations, err := Note{Digest: huge.Digest()}.Annotations(huge, nil)
	if err != nil || annotations[RenderingAnnotation] != "" || annotations[noteAnnotation] == "" {
		t.Errorf("noted as %d bytes, %v", len(annotations[RenderingAnnotation]), err)
	}
}
