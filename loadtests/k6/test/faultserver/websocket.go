package faultserver

import (
	"bufio"
	"crypto/sha1" // RFC 6455 asks for it; nothing is protected by it
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// Opcodes and limits of RFC 6455, as far as a test server needs them.
const (
	opMore  = 0x0
	opText  = 0x1
	opClose = 0x8
	opPing  = 0x9
	opPong  = 0xA

	maxFrame = 1 << 20
	keyGUID  = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
)

// conn is the server's side of one WebSocket. One goroutine reads and writes it.
type conn struct {
	net.Conn
	r *bufio.Reader
}

// upgrade answers a WebSocket handshake.
func upgrade(w http.ResponseWriter, r *http.Request) (*conn, error) {
	key := r.Header.Get("Sec-WebSocket-Key")
	if key == "" {
		http.Error(w, "a WebSocket handshake is needed", http.StatusBadRequest)
		return nil, errors.New("no Sec-WebSocket-Key")
	}
	raw, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("taking over the connection: %w", err)
	}
	sum := sha1.Sum([]byte(key + keyGUID))
	_, err = fmt.Fprintf(raw, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
	if err != nil {
		_ = raw.Close()
		return nil, fmt.Errorf("answering the handshake: %w", err)
	}
	return &conn{Conn: raw, r: rw.Reader}, nil
}

// readText returns the next text message. Pings are answered; a close frame and anything unknown end with io.EOF or an error.
// A message of more than 4 KiB comes in several frames: k6 writes as much at once.
func (c *conn) readText() ([]byte, error) {
	var message []byte
	for {
		op, last, payload, err := c.readFrame()
		if err != nil {
			return nil, err
		}
		switch op {
		case opText, opMore:
			message = append(message, payload...)
			if last {
				return message, nil
			}
		case opPing:
			if err := c.writeFrame(opPong, payload); err != nil {
				return nil, err
			}
		case opClose:
			_ = c.writeFrame(opClose, payload) // the client may be gone already, as after any close
			return nil, io.EOF
		default:
			return nil, fmt.Errorf("unexpected opcode %#x", op)
		}
	}
}

func (c *conn) readFrame() (op byte, last bool, payload []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return 0, false, nil, err
	}
	size := uint64(head[1] & 0x7f)
	switch size {
	case 126:
		var b [2]byte
		_, err = io.ReadFull(c.r, b[:])
		size = uint64(binary.BigEndian.Uint16(b[:]))
	case 127:
		var b [8]byte
		_, err = io.ReadFull(c.r, b[:])
		size = binary.BigEndian.Uint64(b[:])
	}
	if err != nil {
		return 0, false, nil, err
	}
	if size > maxFrame || head[1]&0x80 == 0 {
		return 0, false, nil, errors.New("frame too long or not masked")
	}
	var mask [4]byte
	if _, err := io.ReadFull(c.r, mask[:]); err != nil {
		return 0, false, nil, err
	}
	payload = make([]byte, size)
	if _, err := io.ReadFull(c.r, payload); err != nil {
		return 0, false, nil, err
	}
	for i := range payload {
		payload[i] ^= mask[i%4]
	}
	return head[0] & 0x0f, head[0]&0x80 != 0, payload, nil
}

func (c *conn) writeFrame(op byte, payload []byte) error {
	frame := []byte{0x80 | op}
	switch n := len(payload); {
	case n < 126:
		frame = append(frame, byte(n))
	case n < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, 126), uint16(n))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, 127), uint64(n))
	}
	_, err := c.Write(append(frame, payload...))
	return err
}

func (c *conn) closeWith(code uint16, reason string) error {
	return c.writeFrame(opClose, append(binary.BigEndian.AppendUint16(nil, code), reason...))
}
