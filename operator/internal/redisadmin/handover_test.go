package redisadmin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/pki"
	rendered "github.com/livestash-dev/livestash/operator/internal/render/redis"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
	"github.com/livestash-dev/livestash/operator/internal/succession"
)

const fleetPassword = "fleet-password"

// realServer is a Redis or Valkey of this machine, with the configuration and the users that the operator gives it.
type realServer struct {
	Login
	access rendered.Access
	files  string
	// certificate is what it starts with, if it is to speak TLS.
	certificate pki.Leaf
	process     *os.Process
	stop        func()
}

func startServer(t *testing.T, access rendered.Access, certificate ...pki.Leaf) *realServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	s := &realServer{Login: Login{Address: address, User: rendered.OperatorUser, Password: access.Operator}, access: access, files: t.TempDir()}
	if len(certificate) > 0 {
		s.certificate, s.Authorities, s.Host = certificate[0], string(certificate[0].Authorities), redisHost
	}
	s.start(t)
	return s
}

// start starts it with what is in its folder: after a crash, with what it had.
func (s *realServer) start(t *testing.T) {
	t.Helper()
	s.begin(t)
	eventually(t, func() error { return s.fleet(t).Ping(t.Context()).Err() })
}

// begin starts it, with further options, and does not wait until it serves.
func (s *realServer) begin(t *testing.T, further ...string) {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("no redis-server on this machine")
	}
	_, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		t.Fatal(err)
	}
	cluster, managed := rendertest.WithRedis(t, v1alpha1.RedisSpec{}), &v1alpha1.ManagedRedis{}
	if s.Authorities != "" {
		managed.TLS = &v1alpha1.RedisTLS{Enabled: true}
		s.put(t, s.certificate)
	}
	file := rendered.Config(cluster, managed)
	config := strings.NewReplacer("dir /data", "dir "+s.files, "port 6379", "port "+port, "/etc/livestash-redis", s.files).Replace(file.Data["redis.conf"])
	users := rendered.AccessSecret(cluster, s.access).Data["users.acl"]
	for name, text := range map[string]string{"redis.conf": config, "users.acl": string(users)} {
		if err := os.WriteFile(filepath.Join(s.files, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	options := rendered.StatefulSet(cluster, managed, file, rendertest.Inputs).Spec.Template.Spec.Containers[0].Command[2:]
	command := exec.Command(program, slices.Concat([]string{filepath.Join(s.files, "redis.conf")}, options, further)...)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	s.process = command.Process
	s.stop = func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}
	t.Cleanup(func() { s.stop() })
}

// fleet is a client that logs in as the fleet's pods do.
func (s *realServer) fleet(t *testing.T) *redis.Client {
	return s.as(t, rendered.FleetUser, fleetPassword)
}

// as is a client that logs in as that user. It is patient: on a busy machine a server stands still for seconds.
func (s *realServer) as(t *testing.T, user, password string) *redis.Client {
	client := redis.NewClient(&redis.Options{
		Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dial(ctx, network, address, s.Login, time.Minute)
		},
		Addr: s.Address, Username: user, Password: password, MaxRetries: -1, DialerRetries: 1, PoolSize: 1,
		DisableIdentity: true, Protocol: 2, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// look asks until there is an answer, as setPrimary and follow do, which change nothing the second time: on a busy machine a server is
// silent for longer than the operator waits.
func (s *realServer) look(t *testing.T) succession.Says {
	t.Helper()
	var seen succession.Says
	eventually(t, func() (err error) {
		seen, err = patient().Look(t.Context(), s.Login)
		return err
	})
	return seen
}

// inSync waits until the server has all that the one has that it follows, in its file too.
func (s *realServer) inSync(t *testing.T) (seen succession.Says) {
	t.Helper()
	eventually(t, func() error {
		if seen = s.look(t); !seen.InSync || !seen.Filed {
			return fmt.Errorf("the new server says %+v", seen)
		}
		return nil
	})
	return seen
}

func (s *realServer) setPrimary(t *testing.T, name string) {
	t.Helper()
	eventually(t, func() error { return patient().SetPrimary(t.Context(), s.Login, name) })
}

func (s *realServer) follow(t *testing.T, primary *realServer) {
	t.Helper()
	eventually(t, func() error { return patient().Follow(t.Context(), s.Login, primary.Login, "s3cret") })
}

// lost is how many of the keys the server says that it does not have.
func (s *realServer) lost(t *testing.T, keys []string) int {
	t.Helper()
	client, lost := s.fleet(t), 0
	for _, key := range keys {
		eventually(t, func() error {
			found, err := client.Exists(t.Context(), key).Result()
			if err == nil && found == 0 {
				lost++
			}
			return err
		})
	}
	return lost
}

// patient is a client that waits longer than a busy machine keeps a server waiting.
func patient() Client {
	client := New()
	client.patience = 30 * time.Second
	return client
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	var err error
	for range 1000 {
		if err = check(); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal(err)
}

func testAccess() rendered.Access {
	access := rendered.NewAccess()
	access.Fleet = []string{rendered.PasswordHash(fleetPassword)}
	return access
}

// writer stores one key after the other, each once, in the server that is its address at that moment, and notes those that were
// acknowledged.
type writer struct {
	address      atomic.Pointer[realServer]
	acknowledged []string
	stop         context.CancelFunc
	done         chan struct{}
}

func write(t *testing.T, to *realServer) *writer {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	w := &writer{stop: stop, done: make(chan struct{})}
	w.address.Store(to)
	go func() {
		defer close(w.done)
		connected, client := to, to.fleet(t)
		for n := 0; ctx.Err() == nil; n++ {
			key := fmt.Sprintf("live_stash:%d", n)
			if client.Set(context.Background(), key, n, time.Hour).Err() == nil {
				w.acknowledged = append(w.acknowledged, key)
				continue
			}
			// As Redix does, it connects anew when its connection is closed, and only then.
			if now := w.address.Load(); now != connected {
				connected, client = now, now.fleet(t)
			}
		}
	}()
	return w
}

// end is what was acknowledged.
func (w *writer) end() []string {
	w.stop()
	<-w.done
	return w.acknowledged
}

// Whatever a server has acknowledged, the one that takes its place has.
func TestHandOver(t *testing.T) {
	handOver(t, startServer(t, testAccess()), startServer(t, testAccess()))
}

func handOver(t *testing.T, old, fresh *realServer) {
	t.Helper()
	w := write(t, old)
	old.setPrimary(t, "old")
	eventually(t, func() error {
		if stashes := old.look(t).Stashes; stashes < 2000 {
			return fmt.Errorf("%d stashes", stashes)
		}
		return nil
	})
	fresh.follow(t, old)
	if seen := fresh.inSync(t); seen.Primary != "old" {
		t.Errorf("the new server says %+v", seen)
	}
	line := old.look(t).Line
	fresh.follow(t, old)
	if seen := fresh.look(t); !seen.InSync {
		t.Errorf("told again to follow, it says %+v", seen)
	}
	idle, err := dial(t.Context(), "tcp", old.Address, old.Login, time.Minute)
	must(t, err)
	defer func() { _ = idle.Close() }()
	w.address.Store(fresh)
	eventually(t, func() error { return patient().FailOver(t.Context(), old.Login) }) // on a busy machine it may be given up
	// Whose connection stays would go on storing where nothing is taken any more.
	must(t, idle.SetReadDeadline(time.Now().Add(10*time.Second)))
	if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a client of the old server is not sent away: %v", err)
	}
	time.Sleep(100 * time.Millisecond)
	acknowledged := w.end()

	if seen := fresh.look(t); seen.Follows != "" || seen.Primary != "old" {
		t.Errorf("the new server says %+v", seen)
	}
	eventually(t, func() error {
		if seen := old.look(t); !seen.InSync {
			return fmt.Errorf("the old server says %+v", seen)
		}
		return nil
	})
	if lost := fresh.lost(t, acknowledged); lost > 0 || len(acknowledged) < 2000 {
		t.Errorf("%d of %d acknowledged writes are lost", lost, len(acknowledged))
	}
	if seen := fresh.look(t); seen.Took != line || seen.Line == line || line == "" {
		t.Errorf("who has taken over the line %q says %+v", line, seen)
	}
	fresh.setPrimary(t, "fresh")
	eventually(t, func() error {
		if seen := old.look(t); seen.Primary != "fresh" {
			return fmt.Errorf("the old server says %+v", seen)
		}
		return nil
	})
	if err := old.fleet(t).Set(t.Context(), "live_stash:late", 1, time.Hour).Err(); err == nil {
		t.Error("the old server takes a write that nobody will find")
	}
}

// How much a server may fill is its pod's own.
func TestMemoryOfAServer(t *testing.T) {
	if max, want := startServer(t, testAccess()).look(t).Max, int64(3*512<<20/4); max != want {
		t.Errorf("a server with 512Mi may fill %d bytes, want %d", max, want)
	}
}

// One that comes back empty where the old server was is not copied: the copy is all there is.
func TestNobodyCopiesAnEmptyServer(t *testing.T) {
	access := testAccess()
	old, fresh := startServer(t, access), startServer(t, access)
	must(t, old.fleet(t).Set(t.Context(), "live_stash:a", 1, time.Hour).Err())
	old.setPrimary(t, "old")
	fresh.follow(t, old)
	if seen := fresh.inSync(t); seen.Stashes != 1 {
		t.Errorf("the new server says %+v", seen)
	}
	old.stop()
	old.files = t.TempDir()
	old.start(t)
	for range 20 {
		if seen := fresh.look(t); seen.InSync || seen.Stashes != 1 || seen.Primary != "old" {
			t.Fatalf("the copy says %+v", seen)
		}
		time.Sleep(100 * time.Millisecond)
	}
	eventually(t, func() error { return patient().Promote(t.Context(), fresh.Login) })
	must(t, fresh.fleet(t).Set(t.Context(), "live_stash:b", 1, time.Hour).Err())
	if seen := fresh.look(t); seen.Stashes != 2 || seen.Follows != "" {
		t.Errorf("promoted, it says %+v", seen)
	}
}

// Nobody takes the place of a server that nobody follows, and a server that is told so goes on.
func TestNoHandOverToNobody(t *testing.T) {
	old := startServer(t, testAccess())
	if err := patient().FailOver(t.Context(), old.Login); err == nil || !strings.Contains(err.Error(), old.Address) {
		t.Errorf("failing over says %v", err)
	}
	must(t, old.fleet(t).Set(t.Context(), "live_stash:a", 1, time.Hour).Err())
}

// For a hand-over, servers are told no more rights than it takes: nobody reads stashes by it, and the fleet does not say whose they are.
func TestRightsOfAHandOver(t *testing.T) {
	old, fresh := startServer(t, testAccess()), startServer(t, testAccess())
	must(t, old.fleet(t).Set(t.Context(), "live_stash:a", 1, time.Hour).Err())
	old.setPrimary(t, "old")
	fresh.follow(t, old)
	others := [][]any{{"GET", "live_stash:a"}, {"SET", "live_stash:a", "2"}, {"KEYS", "*"}, {"CONFIG", "GET", "*"}, {"ACL", "LIST"}, {"FLUSHALL"}}
	for _, server := range []*realServer{old, fresh} {
		for user, may := range map[string]struct {
			password string
			not      [][]any
		}{
			replicationUser:       {"s3cret", others},
			rendered.OperatorUser: {server.Password, others},
			rendered.FleetUser:    {fleetPassword, [][]any{{"GET", primaryKey}, {"SET", primaryKey, "fleet"}, {"REPLICAOF", "NO", "ONE"}, {"ACL", "LIST"}}},
		} {
			client := server.as(t, user, may.password)
			must(t, client.Ping(t.Context()).Err())
			for _, command := range may.not {
				if err := client.Do(t.Context(), command...).Err(); !redis.IsPermissionError(err) {
					t.Errorf("%v as the user %s: %v", command, user, err)
				}
			}
			if err := server.as(t, user, "another").Ping(t.Context()).Err(); !redis.IsAuthError(err) {
				t.Errorf("with another password, the user %s gets %v", user, err)
			}
		}
	}
}

// A full memory drops what ends some time, the first what ends soonest.
func TestPrimaryDoesNotEnd(t *testing.T) {
	server := startServer(t, testAccess())
	server.setPrimary(t, "old")
	must(t, patient().ask(t.Context(), server.Login, "", func(client *redis.Client) error {
		ends, err := client.Do(t.Context(), "ACL", "SETUSER", server.User, "+ttl").Text()
		if err == nil {
			var left int64
			left, err = client.Do(t.Context(), "TTL", primaryKey).Int64()
			ends = fmt.Sprint(left)
		}
		if ends != "-1" {
			t.Errorf("it ends in %s", ends)
		}
		return err
	}))
}

// One that has not got every write takes nobody's place: the server takes writes again, in time or when it is told to.
func TestFailOverIsGivenUp(t *testing.T) {
	old, fresh := startServer(t, testAccess()), startServer(t, testAccess())
	fresh.follow(t, old)
	fresh.inSync(t)
	must(t, fresh.process.Signal(syscall.SIGSTOP))
	must(t, old.fleet(t).Set(t.Context(), "live_stash:a", 1, time.Hour).Err())
	if err := patient().FailOver(t.Context(), old.Login); err == nil || !strings.Contains(err.Error(), "has taken writes again") {
		t.Errorf("failing over says %v", err)
	}
	must(t, old.fleet(t).Set(t.Context(), "live_stash:b", 1, time.Hour).Err())

	must(t, patient().ask(t.Context(), old.Login, "", func(client *redis.Client) error { return client.Do(t.Context(), "FAILOVER").Err() }))
	if !old.look(t).FailingOver {
		t.Error("the server does not say that it waits for the other one")
	}
	must(t, patient().Abort(t.Context(), old.Login))
	if seen := old.look(t); seen.FailingOver || seen.Follows != "" {
		t.Errorf("told to give up, the server says %+v", seen)
	}
	must(t, old.fleet(t).Set(t.Context(), "live_stash:c", 1, time.Hour).Err())
}

// A server that is never done has not failed over, whatever it is that it waits for.
func TestFailOverWithoutAnEnd(t *testing.T) {
	const info = "role:master\r\nmaster_failover_state:waiting-for-sync\r\n"
	address := unheard(t, func(line string) string {
		switch command, _, _ := strings.Cut(line, " "); command {
		case "hello":
			return "*0\r\n"
		case "INFO":
			return fmt.Sprintf("$%d\r\n%s\r\n", len(info), info)
		}
		return "+OK\r\n"
	})
	if err := patient().FailOver(t.Context(), Login{Address: address, User: "operator"}); err == nil || !strings.Contains(err.Error(), "not done") {
		t.Errorf("failing over says %v", err)
	}
}

// Who is to copy a server that does not answer keeps what there is, and goes on.
func TestNobodyFollowsWhoDoesNotAnswer(t *testing.T) {
	fresh := startServer(t, testAccess())
	gone := fresh.Login
	gone.Address = "127.0.0.1:1"
	if err := patient().Follow(t.Context(), fresh.Login, gone, "s3cret"); err == nil || !strings.Contains(err.Error(), gone.Address) {
		t.Errorf("following says %v", err)
	}
	if seen := fresh.look(t); seen.Follows != "" {
		t.Errorf("the server says %+v", seen)
	}
}

// One that crashed reads its file first. Until it has, it has not come up empty; and then it has taken nobody's place, whatever it did before.
func TestAServerThatReadsItsFile(t *testing.T) {
	server, other := startServer(t, testAccess()), startServer(t, testAccess())
	client := server.fleet(t)
	for n := range 3000 {
		must(t, client.Set(t.Context(), fmt.Sprintf("live_stash:%d", n), strings.Repeat("x", 100), time.Hour).Err())
	}
	server.setPrimary(t, "old")
	other.follow(t, server)
	other.inSync(t)
	eventually(t, func() error { return patient().Promote(t.Context(), other.Login) })
	if seen := other.look(t); seen.Took != server.look(t).Line {
		t.Errorf("promoted, it says %+v", seen)
	}
	other.stop()
	other.begin(t, "--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024")
	eventually(t, func() error {
		_, err := patient().Look(t.Context(), other.Login)
		if err == nil {
			t.Fatal("it speaks for itself before it has read its file")
		}
		if !Loading(err) {
			return err
		}
		return nil
	})
	if seen := other.look(t); seen.Primary != "old" || seen.Stashes != 3000 || seen.Took != "" {
		t.Errorf("when it has read its file, it says %+v", seen)
	}
}

// Who follows has all of it only when its file has it, too.
func TestWhatAFollowerHas(t *testing.T) {
	const follows = "role:slave\r\nmaster_host:10.0.0.1\r\nmaster_link_status:up\r\n"
	for text, want := range map[string]succession.Says{
		"aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\naof_last_bgrewrite_status:ok\r\n": {Filed: true},
		"aof_rewrite_in_progress:1\r\naof_rewrite_scheduled:0\r\naof_last_bgrewrite_status:ok\r\n": {},
		// What fails is to be tried again.
		"aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:1\r\naof_last_bgrewrite_status:err\r\n": {FileFails: true},
		// A file that has grown was to be written anew, and is whole as it is.
		"aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0\r\naof_last_bgrewrite_status:err\r\n": {Filed: true},
		"aof_last_write_status:err\r\n": {Filed: true, FileFails: true},
	} {
		want.Follows, want.InSync = "10.0.0.1", true
		if got := readInfo(follows + text); got != want {
			t.Errorf("of %q it is read that %+v, want %+v", text, got, want)
		}
	}
}
