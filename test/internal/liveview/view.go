// Package liveview is a client of one LiveView, as a browser with LiveStash is one: page, socket, join, event, reconnect.
package liveview

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/coder/websocket"
)

// ErrStale is a join that was refused because page, cookie and CSRF token do not fit together: a browser loads the page anew.
var ErrStale = errors.New("the join was refused: the page's tokens are stale")

// Client opens pages of one application.
type Client struct {
	// Host is the application's public host name, sent as Host and Origin.
	Host string
	// Path of the page.
	Path string

	http *http.Client
	// secure is an s when pages and sockets are asked for over TLS: https, wss.
	secure string
}

// NewClient is a client of the application that is served under host.
func NewClient(host, path string) *Client {
	dialer := &net.Dialer{}
	transport := &http.Transport{
		DisableKeepAlives:  true,
		DisableCompression: true,
		// There are thousands of sockets, and their messages are small.
		ReadBufferSize:  1024,
		WriteBufferSize: 1024,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if tcp, ok := conn.(*net.TCPConn); ok {
				// A port that waits for late packets is a port less: thousands of sockets are dropped and opened within a minute.
				_ = tcp.SetLinger(0)
			}
			return conn, err
		},
	}
	return &Client{Host: host, Path: path, http: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// NewTLSClient is a client of the application that is served under host by a proxy with TLS, whose certificate is of these authorities.
func NewTLSClient(host, path string, authorities *x509.CertPool) *Client {
	c := NewClient(host, path)
	c.secure = "s"
	c.http.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: authorities, ServerName: host, MinVersion: tls.VersionTLS12}
	return c
}

// View is one user's page. It outlives its sockets. Its methods must not be called at the same time.
type View struct {
	// Status is what the page shows of the last join: new, recovered, not_found or error.
	Status string
	// Count is the counter that the page shows.
	Count int
	// Node is the BEAM node that the page names, for diagnosis. Empty when it names none.
	Node string

	client   *Client
	page     page
	cookie   string
	mounts   int
	attempts int
	lastRef  int
	// stash is what LiveStash's JavaScript keeps and sends with every join.
	stash map[string]json.RawMessage
	// What the server has yet to answer; empty when nothing.
	stashRef, heartbeatRef string
}

// Visit loads the page from an address (host:port).
func (c *Client) Visit(ctx context.Context, address string) (*View, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http"+c.secure+"://"+address+c.Path, nil)
	if err != nil {
		return nil, err
	}
	request.Host = c.Host
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: status %s", c.Path, response.Status)
	}
	v := &View{client: c, stash: map[string]json.RawMessage{}}
	if v.page, err = parsePage(response.Body); err != nil {
		return nil, err
	}
	var cookies []string
	for _, cookie := range response.Cookies() {
		cookies = append(cookies, cookie.Name+"="+cookie.Value)
	}
	v.cookie = strings.Join(cookies, "; ")
	return v, nil
}

// Clone is the same page in another tab.
func (v *View) Clone() *View {
	twin := *v
	twin.stash = maps.Clone(v.stash)
	return &twin
}

// Join opens a socket to an address (host:port) and joins the page's view, for the first time or again. Status and Count
// are then what the server has rendered.
func (v *View) Join(ctx context.Context, address string) (*Socket, error) {
	query := url.Values{"_csrf_token": {v.page.csrf}, "vsn": {"2.0.0"}}
	header := http.Header{"Origin": {"http" + v.client.secure + "://" + v.client.Host}}
	if v.cookie != "" {
		header.Set("Cookie", v.cookie)
	}
	conn, response, err := websocket.Dial(ctx, "ws"+v.client.secure+"://"+address+"/live/websocket?"+query.Encode(), &websocket.DialOptions{
		HTTPClient: v.client.http, HTTPHeader: header, Host: v.client.Host,
	})
	if response != nil && response.Body != nil {
		defer func() { _ = response.Body.Close() }()
	}
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(maxFrame)
	// The socket lives on when the time for joining is over.
	pumping, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Socket{conn: conn, frames: make(chan Frame, 1), stop: stop}
	if err := v.join(ctx, s); err != nil {
		s.Drop()
		return nil, err
	}
	v.mounts++
	v.attempts = 0
	go s.pump(pumping)
	return s, nil
}

func (v *View) join(ctx context.Context, s *Socket) error {
	v.stashRef, v.heartbeatRef = "", ""
	s.joinRef = v.ref()
	join := map[string]any{
		"url": "http" + v.client.secure + "://" + v.client.Host + v.client.Path, "session": v.page.session, "static": v.page.static, "sticky": false,
		"params": map[string]any{
			"_csrf_token": v.page.csrf,
			// Whole numbers: a server that gets 0, or a string, takes the join for a first visit and forgets the stash.
			"_mounts": v.mounts, "_mount_attempts": v.attempts,
			"liveStash": v.stash,
		},
	}
	v.attempts++
	if err := s.send(ctx, s.joinRef, s.joinRef, v.topic(), "phx_join", join); err != nil {
		return err
	}
	for {
		f, err := readFrame(ctx, s.conn)
		if err != nil {
			return err
		}
		if f.topic != v.topic() || f.ref != s.joinRef {
			continue
		}
		return v.joined(f)
	}
}

func (v *View) joined(f Frame) error {
	var answer struct {
		Rendered map[string]json.RawMessage `json:"rendered"`
		Reason   string                     `json:"reason"`
	}
	status, err := reply(f, &answer)
	if err != nil {
		return err
	}
	if status != "ok" {
		if answer.Reason == "stale" {
			return ErrStale
		}
		return fmt.Errorf("the join was refused: %s", f.payload)
	}
	if _, ok := answer.Rendered["0"]; !ok {
		return fmt.Errorf("the join's reply has no rendered page: %s", f.payload)
	}
	return v.apply(answer.Rendered)
}

// Stash sends the event that raises the counter and stashes it. Stashing is true until Handle has seen the answer.
func (v *View) Stash(ctx context.Context, s *Socket) error {
	v.stashRef = v.ref()
	click := map[string]any{"type": "click", "event": "stash", "value": map[string]any{}}
	return s.send(ctx, s.joinRef, v.stashRef, v.topic(), "event", click)
}

// Stashing is whether a stash was sent to the last joined socket and not acknowledged.
func (v *View) Stashing() bool { return v.stashRef != "" }

// Heartbeat sends a sign of life. Beating is true until Handle has seen the answer.
func (v *View) Heartbeat(ctx context.Context, s *Socket) error {
	v.heartbeatRef = v.ref()
	return s.send(ctx, nil, v.heartbeatRef, "phoenix", "heartbeat", map[string]any{})
}

// Beating is whether a heartbeat was sent to the last joined socket and not answered.
func (v *View) Beating() bool { return v.heartbeatRef != "" }

// Handle takes in a message of the joined socket. After an error the socket is of no more use.
func (v *View) Handle(f Frame) error {
	switch f.event {
	case "phx_reply":
		return v.replied(f)
	case "diff":
		var diff map[string]json.RawMessage
		if err := json.Unmarshal(f.payload, &diff); err != nil {
			return fmt.Errorf("diff: %w", err)
		}
		return v.apply(diff)
	case "phx_error":
		return errors.New("the process behind the page died")
	case "phx_close":
		return errors.New("the server closed the channel")
	}
	return nil
}

func (v *View) replied(f Frame) error {
	if f.ref == v.heartbeatRef {
		v.heartbeatRef = ""
		return nil
	}
	if f.ref != v.stashRef {
		return nil
	}
	var answer struct {
		Diff map[string]json.RawMessage `json:"diff"`
	}
	status, err := reply(f, &answer)
	if err != nil {
		return err
	}
	if status != "ok" {
		return fmt.Errorf("the stash was refused: %s", f.payload)
	}
	if err := v.apply(answer.Diff); err != nil {
		return err
	}
	v.stashRef = ""
	return nil
}

// apply takes from a render or a diff what a survivor must know: status, counter and LiveStash's events.
func (v *View) apply(diff map[string]json.RawMessage) error {
	if raw, ok := diff["0"]; ok {
		if err := json.Unmarshal(raw, &v.Status); err != nil {
			return fmt.Errorf("the page's status is not a text: %w", err)
		}
	}
	if raw, ok := diff["1"]; ok {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return fmt.Errorf("the page's counter is not a text: %w", err)
		}
		count, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("the page's counter is not a number: %w", err)
		}
		v.Count = count
	}
	if raw, ok := diff["3"]; ok {
		if err := json.Unmarshal(raw, &v.Node); err != nil {
			return fmt.Errorf("the page's node is not a text: %w", err)
		}
	}
	raw, ok := diff["e"]
	if !ok {
		return nil
	}
	var events [][2]json.RawMessage
	if err := json.Unmarshal(raw, &events); err != nil {
		return fmt.Errorf("pushed events: %w", err)
	}
	for _, event := range events {
		if err := v.pushed(event[0], event[1]); err != nil {
			return err
		}
	}
	return nil
}

// pushed is LiveStash's JavaScript: init-* replaces what it keeps, stash-state adds the state itself.
func (v *View) pushed(rawName, detail json.RawMessage) error {
	var name string
	if err := json.Unmarshal(rawName, &name); err != nil {
		return fmt.Errorf("the name of a pushed event is not a text: %w", err)
	}
	switch {
	case strings.HasPrefix(name, "live-stash:init-"):
		kept := map[string]json.RawMessage{}
		if err := json.Unmarshal(detail, &kept); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		v.stash = kept
	case name == "live-stash:stash-state":
		var state struct {
			Assigns json.RawMessage `json:"assigns"`
		}
		if err := json.Unmarshal(detail, &state); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		v.stash["stashedState"] = state.Assigns
	}
	return nil
}

func (v *View) topic() string { return "lv:" + v.page.id }

// ref goes on over reconnects, as in a browser: a late reply is never taken for one to a new message.
func (v *View) ref() string {
	v.lastRef++
	return strconv.Itoa(v.lastRef)
}

func reply(f Frame, response any) (status string, err error) {
	answer := struct {
		Status   string `json:"status"`
		Response any    `json:"response"`
	}{Response: response}
	if err := json.Unmarshal(f.payload, &answer); err != nil {
		return "", fmt.Errorf("a reply that cannot be read: %w: %s", err, f.payload)
	}
	return answer.Status, nil
}
