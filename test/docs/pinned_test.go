package docs

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	// fetches are commands that bring something into an image. The first group names what the list of exceptions names.
	fetches = regexp.MustCompile(`\b(apt-get install|apt install|apk add|mix local\.\w+|mix archive\.install|mix deps\.get|rebar3 get-deps|curl|wget|git clone|go install|` +
		`pip3? install|npm (?:ci|install)|gem install|bundle install|cargo install)\b[^&|;]*`)
	// versioned are those whose version is in the command.
	versioned = regexp.MustCompile(`^(mix local\.hex \d+\.\d+\.\d+ |go install \S+@v\d+\.\d+\.\d+(\s|$))`)
	// still are images that stay what they are: by digest, or by the tag of a day.
	still = regexp.MustCompile(`@sha256:[0-9a-f]{64}$|:[\w.-]*-20\d{6}(-[\w.-]+)?$`)
	// flags stand between a command and what it is to do.
	flags = regexp.MustCompile(`\b(apt-get|apt|git|pip3?|npm) (?:-\S+ )+`)
)

// unpinned is what a Dockerfile brings into an image that may be something else tomorrow: images, and commands.
func unpinned(dockerfile string) []string {
	var found []string
	arguments, stages := map[string]string{}, []string{"scratch"}
	image := func(name string) {
		name = regexp.MustCompile(`\$\{?(\w+)\}?`).ReplaceAllStringFunc(name, func(argument string) string { return arguments[strings.Trim(argument, "${}")] })
		if !slices.Contains(stages, name) && !still.MatchString(name) {
			found = append(found, name)
		}
	}
	for _, syntax := range regexp.MustCompile(`(?m)^# *syntax *= *(\S+)`).FindAllStringSubmatch(dockerfile, -1) {
		image(syntax[1])
	}
	whole := regexp.MustCompile(`(?m)^\s*#.*\n`).ReplaceAllString(dockerfile+"\n", "")
	for line := range strings.Lines(strings.ReplaceAll(whole, "\\\n", " ")) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		switch strings.ToUpper(words[0]) {
		case "ARG":
			name, value, _ := strings.Cut(words[1], "=")
			arguments[name] = strings.Trim(value, `"'`)
		case "FROM":
			words = slices.DeleteFunc(words, func(word string) bool { return strings.HasPrefix(word, "--") })
			image(words[1])
			if len(words) == 4 {
				stages = append(stages, words[3])
			}
		case "COPY":
			if from, is := strings.CutPrefix(words[1], "--from="); is {
				image(from)
			}
		case "ADD":
			if strings.Contains(line, "://") && !strings.Contains(line, "--checksum=sha256:") {
				found = append(found, strings.TrimSpace(line))
			}
		case "RUN":
			for _, command := range fetches.FindAllStringSubmatch(flags.ReplaceAllString(strings.Join(words, " "), "$1 "), -1) {
				if !versioned.MatchString(command[0] + " ") {
					found = append(found, command[1])
				}
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func TestWhatIsUnpinnedIsFound(t *testing.T) {
	for name, tc := range map[string]struct {
		dockerfile string
		want       []string
	}{
		"a moving tag":               {"FROM docker.io/library/debian:forky-slim", []string{"docker.io/library/debian:forky-slim"}},
		"no tag":                     {"FROM debian", []string{"debian"}},
		"the tag of a day":           {"FROM debian:forky-20260803-slim AS build\nFROM build\nFROM scratch", nil},
		"a digest":                   {"FROM debian@sha256:" + strings.Repeat("0a", 32), nil},
		"an argument that moves":     {"ARG DEBIAN=debian:forky\nFROM ${DEBIAN}", []string{"debian:forky"}},
		"an argument that does not":  {"ARG DEBIAN=\"debian:forky-20260803\"\nFROM --platform=linux/amd64 $DEBIAN", nil},
		"a file of another image":    {"FROM scratch\nCOPY --from=golang:1 /a /b", []string{"golang:1"}},
		"a syntax":                   {"# syntax=docker/dockerfile:1\nFROM scratch", []string{"docker/dockerfile:1"}},
		"packages":                   {"FROM scratch\nRUN apt-get update \\\n # why\n && A=b apt-get -y install x", []string{"apt-get install"}},
		"the newest hex and rebar3":  {"RUN mix local.hex --force && mix local.rebar --force", []string{"mix local.hex", "mix local.rebar"}},
		"hex by its version":         {"RUN mix local.hex 2.5.1 --force", nil},
		"a program by its version":   {"RUN go install a.example/b@v1.2.3", nil},
		"the newest program":         {"RUN go install a.example/b@latest", []string{"go install"}},
		"something from a web site":  {"RUN curl -L https://a.example | sh", []string{"curl"}},
		"a file from a web site":     {"ADD https://a.example/b /b", []string{"ADD https://a.example/b /b"}},
		"a file that is checked":     {"ADD --checksum=sha256:00 https://a.example/b /b", nil},
		"a word that is only a part": {"RUN echo curly", nil},
	} {
		if diff := cmp.Diff(tc.want, unpinned(tc.dockerfile)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// What is not pinned, and why, is for who makes a release to know: a page has the list, and no more than is so.
func TestWhatIsNotPinnedIsWrittenDown(t *testing.T) {
	listed := map[string]bool{}
	for _, code := range regexp.MustCompile("\\(`([^`]+)`\\)\\.?\\*").FindAllStringSubmatch(between(t, page(t, "docs", "how-to", "release.md"), "## What is not pinned", "```"), -1) {
		listed[code[1]] = false
	}
	bases, looked := map[string]bool{}, 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules"):
			return filepath.SkipDir
		case entry.IsDir() || entry.Name() != "Dockerfile" && filepath.Ext(entry.Name()) != ".Dockerfile":
			return nil
		}
		looked++
		path, err = filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for _, what := range unpinned(text(t, path)) {
			if _, is := listed[what]; !is {
				t.Errorf("%s: %s may be something else tomorrow: pin it, or say in docs/how-to/release.md why it is not", path, what)
			}
			listed[what] = true
		}
		for _, base := range regexp.MustCompile(`(?m)^ARG DEBIAN=(.*)$`).FindAllStringSubmatch(text(t, path), -1) {
			bases[base[1]] = true
		}
		return nil
	})
	if err != nil || looked < 10 {
		t.Errorf("looked at %d Dockerfiles: %v", looked, err)
	}
	for what, used := range listed {
		if !used {
			t.Errorf("docs/how-to/release.md says that %s is not pinned: no Dockerfile has it", what)
		}
	}
	if len(bases) != 1 {
		t.Errorf("images have different bases: %v", bases)
	}
}
