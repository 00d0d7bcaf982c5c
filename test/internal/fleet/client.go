package fleet

import (
	"context"
	"encoding/json"
	"fmt"
)

const clientName = "crowd"

// clientPod is the pod that holds the users. It ends by itself, should nobody remove it.
func (f *Fleet) clientPod() string {
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
`, clientName, f.Options.ClientImage)
}

// ClientReady waits until the pod that holds the users takes orders.
func (f *Fleet) ClientReady(ctx context.Context) error {
	_, err := f.In(ctx, "", "wait", "pod/"+clientName, "--for=condition=Ready", "--timeout=2m")
	return err
}

// Order sends an order to the users, through the API server's proxy.
func (f *Fleet) Order(ctx context.Context, path string, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	raw, err := f.CoreV1().RESTClient().Post().AbsPath(f.clientPath(path)).Body(text).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("%s's users, %s: %w: %s", f.Adapter, path, err, raw)
	}
	return nil
}

// Ask gets what the users have to say.
func (f *Fleet) Ask(ctx context.Context, path string, answer any) error {
	raw, err := f.Raw(ctx, f.clientPath(path))
	if err != nil {
		return fmt.Errorf("%s's users, %s: %w: %s", f.Adapter, path, err, raw)
	}
	return json.Unmarshal(raw, answer)
}

func (f *Fleet) clientPath(path string) string {
	return fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:8080/proxy/%s", f.Namespace, clientName, path)
}
