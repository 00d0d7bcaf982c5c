package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/livestash-dev/livestash/test/internal/fenced"
)

// follow does what the page says. The contract is the page that step 3 takes its lines from.
func (a *app) follow(page, contract string) error {
	shown := blocks(fenced.Blocks(page))
	lines, err := blocks(fenced.Blocks(contract)).find("elixir", "One adapter is started")
	if err != nil {
		return err
	}
	for _, step := range []func(blocks) error{
		a.dependencies,
		func(blocks) error { return a.configuration(lines) },
		a.pages,
		a.browser,
		a.probe,
		a.origins,
	} {
		if err := step(shown); err != nil {
			return err
		}
	}
	return nil
}

// dependencies is step 1.
func (a *app) dependencies(shown blocks) error {
	lines, err := shown.find("elixir", "{:live_stash,")
	if err != nil {
		return err
	}
	return a.insert("mix.exs", "  defp deps do\n    [", indented(lines, 6))
}

// configuration is step 3. The part for libcluster is left out, as the page says.
func (a *app) configuration(lines string) error {
	lines, _, _ = strings.Cut(lines, "if service = ")
	lines = strings.TrimSpace(lines)
	return a.insert("config/runtime.exs", "import Config", "\n"+lines)
}

// pages is step 4: the hook, a page that uses it, and the page's route.
func (a *app) pages(shown blocks) error {
	for _, of := range []string{"def on_mount(", "def mount("} {
		block, err := shown.find("elixir", of)
		if err != nil {
			return err
		}
		for _, file := range filesOf(block) {
			switch file.where {
			case "":
				a.files[a.own(file.path)] = a.own(file.text)
			case "in the scope that pipes through :browser":
				err = a.insert(file.path, `    get "/", PageController, :home`, indented(file.text, 4))
			default:
				err = fmt.Errorf("%s: the page says %q, and nobody has told me where that is", file.path, file.where)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// browser is step 5. The block shows the whole call; two of its lines are new.
func (a *app) browser(shown blocks) error {
	lines, err := shown.find("javascript", "initLiveStash")
	if err != nil {
		return err
	}
	for line := range strings.Lines(lines) {
		switch line := strings.TrimSuffix(line, "\n"); {
		case strings.HasPrefix(line, "import "):
			err = a.insert("assets/js/app.js", `import topbar from "../vendor/topbar"`, line)
		case strings.HasPrefix(line, "  params: "):
			err = a.replace("assets/js/app.js", "  params: {_csrf_token: csrfToken},", line)
		case line != "" && !strings.Contains(a.files["assets/js/app.js"], line):
			err = fmt.Errorf("assets/js/app.js has not the line that the page shows as old:\n%s", line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// probe is step 6: the controller, its route, and the exemption from force_ssl.
func (a *app) probe(shown blocks) error {
	block, err := shown.find("elixir", "HealthController do")
	if err != nil {
		return err
	}
	for _, file := range filesOf(block) {
		if file.where == "" {
			a.files[a.own(file.path)] = a.own(file.text)
			continue
		}
		const next = "  # Other scopes may use custom stacks."
		if err := a.replace(file.path, next, a.own(indented(file.text, 2))+"\n\n"+next); err != nil {
			return err
		}
	}
	exempt, err := shown.find("elixir", "force_ssl:")
	if err != nil {
		return err
	}
	paths := regexp.MustCompile(`paths: \[.*?\]`).FindString(exempt)
	return a.replace("config/prod.exs", `# paths: ["/health"]`, paths)
}

// origins lets a browser come through a port of the reader's own machine.
func (a *app) origins(shown blocks) error {
	lines, err := shown.find("elixir", "check_origin:")
	if err != nil {
		return err
	}
	return a.insert("config/runtime.exs", `  host = System.get_env("PHX_HOST") || "example.com"`, "\n"+indented(lines, 2))
}

// blocks are a page's code.
type blocks []fenced.Block

// find is the first block of a language with this in it.
func (b blocks) find(language, part string) (string, error) {
	for _, block := range b {
		if block.Language == language && strings.Contains(block.Text, part) {
			return strings.TrimSuffix(block.Text, "\n"), nil
		}
	}
	return "", fmt.Errorf("the page has no block of %s with %s", language, part)
}

// file is one of those that a block shows.
type file struct {
	path string
	// where its lines belong. Empty: they are all of it.
	where, text string
}

// heading is the comment above the lines of a file.
var heading = regexp.MustCompile(`(?m)^# (lib/\S+\.ex)(?:, (.*))?\n`)

func filesOf(block string) []file {
	var files []file
	at := heading.FindAllStringSubmatchIndex(block, -1)
	for i, m := range at {
		end := len(block)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		f := file{path: block[m[2]:m[3]], text: strings.TrimSpace(block[m[1]:end]) + "\n"}
		if m[4] >= 0 {
			f.where = block[m[4]:m[5]]
		}
		files = append(files, f)
	}
	return files
}

// indented moves lines to the right.
func indented(lines string, by int) string {
	var moved strings.Builder
	for line := range strings.Lines(strings.TrimRight(lines, "\n")) {
		if strings.TrimSpace(line) != "" {
			moved.WriteString(strings.Repeat(" ", by))
		}
		moved.WriteString(line)
	}
	return moved.String()
}
