package show

import (
	"cmp"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/cli/text"
)

// Sessions are what a pod has of users, as its agent counts.
type Sessions struct {
	Pod string `json:"pod"`
	// Connections are those to the application's port. Nil: the agent does not tell.
	Connections *int64 `json:"connections,omitempty"`
	Stashes     int64  `json:"stashes"`
	StashBytes  int64  `json:"stashBytes"`
	// Recovered and NotRecovered are users who came back to this pod since it started, with and without their state.
	Recovered     int64 `json:"recovered"`
	NotRecovered  int64 `json:"notRecovered"`
	Draining      bool  `json:"draining,omitempty"`
	UptimeSeconds int64 `json:"uptimeSeconds"`
	// Problem is why nothing is known.
	Problem string `json:"problem,omitempty"`
}

// SessionsOf is what an agent said of its pod.
func SessionsOf(pod *corev1.Pod, s agentclient.Status, err error) Sessions {
	if err != nil {
		return Sessions{Pod: pod.Name, Problem: err.Error()}
	}
	return Sessions{
		Pod: pod.Name, Connections: s.Sockets, Stashes: s.Stashes, StashBytes: s.StashBytes, Draining: s.Draining,
		Recovered: s.Returns.Recovered, NotRecovered: s.Returns.NotRecovered, UptimeSeconds: s.UptimeSeconds,
	}
}

// WriteSessions draws all pods, and their sum where it makes sense: with Mnesia every pod has every stash.
func WriteSessions(w io.Writer, paint text.Paint, all []Sessions) error {
	table := text.Table{Columns: []string{"POD", "CONNECTIONS", "STASHES", "MEMORY", "RECOVERED", "NOT RECOVERED", "UPTIME", "PROBLEM"}}
	for _, s := range all {
		if s.Problem != "" {
			table.Add(text.Plain(s.Pod), text.Plain("?"), text.Plain("?"), text.Plain("?"), text.Plain("?"), text.Plain("?"), text.Plain("?"), text.Cell{Text: s.Problem, Colour: text.Bad})
			continue
		}
		connections := "?"
		if s.Connections != nil {
			connections = fmt.Sprint(*s.Connections)
		}
		draining := ""
		if s.Draining {
			draining = "is being drained"
		}
		uptime := text.Age(time.Unix(0, 0), time.Unix(s.UptimeSeconds, 0))
		table.Add(text.Plain(s.Pod), text.Plain(connections), text.Plain(s.Stashes), text.Plain(Bytes(s.StashBytes)), text.Plain(s.Recovered), text.Plain(s.NotRecovered),
			text.Plain(cmp.Or(uptime, "0s")), text.Cell{Text: draining, Colour: text.Warning})
	}
	return table.Write(w, paint)
}

// Bytes is an amount of memory in a unit that fits.
func Bytes(n int64) string {
	const unit = 1024
	switch {
	case n < unit:
		return fmt.Sprintf("%dB", n)
	case n < unit*unit:
		return fmt.Sprintf("%.1fKi", float64(n)/unit)
	case n < unit*unit*unit:
		return fmt.Sprintf("%.1fMi", float64(n)/unit/unit)
	}
	return fmt.Sprintf("%.1fGi", float64(n)/unit/unit/unit)
}
