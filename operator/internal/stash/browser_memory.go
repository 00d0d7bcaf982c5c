package stash

// browserMemory keeps a stash in the browser, signed with SECRET_KEY_BASE. Pods hold nothing.
type browserMemory struct{ storeless }

func (browserMemory) Name() string { return "browser_memory" }
