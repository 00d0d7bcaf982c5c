package stash

// mnesia keeps every stash in the memory of every pod. Node names must be stable: a schema knows its nodes by name.
type mnesia struct{ storeless }

func (mnesia) Name() string { return "mnesia" }
