package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/render"
	"github.com/livestash-dev/livestash/operator/internal/render/fleet"
	"github.com/livestash-dev/livestash/operator/internal/store"
)

// fewestReturns is how many users must have come back to the pods of a new template before their share is judged: of fewer, one who
// was away for too long would decide.
const fewestReturns = 10

// verdict is what is thought of the wanted template. It is made anew in each pass from what is seen. Only a rejection is noted, because
// the pods that were the reason go: in an annotation of the StatefulSet, which a status that is lost does not take along.
type verdict struct {
	// rejected says why the fleet goes back to the template before. Empty: it does not.
	rejected string
	// canary is how many pods have to prove the template before others get it, trial why they have not yet. Empty: they have.
	canary int32
	trial  string
}

// verdict is what is thought of the wanted template, in a fleet that is to have that many pods.
func (o *observation) verdict(c *v1alpha1.LiveStashCluster, desired int32) verdict {
	canary, set := c.Spec.Rollout.Canary, o.statefulSet
	if canary == nil || set.Status.CurrentRevision == set.Status.UpdateRevision {
		return verdict{}
	}
	if why, noted := noted(set); noted {
		return verdict{rejected: why}
	}
	older := func(m member) bool { return !m.updated }
	if o.settled() && slices.ContainsFunc(o.members, older) {
		if fault := o.fault(c); fault != "" {
			return verdict{rejected: fault}
		}
	}
	judged := verdict{canary: min(canary.Pods, max(1, desired-1))}
	judged.trial = o.trial(c, judged.canary)
	return judged
}

// noted is why the template that the StatefulSet has was rejected, and whether it was.
func noted(set *appsv1.StatefulSet) (why string, rejected bool) {
	digest, why, found := strings.Cut(set.Annotations[fleet.RejectedAnnotation], ": ")
	return why, found && digest == templateDigest(set)
}

// note is how a rejection of the template that the StatefulSet has is noted. Empty: it is not rejected.
func note(set *appsv1.StatefulSet, v verdict) string {
	if v.rejected == "" {
		return ""
	}
	return templateDigest(set) + ": " + v.rejected
}

// templateDigest tells another template, also before the StatefulSet controller has given it a revision.
func templateDigest(set *appsv1.StatefulSet) string {
	text, err := json.Marshal(set.Spec.Template)
	if err != nil {
		return "" // of a type that was read from JSON: it cannot be
	}
	return render.Digest(string(text))
}

// trial says why that many pods of the wanted template have not proved it yet. Empty: they have.
func (o *observation) trial(c *v1alpha1.LiveStashCluster, pods int32) string {
	duration := ptr.Deref(c.Spec.Rollout.Canary.Duration, metav1.Duration{}).Duration
	var since []time.Time
	for i := range o.members {
		if m := &o.members[i]; m.updated && o.unable(c, m) == "" {
			since = append(since, o.servesSince(m))
		}
	}
	slices.SortFunc(since, time.Time.Compare)
	first := "the first pod of the new template proves it"
	if pods > 1 {
		first = fmt.Sprintf("the first %d pods of the new template prove it", pods)
	}
	if len(since) < int(pods) {
		return fmt.Sprintf("%s for %s", first, duration)
	}
	over := since[pods-1].Add(duration)
	if !o.now.Before(over) {
		return ""
	}
	return fmt.Sprintf("%s until %s", first, over.UTC().Format(time.RFC3339))
}

// servesSince is since when the pod serves: by the operator's own clock, if it saw it begin. The kubelet's may be another, and a canary must not
// be over before its time.
func (o *observation) servesSince(m *member) time.Time {
	if began := o.served[m.service()]; began.After(o.served[firstLook]) {
		return began
	}
	return readySince(m.Pod)
}

// firstLook is beside the pods on trial: what was seen no later served already.
const firstLook = ""

// onTrial are the pods of the wanted template that serve, and firstLook. Nil: there is no canary.
func (o *observation) onTrial(c *v1alpha1.LiveStashCluster) []string {
	if c.Spec.Rollout.Canary == nil {
		return nil
	}
	serve := []string{firstLook}
	for i := range o.members {
		if m := &o.members[i]; m.updated && podReady(m.Pod) {
			serve = append(serve, m.service())
		}
	}
	return serve
}

// service is the time in which the pod serves: another one each time that the kubelet says it is ready.
func (m *member) service() string {
	return fmt.Sprintf("%s since %d", m.UID, readySince(m.Pod).Unix())
}

// fault says which limit the pods of the wanted template break. Empty: none.
func (o *observation) fault(c *v1alpha1.LiveStashCluster) string {
	var crashes int32
	for i := range o.members {
		m := &o.members[i]
		if !m.judged() {
			continue
		}
		if why := o.unwell(c, m); why != "" {
			return why
		}
		crashes += restarts(m.Pod)
	}
	if most := c.Spec.Rollout.Canary.MaxCrashes; crashes > most {
		return fmt.Sprintf("the pods of the new template crashed %s, and spec.rollout.canary.maxCrashes is %d: see `kubectl logs --previous`", times(crashes), most)
	}
	least, err := strconv.ParseFloat(c.Spec.Rollout.Canary.MinRecovered, 64)
	if err != nil || least == 0 || !store.For(c).Recovers() {
		return ""
	}
	if why := o.otherVersion(); why != "" {
		return why
	}
	return o.unrecovered(least)
}

// judged is whether the pod speaks for or against the wanted template.
func (m *member) judged() bool { return m.updated && !m.terminating() }

// unwell says why a pod of the wanted template does not get on, when it has had its time: a minute where it is known to be bad, else as
// long as every pod has. That no node has room for it is not held against the template.
func (o *observation) unwell(c *v1alpha1.LiveStashCluster, m *member) string {
	waited := o.waited[m.wait()]
	unable := o.unable(c, m)
	if unable == "" || slices.ContainsFunc(m.Status.Conditions, unschedulable) {
		return ""
	}
	switch {
	case m.broken() != "" && waited >= soon:
		return m.broken()
	case slices.ContainsFunc(o.members, func(other member) bool { return !other.updated && other.unhealthy() }):
		return "" // pods of the template before are no better off
	case m.unhealthy() && waited >= soon, waited >= patience:
		return fmt.Sprintf("%s %s, for %s", m.Name, unable, waited.Truncate(time.Second))
	}
	return ""
}

// unhealthy is whether the agent of a pod that is ready does not answer, or says that the pod cannot keep stashes.
func (m *member) unhealthy() bool {
	told := m.answer.Status
	return podReady(m.Pod) && m.agentPort != 0 && !m.terminating() && (m.answer.Err != nil || !m.answer.At.IsZero() && (!told.Ready || !told.Store.Ready))
}

// otherVersion says which pages of the wanted template refuse what those of the template before have stashed. Empty: none are known to.
func (o *observation) otherVersion() string {
	before := map[string][]string{}
	for i := range o.members {
		if m := &o.members[i]; !m.updated && m.answer.Err == nil {
			for _, page := range m.answer.Status.Versions {
				before[page.View] = append(before[page.View], page.Version)
			}
		}
	}
	for i := range o.members {
		m := &o.members[i]
		if !m.judged() {
			continue
		}
		for _, page := range m.answer.Status.Versions {
			if known := before[page.View]; len(known) > 0 && !slices.Contains(known, page.Version) {
				return fmt.Sprintf("pages of %s have the LiveStash version %s in %s, and %s in the pods before: they refuse what users have stashed",
					strings.TrimPrefix(page.View, "Elixir."), page.Version, m.Name, known[0])
			}
		}
	}
	return ""
}

// unrecovered says that too few of the users who came back to pods of the wanted template found their state. Empty: enough did, or so
// few came back that nobody can tell.
func (o *observation) unrecovered(least float64) string {
	unjudged := func(m member) bool { return !m.judged() }
	returns := counted(slices.DeleteFunc(slices.Clone(o.members), unjudged))
	all := returns.Recovered + returns.NotRecovered
	if all < fewestReturns || float64(returns.Recovered) >= least*float64(all) {
		return ""
	}
	return fmt.Sprintf("%d of %d users who came back to pods of the new template found their state, and spec.rollout.canary.minRecovered is %g", returns.Recovered, all, least)
}

// restarts is how often the application's container has restarted in the pod.
func restarts(pod *corev1.Pod) int32 {
	if app := appStatus(pod); app != nil {
		return app.RestartCount
	}
	return 0
}

func times(n int32) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
