// Package redisadmin tells Redis servers that run what the configuration they started with does not say: the fleet's password, and
// which of two servers hands its stashes over to the other.
package redisadmin

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// timeout bounds every step of a conversation with a server that does not answer.
const timeout = 2 * time.Second

// Login is who talks to a server, and where.
type Login struct {
	// Address is host:port.
	Address string
	// User may change the rights of users, its own among them.
	User, Password string
	// Authorities are those that the server's certificate is checked against, in PEM, and Host is the name that it is for. Without
	// authorities there is no TLS.
	Authorities, Host string
	// at is when the certificate must have been good. The zero time: now.
	at time.Time
}

// Client talks to Redis servers. It keeps no connections.
type Client struct {
	// MayTell is an error while no server may be told anything, as fencing.ErrExpired. Nil: servers may always be told.
	MayTell func() error
	// patience is timeout: tests have their own.
	patience time.Duration
}

// New is a client. The library's own log is turned off, because whatever it would say is in the errors.
func New() Client {
	redis.SetLogger(silence{})
	return Client{patience: timeout}
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// connect is a connection to a server, to be closed. Nothing is asked before the first command.
func (c Client) connect(login Login) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: login.Address,
		Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			connection, err := dial(ctx, network, address, login, c.patience)
			if err != nil {
				return nil, err
			}
			return &bounded{Conn: connection, mayTell: c.MayTell}, nil
		},
		Username:        login.User,
		Password:        login.Password,
		DialTimeout:     c.patience,
		ReadTimeout:     c.patience,
		WriteTimeout:    c.patience,
		MaxRetries:      -1,
		DialerRetries:   1,
		PoolSize:        1,
		DisableIdentity: true,
		Protocol:        2,
	})
}

// SetPasswords makes user have exactly the passwords with those digests (SHA-256, hexadecimal). Connections that are open
// stay open.
func (c Client) SetPasswords(ctx context.Context, login Login, user string, hashes []string) error {
	client := c.connect(login)
	defer func() { _ = client.Close() }()

	rules := []any{"ACL", "SETUSER", user, "resetpass"}
	for _, hash := range hashes {
		rules = append(rules, "#"+hash)
	}
	if err := client.Do(ctx, rules...).Err(); err != nil {
		return fmt.Errorf("setting the passwords of user %s in Redis at %s: %w", user, login.Address, unquoted(err))
	}
	return nil
}
