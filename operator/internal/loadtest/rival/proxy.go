package rival

import (
	"fmt"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
)

// proxyPort is one that needs no rights.
const proxyPort = 8080

// ProxyName is that of the proxy of a run.
func ProxyName(run string) string { return run + "-proxy" }

// Proxy is an nginx in front of servers, in the place of the given Rival, whose name is that of the run.
func Proxy(r Rival, proxy v1alpha1.BenchmarkProxy, servers []string) Rival {
	r.Name = ProxyName(r.Name)
	r.Server = v1alpha1.BenchmarkServer{
		Image: proxy.Image, Port: proxyPort, Replicas: 1, RunAsUser: 65534, Resources: proxy.Resources,
		// Not in a ConfigMap: it is of one run, and the operator needs no right for it.
		Env: []v1alpha1.BenchmarkServerVariable{{Name: "NGINX_CONFIGURATION", Value: configuration(servers)}},
	}
	// What its log is called is asked before the configuration is read.
	r.Command = []string{"sh", "-c", `printf %s "$NGINX_CONFIGURATION" >/tmp/nginx.conf && exec nginx -e /dev/stderr -c /tmp/nginx.conf`}
	r.UsageImage, r.RedisImage, r.ByPod = "", "", false
	// As much as one of the servers has may be too little for the users of all.
	r.Place.Resources = corev1.ResourceRequirements{}
	return r
}

// configuration is nginx's. A connection of a user takes two of nginx's. Its workers share what they know of the servers, or each would begin with
// the same one.
func configuration(servers []string) string {
	upstreams := &strings.Builder{}
	for _, server := range servers {
		host := server
		if parsed, err := url.Parse(server); err == nil {
			host = parsed.Host
		}
		fmt.Fprintf(upstreams, "    server %s max_fails=0;\n", host)
	}
	return fmt.Sprintf(`daemon off;
worker_processes 2;
worker_rlimit_nofile 70000;
pid /tmp/nginx.pid;
error_log /dev/stderr warn;
events {
  worker_connections 60000;
}
http {
  access_log off;
  client_body_temp_path /tmp/body;
  proxy_temp_path /tmp/proxy;
  fastcgi_temp_path /tmp/fastcgi;
  uwsgi_temp_path /tmp/uwsgi;
  scgi_temp_path /tmp/scgi;
  map $http_upgrade $connection_upgrade {
    default upgrade;
    "" "";
  }
  upstream servers {
    zone servers 256k;
    least_conn;
%s  }
  server {
    listen %d;
    location / {
      proxy_pass http://servers;
      proxy_http_version 1.1;
      proxy_set_header Host $http_host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
      proxy_read_timeout 1h;
      proxy_send_timeout 1h;
    }
  }
}
`, upstreams, proxyPort)
}
