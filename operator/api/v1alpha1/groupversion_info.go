// Package v1alpha1 is the livestash.dev/v1alpha1 API.
// +kubebuilder:object:generate=true
// +groupName=livestash.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of this API.
	GroupVersion = schema.GroupVersion{Group: "livestash.dev", Version: "v1alpha1"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds the types of this API to a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &LiveStashCluster{}, &LiveStashClusterList{}, &LiveStashBenchmark{}, &LiveStashBenchmarkList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
