package liveview

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/coder/websocket"
)

// maxFrame is the largest frame that is read, in bytes.
const maxFrame = 1 << 20

// Frame is one message of Phoenix's channel protocol 2.0.0.
type Frame struct {
	ref, topic, event string
	payload           json.RawMessage
}

// Socket is one open WebSocket with a joined view. Frames are read by a goroutine of its own; all else is for the owner's.
type Socket struct {
	conn    *websocket.Conn
	joinRef string
	frames  chan Frame
	stop    context.CancelFunc

	// Written before frames is closed, read after.
	closed time.Time
	code   int
	err    error
}

// Frames are what the server sends. The channel is closed when the socket has ended.
func (s *Socket) Frames() <-chan Frame { return s.frames }

// Ended is when the socket was seen to end, the close code (-1 when there was no close frame) and the error. It must only
// be called once Frames is closed.
func (s *Socket) Ended() (closed time.Time, code int, err error) { return s.closed, s.code, s.err }

// Drop ends the connection at once, without a close frame.
func (s *Socket) Drop() {
	s.stop()
	_ = s.conn.CloseNow()
}

func (s *Socket) pump(ctx context.Context) {
	defer close(s.frames)
	for {
		f, err := readFrame(ctx, s.conn)
		if err != nil {
			s.closed, s.code, s.err = time.Now(), int(websocket.CloseStatus(err)), err
			return
		}
		select {
		case s.frames <- f:
		case <-ctx.Done():
			s.closed, s.code, s.err = time.Now(), -1, ctx.Err()
			return
		}
	}
}

func readFrame(ctx context.Context, conn *websocket.Conn) (Frame, error) {
	_, text, err := conn.Read(ctx)
	if err != nil {
		return Frame{}, err
	}
	f, err := parseFrame(text)
	if err != nil {
		return Frame{}, fmt.Errorf("the server sent a frame that is not of the channel protocol: %w", err)
	}
	return f, nil
}

// parseFrame reads [join_ref, ref, topic, event, payload].
func parseFrame(text []byte) (Frame, error) {
	var parts []json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil {
		return Frame{}, err
	}
	if len(parts) != 5 {
		return Frame{}, fmt.Errorf("it has %d parts instead of 5", len(parts))
	}
	f := Frame{payload: parts[4]}
	for i, part := range []*string{&f.ref, &f.topic, &f.event} {
		// A message that is no reply has null for its reference, which leaves the text empty.
		if err := json.Unmarshal(parts[i+1], part); err != nil {
			return Frame{}, err
		}
	}
	return f, nil
}

func (s *Socket) send(ctx context.Context, joinRef any, ref, topic, event string, payload any) error {
	text, err := json.Marshal([]any{joinRef, ref, topic, event, payload})
	if err != nil {
		return err
	}
	return s.conn.Write(ctx, websocket.MessageText, text)
}
