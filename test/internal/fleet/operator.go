package fleet

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/livestash-dev/livestash/test/internal/program"
)

const (
	operatorRelease   = "livestash"
	operatorNamespace = "livestash-system"
	operatorPods      = "app.kubernetes.io/name=livestash-operator"
)

// Release is a version of the operator.
type Release struct {
	// Chart is the folder of the chart.
	Chart string
	// Tag is that of the operator's image.
	Tag string
	// Sets are further values of the chart (name=value).
	Sets []string
}

// Install installs the release, or upgrades to it, and waits until it is there.
func (r Release) Install(ctx context.Context) error {
	args := []string{
		"upgrade", "--install", operatorRelease, r.Chart, "--namespace", operatorNamespace,
		"--create-namespace", "--set", "operator.image.tag=" + r.Tag, "--wait", "--timeout", "3m",
	}
	for _, set := range r.Sets {
		args = append(args, "--set", set)
	}
	if values := os.Getenv("CHART_VALUES"); values != "" {
		args = append(args, "--values", values)
	}
	_, err := program.Run(ctx, "", "helm", args...)
	return err
}

// InstallOperator installs or upgrades the operator from the checkout, with its image under this tag, and with these values (name=value).
func InstallOperator(ctx context.Context, tag string, sets ...string) error {
	chart, err := Checkout()
	if err != nil {
		return err
	}
	return Release{Chart: chart, Tag: tag, Sets: sets}.Install(ctx)
}

// RollBackOperator goes back to the release before, and waits until it is there.
func RollBackOperator(ctx context.Context) error {
	_, err := program.Run(ctx, "", "helm", "rollback", operatorRelease, "--namespace", operatorNamespace, "--wait", "--timeout", "3m")
	return err
}

// Checkout is the root of the repository: `go run` and `go test` start in different folders of it.
func Checkout() (string, error) {
	for folder := "."; ; folder = filepath.Join(folder, "..") {
		absolute, err := filepath.Abs(folder)
		if err != nil {
			return "", err
		}
		if _, err := os.Stat(filepath.Join(absolute, "Chart.yaml")); err == nil {
			return absolute, nil
		}
		if absolute == "/" {
			return "", errors.New("no folder above this one has a Chart.yaml: run it in a checkout")
		}
	}
}

// UninstallOperator is the opposite of InstallOperator.
func UninstallOperator(ctx context.Context) error {
	_, err := program.Run(ctx, "", "helm", "uninstall", operatorRelease, "--namespace", operatorNamespace, "--wait")
	return err
}

// OperatorReady waits until the operator is.
func (c *Cluster) OperatorReady(ctx context.Context) error {
	_, err := c.Kubectl(ctx, "", "--namespace", operatorNamespace, "rollout", "status", "deployment", "--selector", operatorPods, "--timeout=2m")
	return err
}

// DeleteOperator deletes the operator's pod as a user does.
func (c *Cluster) DeleteOperator(ctx context.Context, flags ...string) error {
	args := []string{"--namespace", operatorNamespace, "delete", "pod", "--selector", operatorPods}
	_, err := c.Kubectl(ctx, "", append(args, flags...)...)
	return err
}
