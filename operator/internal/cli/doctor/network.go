package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/livestash-dev/livestash/operator/internal/render"
)

// heartbeat is how often LiveView's client says that it is there. A proxy that waits no longer than that for a byte cuts every idle
// WebSocket.
const heartbeat = 30 * time.Second

// timeouts are the annotations of Ingress controllers for how long nothing may come: in seconds, or as a duration.
var timeouts = []string{
	"nginx.ingress.kubernetes.io/proxy-read-timeout", "nginx.ingress.kubernetes.io/proxy-send-timeout", "nginx.org/proxy-read-timeout", "nginx.org/proxy-send-timeout",
	"haproxy.org/timeout-tunnel", "haproxy-ingress.github.io/timeout-tunnel", "projectcontour.io/response-timeout",
}

// door is a way to the fleet from outside.
type door struct {
	name  string
	hosts []string
}

// doors are the Ingresses and HTTPRoutes that lead to the client Service.
func (f *Facts) doors() []door {
	var doors []door
	for i := range f.Ingresses {
		var hosts []string
		for _, rule := range f.Ingresses[i].Spec.Rules {
			if leadsTo(rule, f.Cluster.Name) {
				hosts = append(hosts, rule.Host)
			}
		}
		if len(hosts) > 0 {
			doors = append(doors, door{"Ingress " + f.Ingresses[i].Name, hosts})
		}
	}
	for i := range f.Routes {
		if len(backends(&f.Routes[i], f.Cluster.Name)) == 0 {
			continue
		}
		hosts, _, _ := unstructured.NestedStringSlice(f.Routes[i].Object, "spec", "hostnames")
		doors = append(doors, door{"HTTPRoute " + f.Routes[i].GetName(), hosts})
	}
	return doors
}

func leadsTo(rule networkingv1.IngressRule, service string) bool {
	return slices.ContainsFunc(paths(rule), func(path networkingv1.HTTPIngressPath) bool {
		return path.Backend.Service != nil && path.Backend.Service.Name == service
	})
}

func paths(rule networkingv1.IngressRule) []networkingv1.HTTPIngressPath {
	if rule.HTTP == nil {
		return nil
	}
	return rule.HTTP.Paths
}

// backends are the backendRefs of an HTTPRoute that name a Service.
func backends(route *unstructured.Unstructured, service string) []map[string]any {
	var found []map[string]any
	rules, _, _ := unstructured.NestedSlice(route.Object, "spec", "rules")
	for _, rule := range rules {
		fields, _ := rule.(map[string]any)
		refs, _, _ := unstructured.NestedSlice(fields, "backendRefs")
		for _, ref := range refs {
			if backend, is := ref.(map[string]any); is && backend["name"] == service {
				found = append(found, backend)
			}
		}
	}
	return found
}

// host is whether Phoenix takes sockets from where users come: it checks their origin against PHX_HOST.
func host(f *Facts) []Finding {
	var found []Finding
	want := f.Cluster.Spec.HTTP.Host
	for _, door := range f.doors() {
		named := slices.DeleteFunc(slices.Clone(door.hosts), func(host string) bool { return host == "" })
		switch {
		case len(named) == 0:
		case want == "":
			found = append(found, broken(fmt.Sprintf("spec.http.host is not set, and %s serves the fleet as %s: Phoenix refuses the sockets of that origin (check_origin), and pages reload for ever.", door.name, named[0]),
				"Set spec.http.host: "+named[0]))
		case !slices.ContainsFunc(named, func(host string) bool { return covers(host, want) }):
			found = append(found, broken(fmt.Sprintf("spec.http.host is %s, and %s serves the fleet as %s: Phoenix refuses the sockets of another origin (check_origin).", want, door.name, strings.Join(named, ", ")),
				"Set spec.http.host: "+named[0]+", or correct the host there."))
		}
	}
	return found
}

// covers is whether a host of a door, perhaps with a wildcard, is for the name.
func covers(host, name string) bool {
	if suffix, wild := strings.CutPrefix(host, "*"); wild {
		return strings.HasSuffix(name, suffix)
	}
	return strings.EqualFold(host, name)
}

// ingressBackend are doors that lead to where no user is served.
func ingressBackend(f *Facts) []Finding {
	var found []Finding
	c := f.Cluster
	for i := range f.Ingresses {
		for _, rule := range f.Ingresses[i].Spec.Rules {
			for _, path := range paths(rule) {
				if finding := backendFinding(f, "Ingress "+f.Ingresses[i].Name, path.Backend.Service); finding != nil {
					found = append(found, *finding)
				}
			}
		}
	}
	for i := range f.Routes {
		for _, backend := range backends(&f.Routes[i], c.Name) {
			if port, is := backend["port"].(int64); is && port != int64(c.Spec.HTTP.Service.Port) {
				found = append(found, wrongPort("HTTPRoute "+f.Routes[i].GetName(), fmt.Sprint(port), c.Spec.HTTP.Service.Port))
			}
		}
		if len(backends(&f.Routes[i], render.HeadlessName(c))) > 0 {
			found = append(found, headless("HTTPRoute "+f.Routes[i].GetName(), c.Name))
		}
	}
	return found
}

func backendFinding(f *Facts, door string, backend *networkingv1.IngressServiceBackend) *Finding {
	c := f.Cluster
	finding := Finding{}
	switch {
	case backend == nil:
		return nil
	case backend.Name == render.HeadlessName(c):
		finding = headless(door, c.Name)
	case backend.Name != c.Name:
		return nil
	case backend.Port.Name != "" && backend.Port.Name != "http":
		finding = wrongPort(door, backend.Port.Name, c.Spec.HTTP.Service.Port)
	case backend.Port.Name == "" && backend.Port.Number != c.Spec.HTTP.Service.Port:
		finding = wrongPort(door, fmt.Sprint(backend.Port.Number), c.Spec.HTTP.Service.Port)
	default:
		return nil
	}
	return &finding
}

func headless(door, service string) Finding {
	return broken(fmt.Sprintf("%s leads to the Service %s-nodes, which names pods that are not ready too.", door, service), "Let it lead to the Service "+service+".")
}

func wrongPort(door, port string, want int32) Finding {
	return broken(fmt.Sprintf("%s names the port %s of the client Service, which has the port %d (http).", door, port, want), fmt.Sprintf("Name the port %d there.", want))
}

// proxyTimeout are proxies that cut WebSockets on which nothing is said for a while, or that have lasted for a while.
func proxyTimeout(f *Facts) []Finding {
	var found []Finding
	for i := range f.Ingresses {
		ingress := &f.Ingresses[i]
		if !slices.ContainsFunc(ingress.Spec.Rules, func(rule networkingv1.IngressRule) bool { return leadsTo(rule, f.Cluster.Name) }) {
			continue
		}
		for _, name := range timeouts {
			if limit, is := duration(ingress.Annotations[name]); is && limit <= heartbeat {
				found = append(found, risky(fmt.Sprintf("Ingress %s cuts connections on which nothing is said for %s (%s); LiveView says something every %s.", ingress.Name, limit, name, heartbeat),
					fmt.Sprintf("Set %s to 60 seconds or more, for example 3600.", name)))
			}
		}
	}
	for i := range f.Routes {
		found = append(found, routeTimeouts(&f.Routes[i], f.Cluster.Name)...)
	}
	return found
}

func routeTimeouts(route *unstructured.Unstructured, service string) []Finding {
	if len(backends(route, service)) == 0 {
		return nil
	}
	var found []Finding
	rules, _, _ := unstructured.NestedSlice(route.Object, "spec", "rules")
	for _, rule := range rules {
		fields, _ := rule.(map[string]any)
		for _, name := range []string{"request", "backendRequest"} {
			text, _, _ := unstructured.NestedString(fields, "timeouts", name)
			if limit, is := duration(text); is && limit > 0 {
				found = append(found, risky(fmt.Sprintf("HTTPRoute %s ends requests after %s (timeouts.%s), and a WebSocket is one request.", route.GetName(), limit, name),
					fmt.Sprintf("Set timeouts.%s to 0s in the rule that serves the fleet.", name)))
			}
		}
	}
	return found
}

// duration reads seconds, or a number with a unit.
func duration(text string) (time.Duration, bool) {
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	limit, err := time.ParseDuration(text)
	return limit, err == nil
}

// egress are policies that let pods connect to nobody, not even to DNS or to each other.
func egress(f *Facts) []Finding {
	pods := labels.Set(render.SelectorLabels(f.Cluster))
	var closed []string
	for i := range f.Policies {
		policy := &f.Policies[i]
		if !slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) || !selects(&policy.Spec.PodSelector, pods) {
			continue
		}
		if len(policy.Spec.Egress) > 0 { // policies add up: one that lets something out may let out what is needed
			return nil
		}
		closed = append(closed, policy.Name)
	}
	if len(closed) == 0 {
		return nil
	}
	port := f.Cluster.Spec.Clustering.DistributionPort
	return []Finding{broken(fmt.Sprintf("NetworkPolicy %s lets the pods connect to nobody, not even to DNS and to each other: nodes do not find their peers.", closed[0]),
		fmt.Sprintf("Add a policy with egress to port 53 (UDP and TCP) of DNS, and to ports 4369 and %d to %d of the fleet's own pods.", port, port+9))}
}

func selects(selector *metav1.LabelSelector, set labels.Set) bool {
	matcher, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && matcher.Matches(set)
}
