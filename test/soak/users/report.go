package users

import (
	"github.com/livestash-dev/livestash/test/internal/browser"
	"github.com/livestash-dev/livestash/test/soak/ledger"
)

// Report is what is known of all users at a moment.
type Report struct {
	// Problem is why the users could not be opened; empty when they could.
	Problem string `json:"problem,omitempty"`

	Users int `json:"users"`
	// Ready is how many have ever had a stash acknowledged, Away how many have no connection now, by their own will or not.
	Ready int `json:"ready"`
	Away  int `json:"away"`
	// Unchecked is how many have not come back since they were last asked to.
	Unchecked int `json:"unchecked"`

	// Stashes is how many were acknowledged.
	Stashes int `json:"stashes"`
	// Returns is how many reconnects were judged, Verdicts is what they came to.
	Returns  int                    `json:"returns"`
	Verdicts map[ledger.Verdict]int `json:"verdicts"`
	// Errors is how many reconnects found a page that could not ask its store. Such users try again.
	Errors int `json:"errors"`
	// Doubled is how often a user came back from two tabs at once, DoubledEmpty how often one of the two found nothing.
	Doubled      int `json:"doubled"`
	DoubledEmpty int `json:"doubledEmpty"`

	// Cut is how often a socket ended without its user's doing, Endings counts them by what ended them, FailedAttempts counts
	// the attempts to come back that failed.
	Cut            int            `json:"cut"`
	Endings        map[string]int `json:"endings"`
	FailedAttempts map[string]int `json:"failedAttempts"`
	// Times from a socket that was cut to the user's own state. Nil when none was cut.
	Times *browser.Times `json:"times,omitempty"`
	// Slowest are the longest of them.
	Slowest []Slow `json:"slowest"`

	// Findings are the returns that have to be explained, the first ones; MoreFindings is how many there were beside.
	Findings     []ledger.Return `json:"findings"`
	MoreFindings int             `json:"moreFindings"`
}

// Slow is a user who was away for long.
type Slow struct {
	User   int     `json:"user"`
	TookMS float64 `json:"tookMs"`
	// Why is what ended the socket, At when the user was back, in a form for people.
	Why string `json:"why"`
	At  string `json:"at"`
	// From and To are the nodes.
	From string `json:"from"`
	To   string `json:"to"`
}
