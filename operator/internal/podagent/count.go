package podagent

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

const procMount = "/proc"

// ServeUsage answers GET /metrics on that port with what the containers of this pod use, so many of them, this one included, in the words of
// the agent. It is for a server that has no agent. Its pod shares its process namespace, and all of its containers are of one user and
// group: then the kernel lets this one see the control groups of the others, which takes no right. It returns when ctx ends. An error means that it
// cannot listen.
func ServeUsage(ctx context.Context, port, containers int, version string) error {
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return fmt.Errorf("cannot tell what the pod uses on port %d: %w; let the server listen on another one", port, err)
	}
	go func() {
		<-ctx.Done()
		_ = listener.Close()
	}()
	serveConns(listener, counter{procMount, containers}.page, agentHeader+": "+version+"\r\n")
	return nil
}

// counter counts what the containers of a pod use, so many of them. proc is where their processes are.
type counter struct {
	proc       string
	containers int
}

// page is what is asked for under a path.
func (c counter) page(path string) answer {
	if path != "/metrics" {
		return answer{"404 Not Found", "ask /metrics"}
	}
	now, err := c.count()
	if err != nil {
		return answer{statusUnavailable, err.Error()}
	}
	return answer{statusOK, now}
}

// count is the usage as Prometheus reads it: of the server and what runs beside it, and of this container.
func (c counter) count() (string, error) {
	own, err := os.ReadFile(filepath.Join(c.proc, "self", "cgroup"))
	if err != nil {
		return "", err
	}
	bytes, microseconds, err := usage(filepath.Join(c.proc, "self", "root", cgroupMount), string(own))
	if err != nil {
		return "", err
	}
	others, seen := c.others(string(own))
	if seen+1 != c.containers {
		// A part would look like the whole.
		return "", fmt.Errorf("the control groups of %d of %d containers are to be seen", seen+1, c.containers)
	}
	return fmt.Sprintf(`# TYPE livestash_pod_memory_bytes gauge
livestash_pod_memory_bytes{part="application"} %d
livestash_pod_memory_bytes{part="helper"} %d
# TYPE livestash_pod_cpu_seconds_total counter
livestash_pod_cpu_seconds_total{part="application"} %.6f
livestash_pod_cpu_seconds_total{part="helper"} %.6f`, others.bytes, bytes, others.seconds(), consumed{bytes, microseconds}.seconds()), nil
}

// others is what other containers use, and how many of them are to be seen. That which holds the pod's namespaces is of another user.
func (c counter) others(own string) (sum consumed, seen int) {
	files, _ := filepath.Glob(filepath.Join(c.proc, "[0-9]*", "cgroup")) // its error is a pattern's
	counted := map[string]bool{own: true}
	for _, file := range files {
		group, err := os.ReadFile(file)
		if err != nil || counted[string(group)] {
			continue
		}
		bytes, microseconds, err := usage(filepath.Join(filepath.Dir(file), "root", cgroupMount), string(group))
		if err != nil {
			continue // it has ended, or is another user's
		}
		counted[string(group)] = true
		sum.bytes, sum.microseconds, seen = sum.bytes+bytes, sum.microseconds+microseconds, seen+1
	}
	return sum, seen
}

// consumed is what containers use.
type consumed struct{ bytes, microseconds int64 }

func (u consumed) seconds() float64 {
	return time.Duration(u.microseconds * int64(time.Microsecond)).Seconds()
}
