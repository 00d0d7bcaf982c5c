package store

import "github.com/livestash-dev/livestash/operator/api/v1alpha1"

// browserMemory keeps a stash in the browser, signed with SECRET_KEY_BASE. Pods hold nothing.
type browserMemory struct{ storeless }

func (browserMemory) Name() string { return "browser_memory" }

func (browserMemory) OwnField() string { return "browserMemory" }

func (browserMemory) Home() Home { return Elsewhere }

// Renewed: the browser gets a new token when the user stashes, and nothing on the server can change the one it has.
func (browserMemory) Renewed() bool { return false }

// LargestStash: LiveView's client puts the stash into the URL of its WebSocket, and servers and proxies refuse request lines
// that are longer than theirs may be.
func (browserMemory) LargestStash(c *v1alpha1.LiveStashCluster) int64 { return c.MaxStashBytes() }
