// Package rollout decides in which order the pods of a fleet are replaced, added and taken away. Nobody else does: the StatefulSet
// controller never deletes a pod for a new template (see Mode), and spec.replicas of the StatefulSet is written from here.
//
// A canary holds a rollout up while the first pods of the wanted template have to prove it; when they do not, the aim is the template
// that was rolled out last: see Seen.Back.
//
// The package is pure. Next takes what is seen and returns what to do now; all state lives in the cluster, so an operator that dies
// at any point goes on where it was. What is seen may be old: whoever carries out a plan that takes a pod reads the StatefulSet and
// its pods live first, asks Next again, and does it only when the plan is still the same. A pod is deleted with the UID that it was
// seen with, so that the one that took its name is spared. After a write of the StatefulSet the next plan is made when that write is
// seen, so that an old view does not take back what a newer one has decided.
package rollout

// Mode is how the StatefulSet treats a pod that comes back. In neither does it replace one by itself.
type Mode int

const (
	// Hold is a rolling update whose partition no ordinal reaches: a pod that comes back is made from status.currentRevision, the last
	// template that the whole fleet was rolled out to. With all pods updated and ready, the wanted template becomes that.
	Hold Mode = iota
	// Replace is OnDelete: a pod that comes back is made from the wanted template.
	Replace
)

// String is the mode's name.
func (m Mode) String() string {
	if m == Replace {
		return "Replace"
	}
	return "Hold"
}

// Surge is when a fleet gets one pod more for the time of a rollout.
type Surge string

const (
	// Auto is when the pod that goes would leave nobody behind.
	Auto Surge = "Auto"
	// Always is for every rollout.
	Always Surge = "Always"
	// Never lets a fleet of one lose what it holds with every rollout.
	Never Surge = "Never"
	// Stays is for every rollout, and the additional pod stays: the last outdated one goes for it, so that nobody is moved on from the
	// additional pod. The ordinals begin at 0 and at 1 in turn. A fleet of more than one that has no room for it does without.
	Stays Surge = "Stays"
)

// Phase is what a rollout is doing.
type Phase string

const (
	// Complete says that no pod is outdated and the StatefulSet is as it should be. Whether all pods are well is not said.
	Complete Phase = "Complete"
	// Pending says that the StatefulSet controller has not acted yet on what was written last, so nobody knows which pods are outdated.
	Pending Phase = "Pending"
	// Scaling says that the number of pods is on its way to the desired one.
	Scaling Phase = "Scaling"
	// Surging says that the additional pod is asked for, or not able yet.
	Surging Phase = "Surging"
	// Rolling says that pods are being replaced.
	Rolling Phase = "Rolling"
	// Moving says that pods are leaving nodes that are to be emptied; none is outdated, or none may go for its template.
	Moving Phase = "Moving"
	// Trying says that the first pods of the wanted template have to prove it before others go.
	Trying Phase = "Trying"
	// Paused says that pods are outdated and may not go.
	Paused Phase = "Paused"
	// Withheld says that no pod may have the wanted template yet.
	Withheld Phase = "Withheld"
	// Stuck says that it does not go on by itself, or not before a pod recovers that nobody waits for any longer.
	Stuck Phase = "Stuck"
)

// Pod is one pod of the fleet's StatefulSet.
type Pod struct {
	Name    string
	Ordinal int32
	// Updated: made from the template that all pods are to have: the wanted one, or the one before it, when Seen.Back.
	Updated bool
	// Terminating: it has been deleted and is not gone yet.
	Terminating bool
	// Able to keep users: ready by the kubelet and by its agent's word, not draining, sees its peers, its store loaded.
	Able bool
	// Broken says why the pod does not get on by itself while nothing of the application runs in it (image, crash loop, no node,
	// configuration), so that nobody's state is in it. It may come and go in a crash loop, but is said of a pod that is deleted then to its end. Else "".
	Broken string
	// GivenUp: it has not been able for longer than anybody waits, or its node is gone. A terminating pod has the same time again
	// from its deletion on.
	GivenUp bool
	// Why it is not able, as a sentence.
	Why string
	// Moves: its node is to be emptied, and there is another that it could go to.
	Moves bool
	// NoRoom: no node takes it. It is Broken, too.
	NoRoom bool
}

// Seen is all that a decision depends on.
type Seen struct {
	// Desired is how many pods the user asks for.
	Desired int32
	// Replicas, Start and Mode are what the StatefulSet has; Replicas counts a surge pod, Start is its lowest ordinal.
	Replicas, Start int32
	Mode            Mode
	// Exists: there is a StatefulSet.
	Exists bool
	// Settled: its controller has acted on the StatefulSet as it is, and what is seen is not older than the operator's last write.
	Settled bool
	// Current: the wanted template is the one that the whole fleet was last rolled out to, so that Hold brings it back.
	Current bool
	Surge   Surge
	// OneByOne: a pod is added only while every other one is able, unless there is none: of two that boot at the same moment, each
	// might find the other alone.
	OneByOne bool
	// Refused: one of the pods that should be there is not made, as when a quota forbids it.
	Refused bool
	// Paused says why no pod may be replaced for its template now, "" when it may. Scaling goes on, and so does moving.
	Paused string
	// Withheld says why no pod may have the wanted template yet, "" when pods may. None has it then. Scaling goes on, but a fleet
	// without pods gets none: they would have it.
	Withheld string
	// Canary is how many pods of the wanted template have to prove it before others go, while Trial says why they have not yet. ""
	// when they have, or nobody asks for it.
	Canary int32
	Trial  string
	// Back: the wanted template has been rejected. All pods are to have the one that was rolled out last, which is what Hold gives.
	Back bool
	// Apart: the Service leads to updated pods alone, by what was last decided.
	Apart bool
	// Crowded says why updated pods are to be sent no more users than the others, "" when they may have all.
	Crowded string
	// Pods in any order, terminating ones and those of ordinals that are no longer wanted included.
	Pods []Pod
}

// Plan is what to do now. It writes the StatefulSet or deletes pods, never both.
type Plan struct {
	// Replicas, Start and Mode are what the StatefulSet should have.
	Replicas, Start int32
	Mode            Mode
	// Leave: the StatefulSet must not be written now, and not be made.
	Leave bool
	// Delete names the pods to delete: broken ones, or a single one.
	Delete []string
	// Takes is the running pod that leaves by this plan, deleted or scaled away; "" when no user is touched.
	Takes string
	Phase Phase
	// Waiting says what it waits for or why it is stuck; "" when it acts or nothing is left to do.
	Waiting string
	// Surging: the StatefulSet has, or should have, more pods than the user asks for.
	Surging bool
	// Apart: users who connect are to get to updated pods alone, because whoever gets to another is moved again.
	Apart bool
	// Forgoes: there is no room for the additional pod, and the rollout goes on without it.
	Forgoes bool
}

// Wait is the plan of somebody who cannot be sure yet that what was seen still holds: it changes nothing.
func (p Plan) Wait(seen Seen) Plan {
	p.Replicas, p.Start, p.Mode, p.Delete, p.Takes = seen.Replicas, seen.Start, seen.Mode, nil, ""
	p.Waiting = "the pods and their agents are asked once more"
	return p
}
