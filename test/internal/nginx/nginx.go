// Package nginx runs an nginx on this machine, as a proxy before an application under test.
package nginx

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/livestash-dev/livestash/test/internal/fleet"
)

// around is what a configuration has beside that of its servers: nothing that differs from the defaults but where it writes.
const around = `daemon off;
user root;
pid %[1]s/pid;
error_log %[1]s/error.log;
events {}
http {
  access_log off;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
%[2]s
}
`

// Proxy is an nginx that runs.
type Proxy struct {
	command *exec.Cmd
	folder  string
}

// Start starts one, with the servers that the configuration describes, by a command that its own is appended to; nil: by none. It waits
// until nginx listens, but not for longer than within.
func Start(ctx context.Context, enter []string, servers string, within time.Duration) (*Proxy, error) {
	// The name of a file below it must be short.
	folder, err := os.MkdirTemp("", "nginx")
	if err != nil {
		return nil, err
	}
	config := filepath.Join(folder, "nginx.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, around, folder, servers), 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	said := filepath.Join(folder, "error.log")
	line := append(append([]string{}, enter...), "nginx", "-p", folder, "-c", config, "-e", said)
	p := &Proxy{command: exec.Command(line[0], line[1:]...), folder: folder}
	p.command.Stderr = os.Stderr
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.command.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start nginx: %w", err), os.RemoveAll(folder))
	}
	// It writes its id when it listens.
	err = fleet.Eventually(ctx, within, func(context.Context) error {
		_, err := os.Stat(filepath.Join(folder, "pid"))
		return err
	})
	if err != nil {
		text, _ := os.ReadFile(said)
		return nil, errors.Join(fmt.Errorf("start nginx: %w\n%s", err, text), p.Stop())
	}
	return p, nil
}

// Stop ends it, and removes what it has written.
func (p *Proxy) Stop() error {
	err := syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL)
	_ = p.command.Wait() // it was killed
	return errors.Join(err, os.RemoveAll(p.folder))
}

// WriteSelfSigned writes a certificate of a name, and its key, below a folder, under the names that the Secrets of Kubernetes have for them.
// It returns the certificate, as PEM.
func WriteSelfSigned(folder, name string) (certificate []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, err
	}
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
	return certificate, errors.Join(
		os.WriteFile(filepath.Join(folder, "tls.crt"), certificate, 0o600),
		os.WriteFile(filepath.Join(folder, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
}
