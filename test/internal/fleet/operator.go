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

// InstallOperator installs or upgrades the operator from the checkout, with its image under this tag, and with these values (name=value).
func InstallOperator(ctx context.Context, tag string, sets ...string) error {
	chart, err := checkout()
	if err != nil {
		return err
	}
	args := []string{
		"upgrade", "--install", operatorRelease, chart, "--namespace", operatorNamespace,
		"--create-namespace", "--set", "operator.image.tag=" + tag, "--wait", "--timeout", "3m",
	}
	for _, set := range sets {
		args = append(args, "--set", set)
	}
	if values := os.Getenv("CHART_VALUES"); values != "" {
		args = append(args, "--values", values)
	}
	_, err = program.Run(ctx, "", "helm", args...)
	return err
}

// checkout is the root of the repository: `go run` and `go test` start in different folders of it.
func checkout() (string, error) {
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
