package kube

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Endpoint is a port of a pod.
type Endpoint struct {
	Namespace, Pod string
	Port           int32
}

// Endpoints are the ready pods that a Service leads to at this moment, at its port of this name.
func (a *Access) Endpoints(ctx context.Context, service, port string) ([]Endpoint, error) {
	var slices discoveryv1.EndpointSliceList
	if err := a.List(ctx, &slices, client.InNamespace(a.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service}); err != nil {
		return nil, err
	}
	var found []Endpoint
	known := map[Endpoint]bool{} // a Service with addresses of two families has each pod in two slices
	for _, slice := range slices.Items {
		for _, offered := range slice.Ports {
			if offered.Name == nil || *offered.Name != port || offered.Port == nil {
				continue
			}
			for _, end := range slice.Endpoints {
				if end.TargetRef == nil || end.TargetRef.Kind != "Pod" || end.Conditions.Ready != nil && !*end.Conditions.Ready {
					continue
				}
				e := Endpoint{Namespace: slice.Namespace, Pod: end.TargetRef.Name, Port: *offered.Port}
				if !known[e] {
					known[e] = true
					found = append(found, e)
				}
			}
		}
	}
	return found, nil
}

// Stream is a connection to a port of a pod.
type Stream struct {
	httpstream.Stream
	connection httpstream.Connection
	failed     chan error
}

// Dial opens a connection to a port of a pod. The way goes through the API server and the kubelet, as with `kubectl port-forward`; each
// connection has a way of its own, so that none ends with another.
func (a *Access) Dial(e Endpoint) (*Stream, error) {
	dialer, err := a.forwarder(e.Namespace, e.Pod)
	if err != nil {
		return nil, err
	}
	connection, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, err
	}
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(int(e.Port)))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	errs, err := connection.CreateStream(headers)
	if err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	_ = errs.Close() // nothing is said on it from here
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := connection.CreateStream(headers)
	if err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	s := &Stream{Stream: data, connection: connection, failed: make(chan error, 1)}
	go func() {
		message, err := io.ReadAll(errs)
		if said := strings.TrimSpace(string(message)); err == nil && said != "" {
			err = errors.New(said)
		}
		s.failed <- err
	}()
	return s, nil
}

// End ends the connection both ways, and says what the kubelet had to say of it.
func (s *Stream) End() error {
	_ = s.Reset() // what was not sent would hold up the other stream
	err := <-s.failed
	return errors.Join(err, s.connection.Close())
}

// forwarder speaks WebSockets, and SPDY with API servers that know no other.
func (a *Access) forwarder(namespace, pod string) (httpstream.Dialer, error) {
	url := a.Clientset.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(a.Config)
	if err != nil {
		return nil, err
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	modern, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, a.Config)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialerForStreaming(modern, old, tooOld), nil
}

// tooOld is whether an API server, or a proxy before it, does not take WebSockets.
func tooOld(err error) bool {
	return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
}
