package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// podNetwork has an address for each pod, all of them this machine's own.
var podNetwork = netip.MustParsePrefix("127.64.0.0/10")

const (
	agentHeader  = "Livestash-Agent"
	agentVersion = "scale"
	clusterLabel = "livestash.dev/cluster"
)

// agents answers for the agents of all pods: one server, which knows by the address that was called whose agent it is.
type agents struct {
	// silent is the share of pods whose agents take a question and never answer.
	silent float64
	// peers is how many other nodes each node sees at least: a new fleet has its mesh from the first moment on. A node of a fleet that has
	// more pods for a while, as in a rollout, sees them all.
	peers  int
	port   int
	server *http.Server
	// done is closed when the server has ended.
	done    chan struct{}
	started time.Time

	// asked and inFlight count questions: all that ever came, and those that are not answered. mostInFlight is the most that
	// were not answered at the same time.
	asked, inFlight, mostInFlight atomic.Int64

	// outage is whether the nodes of the first zone are gone, with their network.
	outage atomic.Bool

	mutex sync.RWMutex
	// next is the address of the next pod, admitted how many there were so far.
	next      netip.Addr
	admitted  int
	addresses map[types.UID]netip.Addr
	nodes     map[netip.Addr]agentNode
	// sizes is how many nodes each fleet has.
	sizes map[types.NamespacedName]int
}

// agentNode is the BEAM node of a pod.
type agentNode struct {
	name   string
	fleet  types.NamespacedName
	silent bool
	// first is whether it is in the first zone.
	first bool
}

// startAgents serves until stop.
func startAgents(silent float64, peers int) (*agents, error) {
	if silent < 0 || silent > 1 {
		return nil, fmt.Errorf("-silent %g: it is a share, from 0 to 1", silent)
	}
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the agents: %w", err)
	}
	a := &agents{
		silent: silent, peers: peers, port: listener.Addr().(*net.TCPAddr).Port, started: time.Now(), done: make(chan struct{}),
		next: podNetwork.Addr(), addresses: map[types.UID]netip.Addr{}, nodes: map[netip.Addr]agentNode{},
		sizes: map[types.NamespacedName]int{},
	}
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 15 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	go func() {
		defer close(a.done)
		_ = a.server.Serve(listener) // ends with stop
	}()
	return a, nil
}

func (a *agents) stop() error {
	err := a.server.Close()
	<-a.done
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// admit gives the pod an address, always the same one.
func (a *agents) admit(pod *corev1.Pod) netip.Addr {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if address, known := a.addresses[pod.UID]; known {
		return address
	}
	a.next = a.next.Next()
	a.addresses[pod.UID] = a.next
	fleet := types.NamespacedName{Namespace: pod.Namespace, Name: pod.Labels[clusterLabel]}
	a.sizes[fleet]++
	a.nodes[a.next] = agentNode{
		name:   fmt.Sprintf("app@%s.%s-nodes.%s.svc.cluster.local", pod.Name, fleet.Name, fleet.Namespace),
		fleet:  fleet,
		first:  inFirstZone(pod),
		silent: math.Floor(float64(a.admitted+1)*a.silent) > math.Floor(float64(a.admitted)*a.silent),
	}
	a.admitted++
	return a.next
}

// zones is how many zones there are: the pods of a fleet are spread over them.
const zones = 3

func inFirstZone(pod *corev1.Pod) bool {
	ordinal, err := strconv.Atoi(pod.Name[strings.LastIndexByte(pod.Name, '-')+1:])
	return err == nil && ordinal%zones == 0
}

// forget ends the agent of a pod that is gone.
func (a *agents) forget(pod types.UID) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	address, known := a.addresses[pod]
	if !known {
		return
	}
	a.sizes[a.nodes[address].fleet]--
	delete(a.nodes, address)
	delete(a.addresses, pod)
}

// seen is how many other nodes the node sees.
func (a *agents) seen(node agentNode) int {
	a.mutex.RLock()
	defer a.mutex.RUnlock()
	return max(a.peers, a.sizes[node.fleet]-1)
}

// counts are the agents there are, and those of them that are silent.
func (a *agents) counts() (all, silent int) {
	a.mutex.RLock()
	defer a.mutex.RUnlock()
	for _, node := range a.nodes {
		if node.silent {
			silent++
		}
	}
	return len(a.nodes), silent
}

// called is the node that a request is for.
func (a *agents) called(request *http.Request) (agentNode, bool) {
	local, ok := request.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok {
		return agentNode{}, false
	}
	a.mutex.RLock()
	defer a.mutex.RUnlock()
	node, found := a.nodes[local.AddrPort().Addr().Unmap()]
	return node, found
}

// ServeHTTP answers as the agent in Erlang does: agent/src/livestash_agent_status.erl.
func (a *agents) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	node, found := a.called(request)
	if !found {
		panic(http.ErrAbortHandler) // nobody has this address
	}
	a.count()
	defer a.inFlight.Add(-1)
	if node.silent || node.first && a.outage.Load() {
		await(request.Context())
		return
	}
	w.Header().Set(agentHeader, agentVersion)
	if request.URL.Path != "/status" {
		http.NotFound(w, request)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a.status(node)) // who asked may have gone
}

// await ends with the connection of who waits for an answer.
func await(ctx context.Context) { <-ctx.Done() }

func (a *agents) count() {
	a.asked.Add(1)
	now := a.inFlight.Add(1)
	for most := a.mostInFlight.Load(); now > most && !a.mostInFlight.CompareAndSwap(most, now); {
		most = a.mostInFlight.Load()
	}
}

func (a *agents) status(node agentNode) map[string]any {
	peers := a.seen(node)
	return map[string]any{
		"version": agentVersion, "node": node.name, "otp": "27", "adapter": "ets",
		"ready": true, "reason": "", "draining": false,
		"peers":   map[string]any{"expected": peers, "connected": peers, "missing": 0, "missingNodes": []string{}},
		"store":   map[string]any{"ready": true, "reason": ""},
		"stashes": 100, "stashBytes": 100_000, "largestStashBytes": 0,
		"handoffs":      map[string]any{"sent": 0, "received": 0, "failed": 0},
		"uptimeSeconds": int(time.Since(a.started).Seconds()),
	}
}
