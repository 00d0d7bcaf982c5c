package rollout

import "slices"

// forgoes goes on without the additional pod that stays while there is no room for it, and says whether it does: as many other pods serve as
// in a rollout without one. The pod that finds no room is not looked at then, whichever it is: the room that the next one leaves is for
// it. Two of them say that the new pods ask for more room than the old ones, and hold the rollout up. A pod that leaves its node waits: the
// one that takes its place would find no room either.
func (f *fleet) forgoes() bool {
	if !f.swaps() || f.Desired < 2 || f.Paused != "" {
		return false
	}
	if slices.ContainsFunc(f.here, Pod.moves) && !slices.ContainsFunc(f.here, Pod.outdated) {
		return false
	}
	missing := int(f.Replicas) - len(f.here)
	roomless := func(p Pod) bool { return p.NoRoom && p.Updated && !p.Terminating && !p.Able }
	switch first := slices.IndexFunc(f.here, roomless); {
	case first < 0 && missing == 1 && f.Refused:
		f.absent = -1
		return true
	case first >= 0 && !(missing > 0 && f.Refused) && !slices.ContainsFunc(f.here[first+1:], roomless):
		f.here = slices.Delete(f.here, first, first+1)
		return true
	}
	return false
}
