package report

import (
	"fmt"
	"strings"
)

// events are those of a load's first run that has any: all of its runs are to have the same.
func (l load) events() []Event {
	for _, run := range l.sound() {
		if len(run.Events) > 0 {
			return run.Events
		}
	}
	return nil
}

// eventsTold is what was done to the fleet in a run and what that cost its users, in a sentence or two. Empty without events.
func eventsTold(run Run) string {
	if len(run.Events) == 0 {
		return ""
	}
	words := make([]string, 0, len(run.Events))
	for _, e := range run.Events {
		words = append(words, fmt.Sprintf("%s at %s, over after %s", e.Kind, span(e.AtSeconds), span(e.TookSeconds)))
	}
	text := "Events: " + strings.Join(words, "; ") + "."
	if c := run.Counts; c != nil {
		text += fmt.Sprintf(" %s of %s returns within the TTL found no state, and %s sockets were cut.",
			grouped(c.Of[CountNotRecovered]), grouped(c.returns()), grouped(c.Of[CountCut]))
	}
	during, outside := run.Durations["reconnect_during"], run.Durations["reconnect_outside"]
	if during.Count > 0 && outside.Count > 0 && run.timed() {
		text += fmt.Sprintf(" A return took %s (p95) in the time that was given to them, and %s outside of it.", inUnit(during.P95, "ms"), inUnit(outside.P95, "ms"))
	}
	return text
}
