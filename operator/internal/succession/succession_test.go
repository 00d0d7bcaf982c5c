package succession

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The servers of the table: old is in place 0, heir in place 1.
func old(says Says) Server {
	return Server{Pod: "shop-redis-0", UID: "old", Host: "10.0.0.1", Outdated: true, Ready: true, Says: &says}
}

func heir(says Says) Server {
	return Server{Pod: "shop-redis-1", UID: "heir", Host: "10.0.0.2", Ready: true, Says: &says}
}

func changed(server Server, change func(*Server)) Server {
	change(&server)
	return server
}

func TestNext(t *testing.T) {
	own := Says{Primary: "old", Stashes: 3}
	copying, inSync := Says{Follows: "10.0.0.1"}, Says{Primary: "old", Follows: "10.0.0.1", InSync: true, Filed: true}
	silent := func(s *Server) { s.Says, s.Ready = nil, false }
	broken := func(s *Server) { s.Says, s.Ready, s.Broken = nil, false, "the image cannot be had" }
	both := func(serves int, zero, one Server) Seen {
		return Seen{Exists: true, Settled: true, Both: true, Serves: serves, Servers: [2]Server{zero, one}}
	}
	one := func(zero Server) Seen { return Seen{Exists: true, Settled: true, Servers: [2]Server{zero}} }
	waits := func(step Step) Step { step.Waits = "…"; return step }
	hinders := func(step Step) Step { step.Waits, step.Hinders = "…", true; return step }
	there := Step{Serves: 1, Only: 1}

	cases := map[string]struct {
		seen Seen
		want Step
	}{
		"nothing is there":               {Seen{}, Step{}},
		"the wanted server":              {one(changed(old(own), func(s *Server) { s.Outdated = false })), Step{}},
		"the StatefulSet has changed":    {Seen{Exists: true, Servers: [2]Server{old(own)}}, waits(Step{})},
		"an outdated server":             {one(old(Says{Stashes: 3})), Step{Tell: Crown}},
		"an outdated server with a name": {one(old(own)), waits(Step{Both: true})},
		"an outdated server is silent":   {one(changed(old(own), silent)), hinders(Step{})},
		"an outdated server never ran":   {one(changed(old(own), broken)), Step{Delete: "shop-redis-0"}},
		"no new server yet":              {both(0, old(own), Server{}), hinders(Step{Both: true})},
		"a new server starts":            {both(0, old(own), changed(heir(Says{}), silent)), hinders(Step{Both: true})},
		"a new server cannot start":      {both(0, old(own), changed(heir(Says{}), broken)), hinders(Step{Both: true})},
		"a new server is empty":          {both(0, old(own), heir(Says{})), waits(Step{Both: true, Tell: Follow, On: 1})},
		"a new server copies":            {both(0, old(own), heir(copying)), waits(Step{Both: true, Tell: Follow, On: 1})},
		"a new server has all":           {both(0, old(own), heir(inSync)), waits(Step{Both: true, Serves: 1})},
		"the Service has just been led":  {both(1, old(own), heir(inSync)), waits(Step{Both: true, Serves: 1})},
		"the Service is led": {func() Seen { s := both(1, old(own), heir(inSync)); s.Moved = time.Minute; return s }(),
			Step{Both: true, Serves: 1, Tell: FailOver}},
		"the copy is torn":                               {both(1, old(own), heir(Says{Primary: "old", Follows: "10.0.0.1"})), waits(Step{Both: true, Tell: Follow, On: 1})},
		"it is handing over":                             {both(1, old(Says{Primary: "old", Follows: "10.0.0.2", FailingOver: true}), heir(inSync)), hinders(Step{Both: true, Serves: 1})},
		"it hands to nobody":                             {both(1, old(Says{Primary: "old", FailingOver: true}), Server{}), Step{Both: true, Serves: 1, Tell: Abort}},
		"it has handed over":                             {both(1, old(Says{Primary: "old", Follows: "10.0.0.2", InSync: true}), heir(Says{Primary: "old"})), Step{Both: true, Serves: 1, Tell: Crown, On: 1}},
		"the old one is silent after it handed over":     {both(1, changed(old(own), silent), heir(Says{Primary: "old", Line: "b", Took: "a"})), Step{Both: true, Serves: 1, Tell: Crown, On: 1}},
		"it is back from its file after it handed over":  {both(1, old(Says{Primary: "old", Line: "c"}), heir(Says{Primary: "old", Line: "b", Took: "a"})), Step{Both: true, Serves: 1, Tell: Crown, On: 1}},
		"it goes on with the line that the heir has had": {both(1, old(Says{Primary: "old", Line: "a"}), heir(Says{Primary: "old", Line: "b", Took: "a"})), waits(Step{Both: true, Tell: Follow, On: 1})},
		"the heir started anew as it was to take over":   {both(1, old(Says{Primary: "old", Follows: "10.0.0.2", FailingOver: true}), heir(Says{Primary: "old"})), Step{Both: true, Serves: 1, Tell: Crown, On: 1}},
		"the heir does not start any more": {both(1, old(Says{Primary: "old", Follows: "10.0.0.2", FailingOver: true}), changed(heir(Says{}), broken)),
			Step{Both: true, Serves: 1, Tell: Abort}},
		"a new server writes its file": {both(0, old(own), heir(Says{Primary: "old", Follows: "10.0.0.1", InSync: true})), waits(Step{Both: true, Tell: Follow, On: 1})},
		"it writes its file anew":      {both(1, old(own), heir(Says{Primary: "old", Follows: "10.0.0.1", InSync: true})), waits(Step{Both: true, Serves: 1})},
		"it has given a hand-over up": {both(1, old(Says{Primary: "old", Line: "c", Took: "a"}), heir(Says{Primary: "old", Line: "b", Took: "a"})),
			waits(Step{Both: true, Tell: Follow, On: 1})},
		"the heir cannot write its file":               {both(0, old(own), heir(Says{Primary: "old", Follows: "10.0.0.1", FileFails: true})), hinders(Step{Both: true})},
		"the heir has a name":                          {both(1, old(Says{Primary: "heir", Follows: "10.0.0.2", InSync: true}), heir(Says{Primary: "heir"})), there},
		"the old one crashed after it handed over":     {both(1, old(Says{Primary: "old"}), heir(Says{Primary: "heir"})), there},
		"the heir crashed before it took over":         {both(1, old(own), heir(Says{Primary: "old"})), waits(Step{Both: true, Tell: Follow, On: 1})},
		"the heir reads its file before it takes over": {both(1, old(own), changed(heir(Says{}), func(s *Server) { s.Says, s.Ready, s.Reads = nil, false, true })), hinders(Step{Both: true})},
		"the heir is silent before it takes over":      {both(1, old(own), changed(heir(Says{}), silent)), hinders(Step{Both: true, Serves: 1})},
		"the old one is gone":                          {both(0, Server{}, heir(Says{Primary: "old", Follows: "10.0.0.1"})), Step{Both: true, Tell: Promote, On: 1}},
		"the old one came back empty":                  {both(0, changed(old(Says{}), func(s *Server) { s.UID = "new" }), heir(Says{Primary: "old", Follows: "10.0.0.1"})), Step{Both: true, Tell: Promote, On: 1}},
		"both are empty":                               {both(0, changed(old(Says{}), func(s *Server) { s.UID = "new" }), heir(Says{})), Step{Both: true, Tell: Crown}},
		"the old one may be back":                      {both(0, changed(old(Says{}), silent), heir(Says{Primary: "old", Follows: "10.0.0.1"})), hinders(Step{Both: true})},
		"the old one does not come back":               {both(0, changed(old(Says{}), broken), heir(Says{Primary: "old", Follows: "10.0.0.1"})), Step{Both: true, Tell: Promote, On: 1}},
		"the old one is wanted again":                  {both(1, changed(old(own), func(s *Server) { s.Outdated = false }), changed(heir(inSync), func(s *Server) { s.Outdated = true })), Step{}},
		"another one is wanted": {both(0, old(own), changed(heir(inSync), func(s *Server) { s.Outdated = true })),
			hinders(Step{Both: true, Delete: "shop-redis-1"})},
		"another one is wanted, and the Service has moved": {both(1, old(own), changed(heir(inSync), func(s *Server) { s.Outdated = true })), hinders(Step{Both: true})},
		"too little memory": {both(0, old(Says{Primary: "old", Used: 90, Max: 100}), heir(Says{Max: 80})), hinders(Step{Both: true})},
		"full as before":    {both(0, old(Says{Primary: "old", Used: 110, Max: 100}), heir(Says{Max: 100})), waits(Step{Both: true, Tell: Follow, On: 1})},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := Next(c.seen)
			if got.Waits != "" {
				got.Waits = "…"
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("the step (-want +got):\n%s", diff)
			}
		})
	}
}
