package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// skewVariable tells an operator with a clock of its own where its error is written, in seconds.
const skewVariable = "CLOCK_SKEW_FILE"

// mostSkew is by how much the operator's clock is wrong, ahead and behind.
const mostSkew = time.Hour

// operatorLease is that of the operator that leads, which renews it every two seconds; skewLimit is how long it may take until a renewal shows another clock.
const (
	operatorLease = "livestash-operator"
	skewLimit     = 20 * time.Second
)

//go:embed testdata/skew.go.txt
var skewSource []byte

// wrongClocks lets the clock of the operators jump ahead, then behind, and back to the time that it is.
func wrongClocks(ctx context.Context, f *faults, lasts time.Duration) error {
	for _, skew := range []time.Duration{mostSkew, -mostSkew, 0} {
		if err := f.setSkew(skew); err != nil {
			return err
		}
		if err := f.clockIsWrong(ctx, skew); err != nil {
			return err
		}
		f.step("the operator's clock is wrong by %s", skew)
		if err := sleepUntil(ctx, time.Now().Add(lasts/3)); err != nil {
			return err
		}
	}
	return nil
}

// clockIsWrong waits until the operator that leads writes a time into its lease that is wrong by that much.
func (f *faults) clockIsWrong(ctx context.Context, skew time.Duration) error {
	for deadline := time.Now().Add(skewLimit); ; {
		lease, err := f.client.CoordinationV1().Leases(operatorNamespace).Get(ctx, operatorLease, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if renewed := lease.Spec.RenewTime; renewed != nil && (time.Until(renewed.Time)-skew).Abs() < skewLimit {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the operator's clock is not wrong by %s: it renewed its lease at %s", skew, lease.Spec.RenewTime)
		}
		if err := sleepUntil(ctx, time.Now().Add(pollInterval)); err != nil {
			return err
		}
	}
}

func (b *bench) skewFile() string { return filepath.Join(b.dir, "skew") }

// setSkew puts another file in the place of the one before, so that nobody reads half of it.
func (b *bench) setSkew(skew time.Duration) error {
	next := b.skewFile() + ".next"
	if err := os.WriteFile(next, []byte(strconv.Itoa(int(skew.Seconds()))), 0o600); err != nil {
		return err
	}
	return os.Rename(next, b.skewFile())
}

// buildWithClock builds the operator with a clock of its own. A process has the clock of its machine, so the operator is built with another
// time.Now, which adds what a file says; time that passes is measured as ever. Nothing of it is in the operator that users get.
func (b *bench) buildWithClock(ctx context.Context) (program string, err error) {
	source, err := filepath.Abs(filepath.Join(b.options.config, "..", "operator"))
	if err != nil {
		return "", err
	}
	root, err := command(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	standard := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(standard)
	if err != nil {
		return "", err
	}
	wrong, err := withSkew(string(text))
	if err != nil {
		return "", err
	}
	replaced := map[string]string{}
	for original, content := range map[string][]byte{standard: []byte(wrong), filepath.Join(source, "cmd", "skew.go"): skewSource} {
		file := filepath.Join(b.dir, "overlay-"+filepath.Base(original))
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return "", err
		}
		replaced[original] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return "", err
	}
	description := filepath.Join(b.dir, "overlay.json")
	if err := os.WriteFile(description, overlay, 0o600); err != nil {
		return "", err
	}
	program = filepath.Join(b.dir, "manager-with-clock")
	build := command(ctx, "go", "build", "-ldflags", "-s -w", "-overlay", description, "-o", program, "./cmd")
	build.Dir, build.Env = source, os.Environ()
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the operator with a clock of its own: %w\n%s", err, output)
	}
	return program, b.setSkew(0)
}

// withSkew is the source of package time, with a Now that is wrong by Skew seconds.
func withSkew(source string) (string, error) {
	const before = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if strings.Count(source, before) != 1 {
		return "", errors.New("time.Now of this version of Go is another one: see withSkew")
	}
	source = strings.Replace(source, before, before+"\tsec += atomic.LoadInt64(&Skew)\n", 1)
	return strings.Replace(source, "\nimport (\n", "\nimport (\n\t\"sync/atomic\"\n", 1) + "\n// Skew is by how many seconds Now is ahead.\nvar Skew int64\n", nil
}
