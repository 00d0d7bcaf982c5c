package main

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
)

const (
	// messages that wait for a member; one who has more is too slow and is shown the door
	maxWaiting = 64
	// how long the write of one message may take
	writeTimeout = 10 * time.Second
	// how often members are asked whether they are still there, and how long they have for an answer
	pingEvery   = 30 * time.Second
	pingTimeout = 10 * time.Second
)

// hub is all rooms. Members come and go under its lock; messages take only that of their room.
type hub struct {
	mu    sync.Mutex
	rooms map[string]*room
}

type room struct {
	mu      sync.RWMutex
	members map[*member]struct{}
}

type member struct {
	conn *websocket.Conn
	// what waits to be written; all members of a room share the message itself
	waiting chan *message
	tooSlow sync.Once
}

type message struct {
	kind websocket.MessageType
	data []byte
}

func newHub() *hub { return &hub{rooms: map[string]*room{}} }

// serve is one member's stay in a room, from the handshake to the end of the connection. This goroutine reads; a second
// one writes.
func (h *hub) serve(w http.ResponseWriter, r *http.Request) {
	// Uncompressed, and with at most 32 KiB a message: the library's defaults.
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // Accept has answered
	}
	defer func() { _ = conn.CloseNow() }()
	// Not the request's: net/http says nothing about that one once the connection is taken over.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	name := r.PathValue("room")
	m := &member{conn: conn, waiting: make(chan *message, maxWaiting)}
	joined := h.join(name, m)
	defer h.leave(name, m)
	go m.write(ctx)
	for {
		kind, data, err := conn.Read(ctx)
		if err != nil {
			return
		}
		joined.broadcast(&message{kind, data})
	}
}

func (h *hub) join(name string, m *member) *room {
	h.mu.Lock()
	defer h.mu.Unlock()
	joined, ok := h.rooms[name]
	if !ok {
		joined = &room{members: map[*member]struct{}{}}
		h.rooms[name] = joined
	}
	joined.mu.Lock()
	defer joined.mu.Unlock()
	joined.members[m] = struct{}{}
	return joined
}

func (h *hub) leave(name string, m *member) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := h.rooms[name]
	left.mu.Lock()
	defer left.mu.Unlock()
	delete(left.members, m)
	if len(left.members) == 0 {
		delete(h.rooms, name)
	}
}

// close says goodbye to every member, and returns when all have answered or ctx is done.
func (h *hub) close(ctx context.Context) {
	var closing sync.WaitGroup
	h.mu.Lock()
	for _, r := range h.rooms {
		r.mu.RLock()
		for m := range r.members {
			closing.Go(func() { _ = m.conn.Close(websocket.StatusGoingAway, "the server stops") })
		}
		r.mu.RUnlock()
	}
	h.mu.Unlock()
	all := make(chan struct{})
	go func() {
		closing.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-ctx.Done():
	}
}

// broadcast waits for nobody: a member who cannot keep up would hold up the room.
func (r *room) broadcast(msg *message) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for m := range r.members {
		select {
		case m.waiting <- msg:
		default:
			m.tooSlow.Do(func() { go m.showOut() })
		}
	}
}

func (m *member) showOut() {
	_ = m.conn.Close(websocket.StatusPolicyViolation, "too slow to keep up with the room")
}

// write is the only one who writes messages to the connection. It ends with ctx, or when the connection takes no more.
func (m *member) write(ctx context.Context) {
	alive := time.NewTicker(pingEvery)
	defer alive.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case msg := <-m.waiting:
			if err := m.writeOne(ctx, msg); err != nil {
				_ = m.conn.CloseNow()
				return
			}
		case <-alive.C:
			go m.ping(ctx) // waits for the answer, and messages must not
		}
	}
}

func (m *member) writeOne(ctx context.Context, msg *message) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return m.conn.Write(ctx, msg.kind, msg.data)
}

func (m *member) ping(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := m.conn.Ping(ctx); err != nil {
		_ = m.conn.CloseNow()
	}
}
