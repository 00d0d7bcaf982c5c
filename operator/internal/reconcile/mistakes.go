package reconcile

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

const (
	// mostLines is how many lines of the log an object gets at once for its users' mistakes, one for each.
	mostLines = 5
	// nextLine is after how long it may have one more.
	nextLine = time.Minute
)

// Mistakes notes in the log what users can do something about: once, as long as it stays the same. It is no error of the operator's,
// and no line may come for every pass over it.
type Mistakes struct {
	mutex sync.Mutex
	of    map[types.NamespacedName]mistake
}

// mistake is the last one of an object.
type mistake struct {
	text string
	// room is how many lines there may be at that time.
	room int
	at   time.Time
}

// Note notes how a pass over the object ended, if that is a mistake of a user's. To pause is none.
func (m *Mistakes) Note(ctx context.Context, object types.NamespacedName, err error, now time.Time) {
	if err == nil || !IsMistake(err) {
		return
	}
	reason, message := ReasonAndMessage(err)
	if reason != v1alpha1.ReasonPaused && m.isNews(object, reason+message, now) {
		log.FromContext(ctx).Info("Not as wanted", "reason", reason, "message", Shortened(message, MostMessage))
	}
}

// isNews is whether the text is another one than before, and there is room for a line.
func (m *Mistakes) isNews(object types.NamespacedName, text string, now time.Time) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	last, known := m.of[object]
	if !known {
		last = mistake{room: mostLines, at: now}
	}
	if last.text == text {
		return false
	}
	if more := int(now.Sub(last.at) / nextLine); more > 0 {
		last.room, last.at = min(mostLines, last.room+more), now
	}
	if last.room == 0 {
		return false
	}
	if m.of == nil {
		m.of = map[types.NamespacedName]mistake{}
	}
	m.of[object] = mistake{text: text, room: last.room - 1, at: last.at}
	return true
}

// Forget drops what is remembered of an object that is gone.
func (m *Mistakes) Forget(object types.NamespacedName) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.of, object)
}
