package benchmark

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/loadtest"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/rival"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/runner"
	"github.com/livestash-dev/livestash/operator/internal/render"
)

// reportRun puts the run into the report, in the place of an earlier attempt. A warm-up is not in it.
func (r *Reconciler) reportRun(ctx context.Context, p *pass, judged loadtest.Judgement) error {
	if p.row.Warmup {
		return nil
	}
	so, err := r.reportSoFar(ctx, p.benchmark)
	if err != nil {
		return err
	}
	entry := r.entry(p.row, p.run)
	if p.row.LoadStartedAt != nil {
		entry.StartedAt = p.row.LoadStartedAt.Time
	}
	switch {
	case p.server != nil:
		entry.Replicas = int(p.run.Server.Replicas)
		entry.CPULimit = float64(entry.Replicas) * cpuLimit(p.server.Spec.Template.Spec.Containers)
	case p.cluster != nil:
		entry.Replicas = int(p.cluster.DesiredReplicas())
		entry.CPULimit = float64(entry.Replicas) * p.cluster.Spec.Resources.Limits.Cpu().AsApproximateFloat64()
	}
	if judged.Result != nil {
		entry.Counts, entry.Durations, entry.ClientDelay = &judged.Result.Counts, judged.Result.Durations, judged.Result.ClientDelay
	}
	sampled, err := r.samplesOf(ctx, p)
	if err != nil {
		return err
	}
	notes := []string{judged.Note}
	if sampled != nil {
		entry.Samples, entry.SampledSeconds = sampled.recorder.Series(), sampled.part
		entry.CPUAfterRamp = report.CPUAfterRamp(entry)
		notes = append(notes, sampled.note)
	}
	entry.ClientBound = judged.ClientBound
	entry.Events = eventsOf(p)
	if entry.Message == "" {
		notes = append(notes, eventsNote(entry))
	}
	entry.Message = sentences(entry.Message, notes...)
	r.describe(ctx, &so, p)
	place := slices.IndexFunc(so.Runs, func(other report.Run) bool { return other.Name == entry.Name })
	if place < 0 {
		so.Runs = append(so.Runs, entry)
	} else {
		so.Runs[place] = entry
	}
	return r.writeReport(ctx, p, so)
}

// cpuLimit is how many cores a server may use, 0 when it has no limit, or a Redis without one beside it.
func cpuLimit(containers []corev1.Container) float64 {
	limit := 0.0
	for i := range containers {
		switch containers[i].Name {
		case rival.RedisContainer:
			return 0
		case rival.ServerContainer:
			limit = containers[i].Resources.Limits.Cpu().AsApproximateFloat64()
		}
	}
	return limit
}

// sentences is a message with what else is worth knowing behind it.
func sentences(message string, notes ...string) string {
	for _, note := range notes {
		if note = strings.TrimSpace(note); note == "" || strings.Contains(message, note) {
			continue
		}
		if message != "" {
			message = strings.TrimSuffix(message, ".") + ". "
		}
		message += note
	}
	return message
}

// closeReport notes the end, the runs that never began, and what the comparison with an earlier report says.
func (r *Reconciler) closeReport(ctx context.Context, p *pass) error {
	so, err := r.reportSoFar(ctx, p.benchmark)
	if err != nil {
		return err
	}
	for i := range p.benchmark.Status.Runs {
		row := &p.benchmark.Status.Runs[i]
		known := slices.ContainsFunc(so.Runs, func(other report.Run) bool { return other.Name == row.Name })
		if !known && !row.Warmup && row.Verdict != "" && i < len(p.runs) {
			so.Runs = append(so.Runs, r.entry(row, &p.runs[i]))
		}
	}
	if err := r.compare(ctx, p.benchmark, &so); err != nil {
		return err
	}
	// As much of its specification as is not known yet, if no run has begun.
	so.Spec = specOf(p.benchmark, so.Spec)
	judgeAgainst(p.benchmark, &so)
	findKnees(p.benchmark, &so)
	so.FinishedAt = p.benchmark.Status.FinishedAt.UTC()
	return r.writeReport(ctx, p, so)
}

// entry is a run as its row has it.
func (*Reconciler) entry(row *v1alpha1.BenchmarkRunStatus, run *loadtest.Run) report.Run {
	return report.Run{
		Name:            row.Name,
		Variant:         run.Variant,
		Adapter:         string(run.Adapter),
		Round:           int(run.Round),
		Users:           int(row.Users),
		Rate:            int(run.Rate),
		TTLSeconds:      run.TTL.Seconds(),
		DurationSeconds: run.Duration.Seconds(),
		RampSeconds:     run.Ramp.Seconds(),
		Runners:         int(run.Runners),
		Verdict:         report.Verdict(row.Verdict),
		Message:         row.Message,
		StartedAt:       timeOf(row.StartedAt),
		FinishedAt:      timeOf(row.FinishedAt),
	}
}

// reportSoFar is the report with the runs that are over. Read from the API server: a cache that lags behind would lose a run.
func (r *Reconciler) reportSoFar(ctx context.Context, b *v1alpha1.LiveStashBenchmark) (report.Report, error) {
	so := report.Report{SchemaVersion: report.SchemaVersion, Name: b.Name, Namespace: b.Namespace}
	kept := &corev1.ConfigMap{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: reportName(b)}, kept)
	if client.IgnoreNotFound(err) != nil {
		return so, fmt.Errorf("reading the report so far: %w", err)
	}
	if err != nil || !metav1.IsControlledBy(kept, b) {
		return so, nil
	}
	read, err := report.Parse([]byte(kept.Data[report.FileJSON]))
	if err != nil {
		// A benchmark that cannot end is worse than one that says what it lost.
		so.Message = fmt.Sprintf("Somebody has changed ConfigMap %s so that it could not be read back; the figures of the runs before are lost.", kept.Name)
		ctrl.LoggerFrom(ctx).Info("Beginning the report anew", "configMap", kept.Name, "why", err.Error())
		return so, nil
	}
	read.Name, read.Namespace = b.Name, b.Namespace
	return read, nil
}

func (r *Reconciler) writeReport(ctx context.Context, p *pass, so report.Report) error {
	b := p.benchmark
	so.StartedAt, so.Verdict = timeOf(b.Status.StartedAt), report.Verdict(verdictOf(b))
	so.Spec = specOf(b, so.Spec)
	files, err := report.Files(so, report.MaxBytes)
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	if err := r.applyConfigMap(ctx, b, reportName(b), files); err != nil {
		return err
	}
	b.Status.Report = &v1alpha1.BenchmarkReportReference{ConfigMap: reportName(b)}
	r.setCondition(p, v1alpha1.ConditionReportReady, metav1.ConditionTrue, reasonWritten, fmt.Sprintf("ConfigMap %s holds %d runs", reportName(b), len(so.Runs)))
	return nil
}

func reportName(b *v1alpha1.LiveStashBenchmark) string { return b.Name + "-report" }

// specOf is what all runs have in common. What only the runs know, was, stays.
func specOf(b *v1alpha1.LiveStashBenchmark, was report.Spec) report.Spec {
	spec := report.Spec{
		Preset:       string(b.Spec.Preset),
		Scale:        int(max(1, b.Spec.Scale)),
		Scenario:     string(b.Spec.Scenario),
		Asked:        loadtest.Asked(&b.Spec),
		MessageBytes: int(loadtest.MessageBytes(&b.Spec)),
		Routing:      string(b.Spec.Routing),
		Baseline:     loadtest.Baseline(&b.Spec),
		Variants:     variantsOf(b.Spec.Matrix),
		Runner:       was.Runner,
		Thresholds:   thresholdsOf(b.Spec),
	}
	switch target := b.Spec.Target; {
	case target.URL != "":
		spec.Target, spec.Routing = target.URL, ""
	case target.ClusterRef != nil:
		spec.Target = "cluster " + target.ClusterRef.Name
	case loadtest.Stashless(b.Spec.Scenario):
		spec.Target = "template"
	default:
		keys, onPage := loadtest.Payload(&b.Spec)
		spec.Target, spec.PayloadKeys, spec.PayloadOnPage = "template", int(keys), string(onPage)
	}
	return spec
}

// longestPatch is how much of a variant's patch the report holds.
const longestPatch = 400

// variantsOf are the variants of a matrix that names any.
func variantsOf(matrix *v1alpha1.BenchmarkMatrix) []report.Variant {
	if matrix == nil {
		return nil
	}
	var told []report.Variant
	for _, one := range matrix.Variants {
		variant := report.Variant{Name: one.Name, Adapter: string(one.Adapter)}
		if server := one.Server; server != nil {
			variant.Server = &report.Server{Image: server.Image, Protocol: string(server.Protocol), Replicas: int(server.Replicas), Redis: server.Redis != nil}
		}
		if one.Patch != nil {
			variant.Patch = loadtest.Short(string(one.Patch.Raw()), longestPatch)
		}
		told = append(told, variant)
	}
	return told
}

// thresholdsOf are the limits that the runs are judged by.
func thresholdsOf(spec v1alpha1.LiveStashBenchmarkSpec) map[string]string {
	limits := spec.Thresholds
	told := map[string]string{"maxRestarts": strconv.Itoa(int(ptr.Deref(limits.MaxRestarts, 0)))}
	if limits.MaxFailed != "" {
		told["maxFailed"] = limits.MaxFailed
	}
	if !loadtest.Stashless(spec.Scenario) { // these have defaults, whatever the scenario is
		told["maxWrong"] = strconv.FormatInt(ptr.Deref(limits.MaxWrong, 0), 10)
		if limits.MinRecovered != "" {
			told["minRecovered"] = limits.MinRecovered
		}
	}
	if limits.MaxLost != nil {
		told["maxLost"] = strconv.FormatInt(*limits.MaxLost, 10)
	}
	if limits.MinCollections != nil {
		told["minCollections"] = strconv.Itoa(int(*limits.MinCollections))
	}
	if limits.MaxClientDelay != nil {
		told["maxClientDelay"] = limits.MaxClientDelay.Duration.String()
	}
	for _, limit := range loadtest.P99Limits(limits) {
		told["p99."+limit.Field] = limit.Limit.String()
	}
	if limits.Against != nil {
		for name, factor := range limitsOf(*limits.Against) {
			told["against."+name] = strconv.FormatFloat(factor, 'f', -1, 64)
		}
	}
	if spec.Matrix != nil && spec.Matrix.Seek != nil {
		told["maxFailed"] = cmp.Or(spec.Matrix.Seek.While.Failed, told["maxFailed"])
		if p95 := spec.Matrix.Seek.While.P95; p95 != nil {
			told["seek.p95"] = p95.Duration.String()
		}
	}
	return told
}

// describe notes what ran where. What cannot be found out stays empty: a report without it is better than none.
func (r *Reconciler) describe(ctx context.Context, so *report.Report, p *pass) {
	if p.runner != nil {
		so.Spec.Runner = string(v1alpha1.RunnerK6Operator)
		if p.runner == r.Job {
			so.Spec.Runner = string(v1alpha1.RunnerJob)
		}
	}
	so.Versions.Operator = r.Version
	so.Versions.K6Image = cmp.Or(p.test.Image, r.RunnerImage)
	if patch := p.run.Patch; p.cluster != nil && (patch == nil || patch.Image == "") {
		so.Versions.FleetImage = p.cluster.Spec.Image
	}
	if version, err := r.Clients.Discovery().ServerVersion(); err == nil {
		so.Versions.Kubernetes = version.GitVersion
	}
	for _, name := range r.nodesOf(ctx, p) {
		if slices.ContainsFunc(so.Machine.Nodes, func(known report.Node) bool { return known.Name == name }) {
			continue
		}
		node := &corev1.Node{}
		if err := r.Live.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			continue
		}
		so.Machine.Nodes = append(so.Machine.Nodes, report.Node{
			Name:   name,
			CPU:    node.Status.Capacity.Cpu().AsApproximateFloat64(),
			Memory: node.Status.Capacity.Memory().Value(),
			// Not the kernel's version, which is not for whoever may read a namespace's ConfigMaps.
			Kubelet: node.Status.NodeInfo.KubeletVersion,
		})
	}
}

// nodesOf are the nodes that the runners and the fleet are on.
func (r *Reconciler) nodesOf(ctx context.Context, p *pass) []string {
	var names []string
	add := func(reader client.Reader, label, value string) {
		pods := &corev1.PodList{}
		if err := reader.List(ctx, pods, client.InNamespace(p.benchmark.Namespace), client.MatchingLabels{label: value}); err != nil {
			return
		}
		for i := range pods.Items {
			names = append(names, pods.Items[i].Spec.NodeName)
		}
	}
	add(r.Tests, runner.TestLabel, p.row.Runner)
	add(r.Tests, rival.ServerLabel, p.row.Name)
	if p.cluster != nil {
		// The cache leaves out where a fleet's pods are.
		add(r.Live, render.ClusterLabel, p.cluster.Name)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
