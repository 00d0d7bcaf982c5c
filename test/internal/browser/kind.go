package browser

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/livestash-dev/livestash/test/internal/liveview"
)

// Kind is a short name for what went wrong with a connection attempt, so that attempts can be counted.
func Kind(err error) string {
	var network net.Error
	switch {
	case errors.Is(err, liveview.ErrStale):
		return "stale"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "unreachable"
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case errors.Is(err, io.EOF):
		return "end of stream"
	}
	return "other"
}
