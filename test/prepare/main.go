// Command prepare does to an application what docs/how-to/prepare-your-app.md says, step by step, with the page's own lines.
//
//	mix phx.new my_app && (cd test && go run ./prepare ../../my_app)
//
// It proves the page: an application as `mix phx.new` makes it, and nothing else changed, is what TestPreparedApp runs.
// For an application that somebody has worked on it is too simple, and says which line it does not find.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./prepare FOLDER, the one of an application as `mix phx.new` makes it")
		os.Exit(1)
	}
	if err := prepare(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// prepare changes the application in a folder.
func prepare(folder string) error {
	shown := map[string]string{}
	for _, path := range []string{"how-to/prepare-your-app.md", "reference/environment.md"} {
		text, err := os.ReadFile(filepath.Join("..", "docs", path))
		if err != nil {
			return err
		}
		shown[path] = string(text)
	}
	a, err := read(folder)
	if err != nil {
		return err
	}
	if err := a.follow(shown["how-to/prepare-your-app.md"], shown["reference/environment.md"]); err != nil {
		return err
	}
	return a.write()
}
