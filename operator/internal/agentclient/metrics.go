package agentclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/internal/plausible"
)

// Metrics are the figures of an agent's /metrics that benchmarks sample: what its node has at this moment, and what it has
// counted since its virtual machine started. Sizes are in bytes.
type Metrics struct {
	// Processes of the virtual machine.
	Processes float64 `json:"processes"`
	// Memory that the virtual machine has allocated, and parts of it: for processes, for binaries that they share, and
	// for ETS tables.
	Memory          float64 `json:"memory"`
	MemoryProcesses float64 `json:"memoryProcesses"`
	MemoryBinary    float64 `json:"memoryBinary"`
	MemoryETS       float64 `json:"memoryEts"`
	// Stashes in this node's own tables, and the memory of those.
	Stashes    float64 `json:"stashes"`
	StashBytes float64 `json:"stashBytes"`
	// Bytes that have come in and gone out since the start, by what they were for. HTTP is all that is not one of the
	// others.
	HTTPIn          float64 `json:"httpIn"`
	HTTPOut         float64 `json:"httpOut"`
	DistributionIn  float64 `json:"distributionIn"`
	DistributionOut float64 `json:"distributionOut"`
	RedisIn         float64 `json:"redisIn"`
	RedisOut        float64 `json:"redisOut"`
	// CPUSeconds that the virtual machine's process has used since the start.
	CPUSeconds float64 `json:"cpuSeconds"`
	// Collections are how often the garbage of a process was collected since the start, over all processes. Nil in samples that an
	// operator of before has written down.
	Collections *float64 `json:"collections,omitempty"`
	// PodOnly is of a pod that has no agent: its helper tells PodMemory and PodCPUSeconds, and all others are not there.
	PodOnly bool `json:"podOnly,omitempty"`
	// PodMemory and PodCPUSeconds are what the kernel counts for the pod's containers, which is what its node pays: the application's
	// and the helper's. Nil where an agent does not tell: one of before, or one that sees no control group.
	PodMemory     *float64 `json:"podMemory,omitempty"`
	PodCPUSeconds *float64 `json:"podCpuSeconds,omitempty"`
}

// Metrics asks the agent of the pod with this IP for its metrics. Time and errors are those of Status.
func (c *Client) Metrics(ctx context.Context, podIP string, port int32) (Metrics, error) {
	return get(ctx, c, podIP, port, "/metrics", readMetrics)
}

// Usage asks the helper in the pod with this IP, which has no agent, what the pod uses: Metrics with PodOnly. Time and errors are those of Status.
func (c *Client) Usage(ctx context.Context, podIP string, port int32) (Metrics, error) {
	return get(ctx, c, podIP, port, "/metrics", readUsage)
}

func readUsage(body []byte) (Metrics, error) {
	read, err := newReader(body)
	if err != nil {
		return Metrics{}, err
	}
	usage := Metrics{
		PodOnly: true, PodMemory: read.parts("livestash_pod_memory_bytes", "application", "helper"),
		PodCPUSeconds: read.parts("livestash_pod_cpu_seconds_total", "application", "helper"),
	}
	if usage.PodMemory == nil || usage.PodCPUSeconds == nil {
		return Metrics{}, errors.New("it does not tell what the pod uses")
	}
	return usage, usage.Check()
}

// newReader reads metrics in Prometheus' text format. The parser panics on some texts, for example labels without a name of a metric before them, and
// any pod may send such a one: outside of a reconcile, nobody else would catch that.
func newReader(body []byte) (read reader, err error) {
	defer func() {
		if crash := recover(); crash != nil {
			err = errors.New("it is not in Prometheus' text format")
		}
	}()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	return reader{families: families}, err
}

func readMetrics(body []byte) (Metrics, error) {
	read, err := newReader(body)
	if err != nil {
		return Metrics{}, err
	}
	metrics := Metrics{
		Processes: read.value("erlang_vm_process_count"),
		Memory: read.value("erlang_vm_memory_bytes_total", "kind", "system") +
			read.value("erlang_vm_memory_bytes_total", "kind", "processes"),
		MemoryProcesses: read.value("erlang_vm_memory_bytes_total", "kind", "processes"),
		MemoryBinary:    read.value("erlang_vm_memory_system_bytes_total", "usage", "binary"),
		MemoryETS:       read.value("erlang_vm_memory_system_bytes_total", "usage", "ets"),
		Stashes:         read.value("livestash_stashes"),
		StashBytes:      read.value("livestash_stash_bytes"),
		HTTPIn:          read.value("livestash_network_bytes_total", "kind", "http", "direction", "in"),
		HTTPOut:         read.value("livestash_network_bytes_total", "kind", "http", "direction", "out"),
		DistributionIn:  read.value("livestash_network_bytes_total", "kind", "distribution", "direction", "in"),
		DistributionOut: read.value("livestash_network_bytes_total", "kind", "distribution", "direction", "out"),
		RedisIn:         read.value("livestash_network_bytes_total", "kind", "redis", "direction", "in"),
		RedisOut:        read.value("livestash_network_bytes_total", "kind", "redis", "direction", "out"),
		CPUSeconds:      read.value("livestash_cpu_seconds_total"),
		Collections:     ptr.To(read.value("erlang_vm_statistics_garbage_collection_number_of_gcs")),
		PodMemory:       read.parts("livestash_pod_memory_bytes", "application", "helper"),
		PodCPUSeconds:   read.parts("livestash_pod_cpu_seconds_total", "application", "helper"),
	}
	return metrics, errors.Join(append(read.missing, metrics.Check())...)
}

// Check refuses figures that no virtual machine has.
func (m Metrics) Check() error {
	return plausible.Named{
		"processes": m.Processes, "memory": m.Memory, "memoryProcesses": m.MemoryProcesses, "memoryBinary": m.MemoryBinary,
		"memoryEts": m.MemoryETS, "stashes": m.Stashes, "stashBytes": m.StashBytes, "httpIn": m.HTTPIn, "httpOut": m.HTTPOut,
		"distributionIn": m.DistributionIn, "distributionOut": m.DistributionOut, "redisIn": m.RedisIn, "redisOut": m.RedisOut,
		"cpuSeconds": m.CPUSeconds, "podMemory": ptr.Deref(m.PodMemory, 0), "podCpuSeconds": ptr.Deref(m.PodCPUSeconds, 0),
		"collections": ptr.Deref(m.Collections, 0),
	}.Check()
}

// reader looks figures up, and remembers those that are not there: a figure that an agent stops to tell must not become 0.
type reader struct {
	families map[string]*dto.MetricFamily
	missing  []error
}

// value is that of the one sample with these labels, given as name, value, name, value.
func (r *reader) value(family string, labels ...string) float64 {
	for _, sample := range r.families[family].GetMetric() {
		if has(sample, labels) {
			// The one that is not set is 0.
			return sample.GetGauge().GetValue() + sample.GetCounter().GetValue()
		}
	}
	r.missing = append(r.missing, fmt.Errorf("it has no %s%v", family, labels))
	return 0
}

// parts is the sum of these parts of a pod, nil when not all of them are there: some would look like the whole.
func (r *reader) parts(family string, names ...string) *float64 {
	whole := 0.0
	for _, name := range names {
		part := reader{families: r.families}
		whole += part.value(family, "part", name)
		if len(part.missing) > 0 {
			return nil
		}
	}
	return &whole
}

func has(sample *dto.Metric, labels []string) bool {
	for i := 0; i < len(labels); i += 2 {
		found := false
		for _, label := range sample.GetLabel() {
			found = found || label.GetName() == labels[i] && label.GetValue() == labels[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}
