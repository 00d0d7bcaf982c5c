package kube

import (
	"context"
	"io"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// Session is what a command in a container is connected to.
type Session struct {
	In       io.Reader
	Out, Err io.Writer
	// Size tells how large the terminal is. Nil: there is none.
	Size remotecommand.TerminalSizeQueue
}

// Exec runs a command in a container, as `kubectl exec` does, until it ends or the context does.
func (a *Access) Exec(ctx context.Context, pod *corev1.Pod, container string, command []string, s Session) error {
	request := a.Clientset.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: container, Command: command, Stdin: s.In != nil, Stdout: true, Stderr: s.Size == nil, TTY: s.Size != nil,
		}, scheme.ParameterCodec)
	old, err := remotecommand.NewSPDYExecutor(a.Config, "POST", request.URL())
	if err != nil {
		return err
	}
	modern, err := remotecommand.NewWebSocketExecutor(a.Config, "GET", request.URL().String())
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewFallbackExecutor(modern, old, tooOld)
	if err != nil {
		return err
	}
	options := remotecommand.StreamOptions{Stdin: s.In, Stdout: s.Out, Tty: s.Size != nil, TerminalSizeQueue: s.Size}
	if s.Size == nil {
		options.Stderr = s.Err
	}
	return executor.StreamWithContext(ctx, options)
}
