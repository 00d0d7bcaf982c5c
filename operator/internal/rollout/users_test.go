package rollout

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// service is what the client Service selects.
type service struct {
	// apart: the pods of template alone.
	apart    bool
	template int
}

// lead is the operator's: users are never led to nobody, as far as it knows.
func (m *model) lead(seen Seen, plan Plan, set *statefulSet, pods snapshot) {
	if set == nil {
		return
	}
	then, template := &cluster{step: pods.step, kinds: m.kinds}, m.service.template
	if seen.Settled {
		template = set.aim()
	}
	serves := slices.ContainsFunc(pods.pods, func(p simPod) bool { return then.ready(p) && p.template == template })
	m.service = service{apart: plan.Apart && serves, template: template}
}

// shut is for how many steps whoever connects may find nobody though a pod serves: until the operator has seen it.
const shut = 12

// open holds the Service against what is true.
func (m *model) open() {
	ready := slices.ContainsFunc(m.pods, m.ready)
	led := slices.ContainsFunc(m.pods, func(p simPod) bool { return m.ready(p) && (!m.service.apart || p.template == m.service.template) })
	m.closed++
	if led || !ready {
		m.closed = 0
	}
	if m.closed > shut {
		m.failf("the Service leads to nobody, and pods are ready")
	}
}

// simUser holds a connection to a pod, and connects again when that is cut.
type simUser struct{ pod, moved int }

// reconnect moves the users of pods that stop to pods that serve. Who finds none tries again.
func (m *model) reconnect() {
	if len(m.users) == 0 {
		return
	}
	var serving []int
	for _, p := range m.pods {
		if m.ready(p) && (!m.service.apart || p.template == m.service.template) {
			serving = append(serving, p.uid)
		}
	}
	for i := range m.users {
		user := &m.users[i]
		stays := slices.ContainsFunc(m.pods, func(p simPod) bool { return p.uid == user.pod && !p.terminating })
		if !stays && len(serving) > 0 {
			user.pod = serving[m.rng.IntN(len(serving))]
			user.moved++
		}
	}
}

// connect gives the fleet as many users, evenly.
func (m *model) connect(users int) {
	m.users = make([]simUser, users)
	for i := range m.users {
		m.users[i].pod = m.pods[i%len(m.pods)].uid
	}
}

// begin makes the fleet and lets it come to rest.
func (m *model) begin() {
	m.record()
	m.operate()
	m.rests(500)
}

// moves is how often a user was moved, at most and on average.
func (m *model) moves() (most int, mean float64) {
	sum := 0
	for _, user := range m.users {
		most, sum = max(most, user.moved), sum+user.moved
	}
	return most, float64(sum) / float64(len(m.users))
}

// TestUsersAreMovedOnce rolls fleets out again and again, with passes of the operator that come late, are left out, or are those of
// another operator, and with canaries and pauses. Nothing else happens to the pods.
func TestUsersAreMovedOnce(t *testing.T) {
	for _, c := range []struct {
		surge Surge
		most  int
	}{{Stays, 1}, {Auto, 2}, {Always, 2}, {Never, 2}} {
		t.Run(string(c.surge), func(t *testing.T) {
			for seed := range uint64(60) {
				m := newModel(t, seed, observer{lag: int(seed % 3), confirms: true})
				m.surge, m.kinds = c.surge, []kind{good}
				if c.surge != Stays && m.desired == 1 {
					m.desired = 2 // an additional pod that goes takes its only user along
				}
				m.begin()
				for range 3 {
					m.connect(60)
					m.newTemplate(good)
					allowed := c.most
					for range 3 {
						if m.canary > 0 {
							allowed = 2 // those of a pod that is replaced for a trial
						}
						m.run(m.rng.IntN(30), false)
						m.interfere()
					}
					m.paused = ""
					m.rests(1500)
					if most, _ := m.moves(); most > allowed {
						m.failf("a user was moved %d times", most)
					}
				}
			}
		})
	}
}

// TestEventsWhileUsersAreLed has something else happen at the moment when users begin to be led to new pods alone. The fleet gets to rest, and
// all the time whoever connects finds a pod: see open.
func TestEventsWhileUsersAreLed(t *testing.T) {
	fresh := func(m *model) *simPod {
		return &m.pods[slices.IndexFunc(m.pods, func(p simPod) bool { return m.ready(p) && p.template == m.service.template })]
	}
	events := map[string]func(*model){
		"it is evicted": func(m *model) { m.remove(fresh(m).uid, "evicted") },
		"it crashes":    func(m *model) { fresh(m).away = 8 },
		"its node dies": func(m *model) { p := fresh(m); p.dead = true; m.remove(p.uid, "tainted away") },
		"the operator is down": func(m *model) {
			for range 30 {
				m.tick()
				m.reconnect()
				m.open()
				m.control()
				m.record()
			}
			m.setAt, m.podsAt, m.answersAt, m.written = len(m.history)-1, len(m.history)-1, len(m.history)-1, 0
		},
		"fewer pods": func(m *model) { m.desired-- },
		"more pods":  func(m *model) { m.desired += 2 },
		"a bad image": func(m *model) {
			m.newTemplate(noImage)
			m.run(60, false)
			m.newTemplate(good)
		},
		"the template before": func(m *model) { m.change(0) },
		"a pause": func(m *model) {
			m.paused = "paused"
			m.run(30, false)
			fresh := slices.IndexFunc(m.pods, func(p simPod) bool { return p.template == m.template })
			m.remove(m.pods[fresh].uid, "deleted")
			m.run(30, false)
			m.paused = ""
		},
	}
	for name, event := range events {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(60) {
				m := newModel(t, seed, observer{lag: int(seed % 4), confirms: true})
				m.desired, m.surge, m.canary, m.kinds = []int32{2, 3, 5}[seed%3], []Surge{Stays, Auto}[seed%2], 0, []kind{good}
				m.begin()
				m.newTemplate(good)
				for steps := 0; !m.service.apart || !slices.ContainsFunc(m.pods, func(p simPod) bool { return m.ready(p) && p.template == m.service.template }); steps++ {
					if steps > 500 {
						m.failf("users are not led to new pods")
					}
					m.run(1, false)
				}
				event(m)
				m.run(100, false)
				m.heal()
				m.rests(2000)
			}
		})
	}
}

// TestStaysWithoutRoom rolls fleets out that have no room for an additional pod. They do without.
func TestStaysWithoutRoom(t *testing.T) {
	for name, full := range map[string]func(*model){
		"Nodes": func(m *model) { m.room = int(m.desired) },
		"Quota": func(m *model) { m.quota = int(m.desired) },
	} {
		t.Run(name, func(t *testing.T) {
			forgone := 0
			for seed := range uint64(100) {
				m := newModel(t, seed, observer{lag: int(seed % 3), confirms: true})
				m.surge, m.kinds, m.desired = Stays, []kind{good}, max(2, m.desired)
				full(m)
				m.begin()
				for range 3 {
					m.connect(60)
					m.newTemplate(good)
					for range 4 {
						m.run(m.rng.IntN(30), false)
						m.interfere()
						if m.last.Forgoes {
							forgone++
						}
					}
					if m.rng.IntN(4) == 0 {
						m.change(m.template - 1) // and back
					}
					m.paused = ""
					m.rests(1500)
				}
			}
			if forgone == 0 {
				t.Error("no rollout went on without the additional pod")
			}
		})
	}
}

// interfere changes what is allowed at any time and touches nobody.
func (m *model) interfere() {
	switch m.rng.IntN(4) {
	case 0:
		m.paused = []string{"", "paused"}[m.rng.IntN(2)]
	case 1:
		m.setAt, m.podsAt, m.answersAt, m.written = len(m.history)-1, len(m.history)-1, len(m.history)-1, 0
		m.logf("the operator restarts")
	case 2:
		m.canary = int32(m.rng.IntN(2))
	}
}

// TestHowOftenUsersAreMoved holds the figures that the documentation names, in rollouts that nothing disturbs.
func TestHowOftenUsersAreMoved(t *testing.T) {
	cases := []struct {
		desired int32
		surge   Surge
		mean    float64
	}{
		{3, Stays, 1}, {5, Stays, 1}, {1, Stays, 1},
		{3, Never, 4.0 / 3}, {5, Never, 6.0 / 5},
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%s of %d", c.surge, c.desired), func(t *testing.T) {
			m := newModel(t, 1, observer{})
			m.desired, m.surge, m.canary, m.kinds = c.desired, c.surge, 0, []kind{good}
			m.rng = rand.New(rand.NewPCG(1, 1))
			m.begin()
			m.connect(600)
			m.newTemplate(good)
			m.rests(1500)
			if _, mean := m.moves(); mean < c.mean-0.01 || mean > c.mean+0.01 {
				t.Errorf("a user was moved %.3f times on average, want %.3f", mean, c.mean)
			}
		})
	}
}

func TestApart(t *testing.T) {
	stays := func(s *Seen) { s.Surge = Stays }
	cases := map[string]struct {
		seen Seen
		want bool
	}{
		"AtRest":            {settled(2, 2, Hold, fleetOf(updated, updated)), false},
		"NobodyUpdated":     {settled(2, 2, Replace, fleetOf(old, old)), false},
		"FirstStarts":       {settled(2, 2, Replace, fleetOf(old, starting)), false},
		"FirstIsAble":       {settled(2, 2, Replace, fleetOf(old, updated)), true},
		"NextStarts":        {settled(3, 3, Replace, fleetOf(old, starting, updated)), true},
		"LastStops":         {settled(2, 2, Replace, fleetOf(stopping, updated)), true},
		"LastIsGone":        {settled(2, 2, Replace, fleetOf(old, updated)[1:]), false},
		"Crowded":           {with(settled(2, 2, Replace, fleetOf(old, updated)), func(s *Seen) { s.Crowded = "too many" }), false},
		"OnTrial":           {with(settled(3, 3, Hold, fleetOf(old, old, updated)), onTrial(1)), false},
		"Paused":            {with(settled(2, 2, Hold, fleetOf(old, updated)), paused), false},
		"Stuck":             {settled(3, 3, Hold, fleetOf(old, newBroken, updated)), false},
		"UpdatedLost":       {settled(2, 2, Hold, fleetOf(old, lost)), false},
		"Back":              {with(settled(3, 3, Hold, fleetOf(updated, updated, old)), back), true},
		"OneTooMany":        {settled(2, 3, Replace, fleetOf(old, old, updated)), false},
		"AdditionalIsAble":  {with(settled(2, 3, Replace, fleetOf(old, old, updated)), stays), true},
		"SpareStops":        {with(settled(1, 1, Replace, fleetOf(stopping, updated)), stays, func(s *Seen) { s.Start = 1 }), true},
		"Unsettled":         {Seen{Exists: true, Desired: 2, Replicas: 2, Pods: fleetOf(old, updated)}, false},
		"UnsettledAsBefore": {Seen{Exists: true, Desired: 2, Replicas: 2, Apart: true, Pods: fleetOf(old, updated)}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Next(c.seen).Apart; got != c.want {
				t.Errorf("users go to updated pods alone: %v, want %v", got, c.want)
			}
		})
	}
}

// TestOrdinals is about Stays: who comes, who goes, and where the ordinals begin.
func TestOrdinals(t *testing.T) {
	from := func(start int32) func(*Seen) {
		return func(s *Seen) {
			s.Surge, s.Start = Stays, start
			for i := range s.Pods {
				s.Pods[i].Ordinal += start
				s.Pods[i].Name = fmt.Sprint("shop-", s.Pods[i].Ordinal)
			}
		}
	}
	cases := map[string]struct {
		seen            Seen
		replicas, start int32
		takes           string
		deletes         bool
	}{
		"Above":           {with(settled(2, 2, Hold, fleetOf(old, old)), from(0)), 3, 0, "", false},
		"Below":           {with(settled(2, 2, Hold, fleetOf(old, old)), from(1)), 3, 0, "", false},
		"FromTheTop":      {with(settled(2, 3, Replace, fleetOf(old, old, updated)), from(0)), 3, 0, "shop-1", true},
		"LowestGoes":      {with(settled(2, 3, Replace, fleetOf(old, updated, updated)), from(0)), 2, 1, "shop-0", false},
		"NotYet":          {with(settled(2, 3, Replace, fleetOf(old, starting, updated)), from(0)), 3, 0, "", false},
		"HighestGoesLast": {with(settled(2, 3, Replace, fleetOf(updated, old, old)), from(0)), 3, 0, "shop-1", true},
		"HighestGoes":     {with(settled(2, 3, Replace, fleetOf(updated, updated, old)), from(0)), 2, 0, "shop-2", false},
		"OneGoes":         {with(settled(1, 2, Replace, fleetOf(old, updated)), from(0)), 1, 1, "shop-0", false},
		"OneGoesBack":     {with(settled(1, 2, Replace, fleetOf(updated, old)), from(0)), 1, 0, "shop-1", false},
		"OnTrial":         {with(settled(1, 2, Hold, fleetOf(old, updated)), from(0), onTrial(1)), 2, 0, "", false},
		"Tried":           {with(settled(3, 3, Replace, fleetOf(old, old, old)), from(0), onTrial(1)), 3, 0, "shop-2", true},
		"TriedFromBelow":  {with(settled(3, 3, Replace, fleetOf(old, old, old)), from(1), onTrial(1)), 3, 1, "shop-1", true},
		"OtherEndIsNew":   {with(settled(3, 3, Replace, fleetOf(updated, old, old)), from(0)), 3, 0, "shop-2", true},
		"Proved":          {with(settled(3, 3, Replace, fleetOf(old, old, updated)), from(0)), 4, 0, "", false},
		"Paused":          {with(settled(1, 2, Hold, fleetOf(old, updated)), from(0), paused), 2, 0, "", false},
		"AllNew":          {with(settled(2, 3, Replace, fleetOf(updated, updated, updated)), from(0)), 2, 0, "shop-2", false},
		"RestsAtOne":      {with(settled(2, 2, Hold, fleetOf(updated, updated)), from(1)), 2, 1, "", false},
		"FewerFromOne":    {with(settled(1, 2, Hold, fleetOf(updated, updated)), from(1)), 1, 1, "shop-2", false},
		"MoreFromOne":     {with(settled(3, 2, Hold, fleetOf(updated, updated)), from(1)), 3, 1, "", false},
		"Zero":            {with(settled(0, 2, Hold, fleetOf(updated, updated)), from(1)), 0, 0, "", false},
		"AutoFromOne": {
			with(settled(1, 1, Hold, fleetOf(old)), from(1), func(s *Seen) { s.Surge = Auto }), 2, 1, "", false,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := Next(c.seen)
			if got.Replicas != c.replicas || got.Start != c.start || got.Takes != c.takes || (len(got.Delete) > 0) != c.deletes {
				t.Errorf("got %+v", got)
			}
		})
	}
}
