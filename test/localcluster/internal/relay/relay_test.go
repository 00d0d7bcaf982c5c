package relay

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/livestash-dev/livestash/test/localcluster/internal/nettest"
)

// cabled is two machines with a relay between them: the far one's packets take the cable.
func cabled(t *testing.T, cable Cable) (near, far nettest.Namespace) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	near, far = nettest.New(t), nettest.New(t)
	middle := nettest.New(t)
	for name, end := range map[string]struct {
		namespace nettest.Namespace
		address   string
	}{"from": {far, "10.0.0.2/24"}, "to": {near, "10.0.0.1/24"}} {
		must(t, middle.Run(func() error {
			return nettest.AddLink(&netlink.Veth{
				LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0", PeerNamespace: netlink.NsFd(end.namespace.Handle),
			}, "")
		}))
		must(t, end.namespace.Run(func() error {
			link, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			return nettest.AddAddress(link, end.address)
		}))
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- middle.Run(func() error { return Run(ctx, "from", "to", cable) }) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})
	return near, far
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// connect waits, however late the relay starts.
func connect(t *testing.T, from nettest.Namespace) net.Conn {
	t.Helper()
	var connection net.Conn
	must(t, from.Run(func() (err error) {
		connection, err = net.DialTimeout("tcp", "10.0.0.2:7", 20*time.Second)
		return err
	}))
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

func TestLate(t *testing.T) {
	const delay = 100 * time.Millisecond
	near, far := cabled(t, Cable{Delay: delay})
	far.Serve(t, "7")
	connection := connect(t, near)
	started := time.Now()
	must(t, nettest.Echo(connection))
	if took := time.Since(started); took < delay {
		t.Errorf("there and back in %s, but the way back takes %s", took, delay)
	}
}

// More than one packet at once is what the kernel hands over in one piece.
func TestMuchAndSomeOfItLost(t *testing.T) {
	near, far := cabled(t, Cable{Loss: 0.02})
	far.Serve(t, "7")
	connection := connect(t, near)
	must(t, connection.SetDeadline(time.Now().Add(time.Minute)))
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	failed := make(chan error, 1)
	go func() {
		_, err := connection.Write(sent)
		failed <- err
	}()
	got := make([]byte, len(sent))
	_, err := io.ReadFull(connection, got)
	must(t, err)
	must(t, <-failed)
	if !bytes.Equal(got, sent) {
		t.Error("what came back is not what was sent")
	}
}

func TestAllLost(t *testing.T) {
	near, far := cabled(t, Cable{Loss: 1})
	far.Serve(t, "7")
	if err := near.Run(func() error { return nettest.Dial("10.0.0.2", "7", 200*time.Millisecond) }); err == nil {
		t.Error("a connection over a cable that loses everything")
	}
}

func TestNoLink(t *testing.T) {
	if err := Run(context.Background(), "no-such-link", "lo", Cable{}); err == nil {
		t.Error("a link that is not there was opened")
	}
}
