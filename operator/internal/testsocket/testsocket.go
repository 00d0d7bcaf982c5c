// Package testsocket makes sockets for tests that net has no function for.
package testsocket

import (
	"syscall"
	"testing"
)

// Bound is a socket that has a port of 127.0.0.1, and does not listen: who connects is refused, and nobody else gets the port as long as the
// test runs.
func Bound(t *testing.T) (socket, port int) {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(socket) })
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	return socket, at.(*syscall.SockaddrInet4).Port
}
