package cluster

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"text/template"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

//go:embed addons/*.yaml
var addonFiles embed.FS

// addons returns the objects that a cluster has from the start.
func addons(coreDNSImage string, options Options) ([]*unstructured.Unstructured, error) {
	files, err := fs.Glob(addonFiles, "addons/*.yaml")
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, file := range files {
		parsed, err := template.New("").ParseFS(addonFiles, file)
		if err != nil {
			return nil, err
		}
		var rendered bytes.Buffer
		name := file[len("addons/"):]
		values := map[string]any{"CoreDNSImage": coreDNSImage, "SeveralNodes": options.Nodes > 1, "NetworkPolicies": options.NetworkPolicies}
		if err := parsed.ExecuteTemplate(&rendered, name, values); err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(rendered.Bytes())) == 0 {
			continue
		}
		documents := yaml.NewYAMLOrJSONDecoder(&rendered, 4096)
		for {
			object := &unstructured.Unstructured{}
			err := documents.Decode(object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			objects = append(objects, object)
		}
	}
	return objects, nil
}

// applyAddons writes the add-ons. It changes nothing when they are there as they should be.
func (c *Cluster) applyAddons(ctx context.Context) error {
	if c.state.Options.ControlPlaneOnly {
		return nil
	}
	image, err := c.coreDNSImage()
	if err != nil {
		return err
	}
	objects, err := addons(image, c.state.Options)
	if err != nil {
		return err
	}
	config, err := c.config()
	if err != nil {
		return err
	}
	// An API server that is ready has not always made its first namespaces yet.
	return c.progress.wait(ctx, "the add-ons", addonLimit, func(ctx context.Context) (string, error) {
		return errorText(apply(ctx, config, objects)), nil
	})
}

func apply(ctx context.Context, config *rest.Config, objects []*unstructured.Unstructured) error {
	finder, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	groups, err := restmapper.GetAPIGroupResources(finder)
	if err != nil {
		return err
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, object := range objects {
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return err
		}
		var resource dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			resource = client.Resource(mapping.Resource).Namespace(object.GetNamespace())
		}
		_, err = resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "localcluster", Force: true})
		if err != nil {
			return fmt.Errorf("%s %s: %w", kind.Kind, object.GetName(), err)
		}
	}
	return nil
}

func noProxy(*http.Request) (*url.URL, error) { return nil, nil }
