package redisadmin

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
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
	config := rendered.Config(cluster, managed).Data["redis.conf"]
	config = strings.NewReplacer("dir /data", "dir "+s.files, "port 6379", "port "+port, "/etc/livestash-redis", s.files).Replace(config)
	users := rendered.AccessSecret(cluster, s.access).Data["users.acl"]
	for name, text := range map[string]string{"redis.conf": config, "users.acl": string(users)} {
		if err := os.WriteFile(filepath.Join(s.files, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command(program, filepath.Join(s.files, "redis.conf"))
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	s.stop = func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	}
	t.Cleanup(func() { s.stop() })
	eventually(t, func() error { return s.fleet(t).Ping(t.Context()).Err() })
}

// fleet is a client that logs in as the fleet's pods do.
func (s *realServer) fleet(t *testing.T) *redis.Client {
	client := redis.NewClient(&redis.Options{
		Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			return dial(ctx, network, address, s.Login)
		},
		Addr: s.Address, Username: rendered.FleetUser, Password: fleetPassword, MaxRetries: -1, DialerRetries: 1, PoolSize: 1,
		DisableIdentity: true, Protocol: 2,
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func (s *realServer) look(t *testing.T) succession.Says {
	t.Helper()
	seen, err := New().Look(t.Context(), s.Login)
	must(t, err)
	return seen
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
	admin, w := New(), write(t, old)
	must(t, admin.SetPrimary(t.Context(), old.Login, "old"))
	eventually(t, func() error {
		if stashes := old.look(t).Stashes; stashes < 2000 {
			return fmt.Errorf("%d stashes", stashes)
		}
		return nil
	})
	must(t, admin.Follow(t.Context(), fresh.Login, old.Login, "s3cret"))
	eventually(t, func() error {
		if seen := fresh.look(t); !seen.InSync || seen.Primary != "old" {
			return fmt.Errorf("the new server says %+v", seen)
		}
		return nil
	})
	must(t, admin.Follow(t.Context(), fresh.Login, old.Login, "s3cret"))
	if seen := fresh.look(t); !seen.InSync {
		t.Errorf("told again to follow, it says %+v", seen)
	}
	w.address.Store(fresh)
	must(t, admin.FailOver(t.Context(), old.Login))
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
	client, lost := fresh.fleet(t), 0
	for _, key := range acknowledged {
		if client.Exists(t.Context(), key).Val() == 0 {
			lost++
		}
	}
	if lost > 0 || len(acknowledged) < 2000 {
		t.Errorf("%d of %d acknowledged writes are lost", lost, len(acknowledged))
	}
	must(t, admin.SetPrimary(t.Context(), fresh.Login, "fresh"))
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

// One that comes back empty where the old server was is not copied: the copy is all there is.
func TestNobodyCopiesAnEmptyServer(t *testing.T) {
	access, admin := testAccess(), New()
	old, fresh := startServer(t, access), startServer(t, access)
	must(t, old.fleet(t).Set(t.Context(), "live_stash:a", 1, time.Hour).Err())
	must(t, admin.SetPrimary(t.Context(), old.Login, "old"))
	must(t, admin.Follow(t.Context(), fresh.Login, old.Login, "s3cret"))
	eventually(t, func() error {
		if seen := fresh.look(t); !seen.InSync || seen.Stashes != 1 {
			return fmt.Errorf("the new server says %+v", seen)
		}
		return nil
	})
	// Whom the servers log in to each other as may copy, and nothing else.
	copier := redis.NewClient(&redis.Options{Addr: old.Address, Username: replicationUser, Password: "s3cret", MaxRetries: -1, DisableIdentity: true, Protocol: 2})
	defer func() { _ = copier.Close() }()
	must(t, copier.Ping(t.Context()).Err())
	for _, command := range [][]any{{"GET", "live_stash:a"}, {"SET", "live_stash:a", "2"}, {"KEYS", "*"}, {"CONFIG", "GET", "*"}, {"ACL", "LIST"}} {
		if err := copier.Do(t.Context(), command...).Err(); err == nil || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("%v as the user that copies: %v", command, err)
		}
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
	must(t, admin.Promote(t.Context(), fresh.Login))
	must(t, fresh.fleet(t).Set(t.Context(), "live_stash:b", 1, time.Hour).Err())
	if seen := fresh.look(t); seen.Stashes != 2 || seen.Follows != "" {
		t.Errorf("promoted, it says %+v", seen)
	}
}

// Nobody takes the place of a server that nobody follows, and a server that is told so goes on.
func TestNoHandOverToNobody(t *testing.T) {
	old := startServer(t, testAccess())
	if err := New().FailOver(t.Context(), old.Login); err == nil || !strings.Contains(err.Error(), old.Address) {
		t.Errorf("failing over says %v", err)
	}
	must(t, old.fleet(t).Set(t.Context(), "live_stash:a", 1, time.Hour).Err())
}
