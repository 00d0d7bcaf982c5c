package suite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

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
	if err := grantRole(admin, filepath.Join("..", "..", "..", "..", "config", "rbac", "role.yaml")); err != nil {
		return nil, nil, fmt.Errorf("giving the operator its rights: %w", err)
	}
	account, err := environment.AddUser(envtest.User{Name: OperatorAccount, Groups: []string{"system:serviceaccounts"}}, rest.CopyConfig(admin))
	if err != nil {
		return nil, nil, err
	}
	return admin, account.Config(), nil
}

// grantRole makes the ClusterRole that is the first document of a file, and gives it to the operator.
func grantRole(admin *rest.Config, path string) error {
	text, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = text.Close() }()
	role := &rbacv1.ClusterRole{}
	if err := yaml.NewYAMLOrJSONDecoder(text, 4096).Decode(role); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := rbacv1.AddToScheme(scheme); err != nil {
		return err
	}
	api, err := client.New(admin, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	if err := api.Create(context.Background(), role); err != nil {
		return err
	}
	return api.Create(context.Background(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: OperatorAccount}},
	})
}
