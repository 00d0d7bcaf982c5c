package store

// ets keeps a stash in the memory of the pod that served the user. A peer finds it through the node name in the
// client's hint, so node names must be stable and every pod must have the same SECRET_KEY_BASE.
type ets struct{ storeless }

func (ets) Name() string { return "ets" }

func (ets) Home() Home { return OnePod }
