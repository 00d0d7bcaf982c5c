package succession

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "the one seed that the model test runs, with its log")
	seedsFlag = flag.Uint64("seeds", 500, "how many seeds the model test runs")
)

// faults are what else happens in a run beside changes of the template and an operator that dies at any point.
type faults int

const (
	none faults = iota
	// stalls are of servers that stand still for a while, and go on then with what they were at.
	stalls
	// crashes are of servers' processes, which come back with the file that the pod has, when they have read it.
	crashes
	// losses are of pods, and everything in them.
	losses
)

// simServer is a pod and the server in it.
type simServer struct {
	uid, template int
	starts        int  // steps until it has read its file
	stalled       int  // steps until it goes on
	reads         bool // it has crashed: when it starts, it has a file to read
	stopping      bool
	primary       string
	follows       int // the UID of the pod whose address it copies from; 0: none
	inSync        bool
	admits        bool // others may copy it, until it starts anew
	heir          int  // the UID of the pod that it hands over to; 0: none
	handed        int  // how far: 1 it refuses writes and follows, 2 the heir has taken over
	late          int  // the heir of a fail-over that has not reached the server yet; 0: none
	line, took    int  // of writes
	data          map[int]bool
}

// view is what a cache has of the cluster.
type view struct {
	both, exists, settled bool
	only, template        int
	serves                int
	pods                  [2]*simServer
}

// model is the operator in a simulated cluster.
type model struct {
	t               *testing.T
	rng             *rand.Rand
	view            // as it is now
	uids, step      int
	lines           int
	wanted          int
	history         []view
	seenAt, movedAt int
	connected       int // the UID of the pod that the writer is connected to; 0: none
	writes          int
	acknowledged    map[int]bool
	lost            bool // a pod with stashes was lost
	log             []string
}

func (m *model) logf(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf("%4d ", m.step)+fmt.Sprintf(format, args...))
}

func (m *model) fail(format string, args ...any) {
	m.t.Helper()
	m.logf(format, args...)
	m.t.Fatal(strings.Join(m.log, "\n"))
}

func host(uid int) string { return fmt.Sprintf("10.0.0.%d", uid) }
func name(uid int) string { return fmt.Sprintf("uid-%d", uid) }

func (m *model) server(uid int) *simServer {
	for _, server := range m.pods {
		if server != nil && uid != 0 && server.uid == uid {
			return server
		}
	}
	return nil
}

func (s *simServer) answers() bool { return s != nil && s.starts == 0 && s.stalled == 0 }

// newLine is a line of writes that nobody has gone on with yet.
func (m *model) newLine() int {
	m.lines++
	return m.lines
}

// statefulSet is the StatefulSet controller: it makes what is missing and stops what is too much.
func (m *model) statefulSet() {
	if !m.exists {
		return
	}
	m.settled = true
	place := m.rng.IntN(2)
	pod, wanted := m.pods[place], m.both || place == m.only
	switch {
	case pod == nil && wanted:
		m.uids++
		m.pods[place] = &simServer{uid: m.uids, template: m.template, starts: 1 + m.rng.IntN(5), line: m.newLine(), data: map[int]bool{}}
		m.logf("pod %d is made in place %d with template %d", m.uids, place, m.template)
	case pod != nil && pod.stopping:
		m.pods[place] = nil
		m.logf("pod %d is gone", pod.uid)
	case pod != nil && !wanted:
		pod.stopping = true
		m.logf("pod %d is told to stop", pod.uid)
	}
}

// time passes for servers: they start, and copy.
func (m *model) servers() {
	server := m.pods[m.rng.IntN(2)]
	if server == nil {
		return
	}
	switch {
	case server.stalled > 0:
		return
	case server.starts > 0:
		server.starts--
		return
	case server.heir != 0:
		m.handOver(server)
		return
	case server.follows == 0:
		return
	}
	primary := m.server(server.follows)
	switch {
	case primary != nil && primary.stalled > 0:
		return
	case !primary.answers() || !primary.admits || primary.follows != 0:
		server.inSync = false
		return
	}
	if !server.inSync && m.rng.IntN(2) > 0 {
		return
	}
	server.inSync = true
	server.copyOf(primary)
}

func (s *simServer) copyOf(primary *simServer) {
	s.primary, s.line, s.data = primary.primary, primary.line, map[int]bool{}
	for key := range primary.data {
		s.data[key] = true
	}
}

// handOver is the next step of a fail-over. When its heir has every write, the server follows it, and takes no writes. Only then does the heir take over, and only
// then does the server say that it is done. Before the first step it can be given up, after it there is no end but one that the heir makes.
func (m *model) handOver(server *simServer) {
	heir := m.server(server.heir)
	switch server.handed {
	case 0:
		if !heir.answers() || heir.follows != server.uid || !heir.inSync || server.follows != 0 {
			server.heir = 0
			return
		}
		heir.copyOf(server)
		server.handed, server.follows, server.inSync = 1, heir.uid, false
	case 1:
		if !heir.answers() || !heir.admits {
			return
		}
		if heir.follows != server.uid {
			m.giveUp(server)
			return
		}
		heir.follows, heir.inSync, heir.took, heir.line = 0, false, heir.line, m.newLine()
		server.handed = 2
		m.logf("pod %d has taken over from %d", heir.uid, server.uid)
	case 2:
		server.heir, server.handed = 0, 0
	}
}

// giveUp ends a fail-over before anybody has taken over.
func (m *model) giveUp(server *simServer) {
	if server.handed > 0 {
		server.follows, server.took, server.line = 0, server.line, m.newLine()
	}
	server.heir, server.handed = 0, 0
}

// write is one write of a client: of one that connects anew for each, or of one that does only when its connection was closed.
func (m *model) write() {
	server := m.server(m.connected)
	if m.rng.IntN(2) == 0 {
		server = m.pods[m.serves]
	} else if server == nil || server.starts > 0 {
		server, m.connected = m.pods[m.serves], 0
		if server.answers() && !server.stopping {
			m.connected = server.uid
		}
	}
	if server.answers() && (!server.stopping || server.uid == m.connected) && server.follows == 0 && server.heir == 0 {
		m.writes++
		server.data[m.writes], m.acknowledged[m.writes] = true, true
	}
}

// between is what happens between two questions of the operator.
func (m *model) between() {
	for m.rng.IntN(3) > 0 {
		m.write()
		server := m.pods[m.rng.IntN(2)]
		switch {
		case !server.answers():
		case server.heir != 0:
			m.handOver(server)
		case server.late != 0 && m.rng.IntN(4) == 0:
			heir := m.server(server.late)
			server.late = 0
			if m.begins(server, heir) {
				m.logf("a late fail-over of pod %d to %d", server.uid, heir.uid)
			}
		}
	}
}

func (m *model) record() {
	now := m.view
	for place, pod := range m.pods {
		if pod != nil {
			copied := *pod
			now.pods[place] = &copied
		}
	}
	m.history = append(m.history, now)
}

// see is what the operator sees: an old cluster, and what the servers say now, one after the other.
func (m *model) see() Seen {
	m.seenAt = max(m.seenAt, len(m.history)-1-m.rng.IntN(4))
	was := m.history[m.seenAt]
	seen := Seen{Exists: was.exists, Settled: was.settled, Both: was.both, Only: was.only, Serves: was.serves, Moved: time.Duration(m.step-m.movedAt) * time.Second}
	for place, pod := range was.pods {
		if pod == nil {
			continue
		}
		seen.Servers[place] = Server{Pod: fmt.Sprint("shop-redis-", place), UID: name(pod.uid), Host: host(pod.uid), Outdated: pod.template != was.template, Ready: pod.starts == 0, Stopping: pod.stopping}
		seen.Servers[place].Says = m.says(pod.uid)
		live := m.server(pod.uid)
		seen.Servers[place].Reads = live != nil && live.reads && live.starts > 0 && live.stalled == 0
		m.between()
	}
	if seen.Contradicts() {
		seen.Servers[0].Says = m.says(was.pods[0].uid)
	}
	return seen
}

// says is what the server of a pod says of itself. Nil: nothing.
func (m *model) says(uid int) *Says {
	live := m.server(uid)
	if !live.answers() {
		return nil
	}
	says := &Says{Primary: live.primary, InSync: live.inSync, Filed: live.inSync, FailingOver: live.heir != 0, Line: fmt.Sprint(live.line)}
	if live.follows != 0 {
		says.Follows = host(live.follows)
	} else if live.took != 0 {
		says.Took = fmt.Sprint(live.took)
	}
	return says
}

// operate is a pass of the operator, which may die after each thing that it does.
func (m *model) operate() {
	dies := func() bool { return m.rng.IntN(10) == 0 }
	var step Step
	for range 4 {
		seen := m.see()
		if AtRest(seen) && seen.Exists {
			m.rouse(seen)
		}
		step = Next(seen)
		if step.Tell == Nothing {
			break
		}
		m.logf("the operator: %+v", step)
		if dies() {
			return
		}
		if !m.tell(step, seen) || dies() {
			return
		}
		if step.Waits != "" {
			break
		}
	}
	if step.Tell != Nothing && step.Waits == "" {
		return
	}
	if step.Serves != m.serves {
		m.logf("the Service leads to place %d: %s", step.Serves, step.Waits)
		m.serves, m.movedAt = step.Serves, m.step
	}
	if dies() {
		return
	}
	if !m.exists || step.Both != m.both || step.Only != m.only || m.template != m.wanted {
		m.logf("the StatefulSet has both %t, only %d, template %d: %s", step.Both, step.Only, m.wanted, step.Waits)
		m.exists, m.settled, m.both, m.only, m.template = true, false, step.Both, step.Only, m.wanted
	}
	if step.Delete != "" && !dies() {
		place := int(step.Delete[len(step.Delete)-1] - '0')
		if pod := m.pods[place]; pod != nil && m.history[m.seenAt].pods[place] != nil && pod.uid == m.history[m.seenAt].pods[place].uid {
			m.logf("the operator deletes pod %d", pod.uid)
			pod.stopping = true
		}
	}
}

// rouse has the one server take writes again that a late command has made a copy of a pod that is gone.
func (m *model) rouse(seen Seen) {
	says := seen.Servers[seen.Only].Says
	if says == nil || says.Rouse() == Nothing {
		return
	}
	m.logf("the one server is to take writes: %s", says.Rouse())
	m.tell(Step{Tell: says.Rouse(), On: seen.Only}, seen)
}

// tell does what a server is told, as the real ones do it. It returns whether that went well.
func (m *model) tell(step Step, seen Seen) bool {
	var uid int
	_, _ = fmt.Sscanf(seen.Servers[step.On].UID, "uid-%d", &uid)
	server := m.server(uid)
	if !server.answers() {
		return false
	}
	var other *simServer
	_, _ = fmt.Sscanf(seen.Servers[1-step.On].UID, "uid-%d", &uid)
	other = m.server(uid)
	switch step.Tell {
	case Crown:
		if server.follows != 0 || server.heir != 0 {
			return false // it takes no writes
		}
		server.primary = name(server.uid)
	case Follow:
		if !other.answers() || server.heir != 0 {
			return false
		}
		other.admits, server.admits = true, true
		if server.follows != other.uid {
			server.follows, server.inSync = other.uid, false
		}
	case FailOver:
		return m.failOver(server, other)
	case Promote:
		if server.heir != 0 {
			return false
		}
		if server.follows != 0 {
			server.took, server.line = server.line, m.newLine()
		}
		server.follows, server.inSync = 0, false
	case Abort:
		m.giveUp(server)
	case Nothing:
	}
	return true
}

// begins is whether the server can begin a hand-over, and does.
func (m *model) begins(server, heir *simServer) bool {
	if server.heir != 0 || server.follows != 0 || !heir.answers() || heir.follows != server.uid || !heir.inSync {
		return false
	}
	server.heir = heir.uid
	return true
}

// failOver begins a hand-over, and sees it end, or not. Who has seen it sends the clients away.
func (m *model) failOver(server, heir *simServer) bool {
	if m.rng.IntN(8) == 0 {
		server.late = heir.uid
		return false
	}
	if !m.begins(server, heir) {
		return false
	}
	for range m.rng.IntN(6) {
		m.handOver(server)
	}
	if server.heir != 0 || server.follows == 0 || m.rng.IntN(4) == 0 {
		return false
	}
	if m.connected == server.uid {
		m.connected = 0
	}
	return true
}

// fault is one thing that nobody asked for.
func (m *model) fault(kind faults) {
	pod := m.pods[m.rng.IntN(2)]
	// Nor while the Service has just been led elsewhere, and a cache may not have heard of it.
	justMoved := m.step-m.movedAt < 5
	if pod == nil || kind == crashes && (justMoved || pod == m.pods[m.serves] && m.moves()) {
		return
	}
	if kind == stalls {
		m.logf("the server of pod %d stands still", pod.uid)
		pod.stalled = 2 + m.rng.IntN(29)
		return
	}
	if kind == losses {
		m.logf("pod %d is lost", pod.uid)
		m.lost = true
		pod.stopping = true
		return
	}
	m.logf("the server of pod %d crashes", pod.uid)
	pod.starts, pod.follows, pod.inSync, pod.admits, pod.heir, pod.handed, pod.late = 1+m.rng.IntN(3), 0, false, false, 0, 0, 0
	pod.line, pod.took, pod.reads = m.newLine(), 0, true
	if m.connected == pod.uid {
		m.connected = 0
	}
}

// moves is whether the Service leads to a server whose stashes do not say that they are its own, for two seconds in each hand-over. One
// that crashes then comes back as what it was before, or as one that takes writes: what its clients store in that moment can be lost.
func (m *model) moves() bool {
	serves := m.pods[m.serves]
	return m.both && (!serves.answers() || serves.primary != name(serves.uid) || serves.follows != 0)
}

func (m *model) run(kind faults) {
	m.record()
	for m.step = range 1600 {
		for _, server := range m.pods {
			if server != nil {
				server.stalled = max(0, server.stalled-1)
			}
		}
		busy := m.step < 900
		switch n := m.rng.IntN(100); {
		case n < 30:
			m.statefulSet()
		case n < 60:
			m.servers()
		case n < 75:
			m.write()
		case n < 97:
			m.operate()
		case n < 99 && busy && m.rng.IntN(3) == 0:
			m.wanted++
			m.logf("template %d is wanted", m.wanted)
		case busy && kind != none && m.rng.IntN(3) == 0:
			m.fault(kind)
		}
		m.record()
	}
	m.settles()
}

// settles is what must hold in the end: one server, the wanted one, that has everything that was acknowledged.
func (m *model) settles() {
	server, beside := m.pods[m.only], m.pods[1-m.only]
	if m.both || beside != nil || m.serves != m.only || !server.answers() || server.template != m.wanted || server.follows != 0 {
		m.fail("in the end: both %t, only %d, serves %d, %+v, %+v", m.both, m.only, m.serves, server, beside)
	}
	if m.lost {
		return
	}
	var missing []int
	for key := range m.acknowledged {
		if !server.data[key] {
			missing = append(missing, key)
		}
	}
	if slices.Sort(missing); len(missing) > 0 {
		m.fail("lost are %v of %d", missing, len(m.acknowledged))
	}
}

// However often the template changes and the operator dies, nothing that was acknowledged is lost; nor when servers stand still, or crash.
func TestModel(t *testing.T) {
	for kind, what := range map[faults]string{none: "changes", stalls: "stalls", crashes: "crashes", losses: "lost pods"} {
		t.Run(what, func(t *testing.T) {
			first, last := uint64(1), *seedsFlag
			if *seedFlag > 0 {
				first, last = *seedFlag, *seedFlag
			}
			for seed := first; seed <= last; seed++ {
				m := &model{t: t, rng: rand.New(rand.NewPCG(seed, uint64(kind))), acknowledged: map[int]bool{}}
				m.logf("seed %d", seed)
				m.run(kind)
			}
		})
	}
}
