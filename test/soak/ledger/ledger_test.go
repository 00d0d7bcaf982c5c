package ledger

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What happens to a user is written as one word for each thing: "s" sends a stash, "3" is the answer that shows 3, "~3" the
// same while the store is away, "=3" a return that finds 3, "=-" one that finds nothing, and "+4" another tab that ended with 4
// ("+4?" when its last stash was not answered). The last word is the one that is judged.
func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		story string
		want  Verdict
	}{
		"what was acknowledged":                          {"s 1 s 2 =2", Recovered},
		"an answer":                                      {"s 1 s 2", Recovered},
		"an answer with the version before":              {"s 1 s 1", Stale},
		"a stash whose answer was lost, done":            {"s 1 s =2", Newer},
		"a stash whose answer was lost, not done":        {"s 1 s =1", Recovered},
		"the same, and it was done after all":            {"s 1 s =1 =2", Newer},
		"and again":                                      {"s 1 s =2 =2", Recovered},
		"only one stash can be on its way":               {"s 1 s =3", Stale},
		"a second answer is not lost twice":              {"s 1 s =2 =3", Stale},
		"an older version":                               {"s 1 s 2 s 3 =2", Stale},
		"an older one while a stash is on its way":       {"s 1 s 2 s 3 s =2", Stale},
		"a version that nobody stashed":                  {"s 1 =7", Stale},
		"nothing":                                        {"s 1 s 2 =-", Lost},
		"nothing, with a stash on its way":               {"s 1 s =-", Lost},
		"nothing, found again and lost again":            {"s 1 =1 =-", Lost},
		"nothing, when nothing was stashed":              {"=-", Nothing},
		"nothing, when nothing was acknowledged":         {"s =-", Nothing},
		"the first stash, its answer lost":               {"s =1", Newer},
		"a loss counts once":                             {"s 1 =- =-", Nothing},
		"what was lost turns up":                         {"s 1 s 2 s 3 =- =3", Recovered},
		"an older version than what was lost":            {"s 1 s 2 s 3 =- =2", Stale},
		"what was lost turns up after a second look":     {"s 1 s 2 =- =- =2", Recovered},
		"what was lost turns up over a newer state":      {"s 1 s 2 s 3 =- s 1 =3", Stale},
		"but not over one that nobody acknowledged":      {"s 1 s 2 s 3 =- s =3", Recovered},
		"the new state itself":                           {"s 1 s 2 s 3 =- s 1 =1", Recovered},
		"the new state is lost too":                      {"s 1 s 2 s 3 =- s 1 =-", Lost},
		"older, all later ones without a store":          {"s 1 s 2 s ~3 s ~4 =2", Unstored},
		"one of those after all":                         {"s 1 s 2 s ~3 s ~4 =3", Unstored},
		"older than what the store had":                  {"s 1 s 2 s ~3 s ~4 =1", Stale},
		"older, with one stored since":                   {"s 1 s ~2 s 3 =2", Stale},
		"nothing, and nothing was ever stored":           {"s ~1 =-", Unstored},
		"nothing, and something was stored":              {"s 1 s ~2 =-", Lost},
		"a version found is one that the store has":      {"s 1 s ~2 =2 =1", Stale},
		"the other tab's version":                        {"s 1 s 2 s 3 +2 =2", Twin},
		"the other tab's, its answer lost":               {"s 1 s 2 s 3 s 4 +2? =3", Twin},
		"this tab's version":                             {"s 1 s 2 s 3 +2 =3", Recovered},
		"neither tab's version":                          {"s 1 s 2 s 3 +2 =1", Stale},
		"the other tab's after this one's":               {"s 1 s 2 s 3 +2 =3 =2", Twin},
		"this tab's after the other one's":               {"s 1 s 2 s 3 +2 =2 =3", Twin},
		"two tabs and nothing":                           {"s 1 s 2 +2 =-", Lost},
		"the other tab's version after a loss and again": {"s 1 s 2 s 3 +2 =- =2", Twin},
	} {
		t.Run(name, func(t *testing.T) {
			var l Ledger
			var got Return
			for i, word := range strings.Fields(c.story) {
				got = tell(&l, word, time.Unix(int64(i), 0))
			}
			if got.Verdict != c.want {
				t.Errorf("%s: the verdict is %q, want %q", c.story, got.Verdict, c.want)
			}
		})
	}
}

func tell(l *Ledger, word string, at time.Time) Return {
	number := func(text string) Stash {
		n, err := strconv.Atoi(text)
		if err != nil {
			panic(fmt.Sprintf("%q in a story: %v", word, err))
		}
		return Stash{Version: n, Node: "n", At: at}
	}
	switch word[0] {
	case 's':
		l.Sent(at)
		return Return{}
	case '+':
		text, unsure := strings.CutSuffix(word[1:], "?")
		l.Left(Ledger{last: number(text), unsure: unsure})
		return Return{}
	case '~':
		return l.Acknowledged(number(word[1:]), false)
	case '=':
		if word == "=-" {
			return l.Found("not_found", Stash{At: at})
		}
		return l.Found("recovered", number(word[1:]))
	}
	return l.Acknowledged(number(word), true)
}

// A return says what was known before it, also when a loss lies between.
func TestWhatWasKnown(t *testing.T) {
	var l Ledger
	for i, word := range strings.Fields("s 1 s 2 =-") {
		tell(&l, word, time.Unix(int64(i), 0))
	}
	got := l.Found("recovered", Stash{Version: 1, Node: "m", At: time.Unix(9, 0)})
	want := Stash{Version: 2, Node: "n", At: time.Unix(3, 0)}
	if got.Last != want || got.Verdict != Stale || got.Node != "m" {
		t.Errorf("the return is %+v, want one after %+v", got, want)
	}
}

// A return says since when it is that something is missing.
func TestSinceWhenItIsMissing(t *testing.T) {
	began := time.Unix(1000, 0)
	stashed := func(versions int) *Ledger {
		var l Ledger
		for v := 1; v <= versions; v++ {
			l.Acknowledged(Stash{Version: v, At: began.Add(time.Duration(v) * time.Second)}, true)
		}
		return &l
	}
	for name, c := range map[string]struct {
		stashes int
		status  string
		version int
		want    int
	}{
		"nothing is missing":              {3, found, 3, 0},
		"the last one":                    {3, found, 2, 3},
		"two of them":                     {3, found, 1, 2},
		"all":                             {3, "not_found", 0, 1},
		"so many that nobody knows":       {maxRecent + 9, found, 3, 0},
		"so many that one knows just yet": {maxRecent + 9, found, 9, 10},
		"all of so many":                  {maxRecent + 9, "not_found", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			want := time.Time{}
			if c.want > 0 {
				want = began.Add(time.Duration(c.want) * time.Second)
			}
			if got := stashed(c.stashes).Found(c.status, Stash{Version: c.version}); !got.Missing.Equal(want) {
				t.Errorf("it is missing since %s, want %s", got.Missing, want)
			}
		})
	}
	// What is stashed after a loss of versions takes their numbers.
	l := stashed(5)
	l.Found(found, Stash{Version: 2, At: began.Add(time.Minute)})
	l.Acknowledged(Stash{Version: 3, At: began.Add(time.Hour)}, true)
	if got := l.Found(found, Stash{Version: 2}); !got.Missing.Equal(began.Add(time.Hour)) {
		t.Errorf("it is missing since %s", got.Missing)
	}
}

// A return says which node had what was found, also when the user has stashed anew since it was not found.
func TestOrigin(t *testing.T) {
	var l Ledger
	stash := func(version int, node string) { l.Acknowledged(Stash{Version: version, Node: node}, true) }
	stash(1, "a")
	stash(2, "b")
	if got := l.Found(found, Stash{Version: 1, Node: "c"}).Origin; got != "a" {
		t.Errorf("1 was on %q, want a", got)
	}
	stash(2, "c")
	for range 2 {
		l.Found("not_found", Stash{Node: "d"})
	}
	stash(1, "d")
	for version, want := range map[int]string{1: "d", 2: "c", 9: ""} {
		before := l
		if got := l.Found(found, Stash{Version: version, Node: "e"}).Origin; got != want {
			t.Errorf("%d was on %q, want %q", version, got, want)
		}
		l = before
	}
}

// A version that only one of two tabs had, and not as its last one, is missing what that tab has stashed since, where that tab was.
func TestAnotherTabsOldVersion(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	var l Ledger
	l.Acknowledged(Stash{Version: 1, Node: "a", At: at(1)}, true)
	twin := l
	for v := 2; v <= 4; v++ {
		l.Acknowledged(Stash{Version: v, Node: "a", At: at(int64(v))}, true)
		twin.Acknowledged(Stash{Version: v + 10, Node: "b", At: at(int64(10 + v))}, true)
	}
	l.Left(twin)
	got := l.Found(found, Stash{Version: 13, Node: "c", At: at(30)})
	if got.Verdict != Stale || got.Last.Node != "b" || got.Last.Version != 14 || got.Origin != "b" || !got.Missing.Equal(at(14)) {
		t.Errorf("the return is %+v", got)
	}
	if !slices.Contains(got.Tabs, "a") {
		t.Errorf("of the tabs %v one was on a", got.Tabs)
	}
}

// A return does not make a stash younger, and an answer that was long on its way does not either.
func TestWhenItWasMade(t *testing.T) {
	began := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	l := &Ledger{}
	l.Sent(began)
	l.Acknowledged(Stash{Version: 1, At: began.Add(5 * time.Second)}, true)
	for minute := range 3 {
		got := l.Found(found, Stash{Version: 1, At: began.Add(time.Duration(minute) * time.Minute)})
		if !got.Made.Equal(began) {
			t.Errorf("after %d minutes it was made at %s, want %s", minute, got.Made, began)
		}
	}
	if got := l.Found("not_found", Stash{At: began.Add(time.Hour)}); got.Verdict != Lost || !got.Made.Equal(began) {
		t.Errorf("%s, made at %s, want %s and %s", got.Verdict, got.Made, Lost, began)
	}
}

// A user with many tabs does not remember them all.
func TestOtherTabsAreBounded(t *testing.T) {
	var l Ledger
	for range 100 {
		l.Left(Ledger{last: Stash{Version: 1}})
	}
	if len(l.others) != maxOthers {
		t.Errorf("%d versions of other tabs are remembered, want %d", len(l.others), maxOthers)
	}
}

// Two tabs that begin with one ledger do not write into each other's.
func TestCopiesAreApart(t *testing.T) {
	l := Ledger{others: make([]tab, 0, 4)}
	first, second := l, l
	first.Left(Ledger{last: Stash{Version: 5}})
	second.Left(Ledger{last: Stash{Version: 6}})
	if first.others[0].last.Version != 5 || second.others[0].last.Version != 6 {
		t.Errorf("the copies have %v and %v", first.others, second.others)
	}
}

// Another tab's older version is right when the store was away for all that either tab has stashed since, and for nothing else.
func TestAnotherTabsUnstoredVersion(t *testing.T) {
	for name, c := range map[string]struct {
		// mine and others are what the two tabs stashed after 10, at these seconds, of which those below zero without a store.
		mine, others []int64
		// took is how many seconds each of mine was on its way.
		took  int64
		found int
		want  Verdict
	}{
		"all later ones without a store":       {mine: []int64{1, -4}, others: []int64{1, 2, 3, -5}, found: 13, want: Unstored},
		"one of those after all":               {mine: []int64{1}, others: []int64{2, -3, -5, -6}, found: 13, want: Unstored},
		"the other tab has stored a later one": {mine: []int64{1}, others: []int64{1, 2, 3, -5}, found: 12, want: Stale},
		"this tab has stored a later one":      {mine: []int64{1, 4}, others: []int64{1, 2, 3, -5, -6}, found: 13, want: Stale},
		"at the same time as this tab's last":  {mine: []int64{1, 4}, others: []int64{1, 2, 3, -5, -6}, took: 2, found: 13, want: Unstored},
		"what both began with":                 {mine: []int64{1, 4}, others: []int64{-5}, found: 10, want: Stale},
	} {
		t.Run(name, func(t *testing.T) {
			stash := func(l *Ledger, seconds []int64, took int64) {
				for i, second := range seconds {
					l.Sent(time.Unix(max(second, -second)-took, 0))
					l.Acknowledged(Stash{Version: 11 + i, Node: "n", At: time.Unix(max(second, -second), 0)}, second > 0)
				}
			}
			var l Ledger
			l.Acknowledged(Stash{Version: 10, Node: "n"}, true)
			twin := l
			stash(&l, c.mine, c.took)
			stash(&twin, c.others, 0)
			l.Left(twin)
			if got := l.Found(found, Stash{Version: c.found, At: time.Unix(9, 0)}); got.Verdict != c.want {
				t.Errorf("the verdict is %q, want %q", got.Verdict, c.want)
			}
		})
	}
}

// What was found is in the store since then: what the other tab had stored before that is older.
func TestAnotherTabsVersionOfBeforeALook(t *testing.T) {
	var l Ledger
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	l.Acknowledged(Stash{Version: 10, Node: "n", At: at(1)}, true)
	twin := l
	for v := 11; v <= 14; v++ {
		twin.Acknowledged(Stash{Version: v, Node: "n", At: at(int64(v))}, v <= 12)
	}
	l.Left(twin)
	if got := l.Found(found, Stash{Version: 14, Node: "n", At: at(20)}); got.Verdict != Twin {
		t.Fatalf("the other tab's last version is %q", got.Verdict)
	}
	if got := l.Found(found, Stash{Version: 12, Node: "n", At: at(30)}); got.Verdict != Stale {
		t.Errorf("what it had before that is %q, want stale", got.Verdict)
	}
}
