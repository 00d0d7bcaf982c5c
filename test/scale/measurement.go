package main

import (
	"fmt"
	"math"
	"time"
)

// The bounds that the operator keeps.
const (
	// maxRequestsOverChildren is how many requests a cluster may cost besides the one that makes each of its children.
	maxRequestsOverChildren = 5
	// maxPeak is the most memory that the operator may hold, in bytes.
	maxPeak = 80 << 20
	// maxLag is how much later than the last LiveStashCluster the last StatefulSet may be there.
	maxLag = 2 * time.Second
)

// measurement is the outcome of a run.
type measurement struct {
	clusters int
	// created is how long kubectl took, made the time from its start until every StatefulSet was there.
	created, made time.Duration
	// children is the number of objects that belong to the clusters, of all clusters together.
	children int
	// requests are the operator's from kubectl's start until it was quiet, idle those in the idle window after that.
	requests, idle []request
	// before, and after are what the operator's process had used when kubectl started and after the idle window.
	before, after usage
}

// report is the JSON of the last line.
type report struct {
	Clusters           int     `json:"clusters"`
	CreateS            float64 `json:"create_s"`
	StatefulSetsS      float64 `json:"statefulsets_s"`
	RequestsPerCluster float64 `json:"requests_per_cluster"`
	IdleRequests60s    int     `json:"idle_requests_60s"`
	CPUS               float64 `json:"cpu_s"`
	RSSMiB             float64 `json:"rss_mib"`
}

func (m measurement) report() report {
	return report{
		Clusters:           m.clusters,
		CreateS:            round(m.created.Seconds()),
		StatefulSetsS:      round(m.made.Seconds()),
		RequestsPerCluster: round(m.requestsPerCluster()),
		IdleRequests60s:    len(m.idle),
		CPUS:               round(m.cpu().Seconds()),
		RSSMiB:             round(mebibytes(m.after.peak)),
	}
}

func (m measurement) requestsPerCluster() float64 {
	return float64(len(m.requests)) / float64(m.clusters)
}
func (m measurement) childrenPerCluster() float64 { return float64(m.children) / float64(m.clusters) }
func (m measurement) cpu() time.Duration          { return m.after.cpu - m.before.cpu }

// brokenBounds says which bounds on counts and memory were broken. They do not depend on how fast the machine is.
func (m measurement) brokenBounds() []string {
	var broken []string
	if most := m.childrenPerCluster() + maxRequestsOverChildren; m.requestsPerCluster() > most {
		broken = append(broken, fmt.Sprintf("%.2f requests per cluster, at most %.2f: one for each of %.2f children and %d more",
			m.requestsPerCluster(), most, m.childrenPerCluster(), maxRequestsOverChildren))
	}
	if len(m.idle) > 0 {
		broken = append(broken, fmt.Sprintf("%d requests while there was nothing to do, none is allowed", len(m.idle)))
	}
	if m.after.peak > maxPeak {
		broken = append(broken, fmt.Sprintf("%.1f MiB of memory, at most %.0f", mebibytes(m.after.peak), mebibytes(maxPeak)))
	}
	return broken
}

// brokenPace says whether the operator fell behind the creation.
func (m measurement) brokenPace() []string {
	if m.made <= m.created+maxLag {
		return nil
	}
	return []string{fmt.Sprintf("every StatefulSet after %.2f s, at most %s after the %.2f s of the creation",
		m.made.Seconds(), maxLag, m.created.Seconds())}
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// round keeps two decimals.
func round(value float64) float64 { return math.Round(value*100) / 100 }
