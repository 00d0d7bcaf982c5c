// Package clusterdomain finds the DNS domain of the Kubernetes cluster, which the API does not tell.
package clusterdomain

import (
	"os"
	"strings"
)

// Default is the domain of most clusters.
const Default = "cluster.local"

// Detect reads the domain from the search list that the kubelet writes for pods (normally in /etc/resolv.conf), whose
// entry svc.<domain> is the same in every pod. Outside a pod, or when there is none, it is Default.
func Detect(resolvConf string) string {
	content, err := os.ReadFile(resolvConf)
	if err != nil {
		return Default
	}
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "search" {
			continue
		}
		for _, entry := range fields[1:] {
			if domain, found := strings.CutPrefix(entry, "svc."); found {
				return strings.TrimSuffix(domain, ".")
			}
		}
	}
	return Default
}
