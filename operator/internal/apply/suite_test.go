package apply

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// The applier runs against a real API server. What it knows is what that has: what caches do is the controllers' business.
var (
	// api is a client of the tests' own.
	api client.Client
	// underTest is the applier.
	underTest Applier
	// requests counts what the applier asks of the API server, apart from what it would read from a cache.
	requests atomic.Int64
)

// unknownKind is served, and the scheme does not know it.
var unknownKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Unknown"}

func TestMain(m *testing.M) {
	code, err := runSuite(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "these tests need an API server, see `make test-operator`:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func runSuite(m *testing.M) (code int, err error) {
	environment := &envtest.Environment{CRDs: []*apiextensionsv1.CustomResourceDefinition{unknownDefinition()}}
	// It gives rollingUpdate a default that nobody owns.
	environment.ControlPlane.GetAPIServer().Configure().Set("feature-gates", "MaxUnavailableStatefulSet=true")
	defer func() { err = errors.Join(err, environment.Stop()) }()
	config, err := environment.Start()
	if err != nil {
		return 0, err
	}
	api, err = client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return 0, err
	}
	counted := rest.CopyConfig(config)
	counted.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			requests.Add(1)
			return next.RoundTrip(r)
		})
	})
	writer, err := client.New(counted, client.Options{Scheme: scheme.Scheme, Mapper: api.RESTMapper()})
	if err != nil {
		return 0, err
	}
	underTest = Applier{Writer: writer, Known: cached{api}, Live: writer}
	return m.Run(), nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// cached drops the kind of typed objects, as a cache does.
type cached struct{ client.Reader }

func (c cached) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := c.Reader.Get(ctx, key, object, options...)
	if _, metadata := object.(*metav1.PartialObjectMetadata); !metadata {
		object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	object.SetManagedFields(nil)
	return err
}

func unknownDefinition() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "unknowns.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: unknownKind.Group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: unknownKind.Kind, Plural: "unknowns", Singular: "unknown"},
			Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: unknownKind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)},
				},
			}},
		},
	}
}
