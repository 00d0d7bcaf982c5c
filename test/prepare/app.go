package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// app is an application of `mix phx.new`.
type app struct {
	folder string
	// name and module are what the page calls my_app and MyApp.
	name, module string
	// files are those that the page changes or makes, by their path in the folder.
	files map[string]string
}

// changed are the files that the page changes. my_app stands for the application's name.
var changed = []string{"mix.exs", "config/runtime.exs", "config/prod.exs", "assets/js/app.js", "lib/my_app_web/router.ex"}

// project finds an application's names in its mix.exs.
var project = regexp.MustCompile(`(?s)defmodule (\w+)\.MixProject do.*\n +app: :(\w+),`)

func read(folder string) (*app, error) {
	mix, err := os.ReadFile(filepath.Join(folder, "mix.exs"))
	if err != nil {
		return nil, err
	}
	names := project.FindSubmatch(mix)
	if names == nil {
		return nil, fmt.Errorf("%s/mix.exs is not one of `mix phx.new`", folder)
	}
	a := &app{folder: folder, module: string(names[1]), name: string(names[2]), files: map[string]string{}}
	for _, path := range changed {
		text, err := os.ReadFile(filepath.Join(folder, a.own(path)))
		if err != nil {
			return nil, err
		}
		a.files[a.own(path)] = string(text)
	}
	return a, nil
}

// own puts the application's names where the page has its examples'.
func (a *app) own(text string) string {
	return strings.NewReplacer("MyApp", a.module, "my_app", a.name).Replace(text)
}

// insert puts lines below the first line that is this one.
func (a *app) insert(path, below, lines string) error {
	return a.replace(path, below+"\n", below+"\n"+a.own(lines)+"\n")
}

// replace puts a text in the place of the first one that is this.
func (a *app) replace(path, old, now string) error {
	path = a.own(path)
	before, after, found := strings.Cut(a.files[path], a.own(old))
	if !found {
		return fmt.Errorf("%s has not the line of `mix phx.new`:\n%s", path, a.own(old))
	}
	a.files[path] = before + now + after
	return nil
}

func (a *app) write() error {
	for path, text := range a.files {
		file := filepath.Join(a.folder, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
