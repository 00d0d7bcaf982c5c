// Package bundle makes the archive that `kubectl livestash report` writes: everything that helps somebody else to see what is wrong, and no
// secret value.
package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Redacted is in place of what was left out.
const Redacted = "[redacted]"

// shortest is how many bytes a value must have to be looked for in files: "true" is no secret.
const shortest = 6

// Bundle is the files of an archive. What is added is made free of secrets.
type Bundle struct {
	files   []file
	secrets []string
}

type file struct {
	name string
	text []byte
}

// Hide has values, as Secrets have them, left out of every file: also their lines, and as base64, JSON and parts of URLs have them.
func (b *Bundle) Hide(values ...[]byte) {
	for _, value := range values {
		for _, text := range append(strings.Split(string(value), "\n"), string(value)) {
			text = strings.TrimSpace(text)
			if len(text) < shortest {
				continue
			}
			quoted, _ := json.Marshal(text)
			forms := []string{text, string(quoted[1 : len(quoted)-1]), url.QueryEscape(text), url.PathEscape(text),
				strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(text)), "="), strings.TrimRight(base64.URLEncoding.EncodeToString([]byte(text)), "=")}
			b.secrets = append(b.secrets, forms...)
		}
	}
	// The longest first: one value may be a part of another.
	slices.SortFunc(b.secrets, func(x, y string) int {
		if len(x) != len(y) {
			return len(y) - len(x)
		}
		return strings.Compare(x, y)
	})
	b.secrets = slices.Compact(b.secrets)
}

// Hides is how many forms of values are left out.
func (b *Bundle) Hides() int { return len(b.secrets) }

// Add adds a file.
func (b *Bundle) Add(name string, text []byte) {
	b.files = append(b.files, file{name, text})
}

// Names are those of the files.
func (b *Bundle) Names() []string {
	names := make([]string, 0, len(b.files))
	for _, f := range b.files {
		names = append(names, f.name)
	}
	return names
}

// Write writes the archive, a folder of that name in it.
func (b *Bundle) Write(w io.Writer, folder string, now time.Time) error {
	zipped := gzip.NewWriter(w)
	archive := tar.NewWriter(zipped)
	for _, f := range b.files {
		text := b.clean(f.text)
		header := &tar.Header{Name: folder + "/" + f.name, Mode: 0o600, Size: int64(len(text)), ModTime: now, Format: tar.FormatPAX}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("writing %s: %w", f.name, err)
		}
		if _, err := archive.Write(text); err != nil {
			return fmt.Errorf("writing %s: %w", f.name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return zipped.Close()
}

// clean is a text without any secret.
func (b *Bundle) clean(text []byte) []byte {
	for _, secret := range b.secrets {
		text = bytes.ReplaceAll(text, []byte(secret), []byte(Redacted))
	}
	return text
}
