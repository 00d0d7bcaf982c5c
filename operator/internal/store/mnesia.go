package store

import (
	"time"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// mnesia keeps every stash in the memory of every pod. Node names must be stable: a schema knows its nodes by name. A node
// must be connected to its peers before the application starts: one that joins later makes the whole fleet adopt the
// table of the node with the lowest name, empty or not.
type mnesia struct{ storeless }

func (mnesia) Name() string { return "mnesia" }

func (mnesia) Home() Home { return EveryPod }

// NetTickTime: each stash is a transaction with every peer, and waits for a silent one. LiveView's client waits 10 s, then
// comes back by another connection; the two of them get into each other's way, and LiveStash acknowledges what it has not
// stored.
func (mnesia) NetTickTime(*v1alpha1.LiveStashCluster) time.Duration { return 8 * time.Second }
