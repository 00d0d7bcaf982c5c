// Package succession decides how a Redis without a volume gets a new server without losing its stashes. There are two places for a
// server, 0 and 1, the pods of one StatefulSet. At rest one of them has a server. When that is no longer the wanted one, the other place
// gets a new one, which copies the stashes and takes over; then the old one goes.
//
// Nothing is remembered between two steps: each follows from what is seen, so that the operator may end at any moment. What tells
// the server with the stashes from one that has just come up empty is a name in the stashes themselves: that of the pod that has the
// last word. It is copied with them, so that who has it has all of them.
package succession

import (
	"fmt"
	"time"
)

// moving is how long the Service must have led to the new server before it takes over: connections that were made before stay where
// they are until then, and those that are made after that must not find the old one.
const moving = 2 * time.Second

// Server is what is seen in one of the two places.
type Server struct {
	// Pod is the pod's name, UID what tells it from another one of that name. UID is empty when there is no pod.
	Pod, UID string
	// Host is the pod's address.
	Host string
	// Outdated is whether it is not, or no longer, the wanted server.
	Outdated bool
	// Ready is whether the pod is.
	Ready bool
	// Stopping is whether the pod was told to stop.
	Stopping bool
	// Broken says why the server has not run for so long that nobody waits for it. Empty: it has not turned out so.
	Broken string
	// Reads is whether the server has started anew and still reads its file, so that it says nothing yet.
	Reads bool
	// Says is what the server says of itself. Nil: nothing.
	Says *Says
}

// Says is what a server says of itself.
type Says struct {
	// Primary is the UID of the pod whose the stashes are that the server has: what Crown wrote, here or on the server that they were
	// copied from. Empty: it has none, or not yet all.
	Primary string
	// Follows is the host that it copies from. Empty for one that takes writes.
	Follows string
	// InSync is whether it has got everything that the other one had when it joined, and gets every write since.
	InSync bool
	// Filed is whether it has all of that in its file, too: one that crashes begins with what is there. FileFails is whether it could not write it.
	Filed, FileFails bool
	// FailingOver is whether it is about to let its replica take over.
	FailingOver bool
	// Line is what the server calls its line of writes (master_replid): a replica has its primary's. A replica that takes writes again, in its primary's place or
	// because it is told to, begins another one, and so does a server that starts. Took is the line that it has gone on with (master_replid2). Empty: none since it started.
	Line, Took string
	// Stashes is how many it has.
	Stashes int64
	// Used and Max are the bytes that it uses for them, and may use. Max 0: no limit.
	Used, Max int64
}

// Seen is what is seen of a fleet's Redis.
type Seen struct {
	// Servers are those in the two places.
	Servers [2]Server
	// Exists is whether there is a StatefulSet, Settled whether it has been acted upon as it is.
	Exists, Settled bool
	// Both is whether it asks for a server in both places; otherwise only Only has one.
	Both bool
	Only int
	// Serves is the place that the Service leads to.
	Serves int
	// Moved is for how long it has been seen to lead there.
	Moved time.Duration
}

// Contradicts is whether what the servers say cannot be at once: they are asked one after the other, first that in place 0. A hand-over whose end no operator has
// seen can end in between. Then both say that they follow the other one, and neither that it is about to hand over; or both take writes, the second one in the place
// of the first. By that, what one of them has stored since would be thrown away, so the first one must be asked again.
func (s Seen) Contradicts() bool {
	a, b := s.Servers[0], s.Servers[1]
	if a.follows() && b.follows() {
		return !a.Says.FailingOver && !b.Says.FailingOver
	}
	return a.takesWrites() && b.takesWrites() && b.Says.Took != "" && b.Says.Took == a.Says.Line
}

// Action is what to tell a server.
type Action string

// The actions.
const (
	// Nothing is to be told.
	Nothing Action = ""
	// Crown: the stashes that it has are its own from now on.
	Crown Action = "Crown"
	// Follow: it is to copy the other one.
	Follow Action = "Follow"
	// FailOver: the other one, which follows it, is to take its place.
	FailOver Action = "FailOver"
	// Abort: nobody is there any more to take its place.
	Abort Action = "Abort"
	// Promote: it is to take writes, because whom it follows is gone.
	Promote Action = "Promote"
)

// Rouse is what to tell the one server that is to take writes. A command of a hand-over can reach it long after that, and then it follows a pod that is gone, or
// waits for it, and stores nothing.
func (s Says) Rouse() Action {
	switch {
	case s.Follows == "":
		return Nothing
	case s.FailingOver:
		return Abort
	}
	return Promote
}

// Step is what to do next.
type Step struct {
	// Tell is what to tell the server in place On. When that is done, look again.
	Tell Action
	On   int
	// Serves, Both and Only are as in Seen, as they are to be.
	Serves int
	Both   bool
	Only   int
	// Delete is the name of the pod that is to be made anew. Empty: none.
	Delete string
	// Waits says what is being waited for. Empty: for nothing.
	Waits string
	// Hinders is whether it may be waited for in vain until somebody does something about it.
	Hinders bool
}

// AtRest is whether nothing is to be done, whatever the servers say: they need not be asked.
func AtRest(seen Seen) bool {
	return !seen.Exists || !seen.Both && seen.Serves == seen.Only && !seen.Servers[seen.Only].Outdated
}

// Next is the next step.
func Next(seen Seen) Step {
	if AtRest(seen) {
		return seen.rest(seen.Only)
	}
	if !seen.Settled {
		return seen.wait("the StatefulSet has just been changed")
	}
	holder, step := seen.holder()
	if holder < 0 {
		return step
	}
	return seen.from(holder)
}

// rest has one server, in that place, and the Service lead to it.
func (s Seen) rest(place int) Step { return Step{Serves: place, Only: place} }

// as is nothing but what is.
func (s Seen) as() Step { return Step{Serves: s.Serves, Both: s.Both, Only: s.Only} }

func (s Seen) wait(format string, args ...any) Step {
	step := s.as()
	step.Waits = fmt.Sprintf(format, args...)
	return step
}

func (s Seen) hindered(format string, args ...any) Step {
	step := s.wait(format, args...)
	step.Hinders = true
	return step
}

func (s Seen) tell(action Action, on int) Step {
	step := s.as()
	step.Tell, step.On = action, on
	return step
}

// remake deletes the pod in that place, which comes back as it is wanted. Whoever holds the stashes serves.
func (s Seen) remake(place int) Step {
	step := s.as()
	step.Delete = s.Servers[place].Pod
	return step
}

func other(place int) int { return 1 - place }

// takesWrites is whether the server has stashes and takes more.
func (s Server) takesWrites() bool {
	return s.Says != nil && s.Says.Follows == "" && s.Says.Primary != ""
}

// follows is whether the server copies from another one.
func (s Server) follows() bool { return s.Says != nil && s.Says.Follows != "" }

// hasCopy is whether the server has stashes, its own or somebody's.
func (s Server) hasCopy() bool { return s.Says != nil && s.Says.Primary != "" }

// lastNamed is whether the server's stashes say that they are its own.
func (s Server) lastNamed() bool { return s.hasCopy() && s.Says.Primary == s.UID }

// crowned is whether the server has the last word by its own stashes.
func (s Server) crowned() bool { return s.takesWrites() && s.lastNamed() }

// holder is the place of the server that has all stashes. -1: that is not certain, and the step is what to do about it.
func (s Seen) holder() (int, Step) {
	a, b := s.Servers[0], s.Servers[1]
	switch {
	case a.UID == "" && b.UID == "":
		return -1, s.wait("there is no pod of Redis")
	case a.UID == "" && b.Says != nil:
		return 1, Step{}
	case b.UID == "" && a.Says != nil:
		return 0, Step{}
	case a.Says == nil && b.Says == nil:
		return -1, s.silent()
	case a.Says == nil:
		return s.besideSilent(1)
	case b.Says == nil:
		return s.besideSilent(0)
	}
	return s.ofBoth()
}

// silent is what to do when no server says anything.
func (s Seen) silent() Step {
	server := s.Servers[s.Serves]
	if !s.Both && server.Outdated && server.Broken != "" && !server.Stopping {
		return s.remake(s.Serves) // it has not run for long: there is nothing to hand over from
	}
	return s.hindered("no server of Redis answers the operator")
}

// tookOver is whether the server in that place has taken the other one's, so that nobody has more than it, though its name is not in the stashes yet. The other
// one is at its end: it follows, it is silent, or it has come back from its file. One that goes on with that line, as after a hand-over that it has given up, has not
// been replaced.
func (s Seen) tookOver(place int) bool {
	here, there := s.Servers[place], s.Servers[other(place)]
	return here.takesWrites() && here.Says.Took != "" && there.UID != "" && here.Says.Primary == there.UID &&
		(!there.takesWrites() || there.Says.Line != here.Says.Took && there.Says.Took != here.Says.Took)
}

// besideSilent is the holder when one server answers, and the other one, which exists, may have stashes too.
func (s Seen) besideSilent(answers int) (int, Step) {
	here, silent := s.Servers[answers], s.Servers[other(answers)]
	switch {
	case s.tookOver(answers):
		return answers, Step{}
	case here.crowned() && (s.Serves == answers || silent.Reads): // one that has started anew takes nobody's place, and must not be served from
		return answers, Step{}
	case silent.Broken != "" && silent.Outdated && !silent.Stopping && !here.hasCopy():
		return -1, s.remake(other(answers))
	case silent.Broken != "":
		return answers, Step{}
	}
	return -1, s.hindered("pod %s does not answer the operator, and may have stashes", silent.Pod)
}

// ofBoth is the holder of two servers that both answer.
func (s Seen) ofBoth() (int, Step) {
	if place, is := s.first(s.tookOver, s.of(Server.crowned)); is {
		return place, Step{}
	}
	for place, server := range s.Servers {
		heir := s.Servers[other(place)]
		switch {
		case server.Says.FailingOver && server.follows() && heir.takesWrites():
			return other(place), Step{} // it has had every write, and has started anew since
		case server.Says.FailingOver && heir.hasCopy():
			return -1, s.hindered("pod %s hands its stashes over", server.Pod)
		}
	}
	place, _ := s.first(s.of(Server.takesWrites), s.of(Server.lastNamed), s.of(Server.hasCopy))
	return place, Step{} // if neither has any, where the Service leads
}

// first is the place for which the first of the rules holds that holds for any, and of two places that to which the Service leads, as it is when none holds.
func (s Seen) first(rules ...func(place int) bool) (place int, holds bool) {
	for _, rule := range rules {
		for _, place := range []int{s.Serves, other(s.Serves)} {
			if rule(place) {
				return place, true
			}
		}
	}
	return s.Serves, false
}

// of is a rule about the server in a place.
func (s Seen) of(is func(Server) bool) func(place int) bool {
	return func(place int) bool { return is(s.Servers[place]) }
}

// from is the next step when it is certain which server has all stashes.
func (s Seen) from(holder int) Step {
	has, beside := s.Servers[holder], s.Servers[other(holder)]
	switch {
	case has.Says.FailingOver && (beside.UID == "" || beside.Broken != "" || beside.Says != nil && !beside.hasCopy()):
		return s.tell(Abort, holder)
	case has.Says.FailingOver:
		return s.hindered("pod %s hands its stashes over", has.Pod)
	case has.Says.Follows != "":
		return s.tell(Promote, holder)
	case !has.crowned():
		return s.tell(Crown, holder)
	case !has.Outdated:
		return s.rest(holder)
	case !s.Both && has.Stopping:
		return s.wait("pod %s stops", has.Pod)
	case !s.Both:
		step := s.as()
		step.Both, step.Waits = true, "a new server is made"
		return step
	}
	return s.handOver(holder)
}

// handOver is the next step of the one server's taking the other one's place.
func (s Seen) handOver(from int) Step {
	heir := other(from)
	has, next := s.Servers[from], s.Servers[heir]
	if why := s.unfit(heir, has); why != "" {
		step := s.hindered("%s", why)
		step.Serves = from
		if next.UID != "" && next.Outdated && !next.Stopping && s.Serves == from {
			step.Delete = next.Pod
		}
		return step
	}
	switch {
	case next.Says.Follows != has.Host, !next.Says.InSync, !next.Says.Filed && s.Serves == from: // once the Service has moved, its file was whole, and only grows
		step := s.tell(Follow, heir)
		step.Serves, step.Waits = from, fmt.Sprintf("pod %s copies the stashes of %s", next.Pod, has.Pod)
		return step
	case s.Serves == from:
		step := s.wait("the Service is being led to pod %s", next.Pod)
		step.Serves = heir
		return step
	case s.Moved < moving:
		return s.wait("the Service is being led to pod %s", next.Pod)
	}
	return s.tell(FailOver, from)
}

// unfit says why the heir cannot take over yet. Empty: it can.
func (s Seen) unfit(heir int, has Server) string {
	next := s.Servers[heir]
	switch {
	case next.UID == "":
		return "a new server is to be made"
	case next.Stopping:
		return fmt.Sprintf("pod %s stops", next.Pod)
	case next.Outdated:
		return fmt.Sprintf("pod %s is no longer what is wanted", next.Pod)
	case next.Broken != "":
		return next.Broken
	case !next.Ready, next.Says == nil:
		return fmt.Sprintf("pod %s is not ready", next.Pod)
	case next.Says.FileFails:
		return fmt.Sprintf("pod %s cannot write its file, and would lose what it has in a crash: its log says why. It tries again within an hour, and a new one at once: delete the pod", next.Pod)
	case next.Says.Max > 0 && (has.Says.Max == 0 || next.Says.Max < has.Says.Max) && has.Says.Used > next.Says.Max:
		return fmt.Sprintf("the stashes take %d bytes, and a server with the new spec.redis.managed.memory may use %d: the old one serves on until memory is raised", has.Says.Used, next.Says.Max)
	}
	return ""
}
