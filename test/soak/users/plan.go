// Package users is many users of one application, of several kinds, each with a ledger by which every one of its returns is judged.
package users

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Plan says which users there are.
type Plan struct {
	// Adapter is LiveStash's, as it stands in the page's path: ets, browser_memory, redis, mnesia.
	Adapter string `json:"adapter"`
	// Users is how many.
	Users int `json:"users"`
	// Host is the application's public host name.
	Host string `json:"host"`
	// Pods are the addresses (host:port) of the pods that the fleet begins with.
	Pods []string `json:"pods"`
	// Service is the address that leads to any pod.
	Service string `json:"service"`
	// TTLMS is how long a stash lives, in milliseconds.
	TTLMS int `json:"ttlMs"`
	// Seed is what the users' own chances come from.
	Seed uint64 `json:"seed"`
}

// maxUsers bounds what one pod of users holds.
const maxUsers = 20000

func (p Plan) check() error {
	switch {
	case p.Users < 1 || p.Users > maxUsers:
		return fmt.Errorf("users must be 1 to %d", maxUsers)
	case len(p.Pods) == 0 || p.Service == "" || p.Host == "" || p.Adapter == "":
		return errors.New("adapter, host, pods and service must be set")
	case p.TTLMS < 1:
		return errors.New("ttlMs must be at least 1")
	}
	return nil
}

func (p Plan) ttl() time.Duration { return time.Duration(p.TTLMS) * time.Millisecond }

// Kind is what a user is like.
type Kind string

// The kinds. All of them come back through the Service whenever their socket is cut.
const (
	// Steady users stash every few seconds.
	Steady Kind = "steady"
	// Idle ones stash once, and with BrowserMemory, whose stashes age while the page is open, before they are too old.
	Idle Kind = "idle"
	// Hopping ones drop their own connection every now and then, and come back to the same pod, to another, or to any.
	Hopping Kind = "hopping"
	// Sleeping ones stash, go away, and come back when most of the TTL is over.
	Sleeping Kind = "sleeping"
	// Doubling ones drop their connection and come back twice at once, from two tabs with the same stash.
	Doubling Kind = "doubling"
	// Busy ones stash ten times a second.
	Busy Kind = "busy"
)

// maxBusy is how many busy users there are at most: they are as much work as many others.
const maxBusy = 5

// mix is what every twenty users are like.
var mix = []Kind{
	Busy, Steady, Idle, Hopping, Doubling, Steady, Idle, Hopping, Sleeping, Steady,
	Steady, Idle, Hopping, Doubling, Steady, Idle, Hopping, Sleeping, Steady, Steady,
}

func kindOf(index int) Kind {
	kind := mix[index%len(mix)]
	if kind == Busy && index/len(mix) >= maxBusy {
		return Steady
	}
	return kind
}

// browserMemory is the adapter whose stashes are not in the fleet.
const browserMemory = "browser_memory"

// The times of users.
const (
	steadyEvery = 5 * time.Second
	busyEvery   = 100 * time.Millisecond
	doubleEvery = 500 * time.Millisecond

	// sleepShare is how much of the TTL a user sleeps after its last stash.
	sleepShare = 0.8
	// idleShare is how much of the TTL passes between two stashes of an idle user whose stash ages.
	idleShare = 0.5
)

// never is longer than any run.
const never = 1000 * time.Hour

// stashEvery is the mean time between two stashes.
func (p Plan) stashEvery(kind Kind) time.Duration {
	switch {
	case kind == Busy:
		return busyEvery
	case kind == Idle && p.Adapter == browserMemory:
		return share(p.ttl(), idleShare)
	case kind == Idle:
		return never
	}
	return steadyEvery
}

// stay is how long a user stays before it leaves by itself.
func stay(kind Kind, random *rand.Rand) time.Duration {
	switch kind {
	case Hopping:
		return between(random, 5*time.Second, 25*time.Second)
	case Sleeping:
		return between(random, 5*time.Second, 15*time.Second)
	case Doubling:
		return between(random, 10*time.Second, 30*time.Second)
	default:
		return never
	}
}

// away is how long a user who left by itself stays away.
func (p Plan) away(kind Kind, random *rand.Rand) time.Duration {
	if kind == Sleeping {
		return share(p.ttl(), sleepShare)
	}
	return between(random, 10*time.Millisecond, 3*time.Second)
}

func share(whole time.Duration, part float64) time.Duration {
	return time.Duration(part * float64(whole))
}

func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}
