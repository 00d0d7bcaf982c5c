package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/cli/doctor"
	"github.com/livestash-dev/livestash/operator/internal/cli/kube"
	"github.com/livestash-dev/livestash/operator/internal/cli/show"
)

// errFound is what doctor ends with when something is broken, for scripts.
var errFound = errors.New("doctor found what is broken")

func (t *tool) doctorCommand() *cobra.Command {
	file := ""
	command := &cobra.Command{
		Use:   "doctor [NAME]",
		Short: "Look for misconfigurations before a pod rolls",
		Long: "Look for misconfigurations before a pod rolls: in the spec, in the Secrets and ConfigMaps that it names, in Ingresses, HTTPRoutes, quotas and policies, " +
			"in what the agents say, and in the applications' logs. With -f a LiveStashCluster that is not applied yet. It changes nothing, and shows no value of a Secret. " +
			"It fails when something is broken.\n\nChecks: " + strings.Join(doctor.Names(), ", ") + ".",
		Example:           "  kubectl livestash doctor shop\n  kubectl livestash doctor -f shop.yaml",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: t.names,
		RunE:              func(command *cobra.Command, args []string) error { return t.doctor(command.Context(), one(args), file) },
	}
	command.Flags().StringVarP(&file, "filename", "f", "", "a file with a LiveStashCluster, or - for standard input")
	return t.forScripts(command)
}

func (t *tool) doctor(ctx context.Context, name, file string) error {
	access, err := t.connect()
	if err != nil {
		return err
	}
	c, refused, err := t.patient(ctx, access, name, file)
	if err != nil {
		return err
	}
	facts, err := doctor.Gather(ctx, access, c)
	if err != nil {
		return err
	}
	facts.Refused = refused
	result := show.Examination{Name: c.Name, Checks: len(doctor.Names()), Findings: doctor.Examine(facts), Unread: facts.Unread}
	if err := t.print(result, result.Write); err != nil {
		return err
	}
	if slices.ContainsFunc(result.Findings, func(f doctor.Finding) bool { return f.Severity == doctor.Broken }) {
		return errFound
	}
	return nil
}

// patient is what is examined, and what the API server has against it.
func (t *tool) patient(ctx context.Context, access *kube.Access, name, file string) (*v1alpha1.LiveStashCluster, string, error) {
	if file == "" {
		c, err := access.Cluster(ctx, name)
		return c, "", err
	}
	in, err := t.read(file)
	if err != nil {
		return nil, "", err
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(in, &object.Object); err != nil || object.GetKind() != "LiveStashCluster" || object.GetName() == "" {
		return nil, "", errors.Join(fmt.Errorf("%s is not the YAML of one LiveStashCluster with a name", file), err)
	}
	if object.GetNamespace() == "" {
		object.SetNamespace(access.Namespace)
	}
	refused, err := dryRun(ctx, access, object)
	if err != nil {
		return nil, "", err
	}
	c := &v1alpha1.LiveStashCluster{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, c); err != nil {
		return nil, "", errors.New(cmp.Or(refused, err.Error()))
	}
	return c, refused, nil
}

// dryRun has the API server fill in defaults, and say what it would refuse, as with kubectl apply: also a field that nobody knows.
func dryRun(ctx context.Context, access *kube.Access, object *unstructured.Unstructured) (string, error) {
	known := &v1alpha1.LiveStashCluster{}
	err := access.Get(ctx, client.ObjectKeyFromObject(object), known)
	switch {
	case apierrors.IsNotFound(err):
		err = access.Create(ctx, object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
	case err == nil:
		object.SetResourceVersion(known.ResourceVersion)
		object.SetUID(known.UID)
		err = access.Update(ctx, object, client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))
	}
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return err.Error(), nil
	}
	return "", kube.Explained(err)
}

// read is a file, or standard input.
func (t *tool) read(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(t.In)
	}
	return os.ReadFile(file)
}
