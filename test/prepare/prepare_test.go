package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// made are the lines of `mix phx.new` that the page's steps look for, and some around them.
var made = map[string]string{
	"mix.exs": `defmodule Tally.MixProject do
  def project do
    [
      app: :tally,
    ]
  end

  defp deps do
    [
      {:phoenix, "~> 1.8.9"}
    ]
  end
end
`,
	"config/runtime.exs": `import Config

if config_env() == :prod do
  host = System.get_env("PHX_HOST") || "example.com"
end
`,
	"config/prod.exs": `    exclude: [
      # paths: ["/health"],
      hosts: ["localhost", "127.0.0.1"]
`,
	"assets/js/app.js": `import topbar from "../vendor/topbar"

const liveSocket = new LiveSocket("/live", Socket, {
  longPollFallbackMs: 2500,
  params: {_csrf_token: csrfToken},
  hooks: {...colocatedHooks},
})
`,
	"lib/tally_web/router.ex": `  scope "/", TallyWeb do
    pipe_through :browser

    get "/", PageController, :home
  end

  # Other scopes may use custom stacks.
`,
}

func write(t *testing.T, files map[string]string) string {
	t.Helper()
	a := app{folder: t.TempDir(), files: files}
	if err := a.write(); err != nil {
		t.Fatal(err)
	}
	return a.folder
}

// The page's lines get where it says, under the application's own names.
func TestThePagesStepsAreFollowed(t *testing.T) {
	folder := write(t, made)
	// It reads the page from its place in the repository, as the command does.
	t.Chdir("..")
	if err := prepare(folder); err != nil {
		t.Fatal(err)
	}
	for path, parts := range map[string][]string{
		"mix.exs":            {"    [\n      # in deps:\n      {:live_stash, ", "\n      {:phoenix, "},
		"config/runtime.exs": {"import Config\n\n# One adapter", "config :tally, :stash", "  config :tally, TallyWeb.Endpoint, check_origin: ["},
		"config/prod.exs":    {"      paths: [\"/healthz\"],\n"},
		"assets/js/app.js": {
			"import topbar from \"../vendor/topbar\"\nimport initLiveStash from \"../../deps/live_stash/assets/js/live-stash.js\"\n",
			"\n  params: initLiveStash({_csrf_token: csrfToken}),\n",
		},
		"lib/tally_web/stash.ex":                         {"defmodule TallyWeb.Stash do\n"},
		"lib/tally_web/live/counter_live.ex":             {"defmodule TallyWeb.CounterLive do\n", "on_mount {TallyWeb.Stash, "},
		"lib/tally_web/controllers/health_controller.ex": {"defmodule TallyWeb.HealthController do\n"},
		"lib/tally_web/router.ex": {
			"    get \"/\", PageController, :home\n    live \"/counter\", CounterLive\n  end\n",
			"  scope \"/\", TallyWeb do\n    get \"/healthz\", HealthController, :show\n  end\n\n  # Other scopes",
		},
	} {
		text, err := os.ReadFile(filepath.Join(folder, path))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, part := range parts {
			if !strings.Contains(string(text), part) {
				t.Errorf("%s has not\n%s\nbut is\n%s", path, part, text)
			}
		}
		for _, example := range []string{"MyApp", "my_app", "libcluster"} {
			if strings.Contains(string(text), example) {
				t.Errorf("%s says %s", path, example)
			}
		}
	}
}

// What is not as `mix phx.new` makes it is named, and nothing is written.
func TestAnotherApplicationIsLeftAlone(t *testing.T) {
	for path, missing := range map[string]string{
		"mix.exs":                 "  defp deps do\n    [\n",
		"config/runtime.exs":      "import Config\n",
		"config/prod.exs":         "# paths: [\"/health\"]",
		"assets/js/app.js":        "  longPollFallbackMs: 2500,\n",
		"lib/tally_web/router.ex": "  # Other scopes may use custom stacks.\n",
	} {
		t.Run(path, func(t *testing.T) {
			files := maps.Clone(made)
			files[path] = strings.Replace(files[path], missing, "", 1)
			folder := write(t, files)
			t.Chdir("..")
			err := prepare(folder)
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), strings.TrimSuffix(missing, "\n")) {
				t.Errorf("it says %v", err)
			}
			text, readErr := os.ReadFile(filepath.Join(folder, "mix.exs"))
			if readErr != nil || string(text) != files["mix.exs"] {
				t.Errorf("mix.exs is changed (%v):\n%s", readErr, text)
			}
		})
	}
}
