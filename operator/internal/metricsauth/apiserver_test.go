package metricsauth

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/livestash-dev/livestash/operator/internal/controller/suite"
)

// TestAPIServersWord asks a real API server about accounts with the roles of the charts.
func TestAPIServersWord(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("needs an API server, see `make test-operator`")
	}
	environment := &envtest.Environment{}
	config, err := environment.Start()
	suite.Must(t, err)
	t.Cleanup(func() { suite.Must(t, environment.Stop()) })
	admin, err := kubernetes.NewForConfig(config)
	suite.Must(t, err)

	rights, err := client.New(config, client.Options{})
	suite.Must(t, err)
	reader, other, operator := account(t, admin, "reader"), account(t, admin, "other"), account(t, admin, "operator")
	grant(t, rights, "reader", rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}})
	grant(t, rights, "operator",
		rbacv1.PolicyRule{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		rbacv1.PolicyRule{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}})

	for name, test := range map[string]struct {
		filtering, token, path string
		want                   int
	}{
		"the reader":                {operator, reader, "/metrics", http.StatusOK},
		"the reader, elsewhere":     {operator, reader, "/debug", http.StatusForbidden},
		"an account without rights": {operator, other, "/metrics", http.StatusForbidden},
		"a token of nobody":         {operator, "made.up.token", "/metrics", http.StatusUnauthorized},
		"no token":                  {operator, "", "/metrics", http.StatusUnauthorized},
		"an operator without right": {other, reader, "/metrics", http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			own := rest.AnonymousClientConfig(config)
			own.BearerToken = test.filtering
			asks, err := rest.HTTPClientFor(own)
			suite.Must(t, err)
			filter, err := Filter(own, asks)
			suite.Must(t, err)
			handler, err := filter(logr.Discard(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			suite.Must(t, err)
			request := httptest.NewRequest(http.MethodGet, test.path, nil)
			request.Header.Set("Authorization", "Bearer "+test.token)
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, request)
			if answer.Code != test.want {
				t.Errorf("answered %d (%s), want %d", answer.Code, answer.Body, test.want)
			}
		})
	}
}

// account makes a ServiceAccount and gives a token of it.
func account(t *testing.T, admin kubernetes.Interface, name string) string {
	t.Helper()
	accounts := admin.CoreV1().ServiceAccounts(metav1.NamespaceDefault)
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	suite.Must(t, err)
	request, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	suite.Must(t, err)
	return request.Status.Token
}

// grant gives the account rights.
func grant(t *testing.T, admin client.Client, name string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	suite.Must(t, admin.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}))
	suite.Must(t, admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceDefault, Name: name}},
	}))
	suite.MayDo(t, admin, authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + metav1.NamespaceDefault + ":" + name}, "", rules)
}
