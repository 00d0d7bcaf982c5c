package agentclient

import (
	"context"
	"net"
	"net/http"
)

// MaxBody is how much of an answer is read.
const MaxBody = maxBody

// Wrap has every new connection to an agent wrapped.
func (c *Client) Wrap(wrap func(net.Conn) net.Conn) {
	transport := c.http.Transport.(*http.Transport)
	dial := transport.DialContext
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		connection, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return wrap(connection), nil
	}
}

// ReadAtOnce is how many answers are read at the same time.
func (c *Client) ReadAtOnce() int { return cap(c.reading) }

// ReadWith asks as every question does, and has the answer read by that.
func (c *Client) ReadWith(ctx context.Context, ip string, port int32, read func()) {
	_, _ = get(ctx, c, ip, port, "/metrics", func([]byte) (bool, error) {
		read()
		return true, nil
	})
}
