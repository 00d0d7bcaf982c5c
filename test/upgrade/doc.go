// Package upgrade upgrades the operator of an earlier commit to this one under load, and goes back. `make test-upgrade` runs it.
package upgrade
