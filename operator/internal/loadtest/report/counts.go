package report

import (
	"encoding/json"
	"fmt"

	"github.com/livestash-dev/livestash/operator/internal/plausible"
)

// Counts are what happened in a run, added up over its runners. In JSON they are one object: each count by its name, and errors.
type Counts struct {
	// Of is how many there were, by the names below. Which of them a run has is a matter of its scenario; one that it has not is 0.
	Of map[string]int64
	// Errors are those of CountError by reason, only those that occurred.
	Errors map[string]int64
}

// The counts of every scenario.
const (
	// CountPlanned users, and CountConnected, those of them who were connected at least once.
	CountPlanned   = "planned"
	CountConnected = "connected"
	// CountUnfinished are waits cut off by the end of the run: neither success nor error.
	CountUnfinished = "unfinished"
	// CountError is the number of failed steps.
	CountError = "error"
)

// The counts of scenarios in which users stash.
const (
	// CountCycles are connections followed by an acknowledged stash.
	CountCycles = "cycles"
	// CountRecovered and CountNotRecovered are returns that had to bring the state back, and did or did not.
	CountRecovered    = "recovered"
	CountNotRecovered = "notRecovered"
	// CountLateRecovered and CountLateNotRecovered are returns after the TTL that a stash may outlive until it is cleaned up: both outcomes
	// are right.
	CountLateRecovered    = "lateRecovered"
	CountLateNotRecovered = "lateNotRecovered"
	// CountExpiredRecovered and CountExpiredNotRecovered are returns after the cleaner: the first should have found nothing.
	CountExpiredRecovered    = "expiredRecovered"
	CountExpiredNotRecovered = "expiredNotRecovered"
	// CountDropped are sockets that the server ended while their users looked at the page. Each is a failed step.
	CountDropped = "dropped"
	// CountCut are the same during events. They are no failed steps.
	CountCut = "cut"
	// CountNotFound are returns, in time, that were told that there is no stash.
	CountNotFound = "notFound"
	// CountWrong are recovered states that are not the last acknowledged one.
	CountWrong = "wrongCount"
	// CountConnectFailed are attempts to connect or to return that failed.
	CountConnectFailed = "connectFailed"
)

// The counts of scenarios in which nobody stashes.
const (
	// CountGood requests got a good answer, or messages reached their whole room; CountFailed did not.
	CountGood   = "good"
	CountFailed = "failed"
	// CountRequests were sent, CountUnsent were due and not sent when the run ended, and CountWrongAnswers got a wrong sum.
	CountRequests     = "requests"
	CountUnsent       = "unsent"
	CountWrongAnswers = "wrongAnswers"
	// CountMessages were said, and CountDeliveries is how often one was heard by somebody who was to.
	CountMessages   = "messages"
	CountDeliveries = "deliveries"
	// CountDuplicates were heard twice, CountMisdelivered in another room or not whole, and CountLateDeliveries after the message had failed.
	CountDuplicates     = "duplicates"
	CountMisdelivered   = "misdelivered"
	CountLateDeliveries = "lateDeliveries"
)

// errorsField is that of Errors in JSON.
const errorsField = "errors"

// MarshalJSON writes all counts as one object.
func (c Counts) MarshalJSON() ([]byte, error) {
	fields := map[string]any{}
	for name, count := range c.Of {
		fields[name] = count
	}
	if len(c.Errors) > 0 {
		fields[errorsField] = c.Errors
	}
	return json.Marshal(fields)
}

// UnmarshalJSON reads them back.
func (c *Counts) UnmarshalJSON(text []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	*c = Counts{Of: map[string]int64{}}
	for name, field := range fields {
		if name == errorsField {
			if err := json.Unmarshal(field, &c.Errors); err != nil {
				return fmt.Errorf("errors: %w", err)
			}
			continue
		}
		var count int64
		if err := json.Unmarshal(field, &count); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		c.Of[name] = count
	}
	return nil
}

// Add adds counts up.
func (c *Counts) Add(of, errors map[string]int64) {
	for name, count := range of {
		c.Of[name] += count
	}
	for reason, count := range errors {
		c.Errors[reason] += count
	}
}

// check finds what no counts can be.
func (c Counts) check() error {
	for _, counts := range []map[string]int64{c.Of, c.Errors} {
		for name, count := range counts {
			if !plausible.Counts(count) {
				return fmt.Errorf("it has %d of %.40q", count, name)
			}
		}
	}
	return nil
}

// outcome is how many of all requests or messages came to a good end. Requests that were due and not sent did not.
func (c Counts) outcome() (good, all int64) {
	return c.Of[CountGood], c.Of[CountGood] + c.Of[CountFailed] + c.Of[CountUnsent]
}

// Timed is how many of what has a duration came to a good end, as only those are timed, and how many were asked or said at all. 0 of 0 for durations of
// which that is not known.
func (c Counts) Timed(duration string) (good, all int64) {
	if duration != DurationRequest && duration != DurationDelivery {
		return 0, 0
	}
	return c.outcome()
}

// HasQuantile is whether a duration's quantile is that of all that was asked or said: a p95 of requests of which a tenth failed would be that of
// the quickest nine tenths.
func (c Counts) HasQuantile(duration string, quantile float64) bool {
	good, all := c.Timed(duration)
	return float64(good) >= quantile*float64(all)
}

// returns are those within the TTL.
func (c Counts) returns() int64 { return c.Of[CountRecovered] + c.Of[CountNotRecovered] }
