package podagent

import (
	"context"
	"io"
	"log"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestServeTellsThatThePodStops(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, stoppingFile)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- Serve(ctx, dir, Settings{ProbePort: free(t)}, log.New(io.Discard, "", 0))
	}()
	if exists(file) {
		t.Fatal("the agent is told to stop before anybody was")
	}
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !exists(file) {
		t.Error("the agent is not told that the pod stops")
	}
}

// The kubelet may run the hook before this program does anything.
func TestServeKeepsTheWordOfTheHook(t *testing.T) {
	dir := t.TempDir()
	if err := TellStopping(dir); err != nil {
		t.Fatal(err)
	}
	agentPort, endAgent := agentSocket(t, agentSays("200 OK", "ready\n\n\n"))
	settings := Settings{ProbePort: free(t), AgentPort: agentPort}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, dir, settings, log.New(io.Discard, "", 0)) }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if reply, err := get(settings.ProbePort, "/readyz", time.Now().Add(10*time.Second)); err == nil && reply.status == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not serve")
		}
	}
	if !exists(filepath.Join(dir, stoppingFile)) {
		t.Error("the pod's end is forgotten, and its agent never told")
	}
	stop()
	endAgent()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A pod that starts anew, as after a restart of its machine, finds its volume as it left it.
func TestInstallForgetsThePodsEarlierEnd(t *testing.T) {
	dir := t.TempDir()
	if err := TellStopping(dir); err != nil {
		t.Fatal(err)
	}
	// Whether this program has the agent's code, and what DNS says, is not the question.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = Install(ctx, dir, Settings{}, log.New(io.Discard, "", 0))
	if exists(filepath.Join(dir, stoppingFile)) {
		t.Error("the pod stops as soon as it starts")
	}
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func TestServeAnswersWhileTheAgentIsThere(t *testing.T) {
	agentPort, endAgent := agentSocket(t, agentSays("200 OK", "ready\n\n\n"))
	settings := Settings{ProbePort: free(t), AgentPort: agentPort}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, t.TempDir(), settings, log.New(io.Discard, "", 0)) }()
	stop()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		reply, err := get(settings.ProbePort, "/readyz", time.Now().Add(10*time.Second))
		if err == nil && reply.status == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a pod that keeps its users is not ready: %v %v", reply, err)
		}
	}
	select {
	case err := <-done:
		t.Fatal("it has ended before the agent:", err)
	default:
	}
	endAgent()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
