// Package chromium drives a real browser over its DevTools protocol: tabs in profiles of their own, which can be hidden.
package chromium

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// flags make a browser that speaks over a pipe, also as root, and asks nobody on the network for anything but its pages.
var flags = []string{
	"--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
	"--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server", "--window-size=600,400",
}

// Browser is a running Chromium. It is safe for concurrent use.
type Browser struct {
	command *exec.Cmd
	folder  string
	orders  *os.File
	// ended is closed when it answers no more.
	ended chan struct{}

	mu      sync.Mutex
	last    int
	waiting map[int]chan answer
	// listeners hear what the protocol tells unasked, by session.
	listeners map[string]func(event string, details json.RawMessage)
}

// answer is what the browser says: to an order, by its ID, or unasked, with a Method.
type answer struct {
	ID      int             `json:"id"`
	Session string          `json:"sessionId"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// Program is Chromium's.
func Program() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no Chromium: hack/deps browser installs it")
}

// Start starts a browser by a command that its own is appended to, such as nsenter; nil for none. hosts are Chromium's
// host-resolver-rules.
func Start(enter []string, hosts string) (*Browser, error) {
	program, err := Program()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "chromium")
	if err != nil {
		return nil, err
	}
	b := &Browser{folder: folder, ended: make(chan struct{}), waiting: map[int]chan answer{},
		listeners: map[string]func(string, json.RawMessage){}}
	if err := b.start(append(append([]string{}, enter...), program), hosts); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return b, nil
}

func (b *Browser) start(line []string, hosts string) error {
	line = append(append(line, flags...), "--user-data-dir="+b.folder, "--host-resolver-rules="+hosts)
	in, orders, err := os.Pipe()
	if err != nil {
		return err
	}
	answers, out, err := os.Pipe()
	if err != nil {
		return errors.Join(err, in.Close(), orders.Close())
	}
	b.command, b.orders = exec.Command(line[0], line[1:]...), orders
	// Chromium reads orders from 3 and answers to 4.
	b.command.ExtraFiles = []*os.File{in, out}
	b.command.Env = append(os.Environ(), "HOME="+b.folder)
	b.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = b.command.Start()
	err = errors.Join(err, in.Close(), out.Close())
	if err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", line[0], err), orders.Close(), answers.Close())
	}
	go b.listen(answers)
	return nil
}

// listen takes in answers. What is told unasked is left aside where nobody listens.
func (b *Browser) listen(answers *os.File) {
	defer close(b.ended)
	defer func() { _ = answers.Close() }()
	reader := bufio.NewReader(answers)
	for {
		raw, err := reader.ReadBytes(0)
		if err != nil {
			return
		}
		var a answer
		if json.Unmarshal(bytes.TrimSuffix(raw, []byte{0}), &a) != nil {
			continue
		}
		b.mu.Lock()
		if a.ID == 0 {
			hear := b.listeners[a.Session]
			b.mu.Unlock()
			if hear != nil {
				hear(a.Method, a.Params)
			}
			continue
		}
		waits := b.waiting[a.ID]
		delete(b.waiting, a.ID)
		b.mu.Unlock()
		if waits != nil {
			waits <- a
		}
	}
}

// call is one order of the protocol, to the tab of a session, or to the browser itself when that is empty.
func (b *Browser) call(ctx context.Context, session, method string, params, result any) error {
	answered := make(chan answer, 1)
	b.mu.Lock()
	b.last++
	id := b.last
	b.waiting[id] = answered
	order := map[string]any{"id": id, "method": method, "params": params}
	if session != "" {
		order["sessionId"] = session
	}
	raw, err := json.Marshal(order)
	if err == nil {
		_, err = b.orders.Write(append(raw, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	select {
	case a := <-answered:
		if a.Error != nil {
			return fmt.Errorf("%s: %s", method, a.Error.Message)
		}
		if result == nil {
			return nil
		}
		return json.Unmarshal(a.Result, result)
	case <-b.ended:
		return fmt.Errorf("%s: the browser has ended", method)
	case <-ctx.Done():
		b.mu.Lock()
		delete(b.waiting, id)
		b.mu.Unlock()
		return fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

// Close ends the browser with all its processes, and removes its profiles.
func (b *Browser) Close() error {
	err := syscall.Kill(-b.command.Process.Pid, syscall.SIGKILL)
	_ = b.command.Wait() // it was killed
	return errors.Join(err, b.orders.Close(), os.RemoveAll(b.folder))
}
