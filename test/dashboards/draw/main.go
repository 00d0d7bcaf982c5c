// Command draw draws the chart's dashboards as pictures of what a Prometheus knows.
//
//	go run ./dashboards/draw -prometheus http://localhost:9090 -last 30m -var cluster=shop fleet beam
//
// It writes one SVG file for each dashboard that is named, else for all. A variable that is not given gets the value that Grafana
// shows first; -var beam.pod=shop-0 is for one dashboard alone.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/livestash-dev/livestash/test/dashboards"
)

type options struct {
	prometheus, folder, out string
	window                  dashboards.Window
	variables               dashboards.Variables
	names                   []string
}

func main() {
	o, err := parse(os.Args[1:])
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, o)
		stop()
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "draw:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	o := options{variables: dashboards.Variables{}}
	flags := flag.NewFlagSet("draw", flag.ContinueOnError)
	flags.StringVar(&o.prometheus, "prometheus", "http://localhost:9090", "Address of the Prometheus to ask.")
	flags.StringVar(&o.folder, "dashboards", "../charts/livestash-observability/dashboards", "Folder of the dashboards.")
	flags.StringVar(&o.out, "out", ".", "Folder of the pictures.")
	last := flags.Duration("last", time.Hour, "How long before its end the time begins that is shown.")
	flags.DurationVar(&o.window.Scrape, "scrape", 15*time.Second, "Time between two scrapes of the Prometheus.")
	moment := func(to *time.Time) func(string) error {
		return func(text string) (err error) {
			*to, err = time.Parse(time.RFC3339, text)
			return err
		}
	}
	flags.Func("from", "Begin of the time that is shown, such as 2026-01-31T09:00:00Z, in place of -last.", moment(&o.window.From))
	flags.Func("to", "End of the time that is shown (default now).", moment(&o.window.To))
	flags.Func("var", "`[DASHBOARD.]NAME=VALUE` of a variable. May be given many times.", func(text string) error {
		name, value, is := strings.Cut(text, "=")
		if !is {
			return errors.New("want NAME=VALUE")
		}
		o.variables[name] = value
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.names = flags.Args()
	if o.window.To.IsZero() {
		o.window.To = time.Now()
	}
	if o.window.From.IsZero() {
		o.window.From = o.window.To.Add(-*last)
	}
	if o.window.Scrape < time.Second || o.window.To.Sub(o.window.From) < o.window.Scrape {
		return o, errors.New("the time that is shown must be longer than that between two scrapes, which is a second at least")
	}
	return o, nil
}

func run(ctx context.Context, o options) error {
	files, err := filepath.Glob(filepath.Join(o.folder, "*.json"))
	if err != nil {
		return err
	}
	all := map[string]string{}
	var names []string
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		all[name], names = file, append(names, name)
	}
	if len(o.names) > 0 {
		names = o.names
	}
	if len(names) == 0 {
		return fmt.Errorf("there are no dashboards in %s", o.folder)
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		if all[name] == "" {
			return fmt.Errorf("there is no dashboard %s in %s", name, o.folder)
		}
		if err := draw(ctx, o, name, all[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func draw(ctx context.Context, o options, name, file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	d, err := dashboards.Read(content)
	if err != nil {
		return err
	}
	given := dashboards.Variables{}
	for _, v := range d.Templating.List {
		for _, key := range []string{v.Name, name + "." + v.Name} {
			if value, is := o.variables[key]; is {
				given[v.Name] = value
			}
		}
	}
	p := dashboards.Prometheus{Client: http.DefaultClient, URL: strings.TrimSuffix(o.prometheus, "/") + "/api/v1"}
	data, err := p.Ask(ctx, d, o.window, given)
	if err != nil {
		return err
	}
	picture, err := dashboards.Draw(d, data)
	if err != nil {
		return err
	}
	path := filepath.Join(o.out, "dashboard-"+name+".svg")
	if err := os.WriteFile(path, picture, 0o644); err != nil {
		return err
	}
	fmt.Printf("%s: %d kB\n", path, len(picture)/1000)
	return nil
}
