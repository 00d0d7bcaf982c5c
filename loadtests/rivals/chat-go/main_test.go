package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// start returns a chat, and the address that rooms are under.
func start(t *testing.T) (*hub, string) {
	t.Helper()
	chat := newHub()
	s := httptest.NewServer(newServer(chat).Handler)
	t.Cleanup(s.Close)
	return chat, "ws" + strings.TrimPrefix(s.URL, "http") + "/rooms/"
}

func join(t *testing.T, chat *hub, address, name string) *websocket.Conn {
	t.Helper()
	before := chat.count(name)
	conn, _, err := websocket.Dial(t.Context(), address+name, nil) //nolint:bodyclose // the library closes it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	until(t, "the member is in the room", func() bool { return chat.count(name) == before+1 })
	return conn
}

func (h *hub) count(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r, ok := h.rooms[name]; ok {
		r.mu.RLock()
		defer r.mu.RUnlock()
		return len(r.members)
	}
	return 0
}

func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	for range 600 {
		if so() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("not within 30 s: %s", what)
}

func say(t *testing.T, conn *websocket.Conn, text string) {
	t.Helper()
	if err := conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, conn *websocket.Conn) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, data, err := conn.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestARoomHearsWhatIsSaidInItAndNothingElse(t *testing.T) {
	chat, address := start(t)
	ann, ben, eve := join(t, chat, address, "1"), join(t, chat, address, "1"), join(t, chat, address, "2")
	say(t, ann, "hello")
	say(t, eve, "elsewhere")
	for _, conn := range []*websocket.Conn{ann, ben} {
		if got := hear(t, conn); got != "hello" {
			t.Errorf("heard %q", got)
		}
	}
	if got := hear(t, eve); got != "elsewhere" {
		t.Errorf("the other room heard %q", got)
	}
}

func TestKindAndSizeAreKept(t *testing.T) {
	chat, address := start(t)
	ann := join(t, chat, address, "1")
	for _, kind := range []websocket.MessageType{websocket.MessageText, websocket.MessageBinary} {
		for _, size := range []int{0, 1, 125, 126, 10_000, 32_768} {
			if err := ann.Write(t.Context(), kind, []byte(strings.Repeat("x", size))); err != nil {
				t.Fatal(err)
			}
			got, data, err := ann.Read(t.Context())
			if err != nil || got != kind || len(data) != size {
				t.Fatalf("%v of %d bytes came back as %v of %d, %v", kind, size, got, len(data), err)
			}
		}
	}
	say(t, ann, strings.Repeat("x", 32_769))
	if _, _, err := ann.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusMessageTooBig {
		t.Errorf("a message of over 32 KiB: %v", err)
	}
}

// Many speak at once: everybody hears everything once, and what one has said in that order.
func TestNothingIsLostOrTurnedRound(t *testing.T) {
	const members, messages = 10, 50
	chat, address := start(t)
	var conns []*websocket.Conn
	for range members {
		conns = append(conns, join(t, chat, address, "1"))
	}
	var heard sync.WaitGroup
	// The next message is said when the last one was heard by all: no member has more waiting than there are members.
	var round [messages]sync.WaitGroup
	for i := range messages {
		round[i].Add(members)
	}
	for i, conn := range conns {
		heard.Go(func() {
			last := map[string]int{}
			for n := range messages {
				say(t, conn, fmt.Sprintf("%d %d", i, n))
				for range members {
					var speaker, number int
					if _, err := fmt.Sscanf(hear(t, conn), "%d %d", &speaker, &number); err != nil {
						t.Error(err)
						return
					}
					key := fmt.Sprint(speaker)
					if number != last[key] {
						t.Errorf("message %d of %d came as number %d", number, speaker, last[key])
					}
					last[key]++
				}
				round[n].Done()
				round[n].Wait()
			}
		})
	}
	heard.Wait()
}

func TestAnEmptyRoomIsForgotten(t *testing.T) {
	chat, address := start(t)
	for _, leave := range []func(*websocket.Conn) error{
		func(c *websocket.Conn) error { return c.Close(websocket.StatusNormalClosure, "") },
		func(c *websocket.Conn) error { return c.CloseNow() },
	} {
		conn := join(t, chat, address, "1")
		if err := leave(conn); err != nil {
			t.Fatal(err)
		}
		until(t, "the room is gone", func() bool {
			chat.mu.Lock()
			defer chat.mu.Unlock()
			return len(chat.rooms) == 0
		})
	}
}

// Who does not read is shown the door, and holds nobody up.
func TestASlowMember(t *testing.T) {
	chat, address := start(t)
	ann, slow := join(t, chat, address, "1"), join(t, chat, address, "1")
	text := strings.Repeat("x", 30_000)
	for chat.count("1") == 2 {
		say(t, ann, text)
		hear(t, ann)
	}
	until(t, "only one member is left", func() bool { return chat.count("1") == 1 })
	for {
		if _, _, err := slow.Read(t.Context()); err != nil {
			break
		}
	}
	say(t, ann, "alone")
	if got := hear(t, ann); got != "alone" {
		t.Errorf("heard %q", got)
	}
}

func TestTheEndIsSaidToEveryMember(t *testing.T) {
	chat, address := start(t)
	conns := []*websocket.Conn{join(t, chat, address, "1"), join(t, chat, address, "2")}
	closed := make(chan struct{})
	go func() {
		chat.close(t.Context())
		close(closed)
	}()
	for _, conn := range conns {
		if _, _, err := conn.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusGoingAway {
			t.Errorf("the end of a member: %v", err)
		}
	}
	<-closed
}

func TestOtherRequests(t *testing.T) {
	_, address := start(t)
	base := strings.TrimSuffix("http"+strings.TrimPrefix(address, "ws"), "/rooms/")
	for path, status := range map[string]int{"/healthz": 200, "/rooms/1": http.StatusUpgradeRequired, "/rooms/": 404,
		"/": 404} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != status {
			t.Errorf("%s is answered with %d, want %d", path, response.StatusCode, status)
		}
	}
}

func TestBadPort(t *testing.T) {
	for _, port := range []string{"http", "70000", "-1"} {
		if err := run(t.Context(), port); err == nil || !strings.Contains(err.Error(), "PORT="+port) {
			t.Errorf("PORT=%s: %v", port, err)
		}
	}
}
