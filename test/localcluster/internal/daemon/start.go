// Package daemon starts processes that outlive the command that started them, in the cluster's own control group and
// namespaces, and finds them again.
//
// Between the starting command and the program stands a short-lived shim: localcluster itself, called with Argument.
// The shim joins the control group, enters or makes the namespaces, writes the record and then becomes the program, with
// the same process id. It holds the cluster's lock until that moment. So whoever has the lock sees every process the
// cluster has, even when the starting command was killed half-way.
package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/livestash-dev/livestash/test/localcluster/internal/cgroup"
)

// Argument is the first argument that makes localcluster the shim.
const Argument = "internal-start"

const (
	shimSpecVariable = "LOCALCLUSTER_DAEMON"
	lockDescriptor   = 3
	reportDescriptor = 4
)

// Spec is a process to start.
type Spec struct {
	// Path is the program, Args its arguments without its name, Env its whole environment.
	Path string
	Args []string
	Env  []string
	// Log is the file that gets its output, appended. Record is the file that will identify it.
	Log    string
	Record string
	// Group is the control group it runs in, below its child "daemons".
	Group cgroup.Group
	// Namespaces is what it shares with the other processes of its node.
	Namespaces Namespaces
}

// Namespaces says in which network and mount namespace a process runs: in those of the process Of, or, when Of is zero,
// in new ones, prepared as the other fields say.
type Namespaces struct {
	Of int
	// Binds are mounted, in this order, in a new mount namespace. Their targets must exist.
	Binds []Bind
	// Sysctls are written in a new network namespace: path below /proc/sys, with slashes, to value.
	Sysctls map[string]string
}

// Bind shows the file or folder Source at Target.
type Bind struct{ Source, Target string }

// Start starts the process and returns when its program runs. The lock file is inherited by the shim, which lets it go
// when the program starts.
func Start(spec Spec, lock *os.File) error {
	encoded, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, file := range []string{spec.Log, spec.Record} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
	}
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	report, reportEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = report.Close() }()

	shim := exec.Command(self, Argument)
	shim.Env = []string{shimSpecVariable + "=" + string(encoded)}
	shim.Dir = "/"
	shim.Stdout, shim.Stderr = log, log
	shim.ExtraFiles = []*os.File{lock, reportEnd}
	shim.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = shim.Start()
	_ = reportEnd.Close()
	if err != nil {
		return err
	}
	// The process is this command's child as long as this command runs; it must not stay as a dead one.
	go func() { _ = shim.Wait() }()

	// The pipe ends without a word when the shim becomes the program.
	problem, err := io.ReadAll(report)
	if err != nil {
		return err
	}
	if len(problem) > 0 {
		return errors.New(strings.TrimSpace(string(problem)))
	}
	return nil
}

// RunShim is the shim. It must be called on the process's main thread. It does not return.
func RunShim() {
	unix.CloseOnExec(lockDescriptor)
	unix.CloseOnExec(reportDescriptor)
	err := becomeProgram()
	report := os.NewFile(reportDescriptor, "report")
	if _, writeErr := fmt.Fprintln(report, err); writeErr != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(1)
}

func becomeProgram() error {
	var spec Spec
	if err := json.Unmarshal([]byte(os.Getenv(shimSpecVariable)), &spec); err != nil {
		return fmt.Errorf("%s is only for localcluster itself: %w", Argument, err)
	}
	if err := spec.Group.Join("daemons", os.Getpid()); err != nil {
		return err
	}
	if err := spec.Namespaces.enter(); err != nil {
		return err
	}
	if err := raiseFileLimit(); err != nil {
		return err
	}
	record, err := Of(os.Getpid())
	if err != nil {
		return err
	}
	if err := record.write(spec.Record); err != nil {
		return err
	}
	args := append([]string{filepath.Base(spec.Path)}, spec.Args...)
	if err := syscall.Exec(spec.Path, args, spec.Env); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", spec.Path, err), os.Remove(spec.Record))
	}
	return nil
}

// raiseFileLimit allows as many open files as this machine lets us: containerd and etcd need more than the usual 1024.
func raiseFileLimit() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: limit.Cur, Max: limit.Max})
}

// Enter moves the calling thread into the network and mount namespaces of a process. The thread must be locked to its
// goroutine and must not be used for anything else afterwards.
func Enter(pid int) error {
	return Namespaces{Of: pid}.enter()
}

// RunInNetwork runs the function on a thread of its own in the network namespace of a process: sockets that it opens and
// programs that it starts are in there.
func RunInNetwork(pid int, function func() error) error {
	done := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine, and nobody else comes into the namespace with it.
		runtime.LockOSThread()
		err := setNamespace(pid, "net", unix.CLONE_NEWNET)
		if err == nil {
			err = function()
		}
		done <- err
	}()
	return <-done
}

func setNamespace(pid int, name string, flag int) error {
	file, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, name))
	if err != nil {
		return fmt.Errorf("enter the cluster's namespaces: %w", err)
	}
	defer func() { _ = file.Close() }()
	if err := unix.Setns(int(file.Fd()), flag); err != nil {
		return fmt.Errorf("enter the cluster's %s namespace: %w", name, err)
	}
	return nil
}

func (n Namespaces) enter() error {
	runtime.LockOSThread()
	if n.Of == 0 {
		return n.create()
	}
	// A thread that shares its root and working folder with others may not change its mount namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leave the shared working folder: %w", err)
	}
	if err := setNamespace(n.Of, "net", unix.CLONE_NEWNET); err != nil {
		return err
	}
	return setNamespace(n.Of, "mnt", unix.CLONE_NEWNS)
}

func (n Namespaces) create() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS | unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	// First a slave: what is mounted here never reaches the machine. Then shared: volumes that ask for mount propagation
	// see what is mounted later, as on any node.
	for _, flag := range []uintptr{unix.MS_SLAVE, unix.MS_SHARED} {
		if err := unix.Mount("", "/", "", unix.MS_REC|flag, ""); err != nil {
			return fmt.Errorf("separate the mount namespace: %w", err)
		}
	}
	for _, bind := range n.Binds {
		if err := unix.Mount(bind.Source, bind.Target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("show %s at %s: %w", bind.Source, bind.Target, err)
		}
	}
	for key, value := range n.Sysctls {
		if err := os.WriteFile(filepath.Join("/proc/sys", key), []byte(value), 0); err != nil {
			return fmt.Errorf("set %s in the network namespace: %w", key, err)
		}
	}
	return nil
}
