package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// clockTicks is the unit of CPU time in /proc/PID/stat: 100 a second on every Linux that Go supports.
const clockTicks = 100

// usage is what a process has used.
type usage struct {
	// cpu is its CPU time since it started.
	cpu time.Duration
	// peak and resident are the most memory it ever held and what it holds now. Of that, anonymous is its own, and files are
	// pages of files, which the kernel can drop and read again: the program's above all. In bytes.
	peak, resident, anonymous, files int64
}

func readUsage(pid int) (usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return usage{}, err
	}
	return parseUsage(string(stat), string(status))
}

func parseUsage(stat, status string) (usage, error) {
	// The second field is the program's name in parentheses, which may itself hold spaces and parentheses.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return usage{}, fmt.Errorf("/proc/PID/stat has %d fields after the name", len(fields))
	}
	var used usage
	for _, field := range fields[11:13] { // utime and stime
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return usage{}, fmt.Errorf("/proc/PID/stat: %w", err)
		}
		used.cpu += time.Duration(ticks) * time.Second / clockTicks
	}
	var shared int64
	for name, value := range map[string]*int64{
		"VmHWM": &used.peak, "VmRSS": &used.resident, "RssAnon": &used.anonymous, "RssFile": &used.files, "RssShmem": &shared,
	} {
		_, rest, found := strings.Cut(status, "\n"+name+":")
		line, _, _ := strings.Cut(rest, "\n")
		kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(line, "kB")), 10, 64)
		if !found || err != nil {
			return usage{}, fmt.Errorf("/proc/PID/status has no %s in kB: %q", name, line)
		}
		*value = kib << 10
	}
	used.files += shared
	return used, nil
}

// process is a program that runs until stop.
type process struct {
	*os.Process
	// ended is closed when it has ended, however that came about.
	ended chan struct{}
	// log is the file with its output.
	log string
	// told is whether it was told to end.
	told atomic.Bool
}

// start starts the program with its output in the file log and with nothing but this environment.
func start(path string, args, environment []string, log string) (*process, error) {
	output, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = output.Close() }() // the program has its own
	command := exec.Command(path, args...)
	command.Env, command.Stdout, command.Stderr = environment, output, output
	// Ctrl-C in a terminal goes to the whole group: the program must live on until it is stopped in order.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		return nil, err
	}
	p := &process{Process: command.Process, ended: make(chan struct{}), log: log}
	go func() {
		_ = command.Wait() // how it ended is in its log
		close(p.ended)
	}()
	return p, nil
}

// stop asks the program to end, and makes it end after ten seconds.
func (p *process) stop() {
	p.told.Store(true)
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		select {
		case <-p.ended:
			return
		default:
		}
		_ = p.Signal(signal) // it may have ended in this moment
		select {
		case <-p.ended:
		case <-time.After(10 * time.Second):
		}
	}
}

// tail is the end of the program's log.
func (p *process) tail() string {
	content, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return lastLines(string(content))
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// command prepares a program that ends by itself. When ctx ends first, it is asked to end, and made to after half a minute.
func command(ctx context.Context, path string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, path, args...)
	c.Env = environment()
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 30 * time.Second
	return c
}

// environment is what the started programs see of this one's: where programs are, and the settings of the Go runtime,
// to try them out. No proxy, no kubeconfig.
func environment(more ...string) []string {
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GODEBUG"} {
		if value, set := os.LookupEnv(name); set {
			more = append(more, name+"="+value)
		}
	}
	return more
}
