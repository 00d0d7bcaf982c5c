package main

import (
	"context"
	"fmt"

	"github.com/livestash-dev/livestash/test/internal/nginx"
)

// passesSockets is the server of an nginx before a fleet: what WebSockets need, and nothing else.
const passesSockets = `
  map $http_upgrade $connection_upgrade { default upgrade; '' close; }
  server {
    listen 127.0.0.1:%s;
    location / {
      proxy_pass http://%s;
      proxy_http_version 1.1;
      proxy_set_header Host $http_host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
    }
  }`

// startProxy starts an nginx before a fleet, by a command that its own is appended to, and waits until it listens.
func startProxy(ctx context.Context, enter []string, service string) (*nginx.Proxy, error) {
	return nginx.Start(ctx, enter, fmt.Sprintf(passesSockets, proxyPort, service), openWithin)
}
