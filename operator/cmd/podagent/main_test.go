package main

import (
	"errors"
	"testing"
)

func TestUsage(t *testing.T) {
	cases := map[string]struct {
		args  []string
		usage bool
	}{
		"nothing":         {nil, true},
		"unknown command": {[]string{"remove", "--dir", t.TempDir()}, true},
		"no folder":       {[]string{"install"}, true},
		"unknown flag":    {[]string{"serve", "--folder", "a"}, true},
		"too much":        {[]string{"serve", "--dir", "a", "b"}, true},
		"version":         {[]string{"version"}, false},
		"dumps of where":  {[]string{"dumps"}, true},
		"two dumps":       {[]string{"dumps", "--crash-dump", "a", "b", "c"}, true},
		"no such dump":    {[]string{"dumps", "--crash-dump", "a", "b"}, false},
		"keep of what":    {[]string{"serve", "--dir", "a", "--keep", "3"}, true},
		"usage of whom":   {[]string{"usage", "--port", "9568"}, true},
		"keep how many":   {[]string{"serve", "--dir", "a", "--crash-dump", "b"}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if err := run(c.args); errors.Is(err, errUsage) != c.usage {
				t.Errorf("got %v", err)
			}
		})
	}
}
