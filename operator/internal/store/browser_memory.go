package store

// browserMemory keeps a stash in the browser, signed with SECRET_KEY_BASE. Pods hold nothing.
type browserMemory struct{ storeless }

func (browserMemory) Name() string { return "browser_memory" }

func (browserMemory) Home() Home { return Elsewhere }

// LargestStash: LiveView's client puts the stash into the URL of its WebSocket, and Bandit refuses request lines of more
// than 10,000 bytes. The rest of that line, with the CSRF token and the other parameters, takes some 500.
func (browserMemory) LargestStash() int64 { return 9500 }
