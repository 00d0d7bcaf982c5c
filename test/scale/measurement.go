package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// The bounds that the operator keeps.
const (
	// maxRequestsOverChildren is how many requests a cluster may cost besides the one that makes each of its children.
	maxRequestsOverChildren = 5
	// maxRequestsWithAgents is the same when pods run: four events (the Secret is made, the fleet serves, all pods are ready, some agents
	// are silent) and nine writes of the status. Conditions change six times: the fleet is new, its StatefulSet is there, its pods are,
	// the agents have been asked, nearly all pods are ready, all are. The other three are for what changes more slowly than that, five
	// seconds or more apart.
	maxRequestsWithAgents = 13
	// maxPeak is the most memory that the operator may hold, in bytes.
	maxPeak = 80 << 20
	// maxRestingMemory is the most that it may hold at rest with a thousand clusters of ten pods with agents, and maxRestingCores
	// the most CPU time that it may take then.
	maxRestingMemory = 150 << 20
	maxRestingCores  = 0.3
	// maxReaction is how long it may take until a changed spec is in the StatefulSet.
	maxReaction = time.Second
	// maxLag is how much later than the last LiveStashCluster the last StatefulSet may be there.
	maxLag = 2 * time.Second
)

// measurement is the outcome of a run.
type measurement struct {
	clusters, pods int
	// program is the size of the operator's program, in bytes.
	program int64
	// created is how long kubectl took, made the time from its start until every StatefulSet was there, full until each had
	// its pods.
	created, made, full time.Duration
	// quiet is when the operator was quiet, idleFor how long it was watched then.
	quiet   time.Time
	idleFor time.Duration
	// children is the number of objects that belong to the clusters, of all clusters together.
	children int
	// requests are the operator's from kubectl's start until it was quiet, idle those in the idle window after that.
	requests, idle []request
	// before, atRest and after are what the operator's process had used when kubectl started, and before and after the idle
	// window.
	before, atRest, after usage
	// agents is nil when pods do not run.
	agents *agentFigures
	// upheavals is nil when there were none.
	upheavals *upheavalFigures
}

// agentFigures are what is measured with agents alone.
type agentFigures struct {
	// all is how many agents there were, silent how many of them never answered.
	all, silent int
	// asked are the questions in the idle window, mostAtOnce the most that waited for an answer at any moment.
	asked, mostAtOnce int64
	// changes are the times from a changed spec to the StatefulSet.
	changes []time.Duration
}

func (a agentFigures) perSecond(window time.Duration) float64 {
	return float64(a.asked) / window.Seconds()
}

// report is the JSON of the last line.
type report struct {
	Clusters           int     `json:"clusters"`
	Pods               int     `json:"pods"`
	CreateS            float64 `json:"create_s"`
	StatefulSetsS      float64 `json:"statefulsets_s"`
	RequestsPerCluster float64 `json:"requests_per_cluster"`
	IdleRequests60s    int     `json:"idle_requests_60s"`
	CPUS               float64 `json:"cpu_s"`
	RSSMiB             float64 `json:"rss_mib"`
	RestingCores       float64 `json:"resting_cores"`
	AnonymousMiB       float64 `json:"resting_anonymous_mib"`
	FilesMiB           float64 `json:"resting_files_mib"`
	ProgramMiB         float64 `json:"program_mib"`

	Agents    *agentReport     `json:"agents,omitempty"`
	Upheavals *upheavalFigures `json:"upheavals,omitempty"`
}

// agentReport is the part that is there with agents alone.
type agentReport struct {
	PodsReadyS      float64 `json:"pods_ready_s"`
	Agents          int     `json:"agents"`
	Silent          int     `json:"silent"`
	QuestionsPerS   float64 `json:"questions_per_s"`
	QuestionsAtOnce int64   `json:"questions_at_once"`
	ChangeMedianS   float64 `json:"change_median_s"`
	ChangeWorstS    float64 `json:"change_worst_s"`
	ChangesMeasured int     `json:"changes"`
}

func (m measurement) report() report {
	r := report{
		Clusters:           m.clusters,
		Pods:               m.pods,
		CreateS:            round(m.created.Seconds()),
		StatefulSetsS:      round(m.made.Seconds()),
		RequestsPerCluster: round(m.requestsPerCluster()),
		IdleRequests60s:    len(m.idle),
		CPUS:               round(m.cpu().Seconds()),
		RSSMiB:             round(mebibytes(m.after.peak)),
		RestingCores:       round(m.restingCores()),
		AnonymousMiB:       round(mebibytes(m.after.anonymous)),
		FilesMiB:           round(mebibytes(m.after.files)),
		ProgramMiB:         round(mebibytes(m.program)),
	}
	r.Upheavals = m.upheavals
	if a := m.agents; a != nil {
		r.Agents = &agentReport{
			PodsReadyS:      round(m.full.Seconds()),
			Agents:          a.all,
			Silent:          a.silent,
			QuestionsPerS:   round(a.perSecond(m.idleFor)),
			QuestionsAtOnce: a.mostAtOnce,
			ChangeMedianS:   round(median(a.changes).Seconds()),
			ChangeWorstS:    round(slices.Max(a.changes).Seconds()),
			ChangesMeasured: len(a.changes),
		}
	}
	return r
}

func (m measurement) requestsPerCluster() float64 {
	return float64(len(m.requests)) / float64(m.clusters)
}
func (m measurement) childrenPerCluster() float64 { return float64(m.children) / float64(m.clusters) }
func (m measurement) cpu() time.Duration          { return m.after.cpu - m.before.cpu }

// restingCores is how many cores the operator kept busy in the idle window.
func (m measurement) restingCores() float64 {
	return (m.after.cpu - m.atRest.cpu).Seconds() / m.idleFor.Seconds()
}

// brokenBounds says which bounds on counts and memory were broken. They do not depend on how fast the machine is.
func (m measurement) brokenBounds() []string {
	var broken []string
	more := maxRequestsOverChildren
	if m.agents != nil {
		more = maxRequestsWithAgents
	}
	if most := m.childrenPerCluster() + float64(more); m.requestsPerCluster() > most {
		broken = append(broken, fmt.Sprintf("%.2f requests per cluster, at most %.2f: one for each of %.2f children and %d more",
			m.requestsPerCluster(), most, m.childrenPerCluster(), more))
	}
	if len(m.idle) > 0 {
		broken = append(broken, fmt.Sprintf("%d requests while there was nothing to do, none is allowed", len(m.idle)))
	}
	if m.agents != nil {
		if m.after.resident > maxRestingMemory {
			broken = append(broken, fmt.Sprintf("%.1f MiB of memory at rest, at most %.0f", mebibytes(m.after.resident), mebibytes(maxRestingMemory)))
		}
		return broken
	}
	if m.after.peak > maxPeak {
		broken = append(broken, fmt.Sprintf("%.1f MiB of memory, at most %.0f", mebibytes(m.after.peak), mebibytes(maxPeak)))
	}
	return broken
}

// brokenPace says where the operator was slow, or busy. With agents, the creation does not count: the simulated node takes part in
// it and needs the same machine.
func (m measurement) brokenPace() []string {
	if m.agents == nil {
		if m.made <= m.created+maxLag {
			return nil
		}
		return []string{fmt.Sprintf("every StatefulSet after %.2f s, at most %s after the %.2f s of the creation",
			m.made.Seconds(), maxLag, m.created.Seconds())}
	}
	var broken []string
	if cores := m.restingCores(); cores > maxRestingCores {
		broken = append(broken, fmt.Sprintf("%.2f cores at rest, at most %.1f", cores, maxRestingCores))
	}
	if worst := slices.Max(m.agents.changes); worst > maxReaction {
		broken = append(broken, fmt.Sprintf("a changed spec was in the StatefulSet after %s, at most %s", worst, maxReaction))
	}
	return broken
}

// median is the middle one of the durations.
func median(durations []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(durations))[len(durations)/2]
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// round keeps two decimals.
func round(value float64) float64 { return math.Round(value*100) / 100 }
