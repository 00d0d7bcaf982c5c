package runner

import (
	"context"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const (
	// maxTail is what is kept of a log: as much as the kubelet keeps of one in a termination message.
	maxTail = 4 << 10
	// maxRead bounds what is read for that: the API server counts lines from the end, and bytes from the beginning.
	maxRead, tailLines = 64 << 10, 40
)

// PodLogs reads logs through the API server.
type PodLogs struct{ Clients kubernetes.Interface }

// Tail is the end of a log.
func (l PodLogs) Tail(ctx context.Context, namespace, pod, container string) (string, error) {
	stream, err := l.Clients.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{
		Container:  container,
		TailLines:  ptr.To[int64](tailLines),
		LimitBytes: ptr.To[int64](maxRead),
	}).Stream(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = stream.Close() }()
	text, err := io.ReadAll(io.LimitReader(stream, maxRead))
	if err != nil {
		return "", fmt.Errorf("reading the log of %s: %w", pod, err)
	}
	return string(text[max(0, len(text)-maxTail):]), nil
}
