// Package agentclient asks the agent inside a pod how its node is, and reads what a drain left behind.
//
// A pod may hold anything: an image that is no BEAM, another server on the agent's port, an agent of another version. So
// every answer is bounded in size, by its caller's context in time, and every failure says which of these it is.
package agentclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/livestash-dev/livestash/operator/internal/plausible"
)

// Header is in every answer of an agent; its value is the agent's version.
const Header = "Livestash-Agent"

const (
	maxBody   = 64 << 10
	maxHeader = 16 << 10
	// buffer is for reading from and writing to a connection: an agent's status is about 1 KiB.
	buffer = 2 << 10

	// maxText keeps an answer's sentences within what a condition's message holds, maxName a node's name within what
	// Erlang allows, and maxWord versions and the like.
	maxText = 512
	maxName = 255
	maxWord = 64
	// maxNodes is how many missing peers an agent names, maxViews how many views.
	maxNodes = 10
	maxViews = 32
	// maxPeers is the largest number of peers that is believed.
	maxPeers = 1 << 20

	// dialTime ends a connect that nobody waits for any longer: net/http goes on with it after its question was given up,
	// for as long as the kernel tries, which is two minutes.
	dialTime = 2 * time.Second
	// idleTime is shorter than the 15 seconds after which an agent closes an idle connection.
	idleTime = 10 * time.Second
	// readAtOnce is how many answers are read at the same time: what is read of a hostile one may take a hundred times its bytes.
	readAtOnce = 4
	// maxIdle bounds the idle connections to all pods together.
	maxIdle = 256
)

// Status is an agent's answer: what it knows of its node. Fields that this version does not know are ignored, those that
// the agent does not send are zero.
type Status struct {
	// Version is the agent's own, OTP the release of Erlang/OTP that it runs on, like "27".
	Version string `json:"version"`
	OTP     string `json:"otp"`
	// Node is the name of the node, like shop@shop-0.shop-nodes.default.svc.cluster.local.
	Node string `json:"node"`
	// Adapter is LIVE_STASH_ADAPTER, as the pod has it.
	Adapter string `json:"adapter"`
	// Ready is what the agent would answer a readiness probe; Reason is a sentence when it is false.
	Ready  bool   `json:"ready"`
	Reason string `json:"reason"`
	// Draining is true from SIGTERM on.
	Draining bool  `json:"draining"`
	Peers    Peers `json:"peers"`
	Store    Store `json:"store"`
	// Stashes and StashBytes are this node's own rows (ETS) or those of its copy of the table (Mnesia), else 0.
	Stashes    int64 `json:"stashes"`
	StashBytes int64 `json:"stashBytes"`
	// LargestStashBytes is the size of the largest BrowserMemory stash seen, else 0.
	LargestStashBytes int64    `json:"largestStashBytes"`
	Handoffs          Handoffs `json:"handoffs"`
	// Shadow is how the copies of this node's stashes are. Nil: there are to be none.
	Shadow *Shadow `json:"shadow"`
	// Sockets is how many connections clients have to the application's port. Nil: the agent does not tell.
	Sockets *int64 `json:"sockets"`
	// Returns count the users who came back to this node since it started.
	Returns Returns `json:"returns"`
	// Versions are those of the views that mounted on this node.
	Versions      []PageVersion `json:"versions"`
	UptimeSeconds int64         `json:"uptimeSeconds"`
}

// Shadow is how the copies are that other nodes hold of a node's stashes.
type Shadow struct {
	// LagSeconds is for how long a stash has waited to be copied; 0: none does.
	LagSeconds int64 `json:"lagSeconds"`
	// Holders are the nodes that hold copies.
	Holders int64 `json:"holders"`
	// Refused is whether one of them had no room for a copy in the last minute.
	Refused bool `json:"refused"`
}

// LateSeconds is from when on copies are late: the alert LiveStashShadowsLate reckons the same. A pod that was killed or replaced leaves
// copies to be made anew, which takes less.
const LateSeconds = 10

// Returns count users who came back, by whether they found their stash.
type Returns struct {
	Recovered    int64 `json:"recovered"`
	NotRecovered int64 `json:"notRecovered"`
}

// PageVersion is the LiveStash version of a view's pages, which give back stashes of that version only.
type PageVersion struct {
	View string `json:"view"`
	// Version is the text of an Erlang term, shortened.
	Version string `json:"version"`
}

// Peers counts the other nodes of the fleet.
type Peers struct {
	// Expected are those that DNS names; of these, Connected are connected and Missing are not.
	Expected  int `json:"expected"`
	Connected int `json:"connected"`
	Missing   int `json:"missing"`
	// MissingNodes are the names of the first few that are missing.
	MissingNodes []string `json:"missingNodes"`
}

// Store is whether the adapter's table is there and loaded; Reason is a sentence when it is not.
type Store struct {
	Ready  bool   `json:"ready"`
	Reason string `json:"reason"`
}

// Handoffs count rows that moved between nodes because one of them stopped.
type Handoffs struct {
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
	Failed   int64 `json:"failed"`
}

// UnreachableError says that nobody answered: nothing listens, the pod is frozen, or something in between drops packets.
// It wraps the cause, a context's end included.
type UnreachableError struct {
	Port  int32
	Cause error
}

func (e *UnreachableError) Error() string {
	switch KindOf(e.Cause) {
	case KindRefused:
		return fmt.Sprintf("No agent listens on port %d: it gave up, or what runs is no Elixir release that starts with ERL_AFLAGS (spec.image, or a command in spec.podTemplate.spec). The container's log says which.", e.Port)
	case KindSilent:
		return fmt.Sprintf("The agent on port %d does not answer in time: the node is frozen or overloaded, or a network policy keeps the operator out.", e.Port)
	default:
		return fmt.Sprintf("The agent on port %d cannot be reached: %v.", e.Port, e.Cause)
	}
}

func (e *UnreachableError) Unwrap() error { return e.Cause }

// ForeignServerError says that the agent's port belongs to another server.
type ForeignServerError struct{ Port int32 }

func (e *ForeignServerError) Error() string {
	return fmt.Sprintf("Port %d, which is the agent's, belongs to another server in the pod. Choose a free one in spec.agent.port.", e.Port)
}

// BadAnswerError says that an agent answered, but not with a status.
type BadAnswerError struct {
	Port int32
	// Version is the agent's, as its header says.
	Version string
	Cause   error
}

func (e *BadAnswerError) Error() string {
	return fmt.Sprintf("The agent on port %d (version %.40q) gave an answer that this operator does not understand: %v. Set spec.upgrade to Immediately, so that the pods get the operator's own version of it.", e.Port, e.Version, e.Cause)
}

func (e *BadAnswerError) Unwrap() error { return e.Cause }

// Kind tells failures apart whose sentences differ in more than a number.
type Kind int

const (
	// KindNone is no failure.
	KindNone Kind = iota
	// KindRefused is an *UnreachableError: nothing listens.
	KindRefused
	// KindSilent is an *UnreachableError: nothing is said in time.
	KindSilent
	// KindUnreachable is any other *UnreachableError.
	KindUnreachable
	// KindForeignServer is a *ForeignServerError.
	KindForeignServer
	// KindBadAnswer is a *BadAnswerError.
	KindBadAnswer
)

// KindOf is the kind of a Client's failure. Any other error is that of a pod that is not reached.
func KindOf(err error) Kind {
	var foreign *ForeignServerError
	var bad *BadAnswerError
	var timeout net.Error
	switch {
	case err == nil:
		return KindNone
	case errors.As(err, &foreign):
		return KindForeignServer
	case errors.As(err, &bad):
		return KindBadAnswer
	case errors.Is(err, syscall.ECONNREFUSED):
		return KindRefused
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return KindSilent
	}
	return KindUnreachable
}

// Client asks agents. It is safe for concurrent use.
type Client struct {
	http http.Client
	// reading has room for readAtOnce.
	reading chan struct{}
}

// New makes a client. It keeps a connection open for a moment: in a rollout a pod is asked every second.
func New() *Client {
	return &Client{reading: make(chan struct{}, readAtOnce), http: http.Client{
		// No proxy of the environment: pods are reached directly.
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: dialTime}).DialContext,
			DisableCompression:     true,
			MaxResponseHeaderBytes: maxHeader,
			MaxIdleConns:           maxIdle,
			MaxIdleConnsPerHost:    1,
			IdleConnTimeout:        idleTime,
			ReadBufferSize:         buffer,
			WriteBufferSize:        buffer,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Status asks the agent of the pod with this IP. It takes as long as ctx allows. The error is an *UnreachableError, a
// *ForeignServerError or a *BadAnswerError, whose text is fit for a condition's message.
func (c *Client) Status(ctx context.Context, podIP string, port int32) (Status, error) {
	return get(ctx, c, podIP, port, "/status", readStatus)
}

// get asks for what an agent serves under a path, and reads it.
func get[T any](ctx context.Context, c *Client, podIP string, port int32, path string, read func([]byte) (T, error)) (T, error) {
	var nothing T
	url := "http://" + net.JoinHostPort(podIP, strconv.Itoa(int(port))) + path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nothing, &UnreachableError{port, err}
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nothing, failure(port, err)
	}
	defer func() { _ = response.Body.Close() }()

	version := response.Header.Get(Header)
	if version == "" {
		return nothing, &ForeignServerError{port}
	}
	body, err := readBody(response)
	if err != nil && ctx.Err() != nil {
		return nothing, &UnreachableError{port, err}
	}
	if err != nil {
		return nothing, &BadAnswerError{port, version, err}
	}
	c.reading <- struct{}{}
	defer func() { <-c.reading }()
	answer, err := read(body)
	if err != nil {
		return nothing, &BadAnswerError{port, version, err}
	}
	return answer, nil
}

// failure tells a server that is not there, or that goes away, from one that speaks something else than HTTP.
func failure(port int32, err error) error {
	var network net.Error
	var operation *net.OpError
	gone := errors.As(err, &network) && network.Timeout() || errors.As(err, &operation) ||
		errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if gone {
		return &UnreachableError{port, err}
	}
	return &ForeignServerError{port}
}

func readBody(response *http.Response) ([]byte, error) {
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answered %d to %s", response.StatusCode, response.Request.URL.Path)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxBody {
		return nil, fmt.Errorf("it is longer than %d bytes", maxBody)
	}
	return body, nil
}

func readStatus(body []byte) (Status, error) {
	var status Status
	if err := json.Unmarshal(body, &status); err != nil {
		return Status{}, err
	}
	if status.Node == "" {
		return Status{}, errors.New("it names no node")
	}
	if !status.counts() {
		return Status{}, errors.New("it counts what no node has: a number below zero, or an absurd one")
	}
	status.Version, status.OTP, status.Adapter = shortened(status.Version, maxWord), shortened(status.OTP, maxWord), shortened(status.Adapter, maxWord)
	status.Node = shortened(status.Node, maxName)
	status.Reason, status.Store.Reason = shortened(status.Reason, maxText), shortened(status.Store.Reason, maxText)
	status.Peers.MissingNodes = fewNames(status.Peers.MissingNodes)
	status.Versions = fewVersions(status.Versions)
	return status, nil
}

// counts is whether the answer's numbers are believed: they are added up over pods, and told in a status.
func (s *Status) counts() bool {
	return max(s.Peers.Expected, s.Peers.Connected, s.Peers.Missing) <= maxPeers &&
		plausible.Counts(s.Stashes, s.StashBytes, s.LargestStashBytes, s.UptimeSeconds, s.Handoffs.Sent, s.Handoffs.Received, s.Handoffs.Failed,
			s.Returns.Recovered, s.Returns.NotRecovered, int64(s.Peers.Expected), int64(s.Peers.Connected), int64(s.Peers.Missing)) &&
		(s.Sockets == nil || plausible.Counts(*s.Sockets)) && (s.Shadow == nil || plausible.Counts(s.Shadow.LagSeconds, s.Shadow.Holders))
}

// fewNames is a copy that keeps nothing of a longer list in memory.
func fewNames(names []string) []string {
	var few []string
	for _, name := range names[:min(len(names), maxNodes)] {
		few = append(few, shortened(name, maxName))
	}
	return few
}

// fewVersions is a copy, as fewNames is one.
func fewVersions(versions []PageVersion) []PageVersion {
	var few []PageVersion
	for _, page := range versions[:min(len(versions), maxViews)] {
		few = append(few, PageVersion{shortened(page.View, maxName), shortened(page.Version, maxText)})
	}
	return few
}

func shortened(text string, most int) string {
	runes := []rune(text)
	return string(runes[:min(len(runes), most)])
}
