package faultserver

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The ways in which a chat goes wrong.
const (
	// Spaced writes correct JSON in another way than Phoenix and Rails do.
	Spaced Fault = "spaced"
	// LoseOne passes no message on to the member who came last.
	LoseOne Fault = "lose-one"
	// Twice passes each message on twice.
	Twice Fault = "twice"
	// EveryRoom passes each message on to the members of all rooms.
	EveryRoom Fault = "every-room"
	// Shortened passes on a message without its last letters.
	Shortened Fault = "shortened"
	// Belated passes messages on after two seconds.
	Belated Fault = "belated"
	// Mute passes nothing on, and says nothing of it.
	Mute Fault = "mute"
	// RefuseJoin refuses every member.
	RefuseJoin Fault = "refuse-join"
	// SilentJoin never answers a member who wants to join.
	SilentJoin Fault = "silent-join"
	// RefuseMessage answers each message with an error.
	RefuseMessage Fault = "refuse-message"
	// DropSpeaker ends the connection of a member who speaks, every tenth time, without a close frame.
	DropSpeaker Fault = "drop-speaker"
	// CrashRoom says that the process behind the room has died, every tenth time somebody speaks.
	CrashRoom Fault = "crash-room"
	// Noise passes on text that belongs to no protocol.
	Noise Fault = "noise"
)

// Rooms is a chat that speaks the three protocols of the scenario Rooms.
type Rooms struct {
	fault Fault
	http  http.Server

	mu    sync.Mutex
	rooms map[string][]*guest

	// Open counts the WebSockets that are open now.
	Open atomic.Int64
	// Said counts what members have said.
	Said atomic.Int64
	// Largest is how many members the largest room has had.
	Largest atomic.Int64
}

// guest is a member of a room.
type guest struct {
	*conn
	rooms   *Rooms
	dialect dialect
	room    string
	joinRef any
	writing sync.Mutex
}

// dialect is how a protocol is spoken.
type dialect interface {
	// hear acts on a frame of a member; false ends the connection.
	hear(g *guest, frame []byte) bool
	// frame is how a message looks on the wire.
	frame(g *guest, text string) []byte
}

// NewRooms returns a chat with a fault. It listens nowhere yet.
func NewRooms(fault Fault) *Rooms {
	s := &Rooms{fault: fault, rooms: map[string][]*guest{}}
	mux := http.NewServeMux()
	mux.Handle("GET /socket/websocket", ForceSSL(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, phoenix{}, "") })))
	mux.Handle("GET /rooms/{room}", ForceSSL(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, plain{}, r.PathValue("room"))
	})))
	mux.HandleFunc("GET /cable", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Forwarded-Proto") != "" { // Rails would not take the page for one of its own site
			http.NotFound(w, r)
			return
		}
		s.serve(w, r, cable{}, "")
	})
	s.http.Handler = mux
	return s
}

// Listen starts a listener on a free port of host and returns its base URL.
func (s *Rooms) Listen(host string) (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", err
	}
	go func() { _ = s.http.Serve(l) }()
	return "http://" + l.Addr().String(), nil
}

// Close ends the listeners.
func (s *Rooms) Close() error { return s.http.Close() }

func (s *Rooms) serve(w http.ResponseWriter, r *http.Request, how dialect, room string) {
	if _, isPlain := how.(plain); isPlain && s.fault == RefuseJoin {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	_, isCable := how.(cable)
	if isCable && (r.Header.Get("Sec-WebSocket-Protocol") != "actioncable-v1-json" ||
		r.Header.Get("Origin") != "http://"+r.Host) {
		http.Error(w, "Action Cable wants its subprotocol, and pages of its own site", http.StatusNotFound)
		return
	}
	c, err := upgrade(w, r)
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	s.Open.Add(1)
	defer s.Open.Add(-1)
	g := &guest{conn: c, rooms: s, dialect: how}
	defer s.leave(g)
	switch how.(type) {
	case plain:
		s.enter(g, room)
	case cable:
		g.write([]byte(`{"type":"welcome"}`))
	}
	for {
		frame, err := c.readText()
		if err != nil || !how.hear(g, frame) {
			return
		}
	}
}

func (s *Rooms) enter(g *guest, room string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g.room = room
	s.rooms[room] = append(s.rooms[room], g)
	s.Largest.Store(max(s.Largest.Load(), int64(len(s.rooms[room]))))
}

func (s *Rooms) leave(g *guest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var stay []*guest
	for _, other := range s.rooms[g.room] {
		if other != g {
			stay = append(stay, other)
		}
	}
	s.rooms[g.room] = stay
}

// say passes on what a member said, with the fault; false ends the member's connection.
func (s *Rooms) say(g *guest, text string) bool {
	tenth := s.Said.Add(1)%10 == 0
	if tenth && s.fault == DropSpeaker {
		return false
	}
	if tenth && s.fault == CrashRoom {
		g.crash()
		return true
	}
	to := s.audience(g)
	switch s.fault {
	case Mute:
	case Shortened:
		pass(to, text[:len(text)-5])
	case Noise:
		for _, member := range to {
			member.write([]byte("what?"))
		}
	case Belated:
		time.AfterFunc(2*time.Second, func() { pass(to, text) })
	default:
		pass(to, text)
	}
	return true
}

// audience is to whom something that a member said goes.
func (s *Rooms) audience(g *guest) []*guest {
	s.mu.Lock()
	defer s.mu.Unlock()
	var to []*guest
	for name, members := range s.rooms {
		if name == g.room || s.fault == EveryRoom {
			to = append(to, members...)
		}
	}
	if s.fault == LoseOne {
		return to[:len(to)-1]
	}
	if s.fault == Twice {
		return append(to, to...)
	}
	return to
}

// pass writes a message to members. Those of one room speak one dialect, and one room has one frame for all.
func pass(to []*guest, text string) {
	frames := map[string][]byte{}
	for _, member := range to {
		frame, ok := frames[member.room]
		if !ok {
			frame = member.dialect.frame(member, text)
			frames[member.room] = frame
		}
		member.write(frame)
	}
}

func (g *guest) write(frame []byte) {
	g.writing.Lock()
	defer g.writing.Unlock()
	_ = g.writeFrame(opText, frame) // who has gone is seen by the goroutine that reads
}

func (g *guest) crash() {
	switch g.dialect.(type) {
	case phoenix:
		g.write(g.encode([]any{g.joinRef, g.joinRef, g.room, "phx_error", map[string]any{}}))
	case cable:
		g.write([]byte(`{"type":"disconnect","reason":"server_restart","reconnect":true}`))
	default:
		g.writing.Lock()
		defer g.writing.Unlock()
		_ = g.closeWith(1011, "crashed")
	}
}

func (g *guest) encode(value any) []byte {
	encoded, err := json.Marshal(value)
	if g.rooms.fault == Spaced {
		encoded, err = json.MarshalIndent(value, " ", " ")
	}
	if err != nil {
		panic(err) // of what this file makes itself
	}
	return encoded
}

// phoenix is Phoenix's channels, protocol 2.0.0.
type phoenix struct{}

func (phoenix) frame(g *guest, text string) []byte {
	return g.encode([]any{nil, nil, g.room, "new_message", map[string]string{"body": text}})
}

func (phoenix) hear(g *guest, frame []byte) bool {
	var message []any
	if err := json.Unmarshal(frame, &message); err != nil || len(message) != 5 {
		return false
	}
	reply := func(status string) {
		payload := map[string]any{"status": status, "response": map[string]any{}}
		g.write(g.encode([]any{message[0], message[1], message[2], "phx_reply", payload}))
	}
	topic, _ := message[2].(string)
	payload, _ := message[4].(map[string]any)
	switch message[3] {
	case "heartbeat":
		reply("ok")
		return true
	case "phx_join":
		return g.joins(message[0], topic, reply)
	case "publish_msg":
		if message[0] != g.joinRef || topic != g.room {
			return false
		}
		if g.rooms.fault == RefuseMessage {
			reply("error")
			return true
		}
		if !g.rooms.say(g, fmt.Sprint(payload["body"])) {
			return false
		}
		reply("ok")
		return true
	}
	return false
}

func (g *guest) joins(ref any, topic string, reply func(status string)) bool {
	switch {
	case !strings.HasPrefix(topic, "room:"):
		return false
	case g.rooms.fault == SilentJoin:
	case g.rooms.fault == RefuseJoin:
		reply("error")
	default:
		g.joinRef = ref
		g.rooms.enter(g, topic)
		reply("ok")
	}
	return true
}

// plain is messages as they are.
type plain struct{}

func (plain) frame(_ *guest, text string) []byte { return []byte(text) }
func (plain) hear(g *guest, frame []byte) bool   { return g.rooms.say(g, string(frame)) }

// cable is Rails' Action Cable, actioncable-v1-json. A member's room is the whole identifier of its subscription.
type cable struct{}

// frame has its keys in Rails' order.
func (cable) frame(g *guest, text string) []byte {
	return g.encode(struct {
		Identifier string `json:"identifier"`
		Message    any    `json:"message"`
	}{g.room, map[string]string{"body": text}})
}

func (cable) hear(g *guest, frame []byte) bool {
	var said struct{ Command, Identifier, Data string }
	if err := json.Unmarshal(frame, &said); err != nil {
		return false
	}
	switch said.Command {
	case "subscribe":
		answer := "confirm_subscription"
		switch g.rooms.fault {
		case SilentJoin:
			return true
		case RefuseJoin:
			answer = "reject_subscription"
		default:
			g.rooms.enter(g, said.Identifier)
		}
		g.write(g.encode(map[string]string{"identifier": said.Identifier, "type": answer}))
		return true
	case "message":
		var data struct{ Action, Body string }
		if err := json.Unmarshal([]byte(said.Data), &data); err != nil || data.Action != "publish_msg" ||
			said.Identifier != g.room {
			return false
		}
		g.write(g.encode(map[string]any{"identifier": g.room, "message": map[string]string{"reply": "ok"}}))
		return g.rooms.say(g, data.Body)
	}
	return false
}
