package store

// browserMemory keeps a stash in the browser, signed with SECRET_KEY_BASE. Pods hold nothing.
type browserMemory struct{ storeless }

func (browserMemory) Name() string { return "browser_memory" }

func (browserMemory) Home() Home { return Elsewhere }

// Renewed: the browser gets a new token when the user stashes, and nothing on the server can change the one it has.
func (browserMemory) Renewed() bool { return false }

// LargestStash: LiveView's client puts the stash into the URL of its WebSocket, and Bandit refuses request lines of more
// than 10,000 bytes. The rest of that line, with the CSRF token and the other parameters, takes some 500.
func (browserMemory) LargestStash() int64 { return 9500 }
