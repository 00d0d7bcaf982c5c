package charts

import (
	"path"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// forbidden is what no role of ours may have: each would let whoever takes over the operator take over the cluster, or get where an
// operator of StatefulSets has no business. Patterns are those of path.Match.
var forbidden = []struct {
	groups, resources, verbs []string
	why                      string
}{
	{[]string{"*"}, []string{"*"}, []string{"escalate", "bind", "impersonate", `\*`, "approve", "sign"}, "is the right to have more rights, or to do everything"},
	{[]string{`\*`}, []string{"*"}, []string{"*"}, "is about the kinds of everybody"},
	{[]string{"*"}, []string{`\*`, `*/\*`}, []string{"*"}, "is about everything of a group"},
	{[]string{""}, []string{"pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "pods/ephemeralcontainers", "services/proxy", "nodes/*"}, []string{"*"}, "goes into pods, or to the kubelet"},
	{[]string{""}, []string{"serviceaccounts/token"}, []string{"*"}, "is the right to be anybody"},
	{[]string{""}, []string{"pods", "nodes", "namespaces", "persistentvolumes"}, []string{"create", "update", "patch"}, "makes pods that no controller answers for, or changes what all share"},
	{[]string{""}, []string{"nodes", "namespaces", "persistentvolumes"}, []string{"delete"}, "ends what all share"},
	{[]string{"rbac.authorization.k8s.io", "admissionregistration.k8s.io", "apiregistration.k8s.io", "certificates.k8s.io"}, []string{"*"}, []string{"*"}, "is the right to have more rights"},
	{[]string{"apiextensions.k8s.io"}, []string{"*"}, []string{"create", "update", "patch", "delete"}, "changes kinds for all"},
}

// forbids says why a rule is forbidden; empty when it is not.
func forbids(rule rbacv1.PolicyRule) string {
	matches := func(patterns, names []string) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			return slices.ContainsFunc(patterns, func(pattern string) bool {
				found, err := path.Match(pattern, name)
				// A star of path.Match ends at a slash, and there is at most one.
				deep, deepErr := path.Match(pattern+"/*", name)
				if err != nil || deepErr != nil {
					panic("a pattern of this test is none: " + pattern)
				}
				return found || pattern == "*" && deep
			})
		})
	}
	for _, one := range forbidden {
		if matches(one.groups, rule.APIGroups) && matches(one.resources, rule.Resources) && matches(one.verbs, rule.Verbs) {
			return one.why
		}
	}
	return ""
}

// TestForbiddenRules looks at every role of every way to install.
func TestForbiddenRules(t *testing.T) {
	installations := map[string]objects{
		"install.yaml": read(t, readFile(t, root+"/manifests/install.yaml")),
		"platform":     render(t, platform(t), ""),
	}
	for name, text := range valueSets {
		installations[name] = render(t, operatorChart, text)
	}
	roles := 0
	for name, found := range installations {
		for key, object := range found {
			if kind := object.GetKind(); kind != "Role" && kind != "ClusterRole" {
				continue
			}
			roles++
			// A ClusterRole has the fields of a Role.
			for _, rule := range typed[rbacv1.ClusterRole](t, found, key).Rules {
				if why := forbids(rule); why != "" {
					t.Errorf("%s: %s: %q of %q in %q %s", name, key, rule.Verbs, rule.Resources, rule.APIGroups, why)
				}
			}
		}
	}
	if roles < 20 {
		t.Errorf("looked at %d roles only", roles)
	}
}

func TestForbids(t *testing.T) {
	rule := func(group, resource, verb string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"", group}, Resources: []string{"configmaps", resource}, Verbs: []string{"get", verb}}
	}
	for name, c := range map[string]struct {
		rule rbacv1.PolicyRule
		want bool
	}{
		"any verb":             {rule("apps", "statefulsets", "*"), true},
		"any kind":             {rule("apps", "*", "get"), true},
		"any group":            {rule("*", "statefulsets", "get"), true},
		"any subresource":      {rule("", "pods/*", "get"), true},
		"a shell":              {rule("", "pods/exec", "create"), true},
		"the kubelet":          {rule("", "nodes/proxy", "get"), true},
		"another's name":       {rule("", "users", "impersonate"), true},
		"more rights":          {rule("rbac.authorization.k8s.io", "roles", "get"), true},
		"more rights, by bind": {rule("x", "y", "bind"), true},
		"a token":              {rule("", "serviceaccounts/token", "create"), true},
		"a pod":                {rule("", "pods", "create"), true},
		"a cordon":             {rule("", "nodes", "patch"), true},
		"a log":                {rule("", "pods/log", "get"), false},
		"nodes":                {rule("", "nodes", "watch"), false},
		"an eviction":          {rule("", "pods", "delete"), false},
		"a status":             {rule("livestash.dev", "livestashclusters/status", "patch"), false},
	} {
		if got := forbids(c.rule); (got != "") != c.want {
			t.Errorf("%s: forbidden: %q, want %v", name, got, c.want)
		}
	}
}

// TestUserRolesAreOfOurKinds: what the chart adds to the roles view and edit of everybody.
func TestUserRolesAreOfOurKinds(t *testing.T) {
	found := render(t, operatorChart, "")
	for name, verbs := range map[string][]string{
		"view": {"get", "list", "watch"},
		"edit": {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
	} {
		for _, rule := range typed[rbacv1.ClusterRole](t, found, "ClusterRole /livestash-"+name).Rules {
			for _, verb := range rule.Verbs {
				if !slices.Contains(verbs, verb) {
					t.Errorf("livestash-%s may %s %q", name, verb, rule.Resources)
				}
			}
			if !slices.Equal(rule.APIGroups, []string{"livestash.dev"}) {
				t.Errorf("livestash-%s is about the groups %q", name, rule.APIGroups)
			}
		}
	}
}
