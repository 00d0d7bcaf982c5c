package agentclient

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// An application may answer in the agent's place, and would lead the operator to places that the application cannot reach.
func TestAgentsDoNotSendTheOperatorElsewhere(t *testing.T) {
	var reached atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached.Add(1)
		w.Header().Set(Header, "0.1.0")
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(elsewhere.Close)
	for _, code := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		ip, port := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set(Header, "0.1.0")
			http.Redirect(w, r, elsewhere.URL, code)
		})
		if _, err := ask(t, ip, port); err == nil || reached.Load() > 0 {
			t.Errorf("%d: it went %d times where it was sent: %v", code, reached.Load(), err)
		}
	}
}

// A proxy of the environment would hear what every pod says.
func TestAgentsAreReachedDirectly(t *testing.T) {
	if New().http.Transport.(*http.Transport).Proxy != nil {
		t.Error("agents are asked by way of a proxy")
	}
}

// Counts go into sums over pods and into a status: what no pod has is refused.
func TestAbsurdCounts(t *testing.T) {
	for _, field := range []string{`"stashes":123`, `"stashBytes":45678`, `"largestStashBytes":9`, `"sent":1`, `"received":2`, `"recovered":4`, `"expected":2`, `"missing":1`, `"uptimeSeconds":12`, `"sockets":7`} {
		for _, value := range []string{"-1", "9223372036854775807"} {
			name, _, _ := strings.Cut(field, ":")
			ip, port := agent(t, http.StatusOK, strings.Replace(answer, field, name+":"+value, 1))
			_, err := ask(t, ip, port)
			var bad *BadAnswerError
			if !errors.As(err, &bad) {
				t.Errorf("%s:%s is taken (%v)", name, value, err)
			}
		}
	}
	for _, shadow := range []string{`{"lagSeconds":-1}`, `{"holders":-1}`, `{"lagSeconds":9223372036854775807}`} {
		ip, port := agent(t, http.StatusOK, strings.Replace(answer, `"sockets":7`, `"shadow":`+shadow, 1))
		if _, err := ask(t, ip, port); !errors.As(err, new(*BadAnswerError)) {
			t.Errorf("of copies, %s is taken (%v)", shadow, err)
		}
	}
	// As an int32, which a status has, it would be none, or less.
	ip, port := agent(t, http.StatusOK, strings.Replace(answer, `"missing":1`, `"missing":4294967296`, 1))
	if _, err := ask(t, ip, port); !errors.As(err, new(*BadAnswerError)) {
		t.Errorf("more peers than there can be are taken (%v)", err)
	}
	for _, message := range []string{
		`{"livestash":1,"handedOff":9223372036854775807}`, `{"livestash":1,"sessionsBefore":-1}`, `{"livestash":1,"seconds":1e300}`, `{"livestash":1,"seconds":-1}`,
	} {
		if report, taken := ParseReport([]byte(message)); taken {
			t.Errorf("%s is taken: %v", message, report)
		}
	}
}
