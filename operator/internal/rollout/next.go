package rollout

import (
	"cmp"
	"fmt"
	"slices"
)

// Next says what to do now about what is seen. The same Seen gives the same plan, and a plan that was carried out is planned again
// until its effect is seen.
func Next(seen Seen) Plan {
	switch {
	case seen.Withheld != "" && (seen.Desired > 0 || !seen.Exists || !seen.Settled):
		return withheld(seen)
	case !seen.Exists:
		return Plan{Replicas: seen.Desired, Start: seen.Start, Phase: Scaling}
	case seen.Desired == 0:
		return emptied(seen)
	}
	if !seen.Settled {
		replicas := max(seen.Replicas, seen.Desired)
		if seen.OneByOne && seen.Replicas > 0 {
			replicas = seen.Replicas
		}
		plan := Plan{
			Replicas: replicas, Start: seen.Start, Mode: seen.Mode, Phase: Pending, Apart: seen.Apart,
			Waiting: "the StatefulSet controller has not acted yet on the last change",
		}
		plan.Surging = plan.Replicas > seen.Desired
		if seen.empty() {
			plan.Mode = Replace
		}
		return plan
	}
	return look(seen).plan()
}

// empty: whatever pod comes next, it is to have the wanted template. Nobody has seen it, and still it is the only one that is wanted:
// the StatefulSet controller may hold any other for the last one that was rolled out.
func (s Seen) empty() bool { return s.Replicas == 0 && len(s.Pods) == 0 }

// withheld keeps pods as they are, and lets none come with the wanted template: in mode Hold they get the last one that was rolled out.
// The StatefulSet controller takes the wanted one for that when it has never seen another, and in mode Hold when there are no replicas.
func withheld(seen Seen) Plan {
	plan := Plan{Replicas: seen.Replicas, Start: seen.Start, Mode: seen.Mode, Phase: Withheld, Waiting: seen.Withheld, Surging: seen.Replicas > seen.Desired}
	switch {
	case !seen.Exists || !seen.Settled:
		plan.Leave = true
	case seen.Replicas == 0:
		plan.Mode = Replace
	default:
		seen.Paused = seen.Withheld
		now := look(seen).plan()
		if len(now.Delete) > 0 && seen.Mode == Hold && now.Mode == Hold {
			return now // a pod leaves its node, and comes back with the template before
		}
		plan.Mode, plan.Replicas, plan.Start, plan.Takes, plan.Surging = Hold, now.Replicas, now.Start, now.Takes, now.Surging
	}
	return plan
}

// emptied is a fleet of no pods: they leave at once, because none has anybody to wait for.
func emptied(seen Seen) Plan {
	plan := Plan{Phase: Complete}
	if seen.Withheld != "" {
		plan.Mode = Replace
	}
	if seen.Replicas > 0 || len(seen.Pods) > 0 {
		plan.Phase = Scaling
	}
	return plan
}

// fleet is what is seen, in the order in which pods go.
type fleet struct {
	Seen
	// here are the pods that the StatefulSet has, highest ordinal first, and leaving the others.
	here, leaving []Pod
	// absent is the lowest ordinal without a pod, -1 if there is none.
	absent int32
	// spare is the ordinal that goes first when there are too many.
	spare int32
	// forgone: one that finds no room is not among those here.
	forgone bool
	// surge: an additional pod is wanted.
	surge bool
	// want is how many pods there should be in the end, or until the rollout needs the additional one no more.
	want int32
	// mode is what the StatefulSet should have.
	mode Mode
	// moving: those that go, go for their nodes. A rollout comes first: it takes pods off such nodes too.
	moving bool
}

func look(seen Seen) *fleet {
	f := &fleet{Seen: seen, absent: -1}
	pods := slices.Clone(seen.Pods)
	slices.SortFunc(pods, func(a, b Pod) int { return cmp.Compare(b.Ordinal, a.Ordinal) })
	for _, pod := range pods {
		if seen.has(pod.Ordinal) {
			f.here = append(f.here, pod)
		} else {
			f.leaving = append(f.leaving, pod)
		}
	}
	next := seen.top()
	for _, pod := range f.here {
		if pod.Ordinal < next {
			f.absent = pod.Ordinal + 1
		}
		next = pod.Ordinal - 1
	}
	if next >= seen.Start {
		f.absent = seen.Start
	}
	f.want = seen.Desired
	f.forgone = f.forgoes()
	f.spare = f.spareOrdinal()
	if f.moving = f.moves(); f.moving {
		f.spare = f.spareOrdinal()
	}
	f.surge = f.surges()
	if f.surge {
		f.want++
	}
	f.mode = f.nextMode()
	if f.surge && f.Replicas <= f.Desired && f.surgeIsIdle() {
		f.surge, f.want = false, seen.Desired
	}
	return f
}

// moves says whether pods go for their nodes: any has to, and no rollout is under way, so that they come back with the template that
// they have. While a rollout is paused or on trial they come back with the old one.
func (f *fleet) moves() bool {
	if _, found := f.find(Pod.moves); !found {
		return false
	}
	waits := f.Paused != "" || f.tries()
	return waits || (f.Current || f.Back) && !slices.ContainsFunc(f.here, Pod.outdated)
}

// goes says whether a pod is one of those that have to go: for their template, or for their node.
func (f *fleet) goes(p Pod) bool {
	if f.moving {
		return p.moves()
	}
	return p.outdated()
}

// surgeIsIdle says whether an additional pod would be of no use now. For a rollout that is paused, stuck or on trial it would be made from the
// old template and prove nothing. A pod that leaves its node waits for one that is stuck, whoever else there is.
func (f *fleet) surgeIsIdle() bool {
	if f.moving {
		_, stuck := f.find(Pod.stuck)
		return stuck
	}
	return f.mode == Hold && !f.mayGoBack()
}

// plan is what to do about the pods, and where users go meanwhile.
func (f *fleet) plan() Plan {
	plan := f.act()
	plan.Apart, plan.Forgoes = f.apart(plan.Takes), f.forgone
	return plan
}

func (f *fleet) act() Plan {
	plan := Plan{Replicas: f.Replicas, Start: f.Start, Mode: f.mode, Phase: f.phase(), Surging: f.surge || f.Replicas > f.Desired}
	switch {
	case f.Replicas < f.want && f.lacks() == "":
		plan.Replicas, plan.Start, plan.Phase = f.more(), f.startWithMore(), Scaling
		if f.surge {
			plan.Phase = Surging
		}
		return plan
	case f.Replicas < f.want && !f.moving && !f.outdated():
		plan.Phase, plan.Waiting = Scaling, f.lacks()
		return plan
	case f.Replicas > f.want:
		plan.Phase, plan.Waiting = Scaling, f.keepsLast()
		if plan.Waiting == "" {
			plan.Replicas, plan.Start = f.withoutSpare()
			plan.Takes = f.taken()
			return plan
		}
	case !f.moving && !f.outdated() && f.mode == Hold:
		plan.Phase = Complete
		return plan
	}
	if f.mode != f.Mode {
		plan.Waiting = ""
		return plan
	}
	f.replace(&plan)
	return plan
}

// lacks says who has to come or go before a pod may be added; "" when one may.
func (f *fleet) lacks() string {
	if !f.OneByOne || f.Replicas == 0 {
		return ""
	}
	return f.onTheWay()
}

// more is how many pods there are to be next when there are too few.
func (f *fleet) more() int32 {
	if f.OneByOne && f.Replicas > 0 {
		return f.Replicas + 1
	}
	return f.want
}

// replace deletes who is next, or says what keeps it from doing so.
func (f *fleet) replace(plan *Plan) {
	if f.Paused != "" && f.outdated() && !f.moving {
		plan.Phase, plan.Waiting = Paused, f.Paused
		return
	}
	broken := f.names(func(p Pod) bool { return f.goes(p) && p.broken() && !p.Terminating })
	stuck, isStuck := f.find(Pod.stuck)
	hopeless := ""
	if !f.moving {
		hopeless = f.hopeless()
	}
	switch {
	case len(broken) > 0:
		plan.Delete, plan.Phase, plan.Waiting = broken, f.phase(), ""
	case isStuck:
		plan.Phase, plan.Waiting = Stuck, stuck.why()
	case hopeless != "" && f.unrest() == "" && !f.tries():
		plan.Delete, plan.Takes, plan.Phase, plan.Waiting = []string{hopeless}, hopeless, Rolling, ""
	case plan.Waiting != "": // It waits to scale down: a pod that goes is not replaced first.
	default:
		f.replaceAble(plan)
	}
}

// hopeless names the outdated pod that nobody waits for, when another can keep its users or nobody is left who may become able.
func (f *fleet) hopeless() string {
	pod, found := f.find(func(p Pod) bool { return p.outdated() && !p.Able && p.GivenUp })
	if found && (slices.ContainsFunc(f.here, Pod.able) || !slices.ContainsFunc(f.here, func(p Pod) bool { return !p.GivenUp })) {
		return pod.Name
	}
	return ""
}

// replaceAble lets the highest able pod go that has to, or says why not.
func (f *fleet) replaceAble(plan *Plan) {
	plan.Waiting = f.onTheWay()
	if plan.Waiting != "" {
		plan.Phase = f.waitingPhase()
		return
	}
	if f.tries() && !f.moving {
		plan.Phase, plan.Waiting = Trying, f.Trial
		return
	}
	next, found := f.next()
	switch {
	case !found:
		away, _ := f.find(func(p Pod) bool { return !p.able() })
		plan.Phase, plan.Waiting = Stuck, away.why()
	case len(f.names(Pod.able)) == 1 && (f.Surge != Never || f.moving):
		plan.Phase, plan.Waiting = Stuck, fmt.Sprintf("no other pod could keep the users of %s", next.Name)
	case f.swaps() && next.Ordinal == f.spare:
		plan.Replicas, plan.Start = f.withoutSpare()
		plan.Takes = next.Name
	default:
		plan.Delete, plan.Takes = []string{next.Name}, next.Name
	}
}

// onTheWay says who is on the way out or in, whatever template it has. Those that nobody waits for are not.
func (f *fleet) onTheWay() string {
	if unrest := f.unrest(); unrest != "" {
		return unrest
	}
	if starting, found := f.find(func(p Pod) bool { return !p.able() && !p.GivenUp }); found {
		return starting.why()
	}
	return ""
}

// unrest says who keeps all others from going: one who is on the way out or in. Those that nobody waits for do not.
func (f *fleet) unrest() string {
	if stopping := f.stopping(); stopping != "" {
		return stopping
	}
	if f.absent >= 0 {
		return fmt.Sprintf("the pod of ordinal %d does not exist yet", f.absent)
	}
	if pod, found := f.find(func(p Pod) bool { return p.Updated && !p.Able && !p.GivenUp }); found {
		return pod.why()
	}
	return ""
}

// stopping names the pod that is on its way out, unless nobody waits for it.
func (f *fleet) stopping() string {
	for _, pod := range slices.Concat(f.leaving, f.here) {
		if (pod.Terminating || !f.has(pod.Ordinal)) && !pod.GivenUp {
			return pod.Name + " is stopping"
		}
	}
	return ""
}

func (f *fleet) waitingPhase() Phase {
	if f.surge && !f.forgone && !f.additional().able() {
		return Surging
	}
	return f.phase()
}

// phase is what goes on while pods go.
func (f *fleet) phase() Phase {
	if f.moving {
		return Moving
	}
	return Rolling
}

// surges says whether an additional pod is wanted: somebody has to go who may hold state, and would leave nobody behind.
func (f *fleet) surges() bool {
	need := slices.ContainsFunc(f.here, func(p Pod) bool { return (f.stays(p.Ordinal) || f.swaps()) && f.goes(p) && !p.broken() })
	if !need {
		return false
	}
	// An additional pod of the wanted template that is not able stays, whatever is asked for: without it nothing would speak against
	// the template, and the next pod would go for it.
	if top := f.here[0]; f.Replicas == f.Desired+1 && top.Ordinal == f.top() && top.Updated && !top.Terminating && !top.Able {
		return true
	}
	if f.Surge == Never {
		return false
	}
	return f.Surge == Always || f.Surge == Stays && f.maySwap() || f.alone()
}

// alone says whether the pod that goes next would leave nobody behind who is able or may be soon.
func (f *fleet) alone() bool {
	company := f.Desired
	var able, hopeless bool
	for _, pod := range f.here {
		if !f.stays(pod.Ordinal) {
			continue
		}
		able = able || pod.able()
		if pod.comes() {
			continue
		}
		company--
		hopeless = hopeless || pod.outdated()
	}
	// A pod that was given up goes first, with the help of the able one, and comes back as company.
	return company <= 1 && (!able || !hopeless)
}

// nextMode is the mode that a pod that comes back now should meet.
func (f *fleet) nextMode() Mode {
	if f.empty() {
		return Replace
	}
	_, broken := f.find(func(p Pod) bool { return p.outdated() && p.broken() })
	switch {
	case f.Back:
		return Hold // that makes the template that is aimed at
	case !f.outdated() && !f.isStuck():
		// Until all are able, and none of the old ones is left, one that comes back must not get the old template again: the new one is
		// not the good one yet.
		if f.allAble() && !slices.ContainsFunc(f.leaving, Pod.outdated) {
			return Hold
		}
		return f.Mode
	case f.Paused != "":
		return Hold
	case broken:
		return Replace
	case f.isStuck():
		return f.stuckMode()
	}
	// Only a pod that is able again ends a crash loop.
	if _, found := f.find(func(p Pod) bool { return p.Updated && !p.Terminating && !p.Able }); found {
		return f.Mode
	}
	if f.tries() {
		return Hold // one that comes back unplanned must not get what is on trial
	}
	return Replace
}

// tries says whether enough pods have the wanted template for now, because it has to prove itself in them.
func (f *fleet) tries() bool {
	tried := f.names(func(p Pod) bool { return p.Updated && !p.Terminating })
	return f.Trial != "" && len(tried) >= int(f.Canary)
}

// mayGoBack says whether pods are being replaced though the mode is Hold.
func (f *fleet) mayGoBack() bool { return f.Back && f.Paused == "" && !f.isStuck() }

// stuckMode is Hold, so that a pod that comes back unplanned gets the good template. But a broken one that is just being replaced
// comes back with the new template, or it would be broken and deleted for ever; the word "broken" comes and goes in a crash loop.
func (f *fleet) stuckMode() Mode {
	_, going := f.find(func(p Pod) bool { return !p.Updated && !p.Able && (p.Broken != "" || !p.Terminating && !p.GivenUp) })
	if going || f.absent >= 0 {
		return f.Mode
	}
	return Hold
}

// isStuck says whether a pod of the wanted template does not get on while others, even one that should leave, have an older one.
func (f *fleet) isStuck() bool {
	_, found := f.find(Pod.stuck)
	return found && slices.ContainsFunc(f.here, Pod.outdated)
}

// keepsLast says why the pod of the highest ordinal may not be scaled away yet.
func (f *fleet) keepsLast() string {
	leaver := f.taken()
	if leaver == "" {
		return ""
	}
	if stopping := f.stopping(); stopping != "" {
		return stopping
	}
	if f.absent >= 0 {
		return fmt.Sprintf("the pod of ordinal %d does not exist yet", f.absent)
	}
	able := false
	for _, pod := range f.here {
		if pod.Ordinal == f.spare {
			continue
		}
		able = able || pod.able()
		if !pod.able() && !pod.GivenUp {
			return pod.why()
		}
	}
	if !able {
		return fmt.Sprintf("no other pod could keep the users of %s", leaver)
	}
	return ""
}

// taken names the running pod that goes when the StatefulSet has one replica less.
func (f *fleet) taken() string {
	for _, pod := range f.here {
		if pod.Ordinal == f.spare && !pod.Terminating && !pod.broken() {
			return pod.Name
		}
	}
	return ""
}

// outdated says whether a pod that is to stay has to be replaced.
func (f *fleet) outdated() bool {
	_, found := f.find(Pod.outdated)
	return found
}

func (f *fleet) allAble() bool {
	return f.absent < 0 && len(f.names(Pod.able)) == int(min(f.want, f.Replicas))
}

// find returns the pod of the highest ordinal, of those that are to stay, of which is says yes.
func (f *fleet) find(is func(Pod) bool) (Pod, bool) {
	for _, pod := range f.here {
		if f.wants(pod.Ordinal) && is(pod) {
			return pod, true
		}
	}
	return Pod{}, false
}

// names are those of the pods that are to stay, highest ordinal first, of which is says yes.
func (f *fleet) names(is func(Pod) bool) []string {
	var names []string
	for _, pod := range f.here {
		if f.wants(pod.Ordinal) && is(pod) {
			names = append(names, pod.Name)
		}
	}
	return names
}

func (p Pod) able() bool   { return p.Able && !p.Terminating }
func (p Pod) broken() bool { return p.Broken != "" && !p.Able }

// outdated: it has to be replaced, or is just being replaced.
func (p Pod) outdated() bool { return !p.Updated && p.matters() }

// moves: it has to leave its node, or is just leaving it.
func (p Pod) moves() bool { return p.Moves && p.matters() }

// matters: it is not on its way out, or may still hold state.
func (p Pod) matters() bool { return !p.Terminating || !p.GivenUp && !p.broken() }

// comes: the pod, or the one that takes its place, is able or may be soon.
func (p Pod) comes() bool {
	if p.broken() && !p.Terminating {
		return !p.Updated
	}
	return p.able() || !p.GivenUp
}

// stuck: it speaks against the wanted template.
func (p Pod) stuck() bool {
	return p.Updated && !p.Terminating && !p.Able && (p.GivenUp || p.broken())
}

func (p Pod) why() string {
	switch {
	case p.Broken != "":
		return p.Broken
	case p.Why != "":
		return p.Why
	case p.Terminating:
		return p.Name + " is stopping"
	default:
		return p.Name + " is not able to keep users yet"
	}
}
