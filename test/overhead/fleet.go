package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/livestash-dev/livestash/test/internal/podprocess"
	"github.com/livestash-dev/livestash/test/internal/program"
	"github.com/livestash-dev/livestash/test/overhead/vm"
)

const (
	fleetName = "shop"
	// replicas is what the load test's Job is made for.
	replicas  = 2
	agentPort = 9568
)

// fleet is one LiveStashCluster in a namespace of its own that admits only restricted pods.
type fleet struct {
	client    kubernetes.Interface
	options   options
	namespace string

	// agent is spec.agent.enabled.
	agent bool
	pods  []pod
}

// pod is a pod of the fleet as long as it lives.
type pod struct {
	name string
	beam process
	// probe is the program beside the application that answers the readiness probe; 0 without the agent.
	probe process
}

func (f *fleet) kubectl(ctx context.Context, input string, args ...string) (string, error) {
	return program.Run(ctx, input, "kubectl", append([]string{"--namespace", f.namespace}, args...)...)
}

func (f *fleet) create(ctx context.Context) error {
	if _, err := program.Run(ctx, "", "kubectl", "create", "namespace", f.namespace); err != nil {
		return err
	}
	_, err := program.Run(ctx, "", "kubectl", "label", "namespace", f.namespace, "pod-security.kubernetes.io/enforce=restricted")
	return err
}

func (f *fleet) remove(ctx context.Context) error {
	_, err := program.Run(ctx, "", "kubectl", "delete", "namespace", f.namespace, "--ignore-not-found", "--wait", "--timeout=4m")
	return err
}

// set brings the fleet up with or without the agent, and waits until it is.
func (f *fleet) set(ctx context.Context, agent bool) error {
	f.agent = agent
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "livestash.dev/v1alpha1", "kind": "LiveStashCluster", "metadata": map[string]any{"name": fleetName},
		"spec": map[string]any{
			"image": f.options.image(), "replicas": replicas, "adapter": "ETS",
			"http": map[string]any{"readinessPath": "/healthz"}, "agent": map[string]any{"enabled": agent},
			// The agent's helper has requests. Without requests of its own a pod would be BestEffort without the agent and
			// Burstable with it, and on a busy machine a cycle costs a BestEffort pod less CPU time.
			"resources": map[string]any{"requests": map[string]any{"cpu": "200m", "memory": "256Mi"}},
		},
	})
	if err != nil {
		return err
	}
	if _, err := f.kubectl(ctx, string(manifest), "apply", "-f", "-"); err != nil {
		return err
	}
	generation, err := f.kubectl(ctx, "", "get", "lsc", fleetName, "-o", "jsonpath={.metadata.generation}")
	if err != nil {
		return err
	}
	// The generation first: the conditions of an older spec may still stand.
	conditions := []string{"jsonpath={.status.observedGeneration}=" + generation, "condition=Progressing=false", "condition=Available"}
	if agent {
		conditions = append(conditions, "condition=AgentHealthy", "condition=Clustered")
	}
	for _, condition := range conditions {
		if _, err := f.kubectl(ctx, "", "wait", "lsc/"+fleetName, "--for="+condition, "--timeout=4m"); err != nil {
			return err
		}
	}
	return f.find(ctx)
}

// find finds the pods and their processes.
func (f *fleet) find(ctx context.Context) error {
	list, err := f.client.CoreV1().Pods(f.namespace).List(ctx, metav1.ListOptions{LabelSelector: "livestash.dev/cluster=" + fleetName})
	if err != nil {
		return err
	}
	if len(list.Items) != replicas {
		return fmt.Errorf("%s has %d pods, not %d", f.namespace, len(list.Items), replicas)
	}
	f.pods = nil
	for i := range list.Items {
		found, err := f.findPod(&list.Items[i])
		if err != nil {
			return err
		}
		f.pods = append(f.pods, found)
	}
	return nil
}

func (f *fleet) findPod(p *corev1.Pod) (found pod, err error) {
	found.name = p.Name
	beam, err := podprocess.Find(p, "app", "beam.smp")
	found.beam = process(beam)
	if err != nil || !f.agent {
		return found, err
	}
	probe, err := podprocess.Find(p, "livestash-probe", "podagent")
	found.probe = process(probe)
	return found, err
}

// vm is what a pod's virtual machine says of itself. All of its processes are garbage-collected and its stashes removed.
func (f *fleet) vm(ctx context.Context, p pod) (vm.Figures, error) {
	output, err := f.kubectl(ctx, "", "exec", p.name, "-c", "app", "--", f.options.program(), "rpc", vm.Expression)
	if err != nil {
		return vm.Figures{}, err
	}
	return vm.Parse(output)
}

// scrape asks each agent for its metrics as a Prometheus does, until the context ends.
func (f *fleet) scrape(ctx context.Context, every time.Duration) error {
	for f.agent {
		for _, p := range f.pods {
			path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy/metrics", f.namespace, p.name, agentPort)
			text, err := f.client.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(ctx)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return fmt.Errorf("scrape %s: %w: %s", p.name, err, text)
			}
		}
		if sleep(ctx, every) != nil {
			return nil
		}
	}
	return nil
}

// load runs the reconnect scenario against the fleet as a Job, and returns the number of its cycles.
func (f *fleet) load(ctx context.Context) (int, error) {
	root, err := checkout()
	if err != nil {
		return 0, err
	}
	job, err := os.ReadFile(filepath.Join(root, "loadtests", "k6", "job.yaml"))
	if err != nil {
		return 0, err
	}
	fill := strings.NewReplacer("@REGISTRY@", f.options.registry, "@VERSION@", f.options.version, "@FLEET@", fleetName,
		"@ADAPTER@", "ets", "@USERS@", strconv.Itoa(f.options.users), "@DURATION@", f.options.duration.String())
	if _, err := f.kubectl(ctx, fill.Replace(string(job)), "apply", "-f", "-"); err != nil {
		return 0, err
	}
	defer func() {
		_, _ = f.kubectl(context.WithoutCancel(ctx), "", "delete", "job", "reconnect", "--cascade=foreground", "--wait")
	}()
	for {
		if err := sleep(ctx, time.Second); err != nil {
			return 0, err
		}
		running, err := f.client.BatchV1().Jobs(f.namespace).Get(ctx, "reconnect", metav1.GetOptions{})
		if err != nil {
			return 0, err
		}
		if running.Status.Succeeded+running.Status.Failed > 0 {
			break
		}
	}
	logs, err := f.kubectl(ctx, "", "logs", "job/reconnect")
	if err != nil {
		return 0, err
	}
	return cycles(logs)
}

// cycles finds the load test's result in its logs (loadtests/k6/README.md). After a test that did not pass there is
// nothing to compare.
func cycles(logs string) (int, error) {
	for line := range strings.Lines(logs) {
		text, found := strings.CutPrefix(line, "LIVESTASH_RESULT ")
		if !found {
			continue
		}
		var result struct {
			Passed bool `json:"passed"`
			Cycles int  `json:"cycles"`
		}
		if err := json.Unmarshal([]byte(text), &result); err != nil {
			return 0, fmt.Errorf("the load test's result: %w: %s", err, text)
		}
		if !result.Passed || result.Cycles == 0 {
			return 0, fmt.Errorf("the load test did not pass: %s", text)
		}
		return result.Cycles, nil
	}
	return 0, fmt.Errorf("the load test printed no result: %s", logs)
}
