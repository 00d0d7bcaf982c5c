package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/livestash-dev/livestash/test/internal/fleet"
)

// nginx is its configuration: what WebSockets need, and nothing else that differs from its defaults but where it writes.
const nginx = `daemon off;
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
  map $http_upgrade $connection_upgrade { default upgrade; '' close; }
  server {
    listen 127.0.0.1:%[2]s;
    location / {
      proxy_pass http://%[3]s;
      proxy_http_version 1.1;
      proxy_set_header Host $http_host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
    }
  }
}
`

// proxy is an nginx before a fleet.
type proxy struct {
	command *exec.Cmd
	folder  string
}

// startProxy starts one by a command that its own is appended to, and waits until it listens.
func startProxy(ctx context.Context, enter []string, service string) (*proxy, error) {
	folder, err := os.MkdirTemp("", "nginx")
	if err != nil {
		return nil, err
	}
	config := filepath.Join(folder, "nginx.conf")
	err = os.WriteFile(config, fmt.Appendf(nil, nginx, folder, proxyPort, service), 0o600)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	line := append(append([]string{}, enter...), "nginx", "-p", folder, "-c", config, "-e", filepath.Join(folder, "error.log"))
	p := &proxy{command: exec.Command(line[0], line[1:]...), folder: folder}
	p.command.Stderr = os.Stderr
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.command.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start nginx: %w", err), os.RemoveAll(folder))
	}
	// It writes its id when it listens.
	err = fleet.Eventually(ctx, openWithin, func(context.Context) error {
		_, err := os.Stat(filepath.Join(folder, "pid"))
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start nginx: %w", err), p.stop())
	}
	return p, nil
}

func (p *proxy) stop() error {
	err := syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL)
	_ = p.command.Wait() // it was killed
	return errors.Join(err, os.RemoveAll(p.folder))
}
