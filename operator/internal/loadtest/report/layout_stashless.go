package report

import "fmt"

// fleetColumns are what a fleet takes in every scenario.
var fleetColumns = []column{
	{title: "Memory", detail: "peak", of: memoryPeak, pods: peakOf(SeriesPodMemory), write: inBytes},
	{title: "CPU", detail: "whole run", of: cpuTotal, pods: totalOf(SeriesPodCPU), write: inSeconds},
	{title: "Network", detail: "whole run", of: totalOf(moved...), write: inBytes},
}

// fleetCosts are the same in words.
var fleetCosts = []told{
	{of: memoryPeak, absolute: " of memory at its peak", difference: "memory", write: inBytes},
	{of: cpuTotal, absolute: " of CPU time", difference: "CPU time", write: inSeconds},
}

// fleetFigures are the charts that mean something in every scenario.
var fleetFigures = []string{SeriesMemory, SeriesPodMemory, SeriesProcesses, SeriesMemoryBinary, SeriesHTTPIn, SeriesHTTPOut, SeriesDistributionIn, SeriesCPU}

// requestsLayout is that of Requests.
var requestsLayout = layout{
	question: "Which variant",
	columns: append(fleetColumns[:len(fleetColumns):len(fleetColumns)],
		column{title: "Answers", detail: "a second", of: answersPerSecond, write: significant},
		column{title: "Answers", detail: "a second of CPU", of: perCPU(CountGood), write: significant},
		column{title: "Answer", detail: "p95", of: anyP95(DurationRequest), write: inMilliseconds, timed: true},
		column{title: "Good", detail: "of all requests", of: answered.part, write: percent, isShare: true},
	),
	note:     "Answers: the good ones. A second of CPU: of the fleet. k6 spends more CPU on a request than most servers, so near its own ceiling compare answers for a second of CPU.",
	made:     made{"answers", askedPerSecond, requestCeilingOf},
	trips:    []trip{{duration: DurationRequest, title: "Request"}},
	tripNote: "From when a request was sent to its answer; with a rate from when it was due.",
	figures:  fleetFigures,
	costs: append(fleetCosts[:len(fleetCosts):len(fleetCosts)],
		told{of: perCPU(CountGood), absolute: " answers for a second of CPU", difference: "answers for a second of CPU", write: significant},
		told{of: timedP95(DurationRequest), absolute: " for an answer (p95)", difference: "time for an answer (p95)", write: inMilliseconds, timed: true},
	),
	title:   requestLoad,
	opening: func(l load) string { return "With " + requestLoad(l) },
	done:    answered,
	outcome: outcomeOf("requests got a good answer"),
}

// roomsLayout is that of Rooms.
var roomsLayout = layout{
	question: "Which variant",
	columns: append(fleetColumns[:len(fleetColumns):len(fleetColumns)],
		column{title: "Collections", detail: "for each user", of: collectionsPerUser, write: significant},
		column{title: "Heard", detail: "a second", of: heardPerSecond, write: significant},
		column{title: "Delivery", detail: "to the last member, p95", of: anyP95(DurationDelivery), write: inMilliseconds, timed: true},
		column{title: "Delivered", detail: "of all messages", of: delivered.part, write: percent, isShare: true},
	),
	note:     "Collections: how often garbage was collected, for each user. Heard: how often somebody heard what was said, from the end of the ramp on. Delivery: from when a message was sent to when the last member of its room had it.",
	made:     made{"deliveries", takenPerSecond, deliveryCeilingOf},
	trips:    []trip{{duration: "join", title: "Join"}, {duration: DurationDelivery, title: "Delivery"}},
	tripNote: "Join: from when a member was to come to the server's word that they are in the room. Delivery: from when a message was sent to when the last member of its room had it.",
	figures:  fleetFigures,
	perThousand: []thousandColumn{
		{"memory, peak", memoryPeak, "bytes"},
		{"CPU, mean with the ramp", rateOf(cpuTotal), "cores"},
		{"network, mean with the ramp", rateOf(totalOf(moved...)), "bytes/s"},
	},
	costs: append(fleetCosts[:len(fleetCosts):len(fleetCosts)],
		told{of: timedP95(DurationDelivery), absolute: " for a delivery (p95)", difference: "time for a delivery (p95)", write: inMilliseconds, timed: true},
	),
	title:   usersOf,
	opening: func(l load) string { return "With " + usersOf(l) },
	done:    delivered,
	outcome: outcomeOf("messages reached their whole room"),
}

// answersPerSecond are good answers, and heardPerSecond deliveries from the end of the ramp on. What is bad or comes too late takes as much of k6.
var (
	wholeRun, afterRamp = func(r Run) float64 { return r.DurationSeconds }, func(r Run) float64 { return r.DurationSeconds - r.RampSeconds }

	answersPerSecond = perSecondOf(wholeRun, CountGood)
	askedPerSecond   = perSecondOf(wholeRun, CountGood, CountFailed)
	heardPerSecond   = perSecondOf(afterRamp, CountDeliveries)
	takenPerSecond   = perSecondOf(afterRamp, CountDeliveries, CountLateDeliveries)
)

// answered and delivered are what came to a good end.
var (
	answered  = share{name: "Good", detail: "of all requests", of: goodOf, wrong: CountWrongAnswers}
	delivered = share{name: "Delivered", detail: "of all messages", of: goodOf, wrong: CountMisdelivered}
)

func goodOf(r Run) (done, all int64, known bool) {
	if r.Counts == nil {
		return 0, 0, false
	}
	done, all = r.Counts.outcome()
	return done, all, true
}

// requestLoad is a load of Requests in words.
func requestLoad(l load) string {
	if l.rate > 0 {
		return fmt.Sprintf("%s requests a second on %s connections", grouped(int64(l.rate)), grouped(int64(l.users)))
	}
	return grouped(int64(l.users)) + " connections"
}

// perSecondOf is how many there were a second of what is counted, together.
func perSecondOf(seconds func(Run) float64, counts ...string) func(Run) (float64, bool) {
	return func(r Run) (float64, bool) {
		if r.Counts == nil || seconds(r) <= 0 {
			return 0, false
		}
		var sum int64
		for _, count := range counts {
			sum += r.Counts.Of[count]
		}
		return float64(sum) / seconds(r), true
	}
}

// perCPU is how many of what is counted there were for each second of the fleet's CPU.
func perCPU(count string) func(Run) (float64, bool) {
	return func(r Run) (float64, bool) {
		cpu, known := cpuTotal(r)
		if r.Counts == nil || !known || cpu <= 0 {
			return 0, false
		}
		return float64(r.Counts.Of[count]) / cpu, true
	}
}

// collectionsPerUser is how often garbage was collected in the fleet, for each user: about as often as in the process that holds the socket, when
// the load is what the fleet is busy with.
func collectionsPerUser(r Run) (float64, bool) {
	collections, known := totalOf(SeriesCollections)(r)
	return collections / float64(max(1, r.Users)), known
}

// outcomeOf says how many of all came to a good end.
func outcomeOf(what string) func(Report) string {
	return func(r Report) string {
		var good, all int64
		for _, run := range r.Runs {
			if run.sound() {
				mine, of, _ := goodOf(run)
				good, all = good+mine, all+of
			}
		}
		if all == 0 {
			return ""
		}
		return fmt.Sprintf("%s of %s %s (%s).", grouped(good), grouped(all), what, shareOf(good, all))
	}
}
