package show

import (
	"fmt"
	"io"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/internal/cli/text"
)

// CrashDump is what the pod's own program says of a dump that it keeps.
type CrashDump struct {
	Name     string    `json:"name"`
	Time     time.Time `json:"time"`
	Bytes    int64     `json:"bytes"`
	Complete bool      `json:"complete"`
	Slogan   string    `json:"slogan"`
}

// Crashes are how often the application of a pod ended, how it did last, and the dumps that are left of it.
type Crashes struct {
	Pod      string      `json:"pod"`
	Restarts int32       `json:"restarts"`
	Dumps    []CrashDump `json:"dumps"`
	// Killed is when the kernel ended the application last, because it took more memory than it may. That leaves no dump.
	Killed *time.Time `json:"killed,omitempty"`
	// MemoryLimit is what it may take. Empty: as much as the node has.
	MemoryLimit string `json:"memoryLimit,omitempty"`
	// Problem is why nothing is known of dumps.
	Problem string `json:"problem,omitempty"`
}

// CrashesOf is a pod with the dumps that were listed, or why they could not be.
func CrashesOf(pod *corev1.Pod, container string, dumps []CrashDump, err error) Crashes {
	told := Crashes{Pod: pod.Name, Dumps: dumps}
	if err != nil {
		told.Problem = err.Error()
	}
	for _, of := range pod.Spec.Containers {
		if limit := of.Resources.Limits.Memory(); of.Name == container && !limit.IsZero() {
			told.MemoryLimit = limit.String()
		}
	}
	at := slices.IndexFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == container })
	if at < 0 {
		return told
	}
	status := pod.Status.ContainerStatuses[at]
	told.Restarts = status.RestartCount
	for _, state := range []corev1.ContainerState{status.LastTerminationState, status.State} {
		if state.Terminated != nil && state.Terminated.Reason == "OOMKilled" {
			told.Killed = &state.Terminated.FinishedAt.Time
		}
	}
	return told
}

// WriteCrashes draws all dumps, and what there is to know of crashes that left none.
func WriteCrashes(w io.Writer, paint text.Paint, all []Crashes, now time.Time) error {
	table := text.Table{Columns: []string{"POD", "RESTARTS", "DUMP", "AGE", "SIZE", "COMPLETE", "SLOGAN"}}
	for _, c := range all {
		none := []text.Cell{text.Plain(c.Pod), text.Plain(c.Restarts), text.Plain("-"), text.Plain(""), text.Plain(""), text.Plain("")}
		switch {
		case c.Problem != "":
			table.Add(append(none, text.Cell{Text: c.Problem, Colour: text.Bad})...)
		case len(c.Dumps) == 0:
			table.Add(append(none, text.Plain(""))...)
		}
		for _, dump := range c.Dumps {
			table.Add(text.Plain(c.Pod), text.Plain(c.Restarts), text.Plain(dump.Name), text.Plain(text.Age(dump.Time, now)), text.Plain(Bytes(dump.Bytes)),
				yes(dump.Complete), text.Plain(dump.Slogan))
		}
	}
	if err := table.Write(w, paint); err != nil {
		return err
	}
	for _, c := range all {
		if c.Killed == nil {
			continue
		}
		limit := "what its node has"
		if c.MemoryLimit != "" {
			limit = "its limit of " + c.MemoryLimit
		}
		said := fmt.Sprintf("%s: the kernel ended the virtual machine %s ago, because it took more memory than %s. That leaves no dump. What took the memory is on the "+
			"dashboard BEAM (processes, ETS, binaries); of a pod that still grows, `kubectl livestash rpc --pod %s 'IO.inspect(:erlang.memory())'` tells.",
			c.Pod, text.Age(*c.Killed, now), limit, c.Pod)
		if _, err := fmt.Fprintf(w, "\n%s\n", paint.In(text.Warning, text.Wrapped(said, "", 120))); err != nil {
			return err
		}
	}
	return nil
}
