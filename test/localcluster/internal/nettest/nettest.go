// Package nettest makes networks of namespaces for tests that want real packets and no cluster.
package nettest

import (
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// answerTime is how long Echo waits.
const answerTime = 10 * time.Second

// Namespace is a network namespace, which goes with its test.
type Namespace struct{ Handle netns.NsHandle }

// New makes one with nothing but a loopback.
func New(t *testing.T) Namespace {
	t.Helper()
	var made Namespace
	done := make(chan error)
	go func() {
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		var err error
		made.Handle, err = netns.New()
		done <- err
	}()
	must(t, <-done)
	t.Cleanup(func() { _ = made.Handle.Close() })
	must(t, made.Run(func() error {
		link, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	}))
	return made
}

// Run runs a function on a thread in the namespace.
func (n Namespace) Run(function func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		err := netns.Set(n.Handle)
		if err == nil {
			err = function()
		}
		done <- err
	}()
	return <-done
}

// AddLink makes a link of the calling thread's namespace, gives it an address, unless that is empty, and sets it up.
func AddLink(link netlink.Link, address string) error {
	if err := netlink.LinkAdd(link); err != nil {
		return err
	}
	return AddAddress(link, address)
}

// AddAddress gives the link an address, unless that is empty, and sets it up.
func AddAddress(link netlink.Link, address string) error {
	if address != "" {
		parsed, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, parsed); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(link)
}

// Serve sends back what comes, at some TCP ports.
func (n Namespace) Serve(t *testing.T, ports ...string) {
	t.Helper()
	for _, port := range ports {
		var listener net.Listener
		must(t, n.Run(func() (err error) {
			listener, err = net.Listen("tcp4", ":"+port)
			return err
		}))
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				go sendBack(connection)
			}
		}()
	}
}

func sendBack(connection net.Conn) {
	defer func() { _ = connection.Close() }()
	buffer := make([]byte, 1<<16)
	for {
		length, err := connection.Read(buffer)
		if err != nil {
			return
		}
		if _, err := connection.Write(buffer[:length]); err != nil {
			return
		}
	}
}

// Dial connects from the calling thread's namespace, and hangs up.
func Dial(ip, port string, patience time.Duration) error {
	connection, err := net.DialTimeout("tcp", net.JoinHostPort(ip, port), patience)
	if err != nil {
		return err
	}
	return connection.Close()
}

// Echo sends a byte and waits for it.
func Echo(connection net.Conn) error {
	if err := connection.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	if _, err := connection.Write([]byte{1}); err != nil {
		return err
	}
	_, err := connection.Read(make([]byte, 1))
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
