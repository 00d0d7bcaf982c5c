package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/cli/bundle"
	"github.com/livestash-dev/livestash/operator/internal/cli/doctor"
	"github.com/livestash-dev/livestash/operator/internal/cli/kube"
	"github.com/livestash-dev/livestash/operator/internal/cli/show"
	"github.com/livestash-dev/livestash/operator/internal/cli/text"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// logLines are how many lines of each log are in a report, logBytes how many bytes of it.
const (
	logLines = int64(2000)
	logBytes = int64(1 << 20)
)

// kindsOfFleet are what a report has of the fleet's objects.
var kindsOfFleet = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1", Kind: "StatefulSet"}, {Group: "apps", Version: "v1", Kind: "ControllerRevision"}, {Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "Service"},
	{Version: "v1", Kind: "ConfigMap"}, {Version: "v1", Kind: "Secret"}, {Version: "v1", Kind: "PersistentVolumeClaim"}, {Group: "batch", Version: "v1", Kind: "Job"},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}, {Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
}

// kindsBeside are what it has of the namespace.
var kindsBeside = []schema.GroupVersionKind{
	{Version: "v1", Kind: "Event"}, {Version: "v1", Kind: "ResourceQuota"}, {Version: "v1", Kind: "LimitRange"}, {Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}, {Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
}

func (t *tool) reportCommand() *cobra.Command {
	out, operator := "", "livestash-system"
	command := &cobra.Command{
		Use:   "report [NAME]",
		Short: "Write an archive for whoever is to help, without secret values",
		Long: "Write an archive for whoever is to help: the fleet, its objects, events, logs, what agents say, what doctor finds. Values of Secrets, ConfigMaps and variables " +
			"are not in it; what the namespace's Secrets hold is taken out of logs and messages too, as far as you may read Secrets. Look into it before you pass it on.",
		Example:           "  kubectl livestash report shop --out shop.tar.gz",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: t.names,
		RunE: func(command *cobra.Command, args []string) error {
			return t.report(command.Context(), one(args), out, operator)
		},
	}
	command.Flags().StringVar(&out, "out", "", "the file; default: livestash-NAME-TIME.tar.gz")
	command.Flags().StringVar(&operator, "operator-namespace", operator, "where the operator runs: its log is in the archive, if you may read it")
	return command
}

func (t *tool) report(ctx context.Context, name, out, operator string) error {
	access, c, err := t.fleet(ctx, name)
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	folder := fmt.Sprintf("livestash-%s-%s", c.Name, now.Format("20060102T150405Z"))
	if out == "" {
		out = folder + ".tar.gz"
	}
	r := &reporter{ctx: ctx, access: access, cluster: c}
	r.secrets()
	r.fleet()
	r.objects()
	r.logs(operator)
	r.bundle.Add("about.txt", []byte(fmt.Sprintf("kubectl livestash report %s, version %s, %s\n\n%s\n", c.Name, t.version, now.Format(time.RFC3339), strings.Join(r.notes, "\n"))))
	if err := write(out, folder, now, &r.bundle); err != nil {
		return err
	}
	t.sayf("%s: %s. Look into it before you pass it on.", out, text.Count(int64(len(r.bundle.Names())), "file", "files"))
	for _, note := range r.notes {
		t.sayf("%s", note)
	}
	return nil
}

func write(out, folder string, now time.Time, b *bundle.Bundle) error {
	file, err := os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(b.Write(file, folder, now), file.Close())
}

// reporter collects what it may read, and notes the rest.
type reporter struct {
	ctx     context.Context
	access  *kube.Access
	cluster *v1alpha1.LiveStashCluster
	bundle  bundle.Bundle
	notes   []string
}

func (r *reporter) notef(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

// secrets has every value of the namespace's Secrets left out.
func (r *reporter) secrets() {
	var secrets corev1.SecretList
	if err := r.access.List(r.ctx, &secrets, client.InNamespace(r.cluster.Namespace)); err != nil {
		r.notef("Secrets could not be read (%v): values that an application wrote to its log are still in the logs.", err)
		return
	}
	for i := range secrets.Items {
		for _, value := range secrets.Items[i].Data {
			r.bundle.Hide(value)
		}
	}
}

// fleet adds what the verbs of this plugin say.
func (r *reporter) fleet() {
	status := show.StatusOf(r.cluster)
	r.text("status.txt", func(w io.Writer) error { return status.Write(w, text.Paint{}, time.Now()) })
	facts, err := doctor.Gather(r.ctx, r.access, r.cluster)
	if err != nil {
		r.notef("doctor: %v", err)
		return
	}
	examined := show.Examination{Name: r.cluster.Name, Checks: len(doctor.Names()), Findings: doctor.Examine(facts), Unread: facts.Unread}
	r.text("doctor.txt", func(w io.Writer) error { return examined.Write(w, text.Paint{}) })
	r.yaml("agents.yaml", facts.Agents)
}

func (r *reporter) text(name string, draw func(io.Writer) error) {
	var b strings.Builder
	if err := draw(&b); err != nil {
		r.notef("%s: %v", name, err)
		return
	}
	r.bundle.Add(name, []byte(b.String()))
}

func (r *reporter) yaml(name string, value any) {
	out, err := yaml.Marshal(value)
	if err != nil {
		r.notef("%s: %v", name, err)
		return
	}
	r.bundle.Add(name, out)
}

func (r *reporter) objects() {
	cluster := v1alpha1.GroupVersion.WithKind("LiveStashCluster")
	r.list(cluster, func(object *unstructured.Unstructured) bool { return object.GetName() == r.cluster.Name })
	for _, kind := range kindsOfFleet {
		r.list(kind, func(object *unstructured.Unstructured) bool {
			return object.GetLabels()[render.ClusterLabel] == r.cluster.Name
		})
	}
	for _, kind := range kindsBeside {
		r.list(kind, func(*unstructured.Unstructured) bool { return true })
	}
}

// list adds the objects of a kind, without what may be secret.
func (r *reporter) list(kind schema.GroupVersionKind, wanted func(*unstructured.Unstructured) bool) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := r.access.List(r.ctx, list, client.InNamespace(r.cluster.Namespace)); err != nil {
		r.notef("%s: %v", kind.Kind, err)
		return
	}
	var kept []any
	for i := range list.Items {
		if object := &list.Items[i]; wanted(object) {
			kept = append(kept, bundle.Without(object).Object)
		}
	}
	if len(kept) > 0 {
		r.yaml(strings.ToLower(kind.Kind)+".yaml", map[string]any{"apiVersion": "v1", "kind": "List", "items": kept})
	}
}

// logs adds those of all containers of the fleet, and the operator's.
func (r *reporter) logs(operator string) {
	var pods corev1.PodList
	if err := r.access.List(r.ctx, &pods, client.InNamespace(r.cluster.Namespace), client.MatchingLabels{render.ClusterLabel: r.cluster.Name}); err != nil {
		r.notef("Pods: %v", err)
	}
	var operators corev1.PodList
	if err := r.access.List(r.ctx, &operators, client.InNamespace(operator), client.MatchingLabels{"app.kubernetes.io/name": render.Operator}); err != nil {
		r.notef("the operator's log: %v", err)
	}
	for i := range pods.Items {
		r.logsOf(&pods.Items[i], "logs/")
	}
	for i := range operators.Items {
		r.logsOf(&operators.Items[i], "operator/")
	}
}

func (r *reporter) logsOf(pod *corev1.Pod, folder string) {
	for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		r.log(pod, status.Name, folder+pod.Name+"-"+status.Name+".log", false)
		if status.RestartCount > 0 {
			r.log(pod, status.Name, folder+pod.Name+"-"+status.Name+".previous.log", true)
		}
	}
}

func (r *reporter) log(pod *corev1.Pod, container, name string, previous bool) {
	lines, bytes := logLines, logBytes
	out, err := r.access.Clientset.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
		Container: container, TailLines: &lines, LimitBytes: &bytes, Previous: previous,
	}).DoRaw(r.ctx)
	if err != nil {
		r.notef("%s: %v", name, err)
		return
	}
	r.bundle.Add(name, out)
}
