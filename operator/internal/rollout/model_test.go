package rollout

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "the one seed that the model test runs, with its log")
	seedsFlag = flag.Uint64("seeds", 3000, "how many seeds the model test runs")
)

// observer is how the operator sees the cluster.
type observer struct {
	// lag is how many steps what is cached may be old: the StatefulSet, the pods and the agents' answers each for itself.
	lag int
	// confirms: it does as the package asks, reads StatefulSet and pods live before pods go, and writes no StatefulSet that has
	// changed since. Agents' answers stay old.
	confirms bool
}

// snapshot is the cluster at one step.
type snapshot struct {
	set  *statefulSet
	pods []simPod
	// cordoned is which nodes are to be emptied.
	cordoned [3]bool
	// step makes what depends on time what it was then.
	step    int
	answers map[int]bool // by UID, whether the agent says that the pod is able
}

// model is the operator in a simulated cluster, and what must hold.
type model struct {
	*cluster
	observer
	t       *testing.T
	history []snapshot
	// what of the history is seen; caches do not go backwards
	setAt, podsAt, answersAt int
	written                  int // the generation of the last write
	// what the user asks for
	desired  int32
	template int
	surge    Surge
	paused   string
	canary   int32
	// oneByOne: pods are not to come together.
	oneByOne bool
	service  service
	users    []simUser
	// closed is for how many steps the Service has led to nobody though a pod serves.
	closed int
	// since the last change of the template
	takes, takesBelow, disturbances int
	// moved is how many pods were taken off their nodes.
	moved           int
	actions, writes int
	last            Plan
}

func newModel(t *testing.T, seed uint64, o observer) *model {
	rng := rand.New(rand.NewPCG(seed, 1))
	m := &model{
		cluster: &cluster{rng: rng, lastAble: map[int32]int{}, touched: map[int32]int{}, withheld: map[int]bool{}}, observer: o, t: t,
		desired: int32(1 + rng.IntN(4)), surge: []Surge{Auto, Stays, Always, Never}[rng.IntN(4)],
		canary: int32(max(0, int(seed%5)-2)), oneByOne: seed%3 == 0,
	}
	m.kinds = []kind{good}
	if rng.IntN(5) == 0 {
		m.kinds[0] = kind(rng.IntN(int(kinds)))
	}
	m.logf("desired %d, surge %s, canary %d, template 0 is of kind %d", m.desired, m.surge, m.canary, m.kinds[0])
	return m
}

func (m *model) failf(format string, args ...any) {
	m.t.Helper()
	m.logf(format, args...)
	m.t.Fatal(strings.Join(m.log, "\n"))
}

func (m *model) record() {
	s := snapshot{pods: slices.Clone(m.pods), cordoned: m.cordoned, step: m.step, answers: map[int]bool{}}
	if m.set != nil {
		set := *m.set
		s.set = &set
	}
	for _, p := range m.pods {
		s.answers[p.uid] = m.able(p)
	}
	m.history = append(m.history, s)
}

// see is what the operator sees of a StatefulSet, pods and agents' answers of three moments.
func (m *model) see(sets, pods, answers snapshot) Seen {
	seen := Seen{Desired: m.desired, Surge: m.surge, Paused: m.paused, Apart: m.service.apart, OneByOne: m.oneByOne}
	if m.withheld[m.template] {
		seen.Withheld = "withheld"
	}
	if sets.set == nil {
		return seen
	}
	set := *sets.set
	seen.Exists, seen.Replicas, seen.Start, seen.Mode = true, set.replicas, set.start, set.mode
	seen.Settled = set.observed == set.generation && set.generation >= m.written
	seen.Current = set.current == set.update
	seen.Refused = m.quota > 0 && len(pods.pods) >= m.quota && int32(len(pods.pods)) < set.replicas
	then := &cluster{step: pods.step, kinds: m.kinds, cordoned: pods.cordoned}
	m.judge(&set, then, pods.pods)
	seen.Back = set.aim() != set.update
	seen.Canary, seen.Trial = m.trial(&set, then, pods.pods)
	for _, p := range pods.pods {
		pod := Pod{Name: fmt.Sprint("shop-", p.ordinal), Ordinal: p.ordinal, Updated: p.template == set.aim(), Terminating: p.terminating}
		pod.Moves = then.moves(p)
		pod.Able = then.ready(p) && answers.answers[p.uid]
		if !pod.Able {
			pod.GivenUp = then.givenUp(p)
			pod.Why = pod.Name + " is not able"
		}
		if !pod.Able && then.broken(p) {
			pod.Broken, pod.NoRoom = pod.Name+" is broken", p.homeless || p.node == noNode
		}
		seen.Pods = append(seen.Pods, pod)
	}
	m.rng.Shuffle(len(seen.Pods), func(i, j int) { seen.Pods[i], seen.Pods[j] = seen.Pods[j], seen.Pods[i] })
	return seen
}

// judge rejects the wanted template when one of its pods is found out to be bad, as long as an older one is there.
func (m *model) judge(set *statefulSet, then *cluster, pods []simPod) {
	if m.canary == 0 || set.rejected != set.update {
		set.rejected = -1
	}
	old := slices.ContainsFunc(pods, func(p simPod) bool { return p.template != set.update })
	if m.canary == 0 || set.update == set.current || !old {
		return
	}
	for _, p := range pods {
		bad := then.broken(p) && !p.homeless && p.node != noNode && !p.dead || then.kinds[p.template] == deaf && then.givenUp(p) ||
			then.kinds[p.template] == poison && p.up >= poisoned
		if p.template == set.update && !p.terminating && bad {
			set.rejected = set.update
		}
	}
}

// trial is what the engine is told of a canary.
func (m *model) trial(set *statefulSet, then *cluster, pods []simPod) (canary int32, trial string) {
	canary = m.canaries()
	if canary == 0 || set.update == set.current || set.aim() != set.update {
		return 0, ""
	}
	for _, p := range pods {
		if p.template == set.update && then.ready(p) && p.up >= proven {
			canary--
		}
	}
	if canary <= 0 {
		return 0, ""
	}
	return m.canaries(), "on trial"
}

// canaries is how many pods prove a template.
func (m *model) canaries() int32 { return min(m.canary, max(1, m.desired-1)) }

func (m *model) look(at int) int { return max(at, len(m.history)-1-m.rng.IntN(m.lag+1)) }

// operate is one pass of the operator.
func (m *model) operate() {
	m.setAt, m.podsAt, m.answersAt = m.look(m.setAt), m.look(m.podsAt), m.look(m.answersAt)
	sets, pods := m.history[m.setAt], m.history[m.podsAt]
	seen := m.see(sets, pods, m.history[m.answersAt])
	if seen.Exists && sets.set.template != m.template && seen.Withheld == "" {
		seen.Settled = false // it is written in this pass
	}
	plan := Next(seen)
	m.check(seen, plan)
	if m.confirms && (len(plan.Delete) > 0 || plan.Replicas < seen.Replicas) {
		sets, pods = m.history[len(m.history)-1], m.history[len(m.history)-1]
		live := m.see(sets, pods, m.history[m.answersAt])
		if diff := cmp.Diff(plan, Next(live)); diff != "" {
			m.lead(seen, plan, sets.set, pods)
			return
		}
	}
	m.last = plan
	m.lead(seen, plan, sets.set, pods)
	m.act(seen, plan, sets.set, pods)
}

// rejects is the template that the operator notes as rejected with what it writes.
func (m *model) rejects(seen Seen, set *statefulSet) int {
	switch {
	case !seen.Settled:
		return m.set.rejected
	case seen.Back:
		return set.update
	}
	return -1
}

func (m *model) act(seen Seen, plan Plan, set *statefulSet, pods snapshot) {
	if plan.Leave {
		return
	}
	if m.set == nil {
		m.set = &statefulSet{generation: 1, template: m.template, current: -1, replicas: plan.Replicas, mode: plan.Mode, rejected: -1}
		m.written = 1
		m.logf("made the StatefulSet with %d replicas", plan.Replicas)
		return
	}
	if set == nil {
		return // it exists already
	}
	rejected := m.rejects(seen, set)
	if changes(seen, plan) || m.template != m.set.template || rejected != m.set.rejected {
		if m.confirms && set.generation != m.set.generation {
			return // a conflict
		}
		if plan.Replicas < m.set.replicas && plan.Replicas > 0 {
			goes := func(p simPod) bool { return p.ordinal < plan.Start || p.ordinal >= plan.Start+plan.Replicas }
			m.leaves(goes, plan)
		}
		if rejected != m.set.rejected {
			m.setAt = len(m.history) // it waits until it sees what it wrote; a note makes no generation
		}
		if m.write(plan, m.template, rejected) {
			m.actions, m.writes, m.written = m.actions+1, m.writes+1, m.set.generation
		}
	}
	for _, name := range plan.Delete {
		i := slices.IndexFunc(pods.pods, func(p simPod) bool { return fmt.Sprint("shop-", p.ordinal) == name })
		victim := pods.pods[i]
		m.leaves(func(p simPod) bool { return p.uid == victim.uid }, plan)
		if plan.Phase == Moving {
			m.comesBackSame(victim)
		}
		if m.remove(victim.uid, "deleted by the operator") {
			m.actions++
		}
	}
}

// leaves holds what the operator is about to take against what is true.
func (m *model) leaves(goes func(simPod) bool, plan Plan) {
	deletes, replicas := len(plan.Delete) > 0, plan.Replicas
	var taken []simPod
	there := map[int32]simPod{}
	remain := 0
	for _, p := range m.pods {
		there[p.ordinal] = p
		switch {
		case goes(p) && m.able(p):
			taken = append(taken, p)
		case m.able(p) && m.set.has(p.ordinal):
			remain++
		}
	}
	if len(taken) == 0 || m.lag > 0 && taken[0].up <= m.lag {
		return // by what is seen, or by its agent's last answer, it is not able yet
	}
	if len(taken) > 1 {
		m.failf("it takes %d able pods at a time", len(taken))
	}
	excused, forgoes := false, plan.Forgoes
	for ordinal := m.set.start; ordinal < m.set.start+max(m.set.replicas, replicas); ordinal++ {
		p, found := there[ordinal]
		if ordinal == taken[0].ordinal || found && (m.able(p) || m.givenUp(p)) {
			continue
		}
		if m.excused(p, found, ordinal) {
			excused = true
			continue
		}
		if forgoes && (!found && m.refuses() || found && (p.node == noNode || p.homeless)) {
			forgoes = false // one that finds no room
			continue
		}
		m.failf("it takes pod %d while pod %d is not able", taken[0].ordinal, ordinal)
	}
	for _, p := range m.pods {
		if !m.set.has(p.ordinal) && !m.givenUp(p) && !m.excused(p, true, p.ordinal) {
			m.failf("it takes pod %d while pod %d is leaving", taken[0].ordinal, p.ordinal)
		}
	}
	if remain == 0 && !excused && (!deletes || m.surge != Never || plan.Phase == Moving) {
		m.failf("it takes pod %d, the last able one", taken[0].ordinal)
	}
	if deletes && plan.Phase != Moving && m.set.aim() == m.set.update {
		m.takes++
		if taken[0].ordinal < m.desired && m.surge != Stays {
			m.takesBelow++
		}
	}
}

// comesBackSame holds the pod that is about to leave its node against what is true: it must come back with the template that it has. While a
// rollout is paused, what comes back has the old one.
func (m *model) comesBackSame(p simPod) {
	m.moved++
	next := m.set.template
	if m.set.mode == Hold {
		next = m.set.current
	}
	// One that is on trial comes back with the template before, and is tried again.
	if m.paused == "" && m.canary == 0 && m.set.template == p.template && next != p.template && (m.lag == 0 || m.confirms) {
		m.failf("pod %d leaves its node and comes back with template %d", p.ordinal, next)
	}
}

// excused says whether the operator could not know that a pod is not able. With live pods only an agent's answer can be old; without,
// whatever became of the pod in the last steps.
func (m *model) excused(p simPod, found bool, ordinal int32) bool {
	if m.confirms {
		return m.lag > 0 && m.step-m.lastAble[ordinal] <= m.lag && found && m.ready(p)
	}
	return m.lag > 0 && m.step-m.touched[ordinal] <= m.lag
}

// check holds a plan against what it was made from.
func (m *model) check(seen Seen, plan Plan) {
	again := seen
	again.Pods = slices.Clone(seen.Pods)
	slices.Reverse(again.Pods)
	if diff := cmp.Diff(plan, Next(again)); diff != "" {
		m.failf("the same Seen gives another plan:\n%s", diff)
	}
	changes := changes(seen, plan)
	if plan.Phase == Withheld {
		if plan.Leave != (!seen.Exists || !seen.Settled) || len(plan.Delete) > 0 || plan.Waiting == "" || !plan.Leave && (plan.Mode == Hold) != (seen.Replicas > 0) {
			m.failf("withheld, and plan %+v of %+v", plan, seen)
		}
		return
	}
	if !seen.Exists || seen.Desired == 0 {
		if (plan.Mode == Hold) != (seen.Withheld == "") || plan.Replicas != seen.Desired || len(plan.Delete) > 0 {
			m.failf("plan %+v of %+v", plan, seen)
		}
		return
	}
	m.checkAdded(seen, plan)
	least := seen.Desired
	if seen.OneByOne && seen.Replicas > 0 {
		least = min(seen.Desired, seen.Replicas)
	}
	if !seen.Settled && (plan.Mode != seen.Mode && !seen.empty() || plan.Replicas != max(seen.Replicas, least)) {
		m.failf("not settled, and plan %+v of %+v", plan, seen)
	}
	if plan.Start < 0 || plan.Start > 1 || plan.Start > seen.Start && (plan.Replicas != seen.Replicas-1 || m.surge != Stays || seen.Paused != "" && plan.Phase != Moving && plan.Takes != "") {
		m.failf("ordinals of plan %+v of %+v", plan, seen)
	}
	if plan.Replicas < seen.Replicas-1 || plan.Replicas < least || plan.Replicas > max(seen.Replicas, seen.Desired+1) {
		m.failf("replicas of plan %+v of %+v", plan, seen)
	}
	if len(plan.Delete) > 0 && (changes || !seen.Settled || plan.Phase != Moving && (seen.Mode != Replace && !seen.Back || seen.Paused != "")) {
		m.failf("it deletes with plan %+v of %+v", plan, seen)
	}
	if (changes || len(plan.Delete) > 0) && seen.Settled && plan.Waiting != "" {
		m.failf("it acts and waits with plan %+v of %+v", plan, seen)
	}
	for _, pod := range seen.Pods {
		deleted := slices.Contains(plan.Delete, pod.Name)
		stays := pod.Updated
		if plan.Phase == Moving {
			stays = !pod.Moves
		}
		if deleted && (stays || pod.Terminating || len(plan.Delete) > 1 && pod.Broken == "" || pod.Able && plan.Takes != pod.Name) {
			m.failf("it deletes %+v with plan %+v of %+v", pod, plan, seen)
		}
	}
}

// checkAdded: where pods must not come together, one is added while all others are there and able.
func (m *model) checkAdded(seen Seen, plan Plan) {
	added := plan.Replicas - seen.Replicas
	if !seen.OneByOne || seen.Replicas == 0 || added <= 0 {
		return
	}
	here, coming := 0, false
	for _, pod := range seen.Pods {
		coming = coming || !pod.GivenUp && (!pod.Able || pod.Terminating)
		if seen.has(pod.Ordinal) {
			here++
		}
	}
	if added > 1 || coming || here < int(seen.Replicas) {
		m.failf("pods come together by plan %+v of %+v", plan, seen)
	}
}

// changes says whether a plan writes the StatefulSet.
func changes(seen Seen, plan Plan) bool {
	return plan.Replicas != seen.Replicas || plan.Start != seen.Start || plan.Mode != seen.Mode
}

func (m *model) change(template int) {
	m.template, m.takes, m.takesBelow, m.disturbances = template, 0, 0, 0
	m.logf("the template is %d, of kind %d", template, m.kinds[template])
}

func (m *model) newTemplate(k kind) {
	m.kinds = append(m.kinds, k)
	m.change(len(m.kinds) - 1)
}

// newTemplateLater is a template that no pod may have before it is released.
func (m *model) newTemplateLater(k kind) {
	m.withheld[len(m.kinds)] = true
	m.newTemplate(k)
	m.logf("template %d is withheld", m.template)
}

func (m *model) release() {
	if m.withheld[m.template] {
		m.logf("template %d is released", m.template)
	}
	delete(m.withheld, m.template)
}

// event is one thing that happens to a fleet.
func (m *model) event() {
	change := m.rng.IntN(23)
	switch {
	case change < 3:
		m.newTemplate(good)
	case change < 5:
		m.newTemplate(kind(1 + m.rng.IntN(int(kinds)-1)))
	case change == 5:
		m.change(m.rng.IntN(len(m.kinds)))
	case change < 8:
		m.disturbances++
		m.desired = int32(max(0, m.rng.IntN(6)-m.rng.IntN(2)))
		m.logf("desired %d", m.desired)
	case change == 8:
		m.disturbances++
		m.surge = []Surge{Auto, Always, Never, Stays}[m.rng.IntN(4)]
		m.logf("surge %s", m.surge)
	case change == 9:
		m.disturbances++
		m.paused = []string{"", "paused"}[m.rng.IntN(2)]
		m.logf("paused %q", m.paused)
	case change == 10:
		m.setAt, m.podsAt, m.answersAt, m.written = len(m.history)-1, len(m.history)-1, len(m.history)-1, 0
		m.logf("the operator restarts")
	case change == 11:
		m.disturbances++
		m.canary, m.takes = int32(m.rng.IntN(4)), 0
		m.logf("canary %d", m.canary)
	case change < 14:
		m.newTemplate(poison)
	case change == 14:
		m.newTemplateLater(kind(m.rng.IntN(int(kinds))))
	case change == 15:
		m.release()
	case change < 18:
		m.disturbances++
		node := m.rng.IntN(len(m.cordoned))
		m.cordoned[node] = !m.cordoned[node]
		m.logf("cordoned %v", m.cordoned)
	case len(m.pods) > 0:
		m.disturbances++
		m.trouble(&m.pods[m.rng.IntN(len(m.pods))])
	}
}

// trouble is what happens to a pod by other hands.
func (m *model) trouble(p *simPod) {
	switch m.rng.IntN(7) {
	case 0, 1:
		m.evict(*p)
	case 2:
		m.remove(p.uid, "deleted")
	case 3:
		p.away = 1 + m.rng.IntN(8)
		m.logf("pod %d crashed", p.ordinal)
	case 4:
		p.silent = 1 + m.rng.IntN(2*patience)
		m.logf("pod %d: its agent is silent", p.ordinal)
	case 5:
		p.dead = true
		m.logf("pod %d: its node is gone", p.ordinal)
		m.remove(p.uid, "tainted away")
	case 6:
		if !m.able(*p) && p.age < notices {
			p.homeless = true
			m.logf("pod %d has no node", p.ordinal)
		}
	}
}

func (m *model) run(steps int, events bool) {
	for range steps {
		if events && m.rng.IntN(12) == 0 {
			m.event()
			if m.rng.IntN(3) == 0 {
				m.event() // two at once
			}
		}
		m.tick()
		m.reconnect()
		m.open()
		if m.rng.IntN(4) > 0 {
			m.control()
		}
		m.record()
		if m.rng.IntN(4) > 0 {
			m.operate()
		}
		if m.tooEarly && (m.lag == 0 || m.confirms) {
			m.failf("a pod has a template that is withheld")
		}
		if m.takes > m.mostTakes() {
			m.failf("%d pods were taken for a bad template after %d disturbances", m.takes, m.disturbances)
		}
	}
}

// mostTakes is how many pods may be taken for a template.
func (m *model) mostTakes() int {
	switch kind := m.kinds[m.template]; {
	case kind == good || kind == poison && (m.canary == 0 || m.set != nil && m.set.current == m.template):
		return math.MaxInt // what was rolled out before is not tried
	case kind == poison:
		return int(m.canary) + m.disturbances // a fleet that was made smaller may have had more than it would now
	}
	return 1 + m.disturbances
}

// rests runs until nothing has been done for so long that nothing will be.
func (m *model) rests(bound int) {
	for range bound / 10 {
		before := m.actions
		m.run(10, false)
		if before == m.actions && m.atRest() {
			break
		}
	}
	if !m.atRest() {
		m.failf("no rest: %+v\nplan %+v", *m.set, m.last)
	}
	before := m.actions
	m.run(2*patience+30, false)
	if m.actions != before || !m.atRest() {
		m.failf("no lasting rest: %+v\nplan %+v", *m.set, m.last)
	}
}

// atRest says whether a fleet of a good template is as the user wants it.
func (m *model) atRest() bool {
	if m.set == nil || len(m.pods) != int(m.desired) || m.set.replicas != m.desired || m.set.mode != Hold || m.set.current != m.template {
		return false
	}
	return !slices.ContainsFunc(m.pods, func(p simPod) bool { return p.template != m.template || !m.able(p) || m.cordoned[p.node] }) &&
		m.last.Phase == Complete && m.last.Waiting == "" && !m.last.Surging && m.set.aim() == m.template
}

// ends runs a bad template to its end: nothing is done any more, and it says why.
func (m *model) ends(bound int) {
	for quiet := 0; quiet < 2*patience+30; quiet += 10 {
		before := m.actions
		m.run(10, false)
		if before != m.actions {
			quiet = 0
		}
		if bound -= 10; bound < 0 {
			m.failf("no end: %+v\nplan %+v", *m.set, m.last)
		}
	}
	outdated := slices.ContainsFunc(m.pods, func(p simPod) bool { return p.template != m.set.aim() })
	if outdated && (m.last.Phase != Stuck || m.last.Waiting == "" || m.set.mode != Hold) {
		m.failf("a bad template ended with %+v", m.last)
	}
	wentBack := m.set.aim() != m.set.update
	if wentBack && (m.set.mode != Hold || m.kinds[m.set.current] == good && (m.last.Phase != Complete || !m.allServe())) {
		m.failf("it did not go back to the end: %+v", m.last)
	}
	if m.kinds[m.template] == poison && m.canary > 0 && !wentBack && m.set.current != m.template {
		m.failf("nobody has found out: %+v", m.last)
	}
	if m.takesBelow > 0 && m.kinds[m.template] != poison && (m.lag == 0 || m.confirms) && (m.surge == Always || m.surge == Auto && m.desired == 1) {
		m.failf("a pod was taken for a bad template, with surge %s", m.surge)
	}
}

func (m *model) allServe() bool {
	return len(m.pods) == int(m.desired) && !slices.ContainsFunc(m.pods, func(p simPod) bool { return !m.able(p) })
}

func (m *model) play() {
	switch m.rng.IntN(6) {
	case 0:
		m.room = int(m.desired)
	case 1:
		m.quota = int(m.desired)
	}
	m.logf("room %d, quota %d", m.room, m.quota)
	m.record()
	m.operate()
	m.run(30+m.rng.IntN(200), true)
	m.heal()
	m.paused = ""
	m.logf("from here on nothing happens but the rollout")
	last := good
	if m.rng.IntN(3) == 0 {
		last = kind(1 + m.rng.IntN(int(kinds)-1))
	}
	if m.canary > 0 && m.rng.IntN(4) == 0 {
		last = poison
	}
	if m.rng.IntN(3) == 0 {
		m.newTemplateLater(last)
		m.run(50, false)
		m.release()
	} else {
		m.newTemplate(last)
	}
	before := m.writes
	if last == good {
		m.rests(1500)
	} else {
		m.ends(1500)
	}
	most := 12
	if m.oneByOne {
		most += int(m.desired)
	}
	if writes := m.writes - before; writes > most {
		m.failf("%d writes of the StatefulSet in one rollout", writes)
	}
}

// TestModel lets the engine run fleets through random events. A seed that fails is repeated with -seed.
func TestModel(t *testing.T) {
	observers := map[string]observer{
		"Fresh":     {},
		"Confirmed": {lag: 4, confirms: true},
		"Stale":     {lag: 4},
	}
	for name, o := range observers {
		t.Run(name, func(t *testing.T) {
			first, last := uint64(1), *seedsFlag
			if *seedFlag > 0 {
				first, last = *seedFlag, *seedFlag
			}
			moved := 0
			for seed := first; seed <= last; seed++ {
				m := newModel(t, seed, o)
				func() {
					defer func() {
						if t.Failed() {
							t.Logf("seed %d: go test -run TestModel/%s -seed %d", seed, name, seed)
						}
					}()
					m.play()
				}()
				moved += m.moved
				if *seedFlag > 0 {
					t.Log(strings.Join(m.log, "\n"))
				}
			}
			if moved == 0 && *seedFlag == 0 {
				t.Error("no pod was ever taken off its node")
			}
			t.Logf("%d pods were taken off their nodes", moved)
		})
	}
}
