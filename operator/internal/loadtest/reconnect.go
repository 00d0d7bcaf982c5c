package loadtest

import "cmp"

// reconnect: users stay, and reconnect over and over.
type reconnect struct{ stashes }

func (reconnect) Script() string { return scripts + "reconnect.js" }

func (r reconnect) Foreign(run Run, read RunnerReport) string {
	return cmp.Or(r.stashes.Foreign(run, read), named(read, "reconnect"))
}
