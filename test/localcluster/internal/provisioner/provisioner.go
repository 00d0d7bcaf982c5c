// Package provisioner gives each PersistentVolumeClaim of the cluster's StorageClass a folder on the node's own disk.
package provisioner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// Name is what StorageClass objects call this provisioner.
const Name = "localcluster.livestash.dev/folder"

// Folders makes one folder for each volume below Root.
type Folders struct{ Root string }

// Run serves claims until the context ends or there is no way to go on.
func Run(ctx context.Context, kubeconfig, root string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read %s: %w", kubeconfig, err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	controller.NewProvisionController(ctx, client, Name, Folders{Root: root},
		// The cluster starts exactly one of these.
		controller.LeaderElection(false),
	).Run(ctx)
	return nil
}

// Provision makes the folder of a volume.
func (f Folders) Provision(_ context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	claim := options.PVC
	for _, mode := range claim.Spec.AccessModes {
		if mode != corev1.ReadWriteOnce && mode != corev1.ReadWriteOncePod {
			return nil, controller.ProvisioningFinished, fmt.Errorf(
				"access mode %s: a folder of one node can only be ReadWriteOnce or ReadWriteOncePod", mode)
		}
	}
	if claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock {
		return nil, controller.ProvisioningFinished, errors.New("volumeMode Block: only Filesystem volumes are provided")
	}
	if options.SelectedNodeName == "" {
		return nil, controller.ProvisioningFinished, errors.New("no node selected: the StorageClass must have volumeBindingMode WaitForFirstConsumer")
	}
	path := f.path(options.PVName)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	// Any user id may write, whatever the umask: the kubelet does not apply fsGroup to folders of the host.
	if err := os.Chmod(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	return volume(options, path), controller.ProvisioningFinished, nil
}

// Delete removes the folder of a volume with all it holds.
func (f Folders) Delete(_ context.Context, volume *corev1.PersistentVolume) error {
	// Only what Provision made: the path in the object is not trusted, anybody with the right to write volumes could set it.
	if volume.Spec.HostPath == nil || volume.Spec.HostPath.Path != f.path(volume.Name) {
		return fmt.Errorf("volume %s is not a folder of this provisioner", volume.Name)
	}
	return os.RemoveAll(f.path(volume.Name))
}

func (f Folders) path(volume string) string { return filepath.Join(f.Root, filepath.Base(volume)) }

func volume(options controller.ProvisionOptions, path string) *corev1.PersistentVolume {
	directory := corev1.HostPathDirectory
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			AccessModes:                   options.PVC.Spec.AccessModes,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: options.PVC.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &directory},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{
						Key:      corev1.LabelHostname,
						Operator: corev1.NodeSelectorOpIn,
						Values:   []string{options.SelectedNodeName},
					}},
				}},
			}},
		},
	}
}
