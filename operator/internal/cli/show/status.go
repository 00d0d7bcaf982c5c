// Package show makes what the plugin's verbs print of what they were told: structures for scripts, tables and sentences for people. It is
// pure: no client, no clock.
package show

import (
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/cli/advice"
	"github.com/livestash-dev/livestash/operator/internal/cli/text"
)

// notSeen is the state of what no operator has looked at.
const notSeen = "NotSeen"

// width is how long the lines of sentences are.
const width = 110

// Status is how a fleet is.
type Status struct {
	Name      string           `json:"name"`
	Namespace string           `json:"namespace"`
	Adapter   v1alpha1.Adapter `json:"adapter"`
	TTL       string           `json:"ttl"`
	Image     string           `json:"image"`
	// State is Ready, or the reason why it is not.
	State    string                  `json:"state"`
	Desired  int32                   `json:"desired"`
	Ready    int32                   `json:"ready"`
	Updated  int32                   `json:"updated"`
	Stashes  int64                   `json:"stashes"`
	Pods     []v1alpha1.PodStatus    `json:"pods,omitempty"`
	Mesh     Mesh                    `json:"mesh"`
	Rollout  *v1alpha1.RolloutStatus `json:"lastRollout,omitempty"`
	Problems []advice.Problem        `json:"problems,omitempty"`
	created  metav1.Time
	paused   bool
}

// Mesh is whether the BEAM nodes see each other.
type Mesh struct {
	// Connected is True, False or Unknown, as condition Clustered is.
	Connected metav1.ConditionStatus `json:"connected"`
	// MissingPeers is how many links are missing, as the pods count them.
	MissingPeers int32 `json:"missingPeers"`
}

// StatusOf is the status of a LiveStashCluster.
func StatusOf(c *v1alpha1.LiveStashCluster) Status {
	s := Status{
		Name: c.Name, Namespace: c.Namespace, Adapter: c.Spec.Adapter, TTL: duration.HumanDuration(time.Duration(c.TTLSeconds()) * time.Second), Image: c.Spec.Image,
		State: stateOf(c), Desired: c.DesiredReplicas(), Ready: c.Status.ReadyReplicas, Updated: c.Status.UpdatedReplicas, Stashes: c.Status.Stashes,
		Pods: c.Status.Pods, Mesh: Mesh{Connected: metav1.ConditionUnknown}, Problems: advice.Problems(c.Status.Conditions),
		created: c.CreationTimestamp, paused: c.Spec.Paused || c.Spec.Rollout.Paused,
	}
	if clustered := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionClustered); clustered != nil {
		s.Mesh.Connected = clustered.Status
	}
	for _, pod := range c.Status.Pods {
		s.Mesh.MissingPeers += pod.MissingPeers
	}
	if len(c.Status.Rollouts) > 0 {
		s.Rollout = &c.Status.Rollouts[0]
	}
	return s
}

// stateOf is one word for all conditions.
func stateOf(c *v1alpha1.LiveStashCluster) string {
	ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		return notSeen
	case c.Status.ObservedGeneration != c.Generation:
		return "Changed"
	case ready.Status == metav1.ConditionTrue:
		return v1alpha1.ConditionReady
	}
	return ready.Reason
}

// Fleets is a table of fleets, with their namespaces if they are of several.
func Fleets(w io.Writer, paint text.Paint, fleets []Status, namespaces bool, now time.Time) error {
	table := text.Table{Columns: []string{"NAME", "STATE", "ADAPTER", "PODS", "STASHES", "IMAGE", "AGE"}}
	if namespaces {
		table.Columns = append([]string{"NAMESPACE"}, table.Columns...)
	}
	for _, s := range fleets {
		row := []text.Cell{
			text.Plain(s.Name), {Text: s.State, Colour: s.colour()}, text.Plain(s.Adapter), text.Plain(fmt.Sprintf("%d/%d", s.Ready, s.Desired)),
			text.Plain(s.Stashes), text.Plain(s.Image), text.Plain(text.Age(s.created.Time, now)),
		}
		if namespaces {
			row = append([]text.Cell{text.Plain(s.Namespace)}, row...)
		}
		table.Add(row...)
	}
	return table.Write(w, paint)
}

// colour is that of the state: yellow while it passes by itself.
func (s Status) colour() text.Colour {
	if s.State == v1alpha1.ConditionReady {
		return text.Good
	}
	for _, problem := range s.Problems {
		if !problem.Passing {
			return text.Bad
		}
	}
	return text.Warning
}

// Write draws one fleet.
func (s Status) Write(w io.Writer, paint text.Paint, now time.Time) error {
	title := fmt.Sprintf("%s is %s: adapter %s, TTL %s, %d of %s ready, %s",
		paint.In(text.Strong, s.Name), paint.In(s.colour(), s.State), s.Adapter, s.TTL, s.Ready, text.Count(int64(s.Desired), "pod", "pods"), text.Count(s.Stashes, "stash", "stashes"))
	if _, err := fmt.Fprintf(w, "%s\nImage %s\n\n", title, text.Safe(s.Image)); err != nil {
		return err
	}
	if err := s.podTable().Write(w, paint); err != nil {
		return err
	}
	sections := []string{"", s.meshLine(paint)}
	if s.Rollout != nil {
		sections = append(sections, strings.TrimSuffix(RolloutLine(s.Rollout, now), "\n"))
	}
	if s.paused {
		sections = append(sections, paint.In(text.Warning, "Rollouts are paused: `kubectl livestash rollout resume "+s.Name+"` lets them go on."))
	}
	if _, err := fmt.Fprintln(w, strings.Join(sections, "\n")); err != nil {
		return err
	}
	if s.State == notSeen {
		_, err := fmt.Fprintln(w, "\nNo operator has looked at it yet. Does one run? `kubectl get pods -A -l app.kubernetes.io/name=livestash-operator`")
		return err
	}
	return writeProblems(w, paint, s.Problems, now)
}

func (s Status) podTable() *text.Table {
	table := &text.Table{Columns: []string{"POD", "READY", "UPDATED", "STASHES", "PEERS", "PROBLEM"}}
	for _, pod := range s.Pods {
		peers := text.Cell{Text: "all", Colour: text.Good}
		if pod.MissingPeers > 0 {
			peers = text.Cell{Text: fmt.Sprintf("%d missing", pod.MissingPeers), Colour: text.Bad}
		}
		if s.Mesh.Connected == metav1.ConditionUnknown {
			peers = text.Plain("?")
		}
		ready := yes(pod.Ready)
		if pod.Draining {
			ready = text.Cell{Text: "drains", Colour: text.Warning}
		}
		table.Add(text.Plain(pod.Name), ready, yesOrFaint(pod.Updated), text.Plain(pod.Stashes), peers, text.Plain(pod.Problem))
	}
	return table
}

func yes(is bool) text.Cell {
	if is {
		return text.Cell{Text: "yes", Colour: text.Good}
	}
	return text.Cell{Text: "no", Colour: text.Bad}
}

func yesOrFaint(is bool) text.Cell {
	if is {
		return text.Plain("yes")
	}
	return text.Cell{Text: "no", Colour: text.Warning}
}

func (s Status) meshLine(paint text.Paint) string {
	switch s.Mesh.Connected {
	case metav1.ConditionTrue:
		return "Mesh: " + paint.In(text.Good, "every node sees every other")
	case metav1.ConditionFalse:
		return "Mesh: " + paint.In(text.Bad, text.Count(int64(s.Mesh.MissingPeers), "link is", "links are")+" missing")
	default:
		return "Mesh: not known"
	}
}

func writeProblems(w io.Writer, paint text.Paint, problems []advice.Problem, now time.Time) error {
	if len(problems) == 0 {
		_, err := fmt.Fprintln(w, "\n"+paint.In(text.Good, "Nothing is wrong."))
		return err
	}
	for _, p := range problems {
		colour := text.Bad
		if p.Passing {
			colour = text.Warning
		}
		head := fmt.Sprintf("\n%s %s\n", paint.In(colour, p.Means), paint.In(text.Faint, fmt.Sprintf("(%s, %s, for %s)", p.Condition, p.Reason, text.Age(p.Since.Time, now))))
		body := text.Wrapped(p.Says, "  ", width)
		if p.Do != "" {
			body += text.Wrapped("To do: "+p.Do, "  ", width)
		}
		if p.Read != "" {
			body += "  See " + p.Read + "\n"
		}
		if _, err := io.WriteString(w, head+body); err != nil {
			return err
		}
	}
	return nil
}
