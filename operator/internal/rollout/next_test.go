package rollout

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// fleetOf are pods that are able and outdated, one for each change, which makes of it what the case needs.
func fleetOf(changes ...func(*Pod)) []Pod {
	pods := make([]Pod, len(changes))
	for i, change := range changes {
		pods[i] = Pod{Name: "shop-" + string(rune('0'+i)), Ordinal: int32(i), Able: true}
		change(&pods[i])
	}
	return pods
}

func old(*Pod)       {}
func updated(p *Pod) { p.Updated = true }
func starting(p *Pod) {
	p.Updated, p.Able, p.Why = true, false, p.Name+" is starting"
}
func oldStarting(p *Pod) { p.Able, p.Why = false, p.Name+" is starting" }
func stopping(p *Pod)    { p.Able, p.Terminating = false, true }
func oldBroken(p *Pod)   { p.Able, p.Broken = false, p.Name+": no image" }
func newBroken(p *Pod)   { p.Updated, p.Able, p.Broken = true, false, p.Name+": no image" }
func oldGivenUp(p *Pod)  { p.Able, p.GivenUp, p.Why = false, true, p.Name+" does not answer" }
func newGivenUp(p *Pod) {
	p.Updated, p.Able, p.GivenUp, p.Why = true, false, true, p.Name+" does not answer"
}
func lost(p *Pod) {
	p.Able, p.GivenUp, p.Terminating, p.Why = false, true, true, "the node of "+p.Name+" is gone"
}
func newLost(p *Pod)           { lost(p); p.Updated = true }
func newBrokenGivenUp(p *Pod)  { newBroken(p); p.GivenUp = true }
func oldBrokenStopping(p *Pod) { oldBroken(p); p.Terminating = true }
func ableStopping(p *Pod)      { p.Terminating = true }

func moves(p *Pod)         { p.Updated, p.Moves = true, true }
func oldMoves(p *Pod)      { p.Moves = true }
func movesGivenUp(p *Pod)  { newGivenUp(p); p.Moves = true }
func movesBroken(p *Pod)   { newBroken(p); p.Moves = true }
func movesStopping(p *Pod) { moves(p); p.Terminating = true }

func TestNext(t *testing.T) {
	cases := map[string]struct {
		seen Seen
		want Plan
	}{
		"NoStatefulSet":         {Seen{Desired: 3, Surge: Always}, Plan{Replicas: 3, Phase: Scaling}},
		"ToZeroAtOnceUnsettled": {Seen{Exists: true, Replicas: 3, Mode: Replace, Pods: fleetOf(updated, starting, old)}, Plan{Phase: Scaling}},
		"Zero":                  {Seen{Exists: true, Settled: true}, Plan{Phase: Complete}},
		"WithoutItsStatefulSet": {Seen{Desired: 3, Start: 1}, Plan{Replicas: 3, Start: 1, Phase: Scaling}},
		"FromZero":              {Seen{Exists: true, Settled: true, Desired: 3}, Plan{Replicas: 3, Mode: Replace, Phase: Scaling}},
		"NotSettled": {
			Seen{Exists: true, Desired: 2, Replicas: 3, Mode: Replace, Pods: fleetOf(old, old, oldBroken)},
			Plan{Replicas: 3, Mode: Replace, Phase: Pending, Surging: true,
				Waiting: "the StatefulSet controller has not acted yet on the last change"},
		},
		"GrowsUnsettled": {
			Seen{Exists: true, Desired: 5, Replicas: 3, Pods: fleetOf(old, old, old)},
			Plan{Replicas: 5, Phase: Pending, Waiting: "the StatefulSet controller has not acted yet on the last change"},
		},
		"GrowsOneByOne": {
			with(settled(6, 3, Replace, fleetOf(old, updated, updated)), oneByOne), Plan{Replicas: 4, Mode: Replace, Phase: Scaling},
		},
		"GrowsOneByOneBesideTheAdditionalOne": {
			with(settled(6, 4, Replace, fleetOf(old, old, old, updated)), oneByOne, func(s *Seen) { s.Surge = Stays }),
			Plan{Replicas: 5, Mode: Replace, Phase: Surging, Surging: true},
		},
		"GrowsOneByOneNotPastOneThatStarts": {
			with(settled(6, 3, Replace, fleetOf(old, old, starting)), oneByOne), waits(3, Replace, Rolling, "shop-2 is starting", false),
		},
		"GrowsOneByOneNotPastAnOldOneThatStarts": {
			with(settled(6, 3, Replace, fleetOf(old, oldStarting, updated)), oneByOne), waits(3, Replace, Rolling, "shop-1 is starting", false),
		},
		"GrowsOneByOneNotPastOneThatIsNotThere": {
			with(settled(6, 3, Replace, fleetOf(old, old)), oneByOne), waits(3, Replace, Rolling, "the pod of ordinal 2 does not exist yet", false),
		},
		"GrowsOneByOneAfterTheRollout": {
			with(settled(6, 3, Hold, fleetOf(updated, updated, starting)), oneByOne), waits(3, Hold, Scaling, "shop-2 is starting", false),
		},
		"GrowsOneByOneAndABrokenOneGoes": {
			with(settled(6, 3, Replace, fleetOf(old, oldBroken, updated)), oneByOne),
			Plan{Replicas: 3, Mode: Replace, Phase: Rolling, Delete: []string{"shop-1"}},
		},
		"GrowsOneByOneWithoutOneThatNobodyWaitsFor": {
			with(settled(6, 3, Hold, fleetOf(updated, updated, newGivenUp)), oneByOne), Plan{Replicas: 4, Phase: Scaling},
		},
		"GrowsOneByOneUnsettled": {
			Seen{Exists: true, Desired: 5, Replicas: 3, OneByOne: true, Pods: fleetOf(old, old, old)},
			Plan{Replicas: 3, Phase: Pending, Waiting: "the StatefulSet controller has not acted yet on the last change"},
		},
		"FromZeroAtOnce": {
			Seen{Exists: true, Settled: true, Desired: 3, OneByOne: true}, Plan{Replicas: 3, Mode: Replace, Phase: Scaling},
		},
		"MovesTheHighest":             {moving(3, 3, Auto, fleetOf(moves, moves, updated)), Plan{Replicas: 3, Delete: []string{"shop-1"}, Takes: "shop-1", Phase: Moving}},
		"MovesOneAtATime":             {moving(3, 3, Auto, fleetOf(moves, movesStopping, updated)), Plan{Replicas: 3, Phase: Moving, Waiting: "shop-1 is stopping"}},
		"MovesWhenTheOthersAreAble":   {moving(3, 3, Auto, fleetOf(moves, updated, starting)), Plan{Replicas: 3, Phase: Moving, Waiting: "shop-2 is starting"}},
		"MovesNotPastABrokenOne":      {moving(3, 3, Auto, fleetOf(moves, updated, newBroken)), Plan{Replicas: 3, Phase: Stuck, Waiting: "shop-2: no image"}},
		"MovesABrokenOneToo":          {moving(2, 2, Auto, fleetOf(updated, movesBroken)), Plan{Replicas: 2, Delete: []string{"shop-1"}, Phase: Moving}},
		"MovesNoneThatNobodyWaitsFor": {moving(2, 2, Auto, fleetOf(updated, movesGivenUp)), Plan{Replicas: 2, Phase: Stuck, Waiting: "shop-1 does not answer"}},
		"MovesAlone":                  {moving(1, 1, Auto, fleetOf(moves)), Plan{Replicas: 2, Phase: Surging, Surging: true}},
		"MovesAloneAndHasNoRoom":      {moving(1, 2, Auto, fleetOf(moves, newBroken)), Plan{Replicas: 2, Phase: Stuck, Waiting: "shop-1: no image", Surging: true}},
		"MovesAloneWithCompany": {
			moving(1, 2, Auto, fleetOf(moves, updated)), Plan{Replicas: 2, Delete: []string{"shop-0"}, Takes: "shop-0", Phase: Moving, Surging: true},
		},
		"MovesCompanyFirst": {
			moving(1, 2, Auto, fleetOf(moves, moves)), Plan{Replicas: 2, Delete: []string{"shop-1"}, Takes: "shop-1", Phase: Moving, Surging: true},
		},
		"MovesNobodyWithoutCompany": {moving(1, 1, Never, fleetOf(moves)), Plan{Replicas: 1, Phase: Stuck, Waiting: "no other pod could keep the users of shop-0"}},
		"MovesSurgeIsNoHelp":        {moving(2, 2, Always, fleetOf(moves, newGivenUp)), Plan{Replicas: 2, Phase: Stuck, Waiting: "shop-1 does not answer"}},
		"MovedAndBack":              {moving(1, 2, Auto, fleetOf(updated, updated)), Plan{Replicas: 1, Takes: "shop-1", Phase: Scaling, Surging: true}},
		"MovesAfterTheRollout":      {settled(2, 2, Replace, fleetOf(oldMoves, moves)), Plan{Replicas: 2, Mode: Replace, Delete: []string{"shop-0"}, Takes: "shop-0", Phase: Rolling}},
		"MovesNotBeforeItIsNoted":   {settled(2, 2, Hold, fleetOf(moves, updated)), Plan{Replicas: 2, Phase: Complete}},
		"MovesWhilePaused": {
			with(settled(2, 2, Hold, fleetOf(oldMoves, old)), func(s *Seen) { s.Paused = "paused" }),
			Plan{Replicas: 2, Delete: []string{"shop-0"}, Takes: "shop-0", Phase: Moving},
		},
		"FromZeroWithAnotherTemplate": {
			Seen{Exists: true, Desired: 2},
			Plan{Replicas: 2, Mode: Replace, Phase: Pending, Surging: false, Waiting: "the StatefulSet controller has not acted yet on the last change"},
		},
		"AtRest": {settled(2, 2, Hold, fleetOf(updated, updated)), Plan{Replicas: 2, Phase: Complete}},
		"AtRestOneCrashed": {
			settled(2, 2, Hold, fleetOf(updated, starting)), Plan{Replicas: 2, Phase: Complete},
		},
		"Begins":     {settled(3, 3, Hold, fleetOf(old, old, old)), Plan{Replicas: 3, Mode: Replace, Phase: Rolling}},
		"FirstGoes":  {settled(3, 3, Replace, fleetOf(old, old, old)), takes(3, "shop-2", false)},
		"SecondGoes": {settled(3, 3, Replace, fleetOf(old, old, updated)), takes(3, "shop-1", false)},
		"WaitsForUpdated": {
			settled(3, 3, Replace, fleetOf(old, old, starting)), waits(3, Replace, Rolling, "shop-2 is starting", false),
		},
		"EvictedAndChanged": {
			settled(2, 2, Replace, fleetOf(stopping, old)), waits(2, Replace, Rolling, "shop-0 is stopping", false),
		},
		"DeletedAndGone": {
			settled(2, 2, Replace, fleetOf(old, old)[1:]), waits(2, Replace, Rolling, "the pod of ordinal 0 does not exist yet", false),
		},
		"SecondOfTwoWhileStarting": {
			settled(2, 2, Replace, fleetOf(oldStarting, updated)), waits(2, Replace, Rolling, "shop-0 is starting", false),
		},
		"WaitsForOldThatStarts": {
			settled(3, 3, Replace, fleetOf(old, oldStarting, old)), waits(3, Replace, Rolling, "shop-1 is starting", false),
		},
		"GivenUpGoesFirst": {settled(3, 3, Replace, fleetOf(old, oldGivenUp, old)), takes(3, "shop-1", false)},
		"BrokenGoFirstAllAtOnce": {
			settled(4, 4, Replace, fleetOf(old, oldBroken, stopping, oldBroken)),
			Plan{Replicas: 4, Mode: Replace, Phase: Rolling, Delete: []string{"shop-3", "shop-1"}},
		},
		"LastIsStarting": {
			settled(2, 2, Replace, fleetOf(starting, updated)), waits(2, Replace, Rolling, "shop-0 is starting", false),
		},
		"Ends": {settled(2, 2, Replace, fleetOf(updated, updated)), Plan{Replicas: 2, Phase: Complete}},
		"StuckHolds": {
			settled(3, 3, Replace, fleetOf(old, old, newBroken)), Plan{Replicas: 3, Phase: Rolling},
		},
		"Stuck": {
			settled(3, 3, Hold, fleetOf(old, old, newBroken)), waits(3, Hold, Stuck, "shop-2: no image", false),
		},
		"StuckOnGivenUp": {
			settled(3, 3, Hold, fleetOf(old, old, newGivenUp)), waits(3, Hold, Stuck, "shop-2 does not answer", false),
		},
		"StuckCrashLoopTurns": {
			settled(3, 3, Hold, fleetOf(old, old, starting)), waits(3, Hold, Rolling, "shop-2 is starting", false),
		},
		"Mended": {
			settled(3, 3, Hold, fleetOf(old, old, oldBroken)), Plan{Replicas: 3, Mode: Replace, Phase: Rolling},
		},
		"TakenBack": {
			settled(3, 3, Replace, fleetOf(updated, updated, oldBroken)),
			Plan{Replicas: 3, Mode: Replace, Phase: Rolling, Delete: []string{"shop-2"}},
		},
		"AllUpdatedOneBrokenStaysWithTheNewTemplate": {
			settled(3, 3, Replace, fleetOf(updated, updated, newBroken)), waits(3, Replace, Stuck, "shop-2: no image", false),
		},
		"FirstTemplateOfAFleetIsBad": {settled(2, 2, Hold, fleetOf(newBroken, newBroken)), Plan{Replicas: 2, Phase: Complete}},
		"FirstTemplateWasNeverAble":  {settled(2, 2, Replace, fleetOf(oldGivenUp, oldGivenUp)), Plan{Replicas: 3, Mode: Replace, Phase: Surging, Surging: true}},
		"Paused": {
			with(settled(2, 2, Hold, fleetOf(old, oldBroken)), paused),
			waits(2, Hold, Paused, "paused by the user", false),
		},
		"WithheldNewFleet":  {Seen{Desired: 3, Withheld: "migrating"}, Plan{Leave: true, Phase: Withheld, Waiting: "migrating"}},
		"WithheldUnsettled": {Seen{Exists: true, Replicas: 2, Desired: 2, Withheld: "migrating"}, Plan{Replicas: 2, Leave: true, Phase: Withheld, Waiting: "migrating"}},
		"WithheldAtZero": {
			Seen{Exists: true, Settled: true, Desired: 3, Withheld: "migrating"},
			Plan{Mode: Replace, Phase: Withheld, Waiting: "migrating"},
		},
		"WithheldAndToZero": {
			Seen{Exists: true, Settled: true, Replicas: 2, Withheld: "migrating"},
			Plan{Mode: Replace, Phase: Scaling},
		},
		"WithheldInMidRollout": {
			with(settled(3, 3, Replace, fleetOf(old, oldBroken, old)), func(s *Seen) { s.Withheld = "migrating" }),
			waits(3, Hold, Withheld, "migrating", false),
		},
		"WithheldAndGrows": {
			with(settled(4, 2, Hold, fleetOf(old, old)), func(s *Seen) { s.Withheld = "migrating" }),
			waits(4, Hold, Withheld, "migrating", false),
		},
		"WithheldAndShrinks": {
			with(settled(2, 3, Hold, fleetOf(old, old, old)), func(s *Seen) { s.Withheld = "migrating" }),
			Plan{Replicas: 2, Takes: "shop-2", Phase: Withheld, Waiting: "migrating", Surging: true},
		},
		"PausedInMidRollout": {
			with(settled(2, 2, Replace, fleetOf(old, updated)), paused),
			Plan{Replicas: 2, Phase: Rolling},
		},
		"SurgeForOne": {
			settled(1, 1, Hold, fleetOf(old)), Plan{Replicas: 2, Mode: Replace, Phase: Surging, Surging: true},
		},
		"SurgeStarts": {
			settled(1, 2, Replace, fleetOf(old, starting)), waits(2, Replace, Surging, "shop-1 is starting", true),
		},
		"SurgeAbsent": {
			settled(1, 2, Replace, fleetOf(old)), waits(2, Replace, Surging, "the pod of ordinal 1 does not exist yet", true),
		},
		"SurgeAble":  {settled(1, 2, Replace, fleetOf(old, updated)), takes(2, "shop-0", true)},
		"SurgeStays": {settled(1, 2, Replace, fleetOf(starting, updated)), waits(2, Replace, Scaling, "shop-0 is starting", true)},
		"SurgeGoes": {
			settled(1, 2, Replace, fleetOf(updated, updated)), Plan{Replicas: 1, Takes: "shop-1", Phase: Scaling, Surging: true},
		},
		"SurgeStuck": {settled(1, 2, Hold, fleetOf(old, newBroken)), waits(2, Hold, Stuck, "shop-1: no image", true)},
		"SurgeStuckThenNever": {
			with(settled(1, 2, Hold, fleetOf(old, newBroken)), func(s *Seen) { s.Surge = Never }),
			waits(2, Hold, Stuck, "shop-1: no image", true),
		},
		"SurgeIsOutdatedItself": {settled(1, 2, Replace, fleetOf(old, old)), takes(2, "shop-1", true)},
		"SurgeTakenBackBroken": {
			settled(1, 2, Hold, fleetOf(updated, oldBroken)), Plan{Replicas: 1, Phase: Scaling, Surging: true},
		},
		"SurgeForTwoWhenOneIsLost": {
			settled(2, 2, Replace, fleetOf(old, lost)), Plan{Replicas: 3, Mode: Replace, Phase: Surging, Surging: true},
		},
		"NoSurgeForTwoWhenOneStarts": {
			settled(2, 2, Replace, fleetOf(old, starting)), waits(2, Replace, Rolling, "shop-1 is starting", false),
		},
		"NoSurgeForBroken": {
			settled(1, 1, Replace, fleetOf(oldBroken)), Plan{Replicas: 1, Mode: Replace, Phase: Rolling, Delete: []string{"shop-0"}},
		},
		"Always": {
			with(settled(3, 3, Hold, fleetOf(old, old, old)), func(s *Seen) { s.Surge = Always }),
			Plan{Replicas: 4, Mode: Replace, Phase: Surging, Surging: true},
		},
		"NeverGoesAllTheSame": {
			with(settled(1, 1, Replace, fleetOf(old)), func(s *Seen) { s.Surge = Never }), takes(1, "shop-0", false),
		},
		"LastAbleStays": {
			settled(1, 2, Replace, fleetOf(old, lost)),
			waits(2, Replace, Stuck, "no other pod could keep the users of shop-0", true),
		},
		"DownByOne": {settled(1, 4, Hold, fleetOf(updated, updated, updated, updated)),
			Plan{Replicas: 3, Takes: "shop-3", Phase: Scaling, Surging: true}},
		"DownWaits": {settled(1, 3, Hold, fleetOf(starting, updated, updated)), waits(3, Hold, Scaling, "shop-0 is starting", true)},
		"DownWaitsForTheOneBefore": {
			settled(1, 2, Hold, fleetOf(updated, updated, stopping)), waits(2, Hold, Scaling, "shop-2 is stopping", true),
		},
		"DownBeforeReplacing": {settled(2, 4, Replace, fleetOf(old, old, old, old)),
			Plan{Replicas: 3, Mode: Replace, Takes: "shop-3", Phase: Scaling, Surging: true}},
		"DownBroken": {settled(2, 3, Hold, fleetOf(starting, starting, newBroken)), Plan{Replicas: 2, Phase: Scaling, Surging: true}},
		"DownNotTheLastAble": {
			settled(1, 2, Hold, fleetOf(newGivenUp, updated)),
			waits(2, Hold, Stuck, "shop-0 does not answer", true),
		},
		"HelpsBeforeItGoes": {settled(1, 3, Replace, fleetOf(oldGivenUp, oldGivenUp, updated)), takes(3, "shop-1", true)},
		"StuckWhileBrokenIsReplaced": {
			settled(3, 3, Replace, fleetOf(old, oldBroken, newBroken)),
			Plan{Replicas: 3, Mode: Replace, Phase: Rolling, Delete: []string{"shop-1"}},
		},
		"StuckAndMendedElsewhere": {
			settled(3, 3, Hold, fleetOf(old, oldBroken, newBroken)), Plan{Replicas: 3, Mode: Replace, Phase: Rolling},
		},
		"StuckWhileOneIsMade": {
			settled(3, 3, Replace, []Pod{fleetOf(old)[0], fleetOf(old, old, newBroken)[2]}),
			waits(3, Replace, Stuck, "shop-2: no image", false),
		},
		"StuckWhileBrokenStops": {
			settled(3, 3, Replace, fleetOf(old, oldBrokenStopping, newBroken)), waits(3, Replace, Stuck, "shop-2: no image", false),
		},
		"StuckWhileAbleStops": {settled(2, 2, Replace, fleetOf(stopping, newBroken)), Plan{Replicas: 2, Phase: Rolling}},
		"GivenUpWaitsForOneThatStarts": {
			with(settled(2, 2, Replace, fleetOf(oldStarting, oldGivenUp)), func(s *Seen) { s.Surge = Never }),
			waits(2, Replace, Rolling, "shop-0 is starting", false),
		},
		"GivenUpComesBackAsCompany": {settled(2, 2, Replace, fleetOf(old, oldGivenUp)), takes(2, "shop-1", false)},
		"NoSurgeWhileStuck":         {settled(2, 2, Hold, fleetOf(old, newBroken)), waits(2, Hold, Stuck, "shop-1: no image", false)},
		"NoSurgeWhilePaused": {
			with(settled(1, 1, Hold, fleetOf(old)), paused),
			waits(1, Hold, Paused, "paused by the user", false),
		},
		"SurgeStaysForCompanyThatIsBroken": {
			settled(2, 3, Hold, fleetOf(old, newBrokenGivenUp, updated)), waits(3, Hold, Stuck, "shop-1: no image", true),
		},
		"SurgeForOneThatIsEvicted": {
			settled(1, 1, Hold, fleetOf(stopping)), Plan{Replicas: 2, Mode: Replace, Phase: Surging, Surging: true},
		},
		"SurgeForTwoWhenAnUpdatedOneIsLost": {
			settled(2, 2, Replace, fleetOf(old, newLost)), Plan{Replicas: 3, Mode: Replace, Phase: Surging, Surging: true},
		},
		"DrainsAndStillSaysItIsAble": {
			settled(2, 2, Replace, fleetOf(ableStopping, old)), waits(2, Replace, Rolling, "shop-0 is stopping", false),
		},
		"TrialHolds": {
			with(settled(3, 3, Replace, fleetOf(old, old, updated)), onTrial(1)), Plan{Replicas: 3, Phase: Rolling},
		},
		"Trial": {
			with(settled(3, 3, Hold, fleetOf(old, old, updated)), onTrial(1)), waits(3, Hold, Trying, "on trial", false),
		},
		"TrialOfTwoTakesTheSecond": {
			with(settled(4, 4, Replace, fleetOf(old, old, old, updated)), onTrial(2)), takes(4, "shop-2", false),
		},
		"TrialOfOneThatWentAway": {
			with(settled(3, 3, Hold, fleetOf(old, old, old)), onTrial(1)), Plan{Replicas: 3, Mode: Replace, Phase: Rolling},
		},
		"TrialWhileAnotherIsAway": {
			with(settled(3, 3, Hold, fleetOf(old, stopping, updated)), onTrial(1)), waits(3, Hold, Rolling, "shop-1 is stopping", false),
		},
		"TrialKeepsOneThatIsGivenUp": {
			with(settled(3, 3, Hold, fleetOf(old, oldGivenUp, updated)), onTrial(1)), waits(3, Hold, Trying, "on trial", false),
		},
		"TrialOfTheSurgePod": {
			with(settled(1, 2, Hold, fleetOf(old, updated)), onTrial(1)), waits(2, Hold, Trying, "on trial", true),
		},
		"TrialWhilePaused": {
			with(settled(2, 2, Hold, fleetOf(old, updated)), onTrial(1), paused), waits(2, Hold, Paused, "paused by the user", false),
		},
		"BackHoldsFirst": {
			with(settled(3, 3, Replace, fleetOf(updated, updated, old)), back), Plan{Replicas: 3, Phase: Rolling},
		},
		"BackTakes": {
			with(settled(3, 3, Hold, fleetOf(updated, updated, old)), back),
			Plan{Replicas: 3, Delete: []string{"shop-2"}, Takes: "shop-2", Phase: Rolling},
		},
		"BackTakesBrokenAtOnce": {
			with(settled(4, 4, Hold, fleetOf(updated, stopping, oldBroken, oldBroken)), back),
			Plan{Replicas: 4, Delete: []string{"shop-3", "shop-2"}, Phase: Rolling},
		},
		"BackWaits": {
			with(settled(3, 3, Hold, fleetOf(updated, starting, old)), back), waits(3, Hold, Rolling, "shop-1 is starting", false),
		},
		"BackOfTheSurgePod": {
			with(settled(1, 2, Hold, fleetOf(updated, old)), back), Plan{Replicas: 1, Takes: "shop-1", Phase: Scaling, Surging: true},
		},
		"BackNeedsSurge": {
			with(settled(1, 1, Hold, fleetOf(old)), back), Plan{Replicas: 2, Phase: Surging, Surging: true},
		},
		"BackIsPaused": {
			with(settled(2, 2, Hold, fleetOf(updated, old)), back, paused), waits(2, Hold, Paused, "paused by the user", false),
		},
		"BackIsDone":     {with(settled(2, 2, Hold, fleetOf(updated, updated)), back), Plan{Replicas: 2, Phase: Complete}},
		"UpInMidRollout": {settled(4, 2, Hold, fleetOf(old, old)), Plan{Replicas: 4, Mode: Replace, Phase: Scaling}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			// Who gets the users is TestApart's business.
			if diff := cmp.Diff(c.want, Next(c.seen), cmpopts.IgnoreFields(Plan{}, "Apart")); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func settled(desired, replicas int32, mode Mode, pods []Pod) Seen {
	return Seen{Desired: desired, Replicas: replicas, Mode: mode, Exists: true, Settled: true, Surge: Auto, Pods: pods}
}

func with(seen Seen, changes ...func(*Seen)) Seen {
	for _, change := range changes {
		change(&seen)
	}
	return seen
}

func back(s *Seen)     { s.Back = true }
func paused(s *Seen)   { s.Paused = "paused by the user" }
func oneByOne(s *Seen) { s.OneByOne = true }

func onTrial(pods int32) func(*Seen) {
	return func(s *Seen) { s.Canary, s.Trial = pods, "on trial" }
}

func takes(replicas int32, name string, surging bool) Plan {
	return Plan{Replicas: replicas, Mode: Replace, Delete: []string{name}, Takes: name, Phase: Rolling, Surging: surging}
}

func waits(replicas int32, mode Mode, phase Phase, waiting string, surging bool) Plan {
	return Plan{Replicas: replicas, Mode: mode, Phase: phase, Waiting: waiting, Surging: surging}
}

// moving is a fleet at rest but for the pods that leave their nodes.
func moving(desired, replicas int32, surge Surge, pods []Pod) Seen {
	seen := settled(desired, replicas, Hold, pods)
	seen.Current, seen.Surge = true, surge
	return seen
}
