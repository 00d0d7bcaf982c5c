package podagent

import (
	"context"
	"encoding/binary"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// fakeDNS is a DNS server that answers every question with SRV records of the targets that it holds.
type fakeDNS struct {
	address string
	targets atomic.Pointer[[]string]
	// code is the response code: 0 no error, 2 server failure, 3 no such name; 100: no answer at all.
	code  atomic.Int32
	asked atomic.Pointer[string]
}

const (
	serverFailure = 2
	noSuchName    = 3
	silence       = 100
)

func startDNS(t *testing.T, targets ...string) *fakeDNS {
	t.Helper()
	server := &fakeDNS{}
	server.answer(targets...)

	// A long answer is cut on UDP, and asked for again on TCP; both on the same port.
	tcp := listen(t)
	server.address = tcp.Addr().String()
	udp, err := net.ListenPacket("udp", server.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = udp.Close() })
	go server.serveUDP(udp)
	go server.serveTCP(tcp)
	return server
}

func (d *fakeDNS) answer(targets ...string) {
	d.targets.Store(&targets)
	d.code.Store(0)
}

func (d *fakeDNS) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, d.address)
	}}
}

func (d *fakeDNS) serveUDP(conn net.PacketConn) {
	query := make([]byte, 4096)
	for {
		n, from, err := conn.ReadFrom(query)
		if err != nil {
			return
		}
		reply := d.reply(query[:n])
		if len(reply) > 1232 {
			reply = reply[:12+questionLength(query)]
			reply[2] |= 0x02 // cut short
			binary.BigEndian.PutUint16(reply[6:], 0)
		}
		if reply != nil {
			_, _ = conn.WriteTo(reply, from)
		}
	}
}

func (d *fakeDNS) serveTCP(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		message := make([]byte, 4096)
		if n, err := conn.Read(message); err == nil && n > 2 {
			reply := d.reply(message[2:n])
			_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
		}
		_ = conn.Close()
	}
}

func (d *fakeDNS) reply(query []byte) []byte {
	code := d.code.Load()
	if code == silence {
		return nil
	}
	question := query[12 : 12+questionLength(query)]
	name := readName(question)
	d.asked.Store(&name)
	targets := *d.targets.Load()
	if code != 0 {
		targets = nil
	}
	reply := append([]byte{query[0], query[1], 0x84, byte(code), 0, 1}, 0, 0, 0, 0, 0, 0)
	binary.BigEndian.PutUint16(reply[6:], uint16(len(targets)))
	reply = append(reply, question...)
	for _, target := range targets {
		data := []byte{0, 0, 0, 1, 0x0f, 0xa0} // priority, weight, port
		for label := range strings.SplitSeq(strings.TrimSuffix(target, "."), ".") {
			data = append(append(data, byte(len(label))), label...)
		}
		data = append(data, 0)
		reply = append(reply, 0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 5) // the question's name, SRV, IN, seconds to live
		reply = append(binary.BigEndian.AppendUint16(reply, uint16(len(data))), data...)
	}
	return reply
}

func questionLength(query []byte) int {
	end := 12
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	return end + 5 - 12
}

func readName(question []byte) string {
	var labels []string
	for question[0] != 0 {
		length := int(question[0])
		labels = append(labels, string(question[1:1+length]))
		question = question[1+length:]
	}
	return strings.Join(labels, ".") + "."
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}
