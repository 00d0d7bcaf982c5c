// Package relay is a bad cable: it carries Ethernet frames between two links, late in one direction and not all of them.
package relay

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// frameLimit has room for what the kernel hands over in one piece, up to 64 KiB, with its headers.
	frameLimit = 1 << 17
	// onTheWay is how many frames can be late at once; more are lost, as in any queue.
	onTheWay = 10_000
)

// Cable is how bad one direction is.
type Cable struct {
	Delay time.Duration
	// Loss is the part of the frames that is lost, 0 to 1.
	Loss float64
}

// Run carries what comes out of the link named from as the cable says, and the other direction as it comes. Neither link may
// be anything else's. It ends with the context, or with an error when a link is gone.
func Run(ctx context.Context, from, to string, cable Cable) error {
	out, err := open(from)
	if err != nil {
		return err
	}
	in, err := open(to)
	if err != nil {
		return err
	}
	failed := make(chan error, 2)
	go func() { failed <- carry(out, in, cable) }()
	go func() { failed <- carry(in, out, Cable{}) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// open returns a socket that gets every frame that comes out of the link, as the kernel has it: with a header that says
// which checksums are still to be made and where it is to be cut into packets.
func open(name string) (int, error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return 0, fmt.Errorf("link %s: %w", name, err)
	}
	// Of no protocol until it is bound: it would get frames of all links.
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open a socket on link %s: %w", name, err)
	}
	err = errors.Join(
		unix.SetsockoptInt(socket, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
		unix.SetsockoptInt(socket, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: link.Index}),
	)
	if err != nil {
		return 0, fmt.Errorf("open a socket on link %s: %w", name, err)
	}
	return socket, nil
}

func htons(value uint16) uint16 { return value<<8 | value>>8 }

// late is a frame and when it is to arrive.
type late struct {
	frame []byte
	due   time.Time
}

func carry(from, to int, cable Cable) error {
	queue, failed := make(chan late, onTheWay), make(chan error, 1)
	defer close(queue)
	go func() {
		for next := range queue {
			time.Sleep(time.Until(next.due))
			if err := send(to, next.frame); err != nil {
				failed <- err
				return
			}
		}
	}()
	buffer := make([]byte, frameLimit)
	for {
		length, err := unix.Read(from, buffer)
		if again(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read a frame: %w", err)
		}
		select {
		case err := <-failed:
			return err
		default:
		}
		if rand.Float64() < cable.Loss {
			continue
		}
		select {
		case queue <- late{append([]byte(nil), buffer[:length]...), time.Now().Add(cable.Delay)}:
		default:
		}
	}
}

func send(to int, frame []byte) error {
	_, err := unix.Write(to, frame)
	// A frame that the link has no room for, or takes no more of: lost, as on any cable.
	if err == nil || again(err) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	return fmt.Errorf("send a frame: %w", err)
}

// again says whether the call is worth repeating: interrupted, or the link went down for a moment.
func again(err error) bool {
	return errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENETDOWN)
}
