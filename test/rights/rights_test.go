package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	account   = "system:serviceaccount:there:operator"
	manifests = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: operator}
rules:
- {apiGroups: [""], resources: [pods, pods/log], verbs: [get]}
- {apiGroups: [apps], resources: [statefulsets], verbs: [create, list, patch, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: of-others}
rules:
- {apiGroups: [""], resources: [secrets], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: operator}
roleRef: {kind: ClusterRole, name: operator}
subjects: [{kind: ServiceAccount, namespace: there, name: operator}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: of-others}
roleRef: {kind: ClusterRole, name: of-others}
subjects: [{kind: ServiceAccount, namespace: elsewhere, name: operator}]
`
)

// line is a line of an audit log.
func line(verb, group, resource, subresource, code, decision string) string {
	return `{"stage":"ResponseComplete","verb":"` + verb + `","user":{"username":"` + account + `"},"objectRef":{"apiGroup":"` + group + `","resource":"` + resource +
		`","subresource":"` + subresource + `"},"responseStatus":{"code":` + code + `},"annotations":{"authorization.k8s.io/decision":"` + decision + `"}}` + "\n"
}

func TestRun(t *testing.T) {
	all := line("get", "", "pods", "", "200", "allow") + line("get", "", "pods", "log", "200", "allow") +
		line("patch", "apps", "statefulsets", "", "201", "allow") + line("watch", "apps", "statefulsets", "", "200", "allow")
	for name, test := range map[string]struct {
		log, want string
		excepted  map[right]string
	}{
		"all used": {log: all, want: ""},
		"a right of a subresource is one of its own": {
			log:  strings.Replace(all, `"subresource":"log"`, `"subresource":""`, 1),
			want: "get pods/log: never used",
		},
		"an apply that changes is no creation": {
			log: strings.Replace(all, "201", "200", 1), want: "create statefulsets (apps): never used",
		},
		"an exception": {
			log:      strings.Replace(all, "201", "200", 1),
			excepted: map[right]string{{"create", "apps", "statefulsets"}: "it is rare"},
		},
		"refused":                               {log: all + line("get", "", "nodes", "", "403", "forbid"), want: "get nodes: asked for and refused"},
		"refused at the end, without its roles": {log: all + line("get", "", "pods", "", "403", "forbid")},
		"refused, but not by RBAC": {
			log: all + line("patch", "apps", "statefulsets", "", "403", "allow"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			if err := os.WriteFile(path, []byte(test.log), 0o600); err != nil {
				t.Fatal(err)
			}
			granted, err := grantedTo(account, strings.NewReader(manifests))
			if err != nil {
				t.Fatal(err)
			}
			seen := &use{used: rights{}, refused: rights{}}
			if err := seen.read(account, path); err != nil {
				t.Fatal(err)
			}
			mistakes := judge(granted, seen, test.excepted)
			if (len(mistakes) != 0) != (test.want != "") || !strings.HasPrefix(strings.Join(mistakes, "\n"), test.want) {
				t.Errorf("mistakes are %q, want %q", mistakes, test.want)
			}
		})
	}
}

// A log of a server that nobody asked, or of another account, would make every right look unused, or hide that a suite did not run.
func TestLogWithoutRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(line("get", "", "pods", "", "200", "allow"), account, "me")), 0o600); err != nil {
		t.Fatal(err)
	}
	seen := &use{used: rights{}, refused: rights{}}
	if err := seen.read(account, path); err == nil || !strings.Contains(err.Error(), "no request of") {
		t.Errorf("reading it: %v", err)
	}
}

// What the manifests of the repository give, as far as it does not change with every feature.
func TestGrantedByInstall(t *testing.T) {
	file, err := os.Open(filepath.Join("..", "..", "manifests", "install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	granted, err := grantedTo("system:serviceaccount:livestash-system:livestash-operator", file)
	if err != nil {
		t.Fatal(err)
	}
	for one := range exceptions {
		if !granted[one] {
			t.Errorf("%s is an exception, and not granted", one)
		}
	}
	want := rights{{"update", "coordination.k8s.io", "leases"}: true, {"patch", "apps", "statefulsets"}: true, {"create", "authentication.k8s.io", "tokenreviews"}: true}
	if diff := cmp.Diff([]right(nil), want.without(granted), cmp.AllowUnexported(right{})); diff != "" {
		t.Errorf("not granted (-want +got):\n%s", diff)
	}
}
