package redisadmin

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// dial connects to a server, over TLS if the login says how to check its certificate.
func dial(ctx context.Context, network, address string, login Login, patience time.Duration) (net.Conn, error) {
	connection, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, network, address)
	if err != nil || login.Authorities == "" {
		return connection, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(login.Authorities))
	options := &tls.Config{RootCAs: roots, ServerName: login.Host, MinVersion: tls.VersionTLS12}
	if !login.at.IsZero() {
		options.Time = func() time.Time { return login.at }
	}
	secured := tls.Client(connection, options)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	return secured, nil
}

// Renew has a server read its certificate again, unless it shows that one already, and returns whether it does. file is the certificate
// in the server's pod, want is that certificate in PEM. Connections that are open stay open.
func (c Client) Renew(ctx context.Context, login Login, file string, want []byte) (bool, error) {
	shows, err := c.showsCertificate(ctx, login, want)
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		// Nobody has renewed it in time. It is still that server, and has another one in its pod.
		login.at = invalid.Cert.NotAfter
		shows, err = c.showsCertificate(ctx, login, want)
	}
	if shows || err != nil {
		return shows, err
	}
	err = c.ask(ctx, login, "renewing the certificate of", func(client *redis.Client) error {
		// Whatever value is set, also the one that it has: the server reads all files of its TLS again.
		return client.ConfigSet(ctx, "tls-cert-file", file).Err()
	})
	if err != nil {
		return false, err
	}
	login.at = time.Time{}
	shows, err = c.showsCertificate(ctx, login, want)
	if errors.As(err, &invalid) {
		return false, nil // the kubelet has not brought the other one yet
	}
	return shows, err
}

func (c Client) showsCertificate(ctx context.Context, login Login, want []byte) (bool, error) {
	connection, err := dial(ctx, "tcp", login.Address, login, c.patience)
	if err != nil {
		return false, fmt.Errorf("looking at the certificate of Redis at %s: %w", login.Address, unquoted(err))
	}
	defer func() { _ = connection.Close() }()
	secured, is := connection.(*tls.Conn)
	block, _ := pem.Decode(want)
	if !is || block == nil {
		return false, nil
	}
	return bytes.Equal(secured.ConnectionState().PeerCertificates[0].Raw, block.Bytes), nil
}
