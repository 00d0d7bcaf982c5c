package report

import "fmt"

// stashLayout is that of scenarios in which users stash, and come back for it.
var stashLayout = layout{
	question: "Which adapter",
	columns: []column{
		{title: "Memory", detail: "peak", of: memoryPeak, pods: peakOf(SeriesPodMemory), write: inBytes},
		{title: "CPU", detail: "whole run", of: cpuTotal, pods: totalOf(SeriesPodCPU), write: inSeconds},
		{title: "Network", detail: "whole run", of: totalOf(moved...), write: inBytes},
		{title: "Round trip", detail: "return, p95", of: anyP95("reconnect"), write: inMilliseconds, timed: true},
		{title: "Recovered", detail: "within the TTL", of: recovered.part, write: percent, isShare: true},
	},
	note:  "Network: to and from clients and Redis, and between the pods. Return: from the moment at which the user was to come back to the view that is there again.",
	trips: userTrips,
	tripNote: "First render and reconnect go from a message to its reply, as in the published test. Stash and return are what the user waits for, " +
		"from when the step was to begin to its end: for a return to the view that is there again, failed attempts and the pauses between them included.",
	perThousand: []thousandColumn{
		{"memory, peak", memoryPeak, "bytes"},
		{"CPU, mean with the ramp", rateOf(cpuTotal), "cores"},
		{"network, mean with the ramp", rateOf(totalOf(moved...)), "bytes/s"},
	},
	costs: []told{
		{of: memoryPeak, absolute: " of memory at its peak", difference: "memory", write: inBytes},
		{of: cpuTotal, absolute: " of CPU time", difference: "CPU time", write: inSeconds},
		{of: timedP95("reconnect"), absolute: " for a return (p95)", difference: "time for a return (p95)", write: inMilliseconds, timed: true},
	},
	title:   func(l load) string { return usersOf(l) + ", TTL " + span(l.ttl) },
	opening: func(l load) string { return fmt.Sprintf("With %s and a TTL of %s", usersOf(l), span(l.ttl)) },
	done:    recovered,
	outcome: returns,
	starves: true,
}

// userTrips are what a user waits for: of returns, those in time, and from the message or from when the user was to come.
var userTrips = []trip{
	{duration: "join", title: "First render"},
	{duration: "stash", title: "Stash"},
	{duration: "rejoin", title: "Reconnect"},
	{duration: "reconnect", title: "Return"},
}

// recovered are the returns within the TTL that brought the state back. There are none without LiveStash.
var recovered = share{
	name: "Recovered", detail: "within the TTL", wrong: CountWrong,
	of: func(r Run) (done, all int64, known bool) {
		if r.Counts == nil {
			return 0, 0, false
		}
		return r.Counts.Of[CountRecovered], r.Counts.returns(), r.Adapter != withoutLiveStash
	},
}

// returns says whether the state came back.
func returns(r Report) string {
	var back, lost, wrong int64
	var bad []string
	for _, run := range r.Runs {
		if !run.sound() || run.Counts == nil || run.Adapter == withoutLiveStash {
			continue
		}
		of := run.Counts.Of
		back += of[CountRecovered]
		lost += of[CountNotRecovered]
		wrong += of[CountWrong]
		if of[CountNotRecovered] > 0 || of[CountWrong] > 0 {
			bad = append(bad, fmt.Sprintf("%s (%s lost, %s wrong)", run.Name, grouped(of[CountNotRecovered]), grouped(of[CountWrong])))
		}
	}
	if back+lost == 0 {
		return ""
	}
	stale := "none of them wrong"
	if wrong > 0 {
		stale = grouped(wrong) + " of them a wrong one"
	}
	sentence := fmt.Sprintf("%s of %s returns within the TTL brought the state back (%s), %s.", grouped(back), grouped(back+lost), shareOf(back, back+lost), stale)
	if len(bad) > 0 {
		sentence += " Not all in " + listed(bad) + "."
	}
	return sentence
}
