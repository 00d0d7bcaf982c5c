package e2e

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/livestash-dev/livestash/test/internal/browser"
	"github.com/livestash-dev/livestash/test/internal/fenced"
	"github.com/livestash-dev/livestash/test/internal/liveview"
	"github.com/livestash-dev/livestash/test/internal/nginx"
)

// publicName is that of the pages' examples.
const publicName = "shop.example.com"

// nginxPod is an nginx: a configuration around that of its servers, what a pod that is nobody must have, and a port of the node.
const nginxPod = `
apiVersion: v1
kind: ConfigMap
metadata: {name: nginx}
data:
  nginx.conf: |
    daemon off;
    pid /tmp/pid;
    error_log /dev/stderr;
    events {}
    http {
      access_log off;
      client_body_temp_path /tmp/body;
      proxy_temp_path /tmp/proxy;
      fastcgi_temp_path /tmp/fastcgi;
      uwsgi_temp_path /tmp/uwsgi;
      scgi_temp_path /tmp/scgi;
      include /etc/nginx/conf.d/*.conf;
    }
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: nginx}
spec:
  selector: {matchLabels: {app: nginx}}
  template:
    metadata: {labels: {app: nginx}}
    spec:
      automountServiceAccountToken: false
      securityContext:
        runAsNonRoot: true
        seccompProfile: {type: RuntimeDefault}
        sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: "0"}]
      containers:
      - name: nginx
        image: @REGISTRY@/livestash-test-nginx:@VERSION@
        readinessProbe: {tcpSocket: {port: 443}, periodSeconds: 1}
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        volumeMounts:
        - {name: main, mountPath: /etc/nginx/nginx.conf, subPath: nginx.conf}
        - {name: server, mountPath: /etc/nginx/conf.d}
        - {name: tls, mountPath: /etc/nginx/tls}
      volumes:
      - {name: main, configMap: {name: nginx}}
      - {name: server, configMap: {name: server}}
      - {name: tls, secret: {secretName: shop-tls}}
---
apiVersion: v1
kind: Service
metadata: {name: nginx}
spec:
  type: NodePort
  selector: {app: nginx}
  ports: [{port: 443}]
`

// Behind an nginx as the page has it, with TLS, users keep their sockets while nginx loads its configuration anew, and their state
// while every pod is replaced.
func TestNginxInFrontOfAFleet(t *testing.T) {
	t.Parallel()
	s := newSpace(t, "nginx")
	shop := func(more string) {
		t.Helper()
		fleet := s.fleet("adapter: ETS\nreplicas: 2\n" + more)
		s.must(strings.Replace(fleet, "http: {", "http: {host: "+publicName+", ", 1), "apply", "-f", "-")
	}
	shop("")
	s.settled()
	authorities := s.nginx(s.pagesNginx())
	client := liveview.NewTLSClient(publicName, "/stash/ets", authorities)
	address := s.nodePort("nginx")
	t.Logf("nginx is at %s", address)

	ctx, stop := context.WithCancel(t.Context())
	visitors := make([]*visitor, 12)
	var living sync.WaitGroup
	defer living.Wait()
	defer stop()
	for i := range visitors {
		tab, err := browser.Open(ctx, client, address, browser.Usual())
		if err != nil {
			t.Fatalf("a browser behind the proxy: %v", err)
		}
		visitors[i] = &visitor{tab: tab}
		living.Go(func() { visitors[i].live(ctx, address) })
	}
	s.eventually(time.Minute, func() error {
		for _, v := range visitors {
			if v.tally().stashed == 0 {
				return errors.New("not everybody has stashed")
			}
		}
		return nil
	})

	s.must("", "exec", "deployment/nginx", "--", "nginx", "-s", "reload")
	time.Sleep(5 * time.Second)
	for i, v := range visitors {
		if now := v.tally(); now.ended != 0 {
			t.Errorf("visitor %d lost the socket when nginx was reloaded: %v", i, now.why)
		}
	}

	shop("env: [{name: ROLLED, value: \"1\"}]")
	s.settled()
	if told := s.rolledOut(); told.Lost != 0 || told.PodsReported != 2 {
		t.Errorf("the rollout tells %+v", told)
	}
	s.eventually(time.Minute, func() error {
		for i, v := range visitors {
			if now := v.tally(); !now.connected || now.returned == 0 {
				return fmt.Errorf("visitor %d is not back: %+v", i, now)
			}
		}
		return nil
	})
	for i, v := range visitors {
		if now := v.tally(); now.lost > 0 {
			t.Errorf("visitor %d: of %d returns %d found no state, or an old one: %v", i, now.returned, now.lost, now.why)
		}
	}
}

// pagesNginx is the page's configuration, for this namespace.
func (s space) pagesNginx() string {
	s.t.Helper()
	var server string
	for _, block := range fenced.Blocks(read(s.t, "docs/how-to/ingress.md")) {
		if block.Language == "nginx" {
			server += block.Text
		}
	}
	const example = "http://shop.default.svc."
	if strings.Count(server, example) != 1 {
		s.t.Fatalf("the page's nginx leads elsewhere:\n%s", server)
	}
	return strings.Replace(server, example, "http://shop."+s.name+".svc.", 1)
}

// nginx runs one with a configuration of its servers, and returns whom its users trust.
func (s space) nginx(servers string) *x509.CertPool {
	s.t.Helper()
	pair := s.t.TempDir()
	certificate, err := nginx.WriteSelfSigned(pair, publicName)
	if err != nil {
		s.t.Fatal(err)
	}
	s.must("", "create", "secret", "tls", "shop-tls", "--cert="+filepath.Join(pair, "tls.crt"), "--key="+filepath.Join(pair, "tls.key"))
	s.must("", "create", "configmap", "server", "--from-literal=shop.conf="+servers)
	s.must(strings.NewReplacer("@REGISTRY@", registry, "@VERSION@", version).Replace(nginxPod), "apply", "-f", "-")
	s.must("", "rollout", "status", "deployment/nginx", "--timeout=2m")
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(certificate)
	return authorities
}

// nodePort is an address at which this machine reaches the first port of a Service: of a node, or of the API server's machine.
func (s space) nodePort(service string) string {
	s.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig())
	if err != nil {
		s.t.Fatal(err)
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		s.t.Fatal(err)
	}
	port := s.must("", "get", "service", service, "-o", "jsonpath={.spec.ports[0].nodePort}")
	nodes := s.must("", "get", "nodes", "-o", `jsonpath={.items[*].status.addresses[?(@.type=="InternalIP")].address}`)
	var address string
	s.eventually(30*time.Second, func() error {
		var all error
		for _, host := range append([]string{server.Hostname()}, strings.Fields(nodes)...) {
			address = net.JoinHostPort(host, port)
			conn, err := net.DialTimeout("tcp", address, 2*time.Second)
			if err == nil {
				return conn.Close()
			}
			all = errors.Join(all, err)
		}
		return all
	})
	return address
}

// visitor is a user with one tab, who stashes every second.
type visitor struct {
	tab *browser.Tab

	mu   sync.Mutex
	seen visited
}

// visited is what a visitor has seen: how often the socket ended, and how many returns there were, of which some found no state.
type visited struct {
	connected       bool
	stashed         int
	ended, returned int
	lost            int
	why             []string
}

func (v *visitor) tally() visited {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen
}

func (v *visitor) note(change func(*visited)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	change(&v.seen)
}

// live keeps the tab open until the context ends, as a browser does.
func (v *visitor) live(ctx context.Context, address string) {
	second := func() time.Duration { return time.Second }
	habits := browser.Habits{
		FirstStash: second, NextStash: second, Stashes: func() bool { return true }, Sent: func() {},
		Acknowledged: func() { v.note(func(seen *visited) { seen.stashed = v.tab.Count }) },
	}
	v.note(func(seen *visited) { seen.connected = true })
	for {
		end := v.tab.Live(ctx, habits)
		v.tab.Drop()
		if ctx.Err() != nil {
			return
		}
		v.note(func(seen *visited) {
			seen.connected, seen.ended, seen.why = false, seen.ended+1, append(seen.why, end.Why)
		})
		if err := v.comeBack(ctx, address); err != nil {
			v.note(func(seen *visited) { seen.lost, seen.why = seen.lost+1, append(seen.why, err.Error()) })
			return
		}
		v.note(func(seen *visited) {
			seen.connected, seen.returned = true, seen.returned+1
			// A stash that was not acknowledged may have arrived.
			if v.tab.Status != "recovered" || v.tab.Count < seen.stashed {
				seen.lost++
			}
			seen.stashed = v.tab.Count
		})
	}
}

// comeBack tries until the page has its socket again.
func (v *visitor) comeBack(ctx context.Context, address string) error {
	pace := browser.Usual()
	for attempt := 1; ; attempt++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pace.Wait(attempt)):
		}
		err := v.tab.Rejoin(ctx, address)
		if err == nil || errors.Is(err, liveview.ErrStale) {
			return err
		}
	}
}
