package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Record identifies one process for its whole life: a process id alone may be given to another process later, and a
// start time alone is counted from the start of the machine.
type Record struct {
	PID int `json:"pid"`
	// Start is the process's start time, in clock ticks since the machine started.
	Start uint64 `json:"start"`
	// Boot is the kernel's id of this run of the machine.
	Boot string `json:"boot"`
}

// ReadRecord returns the record in file, and false when there is none.
func ReadRecord(file string) (Record, bool, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, err
	}
	var record Record
	if err := json.Unmarshal(content, &record); err != nil {
		return Record{}, false, fmt.Errorf("read %s: %w", file, err)
	}
	return record, true, nil
}

// Alive says whether the recorded process runs: same id, same start, and not only a dead child nobody has waited for.
func (r Record) Alive() bool {
	if r.PID <= 0 || r.Boot != bootID() {
		return false
	}
	state, start, err := processStat(r.PID)
	return err == nil && start == r.Start && state != 'Z' && state != 'X'
}

// Stopped says whether the recorded process stands still, by SIGSTOP.
func (r Record) Stopped() bool {
	state, start, err := processStat(r.PID)
	return err == nil && start == r.Start && state == 'T'
}

// Signal sends the signal to the recorded process, and to no other. A process that has ended is no error.
func (r Record) Signal(signal syscall.Signal) error {
	if !r.Alive() {
		return nil
	}
	if err := syscall.Kill(r.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("signal process %d: %w", r.PID, err)
	}
	return nil
}

// Of returns the record of a running process.
func Of(pid int) (Record, error) {
	_, start, err := processStat(pid)
	if err != nil {
		return Record{}, err
	}
	return Record{PID: pid, Start: start, Boot: bootID()}, nil
}

// write stores the record in one step, so that no reader sees half of it.
func (r Record) write(file string) error {
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", content, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func bootID() string {
	content, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

func processStat(pid int) (state byte, start uint64, err error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	return parseStat(string(content))
}

// parseStat reads the state (field 3) and the start time (field 22) of a line of /proc/PID/stat. The name of the
// program, field 2, is in parentheses and may hold spaces and parentheses itself.
func parseStat(line string) (state byte, start uint64, err error) {
	end := strings.LastIndexByte(line, ')')
	if end < 0 {
		return 0, 0, fmt.Errorf("not a process status: %q", line)
	}
	fields := strings.Fields(line[end+1:])
	if len(fields) < 20 {
		return 0, 0, fmt.Errorf("not a process status: %q", line)
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("not a process status: %q", line)
	}
	return fields[0][0], start, nil
}
