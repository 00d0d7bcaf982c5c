package main

import (
	"fmt"
	"strings"
)

const (
	// operatorNamespace and operatorAccount are who the operator is. The account is used by nothing else, so that what
	// the audit log has of it is what the operator did.
	operatorNamespace = "livestash-system"
	operatorAccount   = "livestash-operator"

	// clustersNamespace has the LiveStashClusters that are measured.
	clustersNamespace = "scale"
)

func operatorUser() string {
	return "system:serviceaccount:" + operatorNamespace + ":" + operatorAccount
}

// prerequisites are the namespaces, and the operator's account with its roles, whose rules are those of config/rbac.
func prerequisites(roles string) string {
	// kustomize would do this with the namespace of config/default.
	roles = strings.ReplaceAll(roles, "namespace: system\n", "namespace: "+operatorNamespace+"\n")
	subject := fmt.Sprintf("subjects: [{kind: ServiceAccount, name: %s, namespace: %s}]", operatorAccount, operatorNamespace)
	role := "roleRef: {apiGroup: rbac.authorization.k8s.io, name: livestash-operator, kind: "
	return documents(
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: "+operatorNamespace+"}",
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: "+clustersNamespace+"}",
		"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: "+operatorAccount+", namespace: "+operatorNamespace+"}",
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: livestash-operator}\n"+role+"ClusterRole}\n"+subject,
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: livestash-operator, namespace: "+operatorNamespace+"}\n"+role+"Role}\n"+subject,
		roles,
	)
}

// liveStashClusters are those from the first to before the next, as a user would write them.
func (b *bench) liveStashClusters(first, next int) string {
	var some []string
	for i := first; i < next; i++ {
		some = append(some, b.liveStashCluster(clusterName(i), clustersNamespace))
	}
	return documents(some...)
}

func clusterName(i int) string { return fmt.Sprintf("shop-%04d", i) }

func (b *bench) liveStashCluster(name, namespace string) string {
	manifest := fmt.Sprintf(`apiVersion: livestash.dev/v1alpha1
kind: LiveStashCluster
metadata:
  name: %s
  namespace: %s
spec:
  image: ghcr.io/acme/shop:1.4.2
  replicas: %d
  adapter: ETS
  ttl: 5m`, name, namespace, b.pods)
	if b.agents != nil {
		// One of this run's own, so that two can run side by side.
		manifest += fmt.Sprintf("\n  agent: {port: %d}", b.agents.port)
	}
	return manifest
}

func documents(all ...string) string { return strings.Join(all, "\n---\n") + "\n" }
