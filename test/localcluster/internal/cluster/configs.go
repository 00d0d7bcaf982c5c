package cluster

import "fmt"

// imageRegistry begins the names of the cluster's own images. It is no host name: nothing is ever pulled.
const imageRegistry = "localhost/livestash-localcluster"

const pauseImage = imageRegistry + "/pause:1"

func containerdConfig(node node) string {
	return fmt.Sprintf(`version = 2
root = %[1]q
state = "/run/containerd"

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins."io.containerd.internal.v1.opt"]
  path = %[2]q

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[3]q
  # Without CAP_SYS_RESOURCE, runc cannot lower the out-of-memory score, and every pod would fail.
  restrict_oom_score_adj = true
  # The kernel may have no AppArmor profile of containerd's, and need not.
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    discard_unpacked_layers = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %[4]q
    conf_dir = %[5]q
`, node.path("containerd"), node.path("opt"), pauseImage, cniDir, node.path("cni"))
}

func cniConfig(node node) string {
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0",
  "name": "pods",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "cni0",
      "isDefaultGateway": true,
      "ipMasq": false,
      "hairpinMode": true,
      "ipam": {
        "type": "host-local",
        "dataDir": "/var/lib/cni/networks",
        "ranges": [[{"subnet": %q}]]
      }
    },
    {
      "type": "portmap",
      "capabilities": {"portMappings": true}
    }
  ]
}
`, node.podCIDR)
}

func kubeletConfig(node node, group string, files certificates) string {
	serving := files.kubelets[node.index]
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[1]q}
authorization:
  mode: Webhook
tlsCertFile: %[2]q
tlsPrivateKeyFile: %[3]q
port: %[4]d
clusterDNS: [%[5]q]
clusterDomain: %[6]q
resolvConf: %[7]q
cgroupDriver: cgroupfs
cgroupRoot: /%[8]s
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
maxPods: %[9]d
volumePluginDir: %[10]q
# The node has no disk of its own: the fill of the machine's disk must neither evict pods nor delete images.
localStorageCapacityIsolation: false
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%", imagefs.inodesFree: "0%%"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
imageMaximumGCAge: 0s
volumeStatsAggPeriod: -1s
# One node does not burden its API server: report at once.
nodeStatusUpdateFrequency: 5s
nodeLeaseDurationSeconds: 40
syncFrequency: 10s
kubeAPIQPS: 200
kubeAPIBurst: 400
eventRecordQPS: 0
serializeImagePulls: false
`, files.authority.CertificateFile(), serving.certificate, serving.key, kubeletPort, dnsIP, clusterDomain,
		node.path("resolv.conf"), group, maxPodsPerNode, node.path("volume-plugins"))
}

// kubeProxyConfig is for the host of the node; an address is the host's own, where that is not the node's.
func kubeProxyConfig(node, address, kubeconfig string) string {
	config := fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clientConnection: {kubeconfig: %[1]q}
hostnameOverride: %[2]q
clusterCIDR: %[3]q
healthzBindAddress: 127.0.0.1:%[4]d
metricsBindAddress: 127.0.0.1:%[5]d
oomScoreAdj: 0
# The limits of connection tracking belong to the whole machine.
conntrack: {maxPerCore: 0, min: 0}
# Tests wait for endpoints: a second between two writes of the rules is long.
nftables: {minSyncPeriod: 100ms, syncPeriod: 30s}
`, kubeconfig, node, podCIDR, kubeProxyHealth, kubeProxyMetrics)
	if address == "" {
		return config
	}
	return config + fmt.Sprintf("bindAddress: %q\n", address)
}
