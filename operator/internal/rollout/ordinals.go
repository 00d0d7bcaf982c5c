package rollout

import "slices"

// A StatefulSet has the ordinals from Start on, without a gap. Start is 0, unless Stays has let the lowest pod go: then it is 1 until
// the next rollout.

// top is the highest ordinal that the StatefulSet has.
func (s Seen) top() int32 { return s.Start + s.Replicas - 1 }

// has says whether the StatefulSet has an ordinal.
func (s Seen) has(ordinal int32) bool { return ordinal >= s.Start && ordinal <= s.top() }

// stays says whether an ordinal is one of those that are left when the ones above are taken away.
func (s Seen) stays(ordinal int32) bool { return s.has(ordinal) && ordinal < s.Start+s.Desired }

// swaps says whether there is an additional pod that stays, so that one at the other end may go for it.
func (s Seen) swaps() bool { return s.Surge == Stays && s.Start == 0 && s.Replicas == s.Desired+1 }

// maySwap says whether an additional pod that stays is of use: the one at the other end is to go. Not for a trial: who tries a template
// is who comes back from a pod that was replaced, and nobody comes back to an additional one.
func (f *fleet) maySwap() bool {
	if f.Replicas > f.Desired {
		return true
	}
	other := f.at(f.Start)
	if f.Start > 0 {
		other = f.at(f.top())
	}
	return f.Trial == "" && (other.Name == "" || f.goes(other))
}

// wants says whether the pod of an ordinal is to stay, or to be replaced.
func (f *fleet) wants(ordinal int32) bool {
	if f.swaps() && f.want < f.Replicas {
		return ordinal != f.spare
	}
	return ordinal < f.Start+f.want
}

// spareOrdinal is the ordinal that goes first when there are too many: the highest, unless the lowest can go instead and only that one has
// to, or is not there.
func (f *fleet) spareOrdinal() int32 {
	lowest, highest := f.at(f.Start), f.at(f.top())
	lowestGoes := lowest.Name == "" && highest.Name != "" || lowest.Name != "" && f.goes(lowest)
	if f.swaps() && lowestGoes && (highest.Name == "" || !f.goes(highest)) {
		return f.Start
	}
	return f.top()
}

// withoutSpare is what the StatefulSet has when the spare ordinal is gone.
func (f *fleet) withoutSpare() (replicas, start int32) {
	if f.swaps() && f.spare == f.Start {
		return f.Replicas - 1, f.Start + 1
	}
	return f.Replicas - 1, f.Start
}

// startWithMore is where the ordinals begin when there are to be more: an additional pod that stays takes the place below, if one is free.
func (f *fleet) startWithMore() int32 {
	if f.surge && f.Surge == Stays {
		return 0
	}
	return f.Start
}

// additional is the pod that is there because of the rollout; an empty one if there is none.
func (f *fleet) additional() Pod {
	if f.swaps() && f.spare != f.Start {
		return f.at(f.Start)
	}
	return f.at(f.Start + f.Desired)
}

// at is the pod of an ordinal that the StatefulSet has; an empty one if there is none.
func (f *fleet) at(ordinal int32) Pod {
	for _, pod := range f.here {
		if pod.Ordinal == ordinal {
			return pod
		}
	}
	return Pod{}
}

// next is the pod that goes next of those that have to and are able: the highest. One that can go for the additional pod is the last.
func (f *fleet) next() (Pod, bool) {
	able := slices.DeleteFunc(slices.Clone(f.here), func(p Pod) bool { return !f.wants(p.Ordinal) || !f.goes(p) || !p.able() })
	if f.Surge == Stays && f.Start > 0 {
		slices.Reverse(able) // the highest is to go for the additional one, which will be below
	}
	switch {
	case len(able) == 0:
		return Pod{}, false
	case f.swaps() && len(able) > 1 && able[0].Ordinal == f.spare:
		return able[1], true
	}
	return able[0], true
}
