package rollout

import "slices"

// forgoes goes on without the additional pod that stays while there is no room for it, and says whether it does: as many other pods serve as
// in a rollout without one. The pod that finds no room is not looked at then, whichever it is: the room that the next one leaves is for
// it. Two of them say that the new pods ask for more room than the old ones, and hold the rollout up.
func (f *fleet) forgoes() bool {
	if !f.swaps() || f.Desired < 2 || f.Paused != "" || f.leaves() {
		return false
	}
	missing := int(f.Replicas) - len(f.here)
	refused := missing > 0 && f.Refused
	first := slices.IndexFunc(f.here, Pod.roomless)
	switch {
	case first < 0 && refused && missing == 1:
		f.absent = -1
		return true
	case first < 0 || refused || slices.ContainsFunc(f.here[first+1:], Pod.roomless):
		return false
	}
	f.here = slices.Delete(f.here, first, first+1)
	return true
}

// leaves says whether pods go for their nodes alone. These wait: the one that takes such a pod's place would find no room either.
func (f *fleet) leaves() bool {
	return slices.ContainsFunc(f.here, Pod.moves) && !slices.ContainsFunc(f.here, Pod.outdated)
}

// roomless: it has the wanted template, and no node takes it.
func (p Pod) roomless() bool { return p.NoRoom && p.Updated && !p.Terminating && !p.Able }
