package provisioner

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func claim(change func(*controller.ProvisionOptions)) controller.ProvisionOptions {
	policy := corev1.PersistentVolumeReclaimDelete
	options := controller.ProvisionOptions{
		PVName:           "pvc-1",
		SelectedNodeName: "node-0",
		StorageClass:     &storagev1.StorageClass{ReclaimPolicy: &policy},
		PVC: &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			},
		}},
	}
	change(&options)
	return options
}

func TestVolumeFromFirstToLast(t *testing.T) {
	ctx := context.Background()
	folders := Folders{Root: t.TempDir()}
	volume, state, err := folders.Provision(ctx, claim(func(*controller.ProvisionOptions) {}))
	if err != nil || state != controller.ProvisioningFinished {
		t.Fatalf("state %s, error %v", state, err)
	}
	path := filepath.Join(folders.Root, "pvc-1")
	if volume.Spec.HostPath == nil || volume.Spec.HostPath.Path != path {
		t.Fatalf("the volume is %+v, want the folder %s", volume.Spec.PersistentVolumeSource, path)
	}
	if diff := cmp.Diff([]string{"node-0"}, volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values); diff != "" {
		t.Errorf("node: %s", diff)
	}
	if size := volume.Spec.Capacity[corev1.ResourceStorage]; size.String() != "1Gi" {
		t.Errorf("size %s", size.String())
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o777 {
		t.Errorf("mode %s: pods of other users could not write", info.Mode())
	}
	if err := os.WriteFile(filepath.Join(path, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := folders.Delete(ctx, volume); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
}

func TestProvisionRefuses(t *testing.T) {
	block := corev1.PersistentVolumeBlock
	tests := map[string]func(*controller.ProvisionOptions){
		"many writers": func(o *controller.ProvisionOptions) {
			o.PVC.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		},
		"a block device": func(o *controller.ProvisionOptions) { o.PVC.Spec.VolumeMode = &block },
		"no node":        func(o *controller.ProvisionOptions) { o.SelectedNodeName = "" },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			folders := Folders{Root: t.TempDir()}
			if _, _, err := folders.Provision(context.Background(), claim(change)); err == nil {
				t.Error("no error")
			}
			left, err := os.ReadDir(folders.Root)
			if err != nil || len(left) > 0 {
				t.Errorf("left %v, error %v", left, err)
			}
		})
	}
}

func TestDeleteTouchesOnlyItsOwn(t *testing.T) {
	folders := Folders{Root: t.TempDir()}
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.Mkdir(victim, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, source := range map[string]corev1.PersistentVolumeSource{
		"elsewhere":    {HostPath: &corev1.HostPathVolumeSource{Path: victim}},
		"a way around": {HostPath: &corev1.HostPathVolumeSource{Path: folders.Root + "/../" + filepath.Base(victim)}},
		"not a folder": {},
	} {
		volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source}}
		volume.Name = "victim"
		if err := folders.Delete(context.Background(), volume); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := os.Stat(victim); err != nil {
		t.Errorf("a folder of somebody else is gone: %v", err)
	}
}
