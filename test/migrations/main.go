// Command migrations rolls a fleet out again and again while the operator is killed at random moments, and counts how often the command of
// spec.rollout.before ran for each template.
//
//	go run ./migrations -rounds 200
//
// It needs KUBECONFIG, kubectl, the operator's program and a cluster that has the workload's image and no operator. `make migrations` brings all
// that. The last line of its output is JSON.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/livestash-dev/livestash/test/internal/fleet"
)

const namespace = "migrations"

// patience is how long one template may take until a pod serves with it.
const patience = 10 * time.Minute

func main() {
	rounds := flag.Int("rounds", 200, "How many templates are asked for, one after the other.")
	atMost := flag.Duration("at-most", 0, "End after the round that is under way then, with fewer rounds. 0: never.")
	operator := flag.String("operator", filepath.Join("..", "bin", "manager"), "The operator's program.")
	life := flag.Duration("life", 8*time.Second, "How long an operator lives in the mean. With less than it takes to start nothing gets on.")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "What chance begins with.")
	logPath := flag.String("log", "", "File for the operators' logs. Empty: dropped.")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *rounds, *atMost, *operator, *life, *seed, *logPath)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "migrations:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, atMost time.Duration, program string, life time.Duration, seed uint64, logPath string) error {
	var log io.Writer
	if logPath != "" {
		file, err := os.Create(logPath)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		log = file
	}
	c, err := fleet.Open()
	if err != nil {
		return err
	}
	s := &subject{Cluster: c, image: fleet.Defaults().Image, chance: rand.New(rand.NewPCG(seed, 1)), waited: map[int]bool{}}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	defer func() {
		_, _ = c.Kubectl(context.WithoutCancel(ctx), "", "delete", "namespace", namespace, "--wait=false")
	}()
	operators := &mortal{program: program, life: life, chance: rand.New(rand.NewPCG(seed, 2)), log: log}
	living, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- operators.live(living) }()
	begun := time.Now()
	say("%d rounds with seed %d", rounds, seed)
	done, problem := s.roll(ctx, rounds, atMost)
	lines, err := s.ledger(ctx)
	stop()
	for _, err := range []error{<-ended, problem, err} {
		if err != nil {
			return err
		}
	}
	counted, faults := ledger{lines: lines, rounds: done, waited: s.waited}.audit()
	for _, fault := range faults {
		say("%s", fault)
	}
	line, err := json.Marshal(map[string]any{
		"rounds": done, "once": counted.Once, "none": counted.None, "replaced": counted.Replaced, "back": s.backs,
		"kills": operators.kills, "ended": operators.ends, "faults": len(faults), "minutes": int(time.Since(begun).Minutes() + 0.5), "seed": seed,
	})
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	if len(faults) > 0 {
		return fmt.Errorf("%d faults", len(faults))
	}
	return nil
}

// subject is the fleet that is rolled out.
type subject struct {
	*fleet.Cluster
	image  string
	chance *rand.Rand
	// waited are the rounds that were waited for, in order too; backs is how often somebody went back to an earlier one.
	waited map[int]bool
	served []int
	backs  int
}

// prepare makes what the fleet needs. Its commands write into a volume that its pods share.
func (s *subject) prepare(ctx context.Context) error {
	running, err := s.Kubectl(ctx, "", "get", "pods", "--all-namespaces", "--selector", "app.kubernetes.io/name=livestash-operator", "-o", "name")
	if err != nil {
		return err
	}
	if running = strings.TrimSpace(running); running != "" {
		return fmt.Errorf("an operator runs in the cluster that nobody kills: %s", running)
	}
	if _, err := s.Kubectl(ctx, "", "apply", "--server-side", "-f", filepath.Join("..", "config", "crd", "bases")); err != nil {
		return err
	}
	if _, err := s.Kubectl(ctx, "", "create", "namespace", namespace); err != nil {
		return err
	}
	claim := `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"ledger"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Mi"}}}}`
	_, err = s.Kubectl(ctx, claim, "--namespace", namespace, "apply", "-f", "-")
	return err
}

// roll asks for one template after the other. Of each four, three are waited for until a pod serves; the fourth is soon replaced. Sometimes
// somebody goes back to an earlier one in between, which must run nothing.
func (s *subject) roll(ctx context.Context, rounds int, atMost time.Duration) (done int, err error) {
	begun := time.Now()
	for round := 1; round <= rounds; round++ {
		if atMost > 0 && time.Since(begun) > atMost {
			rounds = round // the last one, which is waited for
		}
		if len(s.served) > 0 && s.chance.IntN(5) == 0 {
			recent := s.served[max(0, len(s.served)-5):]
			if err := s.change(ctx, recent[s.chance.IntN(len(recent))], s.moment()); err != nil {
				return round, err
			}
			s.backs++
		}
		if err := s.change(ctx, round, s.moment()); err != nil {
			return round, err
		}
		if s.chance.IntN(4) == 0 && round < rounds {
			continue
		}
		if err := fleet.Eventually(ctx, patience, func(ctx context.Context) error { return s.serves(ctx, round) }); err != nil {
			return round, fmt.Errorf("round %d: %w", round, err)
		}
		s.waited[round], s.served = true, append(s.served, round)
		if round%10 == 0 {
			say("round %d", round)
		}
	}
	return rounds, nil
}

// moment is up to three seconds, mostly less.
func (s *subject) moment() time.Duration {
	part := s.chance.Float64()
	return time.Duration(part * part * float64(3*time.Second))
}

// change asks for the template of a round, and waits a moment.
func (s *subject) change(ctx context.Context, round int, wait time.Duration) error {
	const command = `echo "begin $ROUND" >>/ledger/runs; sleep 0.5; echo "end $ROUND" >>/ledger/runs`
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "livestash.dev/v1alpha1", "kind": "LiveStashCluster", "metadata": map[string]any{"name": fleet.Name},
		"spec": map[string]any{
			"image": s.image, "adapter": "None", "replicas": 1, "http": map[string]any{"readinessPath": "/healthz"},
			"agent": map[string]any{"enabled": false},
			"drain": map[string]any{"endpointWait": "0s", "closeTimeout": "1s", "handOffTimeout": "1s", "gracePeriod": "10s"},
			"env":   []any{map[string]any{"name": "ROUND", "value": fmt.Sprint(round)}},
			"rollout": map[string]any{
				"surge": "Never", "before": map[string]any{"command": []string{"sh", "-c", command}},
			},
			"podTemplate": map[string]any{"spec": map[string]any{
				"volumes":    []any{map[string]any{"name": "ledger", "persistentVolumeClaim": map[string]any{"claimName": "ledger"}}},
				"containers": []any{map[string]any{"name": fleet.AppContainer, "volumeMounts": []any{map[string]any{"name": "ledger", "mountPath": "/ledger"}}}},
			}},
		},
	})
	if err != nil {
		return err
	}
	err = fleet.Eventually(ctx, patience, func(ctx context.Context) error {
		_, err := s.Kubectl(ctx, string(manifest), "--namespace", namespace, "apply", "-f", "-")
		return err
	})
	if err != nil {
		return err
	}
	return fleet.Pause(ctx, wait)
}

// serves is nil when the pod has the template of that round, and is ready.
func (s *subject) serves(ctx context.Context, round int) error {
	pod, err := s.CoreV1().Pods(namespace).Get(ctx, fleet.Name+"-0", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if has := variable(pod, "ROUND"); has != fmt.Sprint(round) || !fleet.IsReady(*pod) || pod.DeletionTimestamp != nil {
		return fmt.Errorf("the pod has the template of round %s, ready: %v", has, fleet.IsReady(*pod))
	}
	return nil
}

// variable is one of the application's environment.
func variable(pod *corev1.Pod, name string) string {
	for _, container := range pod.Spec.Containers {
		for _, v := range container.Env {
			if container.Name == fleet.AppContainer && v.Name == name {
				return v.Value
			}
		}
	}
	return ""
}

// ledger is what the commands have written.
func (s *subject) ledger(ctx context.Context) ([]string, error) {
	var text string
	err := fleet.Eventually(ctx, patience, func(ctx context.Context) (err error) {
		text, err = s.Kubectl(ctx, "", "--namespace", namespace, "exec", fleet.Name+"-0", "-c", fleet.AppContainer, "--", "cat", "/ledger/runs")
		return err
	})
	return strings.Split(strings.TrimSpace(text), "\n"), err
}

func say(format string, args ...any) {
	fmt.Printf(time.Now().Format("15:04:05 ")+format+"\n", args...)
}
