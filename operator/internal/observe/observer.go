// Package observe asks the agents of all fleets how their nodes are: outside of the reconcile workers, at its own pace, and
// with so few at once that thousands of pods, a third of them silent, cost little and hold nobody up.
//
// A question is a look of half a second: most agents answer within milliseconds. Who misses one gets a long question a second
// later, and the miss of that one decides. Looks go before all other questions. Those who missed stand in lines of their own,
// each with a share of the room: so it does not matter to the rest how many they are.
package observe

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/livestash-dev/livestash/operator/internal/agentclient"
)

const (
	// defaultParallel is how many agents are asked at once.
	defaultParallel = 64
	// lookTime is how long a look takes at most, and patience how long the question that decides.
	lookTime = 500 * time.Millisecond
	patience = 2 * time.Second
	// quietTime lies between two changes that are told of a fleet when only its counters changed.
	quietTime = time.Minute
	// never is when somebody looks who has nothing to do.
	never = time.Hour
)

// Agents asks the agent of a pod. It returns when ctx ends.
type Agents interface {
	Status(ctx context.Context, podIP string, port int32) (agentclient.Status, error)
}

// Target is a pod whose agent is to be asked.
type Target struct {
	UID  types.UID
	Pod  string
	IP   string
	Port int32
	// Serves is whether the pod takes users, by the kubelet's word. One that has just come to is asked at once: that it did not
	// answer while it started says nothing.
	Serves bool
}

// Answer is what is known of a pod by its agent.
type Answer struct {
	Target
	// Status is the last one that the agent gave, at the time At. At is zero when it never gave any.
	Status agentclient.Status
	At     time.Time
	// Err says why there has been no status since Since. A single miss is none: it is nil until the second in a row. It stays
	// the same error for as long as it is of one kind.
	Err error
	// Since is when the agent missed its first question in a row. Zero while it answers.
	Since time.Time
}

// Observer asks agents. Its fields are not to be changed once it is used; it is safe for concurrent use.
type Observer struct {
	Agents Agents
	// Parallel is how many agents are asked at once, over all fleets. Zero is 64.
	Parallel int
	// Changed is told which fleet has an answer that changed in what matters: at once, and of those of which only counters
	// changed once a minute. It must not block for long: the answers of others wait for it. Nil tells nobody.
	Changed func(fleet types.NamespacedName)

	mu     sync.Mutex
	fleets map[types.NamespacedName]*fleet
	lines  lines
	// asking counts the questions that are out, by the lines that they were taken from.
	asking [len(lines{})]int
	woken  chan struct{}
}

// fleet is what is known of the pods of one.
type fleet struct {
	name types.NamespacedName
	pace Pace
	pods map[types.UID]*pod
	// told is when Changed was last called; counted is whether counters have changed since.
	told    time.Time
	counted bool
}

// NeedLeaderElection makes only the operator's leader ask.
func (*Observer) NeedLeaderElection() bool { return true }

// Track replaces what is known of a fleet's pods: new ones are asked at once, those that are gone are forgotten. It costs
// little when nothing has changed.
func (o *Observer) Track(name types.NamespacedName, pace Pace, targets []Target) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.fleets[name]
	if f == nil {
		f = &fleet{name: name, pods: map[types.UID]*pod{}}
		if o.fleets == nil {
			o.fleets = map[types.NamespacedName]*fleet{}
		}
		o.fleets[name] = f
	}
	now := time.Now()
	o.setPace(f, pace, now)
	wanted := make(map[types.UID]bool, len(targets))
	for _, target := range targets {
		wanted[target.UID] = true
		o.track(f, target, now)
	}
	for uid, p := range f.pods {
		if !wanted[uid] {
			o.drop(p)
		}
	}
	o.wake()
}

// setPace makes the pods of a fleet due earlier when its pace rises. When it falls, they have one more turn at the old one.
func (o *Observer) setPace(f *fleet, pace Pace, now time.Time) {
	if f.pace == pace {
		return
	}
	f.pace = pace
	for _, p := range f.pods {
		if p.place != nowhere {
			o.lines.take(p)
			o.lines.put(p, earlier(p.due, now.Add(p.pause())))
		}
	}
}

// track makes sure that a pod is asked: at once when it is new, has another address, or serves now.
func (o *Observer) track(f *fleet, target Target, now time.Time) {
	p := f.pods[target.UID]
	if p == nil {
		p = &pod{fleet: f, answer: Answer{Target: target}, place: nowhere}
		f.pods[target.UID] = p
		o.lines.put(p, now.Add(spread(startTime)))
		return
	}
	if p.answer.Target == target {
		return
	}
	p.answer.Target = target
	p.misses, p.answer.Err, p.answer.Since = 0, nil, time.Time{}
	if p.place != nowhere {
		o.lines.take(p)
		o.lines.put(p, now)
	}
}

// drop forgets a pod. One that is being asked at the moment is not put in line again.
func (o *Observer) drop(p *pod) {
	o.lines.take(p)
	delete(p.fleet.pods, p.answer.UID)
}

// Forget forgets a fleet and its pods.
func (o *Observer) Forget(name types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.fleets[name]
	if f == nil {
		return
	}
	for _, p := range f.pods {
		o.drop(p)
	}
	delete(o.fleets, name)
}

// Answers is what is known now of the pods of a fleet. A pod that has never answered and did not miss twice is not among them.
func (o *Observer) Answers(name types.NamespacedName) map[types.UID]Answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.fleets[name]
	if f == nil {
		return nil
	}
	answers := make(map[types.UID]Answer, len(f.pods))
	for uid, p := range f.pods {
		if p.known() {
			answers[uid] = p.answer
		}
	}
	return answers
}

// Start asks until ctx ends.
func (o *Observer) Start(ctx context.Context) error {
	var asked sync.WaitGroup
	defer asked.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	woken := o.bell()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-woken:
		case <-timer.C:
		}
		timer.Reset(o.askAllDue(ctx, &asked))
	}
}

// askAllDue asks all those whose time has come and for whom there is room, and returns how long it is until the next one's.
// Whoever finds no room is asked when somebody has answered.
func (o *Observer) askAllDue(ctx context.Context, asked *sync.WaitGroup) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	for {
		p, wait := o.next(time.Now())
		if p == nil {
			return wait
		}
		line, target, most := p.line, p.answer.Target, p.patience()
		o.lines.take(p)
		o.asking[line]++
		asked.Go(func() {
			o.ask(ctx, p, target, most)
			o.free(line)
		})
	}
}

// next is the first pod that is due and for whom there is room, or else how long nobody will be.
func (o *Observer) next(now time.Time) (*pod, time.Duration) {
	wait := never
	for line := range o.lines {
		first := o.lines[line].first()
		if first == nil || !o.room(line) {
			continue
		}
		if !first.due.After(now) {
			return first, 0
		}
		wait = min(wait, first.due.Sub(now))
	}
	return nil, wait
}

// room is whether one more of a line may be asked.
func (o *Observer) room(line int) bool {
	most := o.Parallel
	if most <= 0 {
		most = defaultParallel
	}
	out := 0
	for _, asking := range o.asking {
		out += asking
	}
	return out < most && o.asking[line] < max(1, most/shares[line])
}

// ask asks the agent of a pod and tells what came of it. What the operator's own end cuts off is no miss.
func (o *Observer) ask(ctx context.Context, p *pod, target Target, most time.Duration) {
	asking, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	status, err := o.Agents.Status(asking, target.IP, target.Port)
	if ctx.Err() != nil {
		return
	}
	if o.record(p, target, status, err) && o.Changed != nil {
		o.Changed(p.fleet.name)
	}
}

// free makes room for the next question.
func (o *Observer) free(line int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asking[line]--
	o.wake()
}

// record keeps an answer or a miss, and puts the pod in line again. It is true when the fleet's change is to be told. What
// was asked of a pod that is gone, or of its former address, does not count.
func (o *Observer) record(p *pod, target Target, status agentclient.Status, err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if p.fleet.pods[p.answer.UID] != p {
		return false
	}
	if p.answer.Target != target {
		o.lines.put(p, now)
		return false
	}
	first := !p.known()
	matters, counted := p.take(status, err, now)
	pause := p.pause()
	if first && err == nil {
		// Pods that were new together are not asked together for ever.
		pause = spread(pause)
	}
	// Whoever had to wait for room keeps to its own time, or else all who waited would come together from then on.
	due := p.due.Add(pause)
	if err != nil || due.Before(now) {
		due = now.Add(pause)
	}
	o.lines.put(p, due)
	return p.fleet.tells(matters, counted, now)
}

// tells is whether a change is to be told now: what matters at once, counters once a minute.
func (f *fleet) tells(matters, counted bool, now time.Time) bool {
	f.counted = f.counted || counted
	if !matters && (!f.counted || now.Sub(f.told) < quietTime) {
		return false
	}
	f.told, f.counted = now, false
	return true
}

// bell is rung by wake.
func (o *Observer) bell() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.woken = make(chan struct{}, 1)
	return o.woken
}

// wake makes Start look who is due, as soon as it can. Once is enough for all who ring meanwhile.
func (o *Observer) wake() {
	select {
	case o.woken <- struct{}{}:
	default:
	}
}
