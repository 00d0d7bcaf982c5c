package store

// none is a fleet without LiveStash: the baseline of a benchmark.
type none struct{ storeless }

func (none) Name() string { return "none" }

func (none) Home() Home { return Elsewhere }

func (none) Recovers() bool { return false }
