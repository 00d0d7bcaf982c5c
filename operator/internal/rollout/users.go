package rollout

import "slices"

// apart says whether users who connect are to get to updated pods alone: one of these is there for them, beside the one that is taken, and
// whoever gets to an outdated pod is moved again. Not while it is open whether the outdated pods go, and not when the updated ones have enough.
func (f *fleet) apart(taken string) bool {
	if f.Crowded != "" || f.Paused != "" || f.tries() || f.isStuck() {
		return false
	}
	return slices.ContainsFunc(f.here, func(p Pod) bool { return p.Updated && p.able() && p.Name != taken }) &&
		slices.ContainsFunc(slices.Concat(f.here, f.leaving), Pod.outdated)
}
