package benchmark

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/agentclient"
	"github.com/livestash-dev/livestash/operator/internal/apply"
	"github.com/livestash-dev/livestash/operator/internal/loadtest"
)

const (
	// sampleInterval is how often agents are asked: what they know cannot be watched.
	sampleInterval = 5 * time.Second
	// roundTime is after how long a round of questions ends, whoever has not answered: before the next one begins.
	roundTime = 4 * time.Second
	// keepInterval is how often samples are written down: a restart of the operator loses no more than these.
	keepInterval = 30 * time.Second
	// recorderKey is that of the samples' ConfigMap; testKey says of which test they are.
	recorderKey, testKey = "samples.json", "test"
)

// recording is what was sampled of one test.
type recording struct {
	test     string
	recorder *loadtest.Recorder
	// lastAt and keptAt are when it was last added to, and written down.
	lastAt, keptAt time.Time
	// asking is the round of questions that is out. Nil: none is.
	asking *round
}

// round is one question to each agent of a fleet, outside of the reconcile worker.
type round struct {
	// pods is how many pods the fleet was to have.
	pods int
	// said gets the answers, by pod, when the round is over. It has room for them.
	said chan map[string]loadtest.Answer
}

// collect adds what the last round has brought, if it is over.
func (r *recording) collect() {
	if r.asking == nil {
		return
	}
	select {
	case said := <-r.asking.said:
		r.recorder.Add(r.asking.pods, said)
		r.asking = nil
	default:
	}
}

// recordings are those of the tests that run, by benchmark.
type recordings struct {
	mutex sync.Mutex
	of    map[types.NamespacedName]*recording
}

func (s *recordings) get(of types.NamespacedName) *recording {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.of[of]
}

func (s *recordings) put(of types.NamespacedName, made *recording) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.of == nil {
		s.of = map[types.NamespacedName]*recording{}
	}
	s.of[of] = made
}

func (s *recordings) forget(of types.NamespacedName) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	delete(s.of, of)
}

// sample asks the agents of the fleet every few seconds while k6 runs. What they say is for a later pass: nobody waits for them.
func (r *Reconciler) sample(ctx context.Context, p *pass) error {
	if p.row.Phase != v1alpha1.RunRunning || !p.isSampled() {
		return nil
	}
	running, err := r.recordingOf(ctx, p)
	if err != nil {
		return err
	}
	running.collect()
	now := r.Clock.Now()
	if left := sampleInterval - now.Sub(running.lastAt); left > 0 {
		p.DueIn(left)
		return nil
	}
	p.DueIn(sampleInterval)
	running.lastAt = now
	if running.asking == nil {
		running.asking, err = r.askPods(ctx, p)
	}
	if err != nil {
		return err
	}
	if now.Sub(running.keptAt) < keepInterval {
		return nil
	}
	running.keptAt = now
	return r.keepSamples(ctx, p.benchmark, running)
}

// recordingOf is the recording of the test that runs: the one at hand, the one that an operator before this one wrote down,
// or a new one.
func (r *Reconciler) recordingOf(ctx context.Context, p *pass) (*recording, error) {
	key := client.ObjectKeyFromObject(p.benchmark)
	if known := r.recordings.get(key); known != nil && known.test == p.row.Runner {
		return known, nil
	}
	made := &recording{test: p.row.Runner, recorder: loadtest.NewRecorder(p.row.LoadStartedAt.Time), keptAt: r.Clock.Now()}
	kept := &corev1.ConfigMap{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: p.benchmark.Namespace, Name: samplesName(p.benchmark)}, kept)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the samples so far: %w", err)
	}
	if err == nil && metav1.IsControlledBy(kept, p.benchmark) && kept.Data[testKey] == made.test {
		recorder, err := loadtest.ParseRecorder([]byte(kept.Data[recorderKey]))
		if err != nil {
			// Somebody has changed them. The run goes on, with fewer samples.
			ctrl.LoggerFrom(ctx).Info("Beginning the samples anew", "configMap", kept.Name, "why", err.Error())
		} else {
			recorder.StartedAt, made.recorder = made.recorder.StartedAt, recorder
		}
	}
	r.recordings.put(key, made)
	return made, nil
}

func (r *Reconciler) keepSamples(ctx context.Context, b *v1alpha1.LiveStashBenchmark, running *recording) error {
	text, err := json.Marshal(running.recorder)
	if err != nil {
		return fmt.Errorf("writing the samples down: %w", err)
	}
	return r.applyConfigMap(ctx, b, samplesName(b), map[string]string{testKey: running.test, recorderKey: string(text)})
}

func samplesName(b *v1alpha1.LiveStashBenchmark) string { return b.Name + "-samples" }

// askAgents begins to ask the agents of all pods that run, at the same time as far as there is room. Those that do not answer are
// left out.
func (r *Reconciler) askAgents(ctx context.Context, c *v1alpha1.LiveStashCluster) (*round, error) {
	pods, err := r.podsOf(ctx, c)
	if err != nil {
		return nil, err
	}
	return r.ask(ctx, int(c.DesiredReplicas()), pods, func(ctx context.Context, address string) (agentclient.Metrics, error) {
		return r.Agents.Metrics(ctx, address, c.Spec.Agent.Port)
	}), nil
}

// isSampled is whether there is somebody in the pods of the target who tells figures.
func (p *pass) isSampled() bool {
	return p.server != nil || p.cluster != nil && p.cluster.AgentEnabled()
}

// askPods begins to ask the agents of a fleet, or the helpers of a server.
func (r *Reconciler) askPods(ctx context.Context, p *pass) (*round, error) {
	if p.server != nil {
		return r.askServer(ctx, p.server)
	}
	return r.askAgents(ctx, p.cluster)
}

// question asks whoever tells figures in the pod at an address.
type question func(ctx context.Context, address string) (agentclient.Metrics, error)

// ask begins to ask pods, of which there are to be so many.
func (r *Reconciler) ask(ctx context.Context, wanted int, pods []corev1.Pod, question question) *round {
	addresses := map[string]string{}
	for i := range pods {
		if pod := &pods[i]; pod.Status.PodIP != "" {
			addresses[pod.Name] = pod.Status.PodIP
		}
	}
	begun := &round{pods: wanted, said: make(chan map[string]loadtest.Answer, 1)}
	go func() {
		// It outlives the pass.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), roundTime)
		defer cancel()
		begun.said <- r.answers(ctx, addresses, question)
	}()
	return begun
}

// answers are those from the addresses, by pod.
func (r *Reconciler) answers(ctx context.Context, addresses map[string]string, question question) map[string]loadtest.Answer {
	said := map[string]loadtest.Answer{}
	var mutex sync.Mutex
	var asked sync.WaitGroup
	for pod, address := range addresses {
		asked.Go(func() {
			metrics, err := question(ctx, address)
			if err != nil {
				return
			}
			answer := loadtest.Answer{At: r.Clock.Now(), Metrics: metrics}
			mutex.Lock()
			defer mutex.Unlock()
			said[pod] = answer
		})
	}
	asked.Wait()
	return said
}

// samples are what was sampled of a run.
type samples struct {
	*recording
	// part is for how many seconds, where that is not the whole run.
	part *float64
	// note says what is missing. Empty: nothing is.
	note string
}

// samplesOf are those of the run. Nil when there are no agents to ask.
func (r *Reconciler) samplesOf(ctx context.Context, p *pass) (*samples, error) {
	if p.row.LoadStartedAt == nil || !p.isSampled() {
		return nil, nil
	}
	running, err := r.recordingOf(ctx, p)
	if err != nil {
		return nil, err
	}
	running.collect()
	got, recorder := &samples{recording: running}, running.recorder
	lasted := r.Clock.Since(p.row.LoadStartedAt.Time)
	expected := int(lasted / sampleInterval)
	var notes []string
	if recorder.Incomplete > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d samples are incomplete, because an agent did not answer.", recorder.Incomplete, recorder.Samples))
	}
	if recorder.Samples < expected*3/4 {
		notes = append(notes, fmt.Sprintf("There are %d samples of %d: the operator was away meanwhile, or slow.", recorder.Samples, expected))
	}
	// Not for how long the load is known to go on: an operator that noticed late that it does has missed its beginning.
	run := p.run.Duration.Seconds()
	if seconds, whole := recorder.Sampled(run); !whole {
		got.part = &seconds
		notes = append(notes, fmt.Sprintf("All agents answered for %.0f of %.0f s, so peaks and totals of the fleet are left out.", seconds, run))
	}
	got.note = strings.Join(notes, " ")
	return got, nil
}

// applyConfigMap writes a ConfigMap of the benchmark's own. The cache does not hold those.
func (r *Reconciler) applyConfigMap(ctx context.Context, b *v1alpha1.LiveStashBenchmark, name string, data map[string]string) error {
	wanted := &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: b.Namespace, Labels: labelsOf(b), OwnerReferences: []metav1.OwnerReference{ownerReference(b)},
		},
		Data: data,
	}
	_, err := r.applier().One(ctx, b, wanted)
	return err
}

// applier writes the benchmark's own objects. Those that another benchmark of this name has left behind are not taken back: a report
// that somebody has kept would be written over.
func (r *Reconciler) applier() apply.Applier {
	return apply.Applier{Writer: r.Client, Known: r.Live, Live: r.Live}
}
