package apply

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// needs are the objects, by kind and name, that must be ours before an object is made: what pods would start with. It would
// be somebody else's configuration, volume or rights otherwise.
func needs(object client.Object) []string {
	set, is := object.(*appsv1.StatefulSet)
	if !is {
		return nil
	}
	needs := []string{"Service " + set.Spec.ServiceName, "ServiceAccount " + set.Spec.Template.Spec.ServiceAccountName}
	for _, volume := range set.Spec.Template.Spec.Volumes {
		if claim := volume.PersistentVolumeClaim; claim != nil {
			needs = append(needs, "PersistentVolumeClaim "+claim.ClaimName)
		}
		for _, name := range configMaps(volume) {
			needs = append(needs, "ConfigMap "+name)
		}
	}
	return needs
}

func configMaps(volume corev1.Volume) []string {
	if volume.ConfigMap != nil {
		return []string{volume.ConfigMap.Name}
	}
	if volume.Projected == nil {
		return nil
	}
	var names []string
	for _, source := range volume.Projected.Sources {
		if source.ConfigMap != nil {
			names = append(names, source.ConfigMap.Name)
		}
	}
	return names
}
