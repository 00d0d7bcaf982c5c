package rollout

import (
	"slices"
	"testing"
)

// TestTwoEventsThatLose plays what the engine cannot save, so that nobody claims that it does, and holds that it ends well all the
// same once a good template is there.
func TestTwoEventsThatLose(t *testing.T) {
	cases := map[string]struct {
		desired int32
		surge   Surge
		bad     kind
		// event happens when the first pod of the new template has been made.
		event func(*model)
	}{
		// Until the first pod of a bad template is known to be bad, one that is deleted by other hands comes back with it too.
		"ABadTemplateAndADeletion": {2, Auto, noImage, func(m *model) { m.remove(podAt(m, 0).uid, "deleted") }},
		// Asked for, and said in a warning.
		"ABadTemplateWithoutSurge": {1, Never, noImage, func(*model) {}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, 1, observer{})
			m.desired, m.surge, m.canary, m.kinds = c.desired, c.surge, 0, []kind{good}
			m.record()
			m.operate()
			m.rests(500)
			m.newTemplate(c.bad)
			for m.takes == 0 || podAt(m, c.desired-1).template != m.template {
				m.run(1, false)
			}
			c.event(m)
			m.run(5*patience, false)
			for _, p := range m.pods {
				if m.able(p) {
					m.failf("pod %d is able: the engine has become better than its documentation", p.ordinal)
				}
			}
			m.newTemplate(good)
			m.rests(500)
		})
	}
}

// TestTheEventsOfTheIssue plays pairs that lost everything while the StatefulSet controller decided, with every check of the
// model on: one pod at least is able all the time.
func TestTheEventsOfTheIssue(t *testing.T) {
	evict := func(m *model) { m.evict(*podAt(m, 0)) }
	cases := map[string]struct {
		desired int32
		events  []func(*model)
	}{
		"EvictAndChange":           {2, []func(*model){evict, changed}},
		"ChangeAndEvict":           {2, []func(*model){changed, evict}},
		"DeleteAndChange":          {3, []func(*model){func(m *model) { m.remove(podAt(m, 1).uid, "deleted") }, changed}},
		"ScaleAndChange":           {4, []func(*model){func(m *model) { m.desired = 2 }, changed}},
		"RestartAndScale":          {2, []func(*model){changed, func(m *model) { m.desired = 5 }}},
		"ChangeAndBackForOne":      {1, []func(*model){changed, func(m *model) { m.change(0) }}},
		"ChangeAndOperatorRestart": {1, []func(*model){changed, func(m *model) { m.written = 0 }}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(50) {
				m := newModel(t, seed, observer{lag: 4, confirms: true})
				m.desired, m.surge, m.kinds = c.desired, Auto, []kind{good}
				m.record()
				m.operate()
				m.rests(500)
				events := c.events
				for step := 0; step < 500; step++ {
					if len(events) > 0 {
						events[0](m)
						events = events[1:]
					}
					m.run(1, false)
					if !slices.ContainsFunc(m.pods, m.able) {
						m.failf("no pod is able")
					}
				}
				m.rests(100)
			}
		})
	}
}

func changed(m *model) { m.newTemplate(good) }

// podAt is the pod of an ordinal, or one that is none.
func podAt(m *model, ordinal int32) *simPod {
	for i := range m.pods {
		if m.pods[i].ordinal == ordinal {
			return &m.pods[i]
		}
	}
	return &simPod{template: -1}
}
