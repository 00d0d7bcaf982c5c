package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// OperatorAccount is who the operator is for the API server, where the chart or manifests/install.yaml installed it.
const OperatorAccount = "system:serviceaccount:livestash-system:livestash-operator"

// auditPolicy has the API server log what the operator asks, each request once and without what is in it.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  users: [` + OperatorAccount + `]
- level: None
`

// AsOperator starts an API server and returns two ways to reach it: the tests' own, which may do everything, and the operator's, which has the
// rights of config/rbac/role.yaml and no others. So a right that the role lacks fails a test.
//
// The API server is as strict as OpenShift's: who makes an object that holds up the deletion of its owner must have the right to. With AUDIT_DIR it
// logs what the operator asks there, in NAME.log: `make check-rights` compares it with the role.
func AsOperator(environment *envtest.Environment, name string) (admin, operator *rest.Config, err error) {
	server := environment.ControlPlane.GetAPIServer().Configure()
	server.Append("enable-admission-plugins", "OwnerReferencesPermissionEnforcement")
	if folder := os.Getenv("AUDIT_DIR"); folder != "" {
		policy := filepath.Join(folder, name+".policy.yaml")
		if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
			return nil, nil, err
		}
		log := filepath.Join(folder, name+".log")
		if err := os.RemoveAll(log); err != nil { // of the last run
			return nil, nil, err
		}
		server.Set("audit-policy-file", policy).Set("audit-log-path", log)
	}
	admin, err = environment.Start()
	if err != nil {
		return nil, nil, err
	}
	api, err := client.New(admin, client.Options{})
	if err != nil {
		return nil, nil, err
	}
	role, err := readRole("role.yaml")
	if err != nil {
		return nil, nil, fmt.Errorf("reading the operator's rights: %w", err)
	}
	err = errors.Join(api.Create(context.Background(), role), api.Create(context.Background(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: reference(role.Name), Subjects: []rbacv1.Subject{user(OperatorAccount)},
	}))
	if err != nil {
		return nil, nil, fmt.Errorf("giving the operator its rights: %w", err)
	}
	account, err := environment.AddUser(envtest.User{Name: OperatorAccount, Groups: []string{"system:serviceaccounts"}}, rest.CopyConfig(admin))
	if err != nil {
		return nil, nil, err
	}
	return admin, account.Config(), nil
}

// Tenant is a client of somebody who may edit one namespace: what Kubernetes gives its role edit, and what the chart adds to that.
func Tenant(t *testing.T, admin *rest.Config, scheme *runtime.Scheme, namespace string) client.Client {
	t.Helper()
	api, err := client.New(admin, client.Options{})
	Must(t, err)
	tenant := "tenant of " + namespace
	roles := []string{"system:aggregate-to-edit", "system:aggregate-to-view"}
	for _, file := range []string{"livestashcluster_edit_role.yaml", "livestashcluster_view_role.yaml"} {
		role, err := readRole(file)
		Must(t, err)
		Must(t, client.IgnoreAlreadyExists(api.Create(t.Context(), role)))
		roles = append(roles, role.Name)
	}
	for i, role := range roles {
		Must(t, api.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("tenant-%d", i)}, RoleRef: reference(role), Subjects: []rbacv1.Subject{user(tenant)},
		}))
	}
	for _, name := range roles {
		role := &rbacv1.ClusterRole{}
		Must(t, api.Get(t.Context(), client.ObjectKey{Name: name}, role))
		MayDo(t, api, authorizationv1.SubjectAccessReviewSpec{User: tenant}, namespace, role.Rules)
	}
	own := rest.CopyConfig(admin)
	own.Impersonate = rest.ImpersonationConfig{UserName: tenant, Groups: []string{"system:authenticated"}}
	hers, err := client.New(own, client.Options{Scheme: scheme})
	Must(t, err)
	return hers
}

// MayDo waits until the API server knows that somebody may do what the rules say, the first of each rule: it hears of roles and bindings
// a moment after they are made.
func MayDo(t *testing.T, admin client.Client, who authorizationv1.SubjectAccessReviewSpec, namespace string, rules []rbacv1.PolicyRule) {
	t.Helper()
	for _, rule := range rules {
		review := &authorizationv1.SubjectAccessReview{Spec: who}
		if len(rule.NonResourceURLs) > 0 {
			review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: rule.NonResourceURLs[0], Verb: rule.Verbs[0]}
		} else {
			resource, part, _ := strings.Cut(rule.Resources[0], "/")
			review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
				Namespace: namespace, Group: rule.APIGroups[0], Resource: resource, Subresource: part, Verb: rule.Verbs[0],
			}
		}
		Eventually(t, func() error {
			asked := review.DeepCopy()
			if err := admin.Create(t.Context(), asked); err != nil {
				return err
			}
			if !asked.Status.Allowed {
				return fmt.Errorf("%s may not do what %+v allows", who.User, rule)
			}
			return nil
		})
	}
}

// readRole is the ClusterRole that is the first document of a file of config/rbac.
func readRole(file string) (*rbacv1.ClusterRole, error) {
	// The tests run in the folders of their packages, which are not all as deep.
	text, err := os.Open(filepath.Join("..", "..", "..", "..", "config", "rbac", file))
	if errors.Is(err, os.ErrNotExist) {
		text, err = os.Open(filepath.Join("..", "..", "..", "config", "rbac", file))
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = text.Close() }()
	role := &rbacv1.ClusterRole{}
	return role, yaml.NewYAMLOrJSONDecoder(text, 4096).Decode(role)
}

func reference(role string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
}

func user(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}
}
