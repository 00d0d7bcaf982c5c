package redisadmin

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/livestash-dev/livestash/operator/internal/succession"
)

// places are real servers, and a cluster around them that does at once what it is asked for.
type places struct {
	succession.Seen
	t       *testing.T
	rng     *rand.Rand
	servers [2]*realServer
	writer  *writer
	made    int
}

func (p *places) make(place int) {
	p.made++
	p.servers[place] = startServer(p.t, testAccess())
	p.Servers[place] = succession.Server{Pod: fmt.Sprint("shop-redis-", place), UID: fmt.Sprint("uid-", p.made), Host: "127.0.0.1", Ready: true}
}

// pass is one of an operator that may die after anything it does.
func (p *places) pass() {
	admin := patient()
	var step succession.Step
	for range 4 {
		for place, server := range p.servers {
			p.Servers[place].Says = nil
			if server != nil {
				says := server.look(p.t)
				p.Servers[place].Says = &says
			}
		}
		step = succession.Next(p.Seen)
		if step.Tell == succession.Nothing {
			break
		}
		here, beside := p.servers[step.On], p.servers[1-step.On]
		var err error
		switch step.Tell {
		case succession.Crown:
			err = admin.SetPrimary(p.t.Context(), here.Login, p.Servers[step.On].UID)
		case succession.Follow:
			err = admin.Follow(p.t.Context(), here.Login, beside.Login, "s3cret")
		case succession.FailOver:
			err = admin.FailOver(p.t.Context(), here.Login)
		case succession.Promote, succession.Abort, succession.Nothing:
			p.t.Fatalf("nothing has crashed, and the step is %+v", step)
		}
		if err != nil {
			p.t.Log(err) // on a busy machine nothing may come of it, and it is tried again
			return
		}
		if p.rng.IntN(3) == 0 {
			return
		}
		if step.Waits != "" {
			break
		}
	}
	if step.Tell != succession.Nothing && step.Waits == "" {
		return
	}
	p.Serves = step.Serves
	p.writer.address.Store(p.servers[p.Serves])
	if p.rng.IntN(3) == 0 {
		return
	}
	p.Both, p.Only = step.Both, step.Only
	for place := range p.servers {
		wanted := p.Both || place == p.Only
		switch server := p.servers[place]; {
		case wanted && server == nil:
			p.make(place)
		case !wanted && server != nil:
			server.stop()
			p.servers[place], p.Servers[place] = nil, succession.Server{}
		}
	}
}

// Servers take each other's places again and again, under load, with an operator that dies at any point.
func TestOperatorsThatDie(t *testing.T) {
	p := &places{t: t, rng: rand.New(rand.NewPCG(1, 2)), Seen: succession.Seen{Exists: true, Settled: true, Moved: time.Minute}}
	p.make(0)
	p.writer = write(t, p.servers[0])
	const changes = 6
	for range changes {
		p.Servers[p.Only].Outdated = true
		for passes := 0; !succession.AtRest(p.Seen); passes++ {
			if passes == 1000 {
				t.Fatalf("no end of it: %+v", p.Seen)
			}
			p.pass()
			time.Sleep(10 * time.Millisecond)
		}
	}
	acknowledged := p.writer.end()
	if lost := p.servers[p.Only].lost(t, acknowledged); lost > 0 || p.made != changes+1 {
		t.Errorf("%d of %d acknowledged writes are lost with %d servers", lost, len(acknowledged), p.made)
	}
	t.Logf("%d writes through %d servers", len(acknowledged), p.made)
}
