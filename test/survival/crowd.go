package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/livestash-dev/livestash/test/survival/internal/crowd"
)

const crowdName = "crowd"

// crowdPod is the pod that holds the sessions. It ends by itself, should nobody remove it.
func (f *fleet) crowdPod() string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  restartPolicy: Never
  activeDeadlineSeconds: 14400
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  securityContext:
    runAsNonRoot: true
    seccompProfile: {type: RuntimeDefault}
  containers:
  - name: client
    image: %s
    ports: [{containerPort: 8080}]
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
`, crowdName, f.options.clientImage)
}

// order sends an order to the crowd, through the API server's proxy.
func (f *fleet) order(ctx context.Context, path string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	raw, err := f.CoreV1().RESTClient().Post().AbsPath(f.crowdPath(path)).Body(text).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("%s's sessions, %s: %w: %s", f.adapter, path, err, raw)
	}
	return nil
}

func (f *fleet) report(ctx context.Context) (crowd.Report, error) {
	var report crowd.Report
	raw, err := f.raw(ctx, f.crowdPath("report"))
	if err != nil {
		return report, fmt.Errorf("%s's sessions: %w: %s", f.adapter, err, raw)
	}
	return report, json.Unmarshal(raw, &report)
}

func (f *fleet) crowdPath(path string) string {
	return fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:8080/proxy/%s", f.namespace, crowdName, path)
}

// open opens the sessions, round robin over the pods.
func (f *fleet) open(ctx context.Context) error {
	if _, err := f.in(ctx, "", "wait", "pod/"+crowdName, "--for=condition=Ready", "--timeout=2m"); err != nil {
		return err
	}
	pods, service, host, err := f.addresses(ctx)
	if err != nil {
		return err
	}
	err = f.order(ctx, "open", crowd.Plan{
		Adapter: adapters[f.adapter], Sessions: f.options.sessions, Host: host, Pods: pods, Service: service,
		StashEveryMS: int(f.options.stashEvery / time.Millisecond),
	})
	if err != nil {
		return err
	}
	return f.reached(ctx, crowd.Opened)
}

// verify has every session checked, and returns what they found.
func (f *fleet) verify(ctx context.Context) (crowd.Report, error) {
	within := f.patience()
	if err := f.order(ctx, "verify", map[string]any{"withinMs": within.Milliseconds()}); err != nil {
		return crowd.Report{}, err
	}
	if err := f.reached(ctx, crowd.Verified); err != nil {
		return crowd.Report{}, err
	}
	return f.report(ctx)
}

// patience is how long opening or checking all sessions may take.
func (f *fleet) patience() time.Duration {
	return 2*time.Minute + time.Duration(f.options.sessions)*30*time.Millisecond
}

func (f *fleet) reached(ctx context.Context, phase crowd.Phase) error {
	var problem error
	err := eventually(ctx, f.patience()+30*time.Second, func(ctx context.Context) error {
		report, err := f.report(ctx)
		if err != nil {
			return err
		}
		if report.Problem != "" {
			problem = fmt.Errorf("%s's sessions: %s (failed attempts: %v)", f.adapter, report.Problem, report.FailedAttempts)
			return nil
		}
		if report.Phase != phase {
			return fmt.Errorf("%s's sessions are %s, not %s: %d of %d ready", f.adapter, report.Phase, phase, report.Ready, report.Sessions)
		}
		return nil
	})
	if problem != nil {
		return problem
	}
	return err
}
