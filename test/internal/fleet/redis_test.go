package fleet

import (
	"testing"
	"time"
)

// The times of Redix' attempts after its connection was lost: 0.5 s, and one and a half times as long after each failure.
func TestUntilConnected(t *testing.T) {
	attempt, wait := 0.0, 0.5
	for range 20 {
		last := attempt
		attempt += wait
		wait = min(wait*1.5, 30)
		// Redis is back right after an attempt that failed.
		back := time.Duration(last * float64(time.Second))
		if until := back + UntilConnected(back); until.Seconds() < attempt {
			t.Errorf("after %s the connection is expected %s later, but the attempt is at %.1f s", back, until-back, attempt)
		}
	}
}
