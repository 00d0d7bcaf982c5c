package loadtest

// script: what a k6 script of the user's own says, which leaves the report of users who stash.
type script struct{ stashes }

func (script) Script() string { return "" }
