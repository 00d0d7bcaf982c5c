package cluster

import (
	"fmt"
	"net"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"

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
	// on is where it runs.
	on host
}

// These arguments make localcluster one of the cluster's own processes.
const (
	HoldCommand      = "internal-hold"
	ProvisionCommand = "internal-provision"
	RelayCommand     = "internal-relay"
	PolicyCommand    = "internal-policies"
)

// controlPlane lists the processes that a cluster has whatever its nodes, in the order they are started, before those of the nodes.
func (c *Cluster) controlPlane(files certificates) []process {
	processes := []process{c.etcd(), c.apiServer(files), c.controllerManager(files)}
	if !c.state.Options.ControlPlaneOnly {
		processes = append(processes, c.scheduler())
	}
	return processes
}

// lastProcesses lists those that are started after those of the nodes. kube-proxy waits for its node for half a minute, and ends when the
// node comes later: nodes need that long to unpack their images on a busy machine.
func (c *Cluster) lastProcesses() []process {
	if c.severalNodes() {
		// Node ports answer at the API server's address, and localcluster exec reaches Services from there.
		return []process{c.kubeProxy(c.mainHost(), c.node(0)), c.provisioner()}
	}
	return []process{c.provisioner()}
}

// nodeProcesses lists those of a node, the container runtime first.
func (c *Cluster) nodeProcesses(n node, files certificates) ([]process, error) {
	containerd, err := c.containerd(n)
	if err != nil {
		return nil, err
	}
	processes := []process{containerd}
	if c.state.Options.NetworkPolicies {
		// Before the kubelet: no pod is there before its rules.
		policies, err := c.policies(n)
		if err != nil {
			return nil, err
		}
		processes = append(processes, policies)
	}
	return append(processes, c.kubelet(n, files), c.kubeProxy(c.hostOf(n), n)), nil
}

// nodeRoles names them.
func (c *Cluster) nodeRoles(n node) []string {
	roles := []string{n.role("containerd")}
	if c.state.Options.NetworkPolicies {
		roles = append(roles, n.role("network-policies"))
	}
	return append(roles, n.role("kubelet"), n.role("kube-proxy"))
}

// roles names the processes that are wanted, those that hold namespaces first.
func (c *Cluster) roles() []string {
	roles := []string{holderRole}
	if c.severalNodes() {
		for _, n := range c.nodes() {
			roles = append(roles, n.role(holderRole))
		}
	}
	roles = append(roles, "etcd", "kube-apiserver", "kube-controller-manager")
	if c.state.Options.ControlPlaneOnly {
		return roles
	}
	roles = append(roles, "kube-scheduler")
	for _, n := range c.nodes() {
		roles = append(roles, c.nodeRoles(n)...)
	}
	if c.severalNodes() {
		roles = append(roles, "kube-proxy")
	}
	return append(roles, "provisioner")
}

func (c *Cluster) etcd() process {
	return process{
		role: "etcd", path: c.program("kubernetes"), on: c.mainHost(), ports: []int{2379, 2380},
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
		"--advertise-address=" + c.apiServerIP().String(),
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
		on: c.mainHost(),
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
		role: "kube-controller-manager", path: c.program("kubernetes"), on: c.mainHost(), ports: []int{10257},
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
		role: "kube-scheduler", path: c.program("kubernetes"), on: c.mainHost(), ports: []int{10259},
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

func (c *Cluster) containerd(n node) (process, error) {
	path, err := programPath("containerd")
	if err != nil {
		return process{}, err
	}
	config := n.path("containerd.toml")
	return process{
		role: n.role("containerd"), path: path, on: c.hostOf(n),
		args: []string{"--config=" + config},
		configs: map[string]string{
			config:                            containerdConfig(n),
			n.path("cni", "10-pods.conflist"): cniConfig(n),
		},
	}, nil
}

func (c *Cluster) kubelet(n node, files certificates) process {
	config := n.path("kubelet.yaml")
	args := []string{"kubelet",
		"--config=" + config,
		"--kubeconfig=" + n.path("kubeconfig"),
		"--hostname-override=" + n.name,
		"--node-ip=" + n.ip.String(),
	}
	if zone := n.zone(); zone != "" {
		args = append(args, "--node-labels="+corev1.LabelTopologyZone+"="+zone)
	}
	on := c.hostOf(n)
	return process{
		role: n.role("kubelet"), path: c.program("kubernetes"), ports: []int{kubeletPort, 10248}, args: args, on: on,
		configs: map[string]string{
			config: kubeletConfig(n, on.group.Name, files),
			// Pods that ask for the node's own name server get none: there is nothing to ask outside.
			n.path("resolv.conf"): "",
		},
	}
}

// kubeProxy runs on the host as that of the node: the control plane's host is no node, and kube-proxy wants to be on one.
func (c *Cluster) kubeProxy(on host, n node) process {
	role, config := n.role("kube-proxy"), n.path("kube-proxy.yaml")
	address := ""
	if on.node == nil {
		role, config, address = "kube-proxy", c.path("kube-proxy.yaml"), c.apiServerIP().String()
	}
	return process{
		role: role, path: c.program("kubernetes"), ports: []int{kubeProxyHealth, kubeProxyMetrics}, on: on,
		args:    []string{"kube-proxy", "--config=" + config},
		configs: map[string]string{config: kubeProxyConfig(n.name, address, c.path("kubeconfigs", "proxy"))},
	}
}

func (c *Cluster) policies(n node) (process, error) {
	nft, err := programPath("nft")
	return process{
		role: n.role("network-policies"), path: c.program("localcluster"), on: c.hostOf(n),
		args: []string{PolicyCommand, c.path("kubeconfigs", "network-policies"), nft, n.podCIDR},
	}, err
}

func (c *Cluster) provisioner() process {
	return process{
		role: "provisioner", path: c.program("localcluster"), on: c.mainHost(),
		args: []string{ProvisionCommand, c.path("kubeconfigs", "provisioner"), c.node(0).volumes()},
	}
}

// environment is all the cluster's processes see of the caller's: nothing, so that no proxy and no credentials leak in.
func (c *Cluster) environment() []string { return []string{"PATH=" + searchPath, "HOME=" + c.Dir} }

// startProcess starts a process unless it runs already, and says whether it did.
func (c *Cluster) startProcess(p process, lock *os.File) (started bool, err error) {
	record, known, err := daemon.ReadRecord(c.recordFile(p.role))
	if err != nil {
		return false, err
	}
	if known && record.Alive() {
		return false, nil
	}
	holder, err := c.running(p.on)
	if err != nil {
		return false, err
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
		Group:      p.on.group,
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

// tail returns the last lines of a file, or why there are none.
func tail(path string, lines int) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
