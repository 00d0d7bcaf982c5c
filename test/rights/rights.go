package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/livestash-dev/livestash/test/internal/audit"
)

// right is to do one thing with one resource.
type right struct {
	verb, group string
	// resource has its subresource with it, for example pods/log. It is a path for what is no resource.
	resource string
}

func (r right) String() string {
	if r.group == "" {
		return r.verb + " " + r.resource
	}
	return r.verb + " " + r.resource + " (" + r.group + ")"
}

type rights map[right]bool

// without are those that the other has not, in order.
func (r rights) without(other rights) []right {
	var left []right
	for one := range r {
		if !other[one] {
			left = append(left, one)
		}
	}
	slices.SortFunc(left, func(a, b right) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.resource, b.resource), cmp.Compare(a.verb, b.verb))
	})
	return left
}

// grantedTo are the rights that manifests give a ServiceAccount, wherever they hold: roles are told apart by their name alone.
func grantedTo(account string, manifests io.Reader) (rights, error) {
	rules := map[string][]rbacv1.PolicyRule{}
	var bound []string
	reader := utilyaml.NewYAMLOrJSONDecoder(manifests, 4096)
	for {
		object := &unstructured.Unstructured{}
		err := reader.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		switch object.GetKind() {
		case "Role", "ClusterRole":
			role := &rbacv1.Role{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, role); err != nil {
				return nil, err
			}
			rules[object.GetKind()+" "+role.Name] = role.Rules
		case "RoleBinding", "ClusterRoleBinding":
			binding := &rbacv1.RoleBinding{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, binding); err != nil {
				return nil, err
			}
			isFor := func(s rbacv1.Subject) bool {
				return s.Kind == rbacv1.ServiceAccountKind && "system:serviceaccount:"+s.Namespace+":"+s.Name == account
			}
			if slices.ContainsFunc(binding.Subjects, isFor) {
				bound = append(bound, binding.RoleRef.Kind+" "+binding.RoleRef.Name)
			}
		}
	}
	granted := rights{}
	for _, role := range bound {
		if len(rules[role]) == 0 {
			return nil, fmt.Errorf("the manifests bind the %s, which is not in them", role)
		}
		for _, rule := range rules[role] {
			maps.Copy(granted, of(rule))
		}
	}
	if len(granted) == 0 {
		return nil, fmt.Errorf("the manifests give %s no rights", account)
	}
	return granted, nil
}

func of(rule rbacv1.PolicyRule) rights {
	given := rights{}
	for _, verb := range rule.Verbs {
		for _, path := range rule.NonResourceURLs {
			given[right{verb: verb, resource: path}] = true
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				given[right{verb, group, resource}] = true
			}
		}
	}
	return given
}

// use is what an account did and what it was refused, by the logs of API servers.
type use struct {
	used, refused rights
	requests      int
}

// read takes in a log.
func (u *use) read(account, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	before := u.requests
	for lines.Scan() {
		event, err := audit.Read(lines.Bytes(), account)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if event != nil {
			u.add(event)
		}
	}
	if u.requests == before {
		return errors.Join(lines.Err(), fmt.Errorf("%s has no request of %s", path, account))
	}
	return lines.Err()
}

func (u *use) add(event *audit.Event) {
	u.requests++
	if event.ObjectRef == nil {
		return // discovery, which everybody may
	}
	did := right{event.Verb, event.ObjectRef.APIGroup, event.Target()}
	if event.Annotations["authorization.k8s.io/decision"] == "forbid" {
		u.refused[did] = true
		return
	}
	u.used[did] = true
	const created = 201
	if did.verb == "patch" && event.ResponseStatus.Code == created {
		// Who applies an object that is not there yet needs both rights; the log has only this one. And what is there after all, though no cache
		// knew it, is looked up.
		u.used[right{"create", did.group, did.resource}] = true
		u.used[right{"get", did.group, did.resource}] = true
	}
	if did.verb == "watch" {
		// A watch brings what is there where the API server can do that, which is so since Kubernetes 1.34. Older ones are asked for a list.
		u.used[right{"list", did.group, did.resource}] = true
	}
}
