package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/livestash-dev/livestash/test/localcluster/internal/daemon"
)

// process is one program that the cluster consists of.
type process struct {
	// role names it, its log and its record.
	role string
	path string
	args []string
	// configs are files it is started with: path to content.
	configs map[string]string
	// ports are those it listens on.
	ports []int
}

// HoldCommand and ProvisionCommand are the arguments that make localcluster one of the cluster's own processes.
const (
	HoldCommand      = "internal-hold"
	ProvisionCommand = "internal-provision"
)

const holderRole = "holder"

// processes lists what belongs to the cluster besides the holder, in the order it is started.
func (c *Cluster) processes(files certificates) ([]process, error) {
	controlPlane := []process{c.etcd(), c.apiServer(files), c.controllerManager(files)}
	if c.state.Options.ControlPlaneOnly {
		return controlPlane, nil
	}
	containerd, err := c.containerd()
	if err != nil {
		return nil, err
	}
	return append(controlPlane, c.scheduler(), containerd, c.kubelet(files), c.kubeProxy(), c.provisioner()), nil
}

// roles names the processes that are wanted, the holder first.
func (c *Cluster) roles() []string {
	roles := []string{holderRole, "etcd", "kube-apiserver", "kube-controller-manager"}
	if c.state.Options.ControlPlaneOnly {
		return roles
	}
	return append(roles, "kube-scheduler", "containerd", "kubelet", "kube-proxy", "provisioner")
}

func (c *Cluster) etcd() process {
	return process{
		role: "etcd", path: c.program("kubernetes"), ports: []int{2379, 2380},
		args: []string{"etcd",
			"--name=" + c.Name,
			"--data-dir=" + c.path("etcd"),
			"--listen-client-urls=http://127.0.0.1:2379",
			"--advertise-client-urls=http://127.0.0.1:2379",
			"--listen-peer-urls=http://127.0.0.1:2380",
			"--initial-advertise-peer-urls=http://127.0.0.1:2380",
			"--initial-cluster=" + c.Name + "=http://127.0.0.1:2380",
			// The data may be lost when the machine loses power: nothing here is worth the wait for the disk.
			"--unsafe-no-fsync",
			"--log-level=warn",
		},
	}
}

func (c *Cluster) apiServer(files certificates) process {
	args := []string{"kube-apiserver",
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=0.0.0.0",
		fmt.Sprintf("--secure-port=%d", apiServerPort),
		"--advertise-address=" + c.nodeIP().String(),
		"--service-cluster-ip-range=" + serviceCIDR,
		"--client-ca-file=" + files.authority.CertificateFile(),
		"--tls-cert-file=" + files.serverCert,
		"--tls-private-key-file=" + files.serverKey,
		"--kubelet-certificate-authority=" + files.authority.CertificateFile(),
		"--kubelet-client-certificate=" + files.kubeletClientCert,
		"--kubelet-client-key=" + files.kubeletClientKey,
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc." + clusterDomain,
		"--service-account-signing-key-file=" + files.tokenKey,
		"--service-account-key-file=" + files.tokenPublic,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		// No program of the cluster needs time to notice that the API server ends.
		"--shutdown-delay-duration=0s",
	}
	configs := map[string]string{}
	if c.state.Options.AuditLog != "" {
		policy := c.path("audit-policy.yaml")
		configs[policy] = auditPolicy(c.state.Options.AuditUser)
		args = append(args,
			"--audit-policy-file="+policy,
			"--audit-log-path="+c.state.Options.AuditLog,
			// In megabytes: one file, so that a count of its lines is a count of the requests.
			"--audit-log-maxsize=1000000",
		)
	}
	return process{
		role: "kube-apiserver", path: c.program("kubernetes"), args: args, configs: configs, ports: []int{apiServerPort},
	}
}

// auditPolicy has the API server log the requests of one user, or of all when it is empty.
func auditPolicy(user string) string {
	policy := `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
`
	if user == "" {
		return policy
	}
	return policy + fmt.Sprintf("  users: [%q]\n- level: None\n", user)
}

func (c *Cluster) controllerManager(files certificates) process {
	kubeconfig := c.path("kubeconfigs", "controller-manager")
	controllers := "*"
	if c.state.Options.ControlPlaneOnly {
		// Nothing routes to a pod that does not run, and simulated pods may have addresses that no endpoint may have.
		controllers += ",-endpoints-controller,-endpointslice-controller,-endpointslice-mirroring-controller"
	}
	return process{
		role: "kube-controller-manager", path: c.program("kubernetes"), ports: []int{10257},
		args: []string{"kube-controller-manager",
			"--controllers=" + controllers,
			"--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=127.0.0.1",
			"--use-service-account-credentials=true",
			"--service-account-private-key-file=" + files.tokenKey,
			"--root-ca-file=" + files.authority.CertificateFile(),
			"--cluster-signing-cert-file=" + files.authority.CertificateFile(),
			"--cluster-signing-key-file=" + files.authority.KeyFile(),
			"--allocate-node-cidrs=false",
			"--leader-elect=false",
			// The usual 20 a second are for clusters that share an API server with thousands of nodes.
			"--kube-api-qps=300", "--kube-api-burst=600",
		},
	}
}

func (c *Cluster) scheduler() process {
	kubeconfig := c.path("kubeconfigs", "scheduler")
	return process{
		role: "kube-scheduler", path: c.program("kubernetes"), ports: []int{10259},
		args: []string{"kube-scheduler",
			"--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=127.0.0.1",
			"--leader-elect=false",
			"--kube-api-qps=300", "--kube-api-burst=600",
		},
	}
}

func (c *Cluster) containerd() (process, error) {
	path, err := programPath("containerd")
	if err != nil {
		return process{}, err
	}
	node := c.node(0)
	config := node.path("containerd.toml")
	return process{
		role: "containerd", path: path,
		args: []string{"--config=" + config},
		configs: map[string]string{
			config:                               containerdConfig(node),
			node.path("cni", "10-pods.conflist"): cniConfig(node),
		},
	}, nil
}

func (c *Cluster) kubelet(files certificates) process {
	node := c.node(0)
	config := node.path("kubelet.yaml")
	return process{
		role: "kubelet", path: c.program("kubernetes"), ports: []int{kubeletPort, 10248},
		args: []string{"kubelet",
			"--config=" + config,
			"--kubeconfig=" + node.path("kubeconfig"),
			"--hostname-override=" + node.name,
			"--node-ip=" + c.nodeIP().String(),
		},
		configs: map[string]string{
			config: kubeletConfig(node, c.group.Name, files),
			// Pods that ask for the node's own name server get none: there is nothing to ask outside.
			node.path("resolv.conf"): "",
		},
	}
}

func (c *Cluster) kubeProxy() process {
	node := c.node(0)
	config := node.path("kube-proxy.yaml")
	return process{
		role: "kube-proxy", path: c.program("kubernetes"), ports: []int{kubeProxyHealth, kubeProxyMetrics},
		args:    []string{"kube-proxy", "--config=" + config},
		configs: map[string]string{config: kubeProxyConfig(node, c.path("kubeconfigs", "proxy"))},
	}
}

func (c *Cluster) provisioner() process {
	return process{
		role: "provisioner", path: c.program("localcluster"),
		args: []string{ProvisionCommand, c.path("kubeconfigs", "provisioner"), c.node(0).volumes()},
	}
}

// environment is all the cluster's processes see of the caller's: nothing, so that no proxy and no credentials leak in.
func (c *Cluster) environment() []string { return []string{"PATH=" + searchPath, "HOME=" + c.Dir} }

// startProcess starts a process unless it runs already, and says whether it did.
func (c *Cluster) startProcess(p process, holder int, lock *os.File) (started bool, err error) {
	record, known, err := daemon.ReadRecord(c.recordFile(p.role))
	if err != nil {
		return false, err
	}
	if known && record.Alive() {
		return false, nil
	}
	if err := daemon.RunInNetwork(holder, func() error { return portsFree(p.ports) }); err != nil {
		return false, fmt.Errorf("start %s: %w", p.role, err)
	}
	for path, content := range p.configs {
		if err := replaceFile(path, []byte(content), 0o644); err != nil {
			return false, err
		}
	}
	if known {
		c.progress.step("starting %s again: it had ended", p.role)
	} else {
		c.progress.step("starting %s", p.role)
	}
	err = daemon.Start(daemon.Spec{
		Path: p.path, Args: p.args, Env: c.environment(),
		Log: c.logFile(p.role), Record: c.recordFile(p.role),
		Group:      c.group,
		Namespaces: daemon.Namespaces{Of: holder},
	}, lock)
	if err != nil {
		return false, fmt.Errorf("start %s: %w", p.role, err)
	}
	return true, nil
}

// portsFree fails when something else listens in the network of the calling thread. Only a program that was started there
// by hand can do so.
func portsFree(ports []int) error {
	for _, port := range ports {
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			return fmt.Errorf("port %d is taken in the cluster's network (%w): end the program that localcluster exec started there", port, err)
		}
		if err := listener.Close(); err != nil {
			return err
		}
	}
	return nil
}

// mustRun fails with the end of the log of the first process that has ended.
func (c *Cluster) mustRun(roles ...string) error {
	for _, role := range roles {
		record, known, err := daemon.ReadRecord(c.recordFile(role))
		if err != nil {
			return err
		}
		if known && !record.Alive() {
			return fmt.Errorf("%s has ended; the end of %s:\n%s", role, c.logFile(role), tail(c.logFile(role), 5))
		}
	}
	return nil
}

// holder returns the process id of the process that keeps the namespaces, and starts it if it is missing.
func (c *Cluster) holder(ctx context.Context, lock *os.File) (int, error) {
	record, known, err := daemon.ReadRecord(c.recordFile(holderRole))
	if err != nil {
		return 0, err
	}
	if known && record.Alive() {
		return record.PID, nil
	}
	// What is left of an earlier life has lost its namespaces: it cannot be joined with new processes.
	if err := c.killAll(ctx); err != nil {
		return 0, err
	}
	// The kubelet takes what is left of ended containers' control groups for containers and waits for each of them.
	if err := c.removeGroups(ctx); err != nil {
		return 0, err
	}
	if err := c.group.Create(); err != nil {
		return 0, err
	}
	node := c.node(0)
	// The sockets and task folders of containers that ended with the machine or with the last holder.
	if err := os.RemoveAll(node.path("run")); err != nil {
		return 0, err
	}
	namespaces, err := c.namespaces(ctx, node)
	if err != nil {
		return 0, err
	}
	if known {
		c.progress.step("making the namespaces again: everything of this cluster had ended or lost them")
	} else {
		c.progress.step("making the namespaces")
	}
	err = daemon.Start(daemon.Spec{
		Path: c.program("localcluster"), Args: []string{HoldCommand}, Env: c.environment(),
		Log: c.logFile(holderRole), Record: c.recordFile(holderRole),
		Group:      c.group,
		Namespaces: namespaces,
	}, lock)
	if err != nil {
		return 0, fmt.Errorf("make the namespaces: %w", err)
	}
	record, _, err = daemon.ReadRecord(c.recordFile(holderRole))
	return record.PID, err
}

// namespaces says how the cluster's namespaces are made. A control plane needs no more than a network of its own.
func (c *Cluster) namespaces(ctx context.Context, node node) (daemon.Namespaces, error) {
	if c.state.Options.ControlPlaneOnly {
		return daemon.Namespaces{}, nil
	}
	binds, err := c.binds(ctx, node)
	return daemon.Namespaces{
		Binds: binds,
		Sysctls: map[string]string{
			"net/ipv4/ip_forward":                "1",
			"net/bridge/bridge-nf-call-iptables": "1",
		},
	}, err
}

// binds gives the node folders of its own in the places that the kubelet, containerd and the network plugins have
// compiled in, so that several clusters, and a container runtime of the machine, never meet.
func (c *Cluster) binds(ctx context.Context, node node) ([]daemon.Bind, error) {
	folders := []daemon.Bind{
		{Source: node.path("kubelet"), Target: "/var/lib/kubelet"},
		{Source: node.path("cni-state"), Target: "/var/lib/cni"},
		{Source: node.path("log", "pods"), Target: "/var/log/pods"},
		{Source: node.path("log", "containers"), Target: "/var/log/containers"},
		{Source: node.path("run", "containerd"), Target: "/run/containerd"},
		{Source: node.path("run", "netns"), Target: "/run/netns"},
	}
	var targets []string
	for _, bind := range folders {
		if err := os.MkdirAll(bind.Source, 0o755); err != nil {
			return nil, err
		}
		targets = append(targets, bind.Target)
	}
	if err := c.registry.MakeMountPoints(ctx, targets); err != nil {
		return nil, err
	}
	settings, err := kernelSettings(node)
	return append(folders, settings...), err
}

// kernelSettings covers the settings of the whole machine that the kubelet sets as it likes: it writes to plain files
// instead, and the machine keeps its own values.
func kernelSettings(node node) ([]daemon.Bind, error) {
	var binds []daemon.Bind
	for _, setting := range []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
	} {
		target := filepath.Join("/proc/sys", setting)
		value, err := os.ReadFile(target)
		if err != nil {
			return nil, err
		}
		source := node.path("run", "sysctl", strings.ReplaceAll(setting, "/", "."))
		if err := replaceFile(source, value, 0o644); err != nil {
			return nil, err
		}
		binds = append(binds, daemon.Bind{Source: source, Target: target})
	}
	return binds, nil
}

// killAll ends every process of the cluster: those in its control group, and those that have a record.
func (c *Cluster) killAll(ctx context.Context) error {
	return c.progress.wait(ctx, "the end of the cluster's processes", time.Minute, func(context.Context) (string, error) {
		pids, err := c.group.Processes()
		if err != nil {
			return "", err
		}
		var alive []string
		for _, pid := range pids {
			record, err := daemon.Of(pid)
			// A process that ended since, or that has ended and waits for its parent, is no obstacle.
			if err != nil || !record.Alive() {
				continue
			}
			if err := record.Signal(syscall.SIGKILL); err != nil {
				return "", err
			}
			alive = append(alive, fmt.Sprint(pid))
		}
		records, err := filepath.Glob(c.recordFile("*"))
		if err != nil {
			return "", err
		}
		for _, file := range records {
			record, _, err := daemon.ReadRecord(file)
			if err != nil || !record.Alive() {
				continue
			}
			if err := record.Signal(syscall.SIGKILL); err != nil {
				return "", err
			}
			alive = append(alive, fmt.Sprint(record.PID))
		}
		if len(alive) == 0 {
			return "", nil
		}
		return "processes " + strings.Join(alive, " "), nil
	})
}

// tail returns the last lines of a file, or why there are none.
func tail(path string, lines int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// errNotRunning is what commands say that need a running cluster.
func (c *Cluster) errNotRunning() error {
	return fmt.Errorf("cluster %s does not run: run localcluster up --name %s", c.Name, c.Name)
}

// runningHolder returns the process id of the running holder.
func (c *Cluster) runningHolder() (int, error) {
	record, known, err := daemon.ReadRecord(c.recordFile(holderRole))
	if err != nil {
		return 0, err
	}
	if !known || !record.Alive() {
		return 0, c.errNotRunning()
	}
	return record.PID, nil
}
