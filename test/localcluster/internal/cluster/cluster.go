// Package cluster starts, inspects and removes a real Kubernetes cluster on one machine.
package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/livestash-dev/livestash/test/localcluster/internal/cgroup"
	"github.com/livestash-dev/livestash/test/localcluster/internal/registry"
)

const (
	// DefaultName is the cluster's name when none is given.
	DefaultName = "livestash"
	// DefaultStateDir is where clusters keep their state when nothing else is asked for, one folder each.
	DefaultStateDir = "/var/lib/livestash-localcluster"

	registryDir = "/run/livestash-localcluster"
	lockWait    = 2 * time.Minute
	// maxSocketPath is the longest path the kernel takes for a Unix socket.
	maxSocketPath = 107
)

// Options say what `up` makes. They are fixed for the life of a cluster.
type Options struct {
	// ControlPlaneOnly leaves out the nodes: etcd, the API server and the controller manager run, nothing else.
	ControlPlaneOnly bool `json:"controlPlaneOnly"`
	// AuditLog is the file that gets one line for each completed request to the API server; none when empty.
	AuditLog string `json:"auditLog"`
	// AuditUser is the only user whose requests the log has; everybody's when empty.
	AuditUser string `json:"auditUser"`
	// Nodes is the number of nodes. The only one shares its network with the control plane; several have their own.
	Nodes int `json:"nodes"`
	// NetworkPolicies says that NetworkPolicies are enforced.
	NetworkPolicies bool `json:"networkPolicies"`
}

// Cluster is a cluster that may or may not exist.
type Cluster struct {
	// Name is the name it was asked for with, Dir the absolute path of its state.
	Name string
	Dir  string
	// BinDir is the folder of the programs localcluster, kubernetes, coredns and pause.
	BinDir string

	id       string
	group    cgroup.Group
	registry registry.Registry
	progress *progress
	state    state
}

// state is what a later command must know and cannot derive. It is kept in the file cluster.json.
type state struct {
	Options Options `json:"options"`
	Slot    int     `json:"slot"`
}

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,28}[a-z0-9])?$`)

// New returns the cluster with this name in this folder of clusters. binDir may be empty: then it is the folder of the
// running program.
func New(name, stateDir, binDir string) (*Cluster, error) {
	if !validName.MatchString(name) {
		return nil, fmt.Errorf("--name %q: use 1 to 30 small letters, digits and hyphens, with no hyphen at an end", name)
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("a local cluster needs root, for namespaces, mounts and control groups: run this with sudo")
	}
	stateDir, err := filepath.Abs(stateDir)
	if err != nil {
		return nil, err
	}
	if binDir == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		binDir = filepath.Dir(self)
	}
	if binDir, err = filepath.Abs(binDir); err != nil {
		return nil, err
	}
	hierarchies, err := cgroup.Mounted("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(stateDir, name)
	sum := sha256.Sum256([]byte(dir))
	id := hex.EncodeToString(sum[:4])
	c := &Cluster{
		Name:     name,
		Dir:      dir,
		BinDir:   binDir,
		id:       id,
		group:    cgroup.Group{Name: "localcluster-" + name + "-" + id, Hierarchies: hierarchies},
		registry: registry.Registry{Dir: registryDir},
		progress: newProgress(os.Stderr),
	}
	if socket := c.node(0).containerdSocket(); len(socket) > maxSocketPath {
		return nil, fmt.Errorf("--state-dir %s is too long by %d characters: the path of a socket below it has a limit",
			stateDir, len(socket)-maxSocketPath)
	}
	return c, nil
}

// lock waits for other commands on this cluster. Processes started with the returned file keep it locked until they run.
func (c *Cluster) lock(ctx context.Context) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	file, err := c.registry.LockCluster(ctx, c.id, func(pid string) {
		c.progress.step("waiting for another localcluster command on this cluster (process %s)", pid)
	})
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	return file, nil
}

// load reads the state of an existing cluster. It returns false when there is none.
func (c *Cluster) load() (bool, error) {
	content, err := os.ReadFile(c.stateFile())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(content, &c.state); err != nil {
		return false, fmt.Errorf("read %s: %w; run: localcluster down --name %s", c.stateFile(), err, c.Name)
	}
	return true, nil
}

// mustExist loads the state and fails when there is no cluster.
func (c *Cluster) mustExist() error {
	exists, err := c.load()
	if err == nil && !exists {
		return fmt.Errorf("there is no cluster %s in %s: run localcluster up --name %s", c.Name, filepath.Dir(c.Dir), c.Name)
	}
	return err
}

func (c *Cluster) save() error {
	content, err := json.MarshalIndent(c.state, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(c.stateFile(), content, 0o644)
}

func (c *Cluster) stateFile() string { return c.path("cluster.json") }
func (c *Cluster) path(parts ...string) string {
	return filepath.Join(append([]string{c.Dir}, parts...)...)
}
func (c *Cluster) recordFile(role string) string { return c.path("run", role+".json") }
func (c *Cluster) logFile(role string) string    { return c.path("log", role+".log") }
func (c *Cluster) adminKubeconfig() string       { return c.path("kubeconfig") }
func (c *Cluster) program(name string) string    { return filepath.Join(c.BinDir, name) }

// The addresses inside a cluster's network namespace. Every cluster has the same ones: they are visible nowhere else.
const (
	podCIDR          = "10.244.0.0/16"
	serviceCIDR      = "10.96.0.0/16"
	serviceIP        = "10.96.0.1"
	dnsIP            = "10.96.0.10"
	clusterDomain    = "cluster.local"
	apiServerPort    = 6443
	kubeletPort      = 10250
	kubeProxyHealth  = 10256
	kubeProxyMetrics = 10249
	// maxPodsPerNode fits the /22 that each node has.
	maxPodsPerNode = 500
	// nodeCIDR holds the addresses of the nodes, where there are several, and that of the control plane.
	nodeCIDR       = "10.243.0.0/24"
	controlPlaneIP = "10.243.0.1"
)

// The pairs of addresses between the machine and its clusters come from 198.19.0.0/16: a range for benchmarks of
// network devices (RFC 2544), which no network uses for its machines.
const slots = 1 << 14

// preferredSlot differs from cluster to cluster, so that a cluster usually keeps its addresses when it is made anew.
func (c *Cluster) preferredSlot() int {
	sum := sha256.Sum256([]byte(c.Dir))
	return int(binary.BigEndian.Uint32(sum[:4]) % slots)
}

// slotNetwork is the network of a slot, with the address of the machine and that of the cluster in it.
func slotNetwork(slot int) (network net.IPNet, machine, cluster net.IP) {
	address := func(offset int) net.IP {
		last := slot*4 + offset
		return net.IPv4(198, 19, byte(last>>8), byte(last)).To4()
	}
	return net.IPNet{IP: address(0), Mask: net.CIDRMask(30, 32)}, address(1), address(2)
}

// apiServerIP is the address of the API server, and that of the node where there is one.
func (c *Cluster) apiServerIP() net.IP {
	_, _, ip := slotNetwork(c.state.Slot)
	return ip
}

func (c *Cluster) apiServerURL() string {
	return "https://" + net.JoinHostPort(c.apiServerIP().String(), strconv.Itoa(apiServerPort))
}

// linkName is the machine's end of the connection. Names of links have at most 15 characters.
func (c *Cluster) linkName() string { return "lc-" + c.id }

// replaceFile writes a file in one step, and only when its content differs.
func replaceFile(path string, content []byte, mode os.FileMode) error {
	if current, err := os.ReadFile(path); err == nil && string(current) == string(content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", content, mode); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
