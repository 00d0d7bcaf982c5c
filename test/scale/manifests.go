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

// liveStashClusters are n LiveStashClusters as a user would write them.
func liveStashClusters(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = liveStashCluster(fmt.Sprintf("shop-%04d", i), clustersNamespace)
	}
	return documents(all...)
}

func liveStashCluster(name, namespace string) string {
	return fmt.Sprintf(`apiVersion: livestash.dev/v1alpha1
kind: LiveStashCluster
metadata:
  name: %s
  namespace: %s
spec:
  image: ghcr.io/acme/shop:1.4.2
  replicas: 3
  adapter: ETS
  ttl: 5m`, name, namespace)
}

func documents(all ...string) string { return strings.Join(all, "\n---\n") + "\n" }
