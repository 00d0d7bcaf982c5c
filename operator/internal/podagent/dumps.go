package podagent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	// dumpsInterval is between two looks for a new dump. A virtual machine takes longer to start and crash again.
	dumpsInterval = time.Second
	// dumpTime is how a kept dump's name tells when it was found, in UTC.
	dumpTime = "20060102T150405.000Z"
)

// keptDump is the name of a dump that is kept. Names sort by time.
var keptDump = regexp.MustCompile(`^erl_crash-([0-9]{8}T[0-9]{6}\.[0-9]{3}Z)\.dump$`)

// Dumps are the crash dumps of the application's virtual machine, which writes each to the same file.
type Dumps struct {
	// File is where it writes one.
	File string
	// Keep is how many are kept beside it, the newest.
	Keep int
}

// Dump is a crash dump that is kept, or that was just found.
type Dump struct {
	// Name of its file.
	Name string `json:"name"`
	// Time at which it was found, at most a second after its beginning.
	Time time.Time `json:"time"`
	// Bytes that it has.
	Bytes int64 `json:"bytes"`
	// Complete is whether it has its end: it is neither being written nor cut off, by its limit or by a container that was ended.
	Complete bool `json:"complete"`
	// Slogan is why the virtual machine crashed, in its own words.
	Slogan string `json:"slogan"`
}

// Watch keeps dumps until the context ends. It gives one its name as soon as it is there: who writes to a file goes on when
// that gets another name.
func (d Dumps) Watch(ctx context.Context, logger *log.Logger) {
	ticker := time.NewTicker(dumpsInterval)
	defer ticker.Stop()
	failing := false
	for {
		kept, err := d.keep(time.Now())
		switch {
		case err != nil && !failing:
			logger.Printf("cannot keep crash dumps: %v", err)
		case kept != "":
			logger.Printf("the virtual machine crashed, and its dump is kept as %s", kept)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// keep gives a new dump its name, and removes the oldest ones when there are too many.
func (d Dumps) keep(now time.Time) (name string, err error) {
	if _, err := os.Lstat(d.File); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	name = "erl_crash-" + now.UTC().Format(dumpTime) + ".dump"
	if err := os.Rename(d.File, filepath.Join(filepath.Dir(d.File), name)); err != nil {
		return "", err
	}
	names, err := d.names()
	if err != nil {
		return name, err
	}
	for _, old := range names[:max(0, len(names)-d.Keep)] {
		err = errors.Join(err, os.Remove(filepath.Join(filepath.Dir(d.File), old)))
	}
	return name, err
}

// names are those of the dumps that are kept, the oldest first.
func (d Dumps) names() ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(d.File))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if keptDump.MatchString(entry.Name()) && entry.Type().IsRegular() {
			names = append(names, entry.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// List writes what is kept as JSON, the newest first.
func (d Dumps) List(w io.Writer) error {
	names, err := d.names()
	if err != nil {
		return fmt.Errorf("no crash dumps are kept here: %w", err)
	}
	slices.Reverse(names)
	dumps := make([]Dump, 0, len(names))
	for _, name := range names {
		dump, err := d.describe(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // It was the oldest, and another one came.
		}
		if err != nil {
			return err
		}
		dumps = append(dumps, dump)
	}
	return json.NewEncoder(w).Encode(dumps)
}

func (d Dumps) describe(name string) (Dump, error) {
	file, err := os.Open(filepath.Join(filepath.Dir(d.File), name))
	if err != nil {
		return Dump{}, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return Dump{}, err
	}
	dump := Dump{Name: name, Bytes: info.Size(), Slogan: slogan(io.LimitReader(file, 8<<10)), Complete: ended(file, info.Size())}
	dump.Time, err = time.Parse(dumpTime, keptDump.FindStringSubmatch(name)[1])
	return dump, err
}

// slogan is what stands on one of a dump's first lines.
func slogan(from io.Reader) string {
	const most = 300
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		if text, is := strings.CutPrefix(lines.Text(), "Slogan: "); is {
			if len(text) > most {
				text = strings.ToValidUTF8(text[:most], "") + "…"
			}
			return text
		}
	}
	return ""
}

// ended is whether a dump's last line is there.
func ended(file io.ReaderAt, size int64) bool {
	last := []byte("\n=end\n")
	tail := make([]byte, len(last))
	_, err := file.ReadAt(tail, max(0, size-int64(len(last))))
	return err == nil && bytes.Equal(tail, last)
}

// Copy writes a dump that is kept.
func (d Dumps) Copy(w io.Writer, name string) error {
	if !keptDump.MatchString(name) {
		return fmt.Errorf("%q is no name of a crash dump", name)
	}
	file, err := os.Open(filepath.Join(filepath.Dir(d.File), name))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	_, err = io.Copy(w, file)
	return err
}
