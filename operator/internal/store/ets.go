package store

import (
	"time"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// ets keeps a stash in the memory of the pod that served the user. A peer finds it through the node name in the
// client's hint, so node names must be stable and every pod must have the same SECRET_KEY_BASE.
type ets struct{ storeless }

func (ets) Name() string { return "ets" }

func (ets) Home() Home { return OnePod }

func (ets) OwnField() string { return "shadow" }

// NetTickTime: the copies of a dead machine's stashes are taken over when its silence is noticed, and until then whoever comes back
// waits for it.
func (e ets) NetTickTime(c *v1alpha1.LiveStashCluster) time.Duration {
	if c.ShadowEnabled() {
		return 8 * time.Second
	}
	return e.patient.NetTickTime(c)
}
