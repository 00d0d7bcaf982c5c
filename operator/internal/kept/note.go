package kept

import (
	"bytes"
	"compress/flate"
	_ "embed" // for the dictionary
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
)

const (
	// noteAnnotation is on a StatefulSet: a Note.
	noteAnnotation = "livestash.dev/rendered"
	// RenderingAnnotation is on a StatefulSet: its Rendering, as JSON, compressed with the dictionary, in base64. All that a pod's template
	// has is in it, so the values of variables too.
	RenderingAnnotation = "livestash.dev/rendering"
	// mostPacked is how many bytes of an object's annotations, which may have 256 KiB together, the rendering may take. One that takes
	// more is not noted: its pods keep the template that the StatefulSet has.
	mostPacked = 128 << 10
	// mostUnpacked bounds what somebody else may have written there.
	mostUnpacked = 4 << 20
)

// dictionary is what the fleets' renderings have in common, which need not be in each: it makes most of them a tenth of the size. It may not change,
// or no operator could read what was compressed with it: a better one needs another annotation.
//
//go:embed dictionary.txt
var dictionary []byte

// Note is what a StatefulSet tells of its rendering.
type Note struct {
	// Version is that of the operator that rendered it. Empty: it left no notes.
	Version string `json:"version,omitempty"`
	// Digest is the rendering's. Empty: nobody knows.
	Digest string `json:"digest,omitempty"`

	// By is the operator that looked last, and Base the digest of what it would have rendered: as long as it would render that,
	// the user has changed nothing.
	By   string `json:"by,omitempty"`
	Base string `json:"base,omitempty"`

	// Generation is that of the LiveStashCluster, and Spec the digest of its spec, when it looked.
	Generation int64  `json:"generation,omitempty"`
	Spec       string `json:"spec,omitempty"`
}

// Read is what a StatefulSet's annotations say. Without a note, or with one that makes no sense, it is empty.
func Read(annotations map[string]string) Note {
	var note Note
	if json.Unmarshal([]byte(annotations[noteAnnotation]), &note) != nil {
		return Note{}
	}
	return note
}

// Rendering is the one that was noted. Nil: the annotations do not tell it.
func (n Note) Rendering(annotations map[string]string) *Rendering {
	rendering, err := unpack(annotations[RenderingAnnotation])
	if err != nil || rendering.Digest() != n.Digest {
		return nil
	}
	return rendering
}

// Annotations are those that tell of the rendering. before are those that the StatefulSet has, of which the compressed one is taken over
// when it is the same rendering's: to compress it costs more than all the rest of a look.
func (n Note) Annotations(rendering Rendering, before map[string]string) (map[string]string, error) {
	text, err := json.Marshal(n)
	if err != nil {
		return nil, fmt.Errorf("encoding the note of a rendering: %w", err)
	}
	annotations := map[string]string{noteAnnotation: string(text)}
	packed := before[RenderingAnnotation]
	if packed == "" || Read(before).Digest != n.Digest {
		packed, err = pack(rendering)
	}
	if err != nil {
		return nil, err
	}
	if len(packed) <= mostPacked {
		annotations[RenderingAnnotation] = packed
	}
	return annotations, nil
}

// packer is one for all: each takes most of a megabyte.
var packer struct {
	sync.Mutex
	*flate.Writer
}

func pack(rendering Rendering) (string, error) {
	text, err := json.Marshal(rendering)
	if err != nil {
		return "", fmt.Errorf("encoding a rendering: %w", err)
	}
	var packed bytes.Buffer
	packer.Lock()
	defer packer.Unlock()
	if packer.Writer == nil {
		if packer.Writer, err = flate.NewWriterDict(nil, flate.BestCompression, dictionary); err != nil {
			return "", fmt.Errorf("compressing a rendering: %w", err)
		}
	}
	packer.Reset(&packed)
	if _, err := packer.Write(text); err != nil {
		return "", fmt.Errorf("compressing a rendering: %w", err)
	}
	if err := packer.Close(); err != nil {
		return "", fmt.Errorf("compressing a rendering: %w", err)
	}
	return base64.StdEncoding.EncodeToString(packed.Bytes()), nil
}

func unpack(packed string) (*Rendering, error) {
	reader := flate.NewReaderDict(base64.NewDecoder(base64.StdEncoding, strings.NewReader(packed)), dictionary)
	text, err := io.ReadAll(io.LimitReader(reader, mostUnpacked))
	if err != nil {
		return nil, fmt.Errorf("decompressing a rendering: %w", err)
	}
	rendering := &Rendering{}
	if err := json.Unmarshal(text, rendering); err != nil {
		return nil, fmt.Errorf("decoding a rendering: %w", err)
	}
	return rendering, nil
}
