package podagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const domain = ".shop-nodes.default.svc.cluster.local"

var quiet = log.New(io.Discard, "", 0)

func testSettings() Settings {
	return Settings{
		Node: "shop@shop-0" + domain, App: "shop", Query: "shop-nodes.default.svc.cluster.local",
		NetTickTime: 20, SyncTimeout: 3000,
	}
}

func testBootArgs(t *testing.T, dns *fakeDNS) *bootArgs {
	t.Helper()
	return newBootArgs(t.TempDir(), testSettings(), dns.resolver(), quiet)
}

const timeouts = "-kernel sync_nodes_timeout 3000\n-kernel net_ticktime 20\n"

func TestBootArgsNameThePeers(t *testing.T) {
	cases := map[string]struct {
		targets []string
		want    string
	}{
		"alone":  {[]string{"shop-0" + domain}, timeouts},
		"nobody": {nil, ""},
		"sorted, once for several ports, without itself": {
			[]string{"shop-2" + domain, "shop-0" + domain, "shop-1" + domain, "shop-2" + domain},
			"-kernel sync_nodes_optional \"['shop@shop-1" + domain + "','shop@shop-2" + domain + "']\"\n" + timeouts,
		},
		"names that would break out of the quotes": {
			[]string{"a'b" + domain, `a"b` + domain, `a\b` + domain, "a b" + domain, "a\nb" + domain, "a$(b)" + domain, "shop-1" + domain},
			"-kernel sync_nodes_optional \"['shop@shop-1" + domain + "']\"\n" + timeouts,
		},
		"a name longer than an atom": {
			[]string{strings.Repeat(strings.Repeat("a", 62)+".", 4) + "b", "shop-1" + domain},
			"-kernel sync_nodes_optional \"['shop@shop-1" + domain + "']\"\n" + timeouts,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dns := startDNS(t, c.targets...)
			b := testBootArgs(t, dns)
			b.refreshOnce(t.Context())
			content, _ := os.ReadFile(b.file)
			if diff := cmp.Diff(c.want, string(content)); diff != "" {
				t.Error(diff)
			}
			if asked := *dns.asked.Load(); asked != "shop-nodes.default.svc.cluster.local." {
				t.Errorf("asked for %s", asked)
			}
		})
	}
}

func TestInstallWritesBootArgsWhateverDNSSays(t *testing.T) {
	peers := []string{"shop-0" + domain, "shop-1" + domain}
	with := "-kernel sync_nodes_optional \"['shop@shop-1" + domain + "']\"\n" + timeouts
	cases := map[string]struct {
		code   int32
		before string
		want   string
	}{
		"answer":                   {0, "", with},
		"answer and an older file": {0, timeouts, with},
		"no such name":             {noSuchName, "", timeouts},
		"failure":                  {serverFailure, "", timeouts},
		"silence":                  {silence, "", timeouts},
		"silence, an older file":   {silence, with, with},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dns := startDNS(t, peers...)
			dns.code.Store(c.code)
			b := testBootArgs(t, dns)
			if c.before != "" {
				write(t, b.file, c.before)
			}
			limit := tryTime + retryInterval // longer than one try, so that there are several
			if c.code == 0 {
				limit = time.Minute
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if err := b.install(ctx); err != nil {
				t.Fatal(err)
			}
			if got := read(t, b.file); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestInstallTriesAgain(t *testing.T) {
	dns := startDNS(t, "shop-0"+domain, "shop-1"+domain)
	dns.code.Store(serverFailure)
	b := testBootArgs(t, dns)
	go func() {
		for dns.asked.Load() == nil {
			time.Sleep(time.Millisecond)
		}
		dns.code.Store(0)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := b.install(ctx); err != nil {
		t.Fatal(err)
	}
	if got := read(t, b.file); !strings.Contains(got, "shop@shop-1"+domain) {
		t.Errorf("no peers in %q", got)
	}
}

func TestInstallWithoutQuery(t *testing.T) {
	b := newBootArgs(t.TempDir(), Settings{NetTickTime: 20, SyncTimeout: 3000}, startDNS(t).resolver(), quiet)
	if err := b.install(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := read(t, b.file); got != timeouts {
		t.Errorf("got %q", got)
	}
}

func TestRefreshKeepsPeersWhileDNSFails(t *testing.T) {
	dns := startDNS(t, "shop-0"+domain, "shop-1"+domain)
	b := testBootArgs(t, dns)
	var logged strings.Builder
	b.logger = log.New(&logged, "", 0)
	b.refreshOnce(t.Context())
	before := read(t, b.file)

	for range 3 {
		for _, code := range []int32{serverFailure, noSuchName} {
			dns.code.Store(code)
			b.refreshOnce(t.Context())
		}
	}
	// No records is what a resolver's empty answer looks like; it is no list of pods either: this pod would be in it.
	dns.answer()
	b.refreshOnce(t.Context())
	if got := read(t, b.file); got != before {
		t.Errorf("got %q, want it left at %q", got, before)
	}

	dns.answer("shop-0"+domain, "shop-2"+domain)
	b.refreshOnce(t.Context())
	if got := read(t, b.file); !strings.Contains(got, "['shop@shop-2"+domain+"']") {
		t.Errorf("got %q after DNS came back", got)
	}
	dns.answer("shop-0" + domain)
	b.refreshOnce(t.Context())
	if got := read(t, b.file); got != timeouts {
		t.Errorf("got %q after the fleet shrank to this pod", got)
	}
	if lines := strings.Count(logged.String(), "\n"); lines != 5 {
		t.Errorf("want a line for each of 3 changes, the failure and its end, got:\n%s", logged.String())
	}
}

func TestRefreshWritesOnlyChanges(t *testing.T) {
	dns := startDNS(t, "shop-0"+domain, "shop-1"+domain)
	b := testBootArgs(t, dns)
	b.refreshOnce(t.Context())
	if err := os.Remove(b.file); err != nil {
		t.Fatal(err)
	}
	b.refreshOnce(t.Context())
	if _, err := os.Stat(b.file); err == nil {
		t.Error("the file was written though the peers are the same")
	}
}

func TestBootArgsAreNeverHalfWritten(t *testing.T) {
	b := testBootArgs(t, startDNS(t))
	lists := [][]string{nil, manyNodes(1200)}
	want := map[string]bool{}
	for _, peers := range lists {
		want[string(b.render(peers))] = true
	}
	if err := b.write(lists[0]); err != nil {
		t.Fatal(err)
	}

	var writer sync.WaitGroup
	written := make(chan struct{})
	writer.Go(func() {
		defer close(written)
		for i := range 500 {
			if err := b.write(lists[i%2]); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for done := false; !done; {
		select {
		case <-written:
			done = true
		default:
		}
		content, err := os.ReadFile(b.file)
		if err != nil {
			t.Fatal(err)
		}
		if !want[string(content)] {
			t.Fatalf("read %d bytes that were never meant", len(content))
		}
	}
	writer.Wait()
}

func TestUnwritableFolder(t *testing.T) {
	b := newBootArgs(filepath.Join(t.TempDir(), "absent"), testSettings(), startDNS(t, "shop-0"+domain).resolver(), quiet)
	if err := b.install(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want that the folder does not exist", err)
	}
}

// TestErlangReadsBootArgs asks a real emulator what it understood.
func TestErlangReadsBootArgs(t *testing.T) {
	if _, err := exec.LookPath("erl"); err != nil {
		t.Skip("there is no erl on this machine")
	}
	cases := map[string]struct {
		count             int
		prevent, prevents string
	}{
		"no peers":                          {prevents: "{ok,true}"}, // since OTP 25
		"two peers":                         {2, "false", "{ok,false}"},
		"more peers than an argument holds": {3000, "true", "{ok,true}"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := testBootArgs(t, startDNS(t))
			b.settings.SyncTimeout, b.settings.PreventOverlappingPartitions = 1, c.prevent
			peers := manyNodes(c.count)
			if err := b.write(peers); err != nil {
				t.Fatal(err)
			}
			erl := exec.Command("erl", "-noshell", "-eval",
				`io:format("~w ~w ~w ~w~n",[application:get_env(kernel,K)||K<-[sync_nodes_timeout,net_ticktime,prevent_overlapping_partitions,sync_nodes_optional]]),halt().`)
			erl.Env = append(os.Environ(), "ERL_AFLAGS=-args_file "+b.file)
			output, err := erl.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, output)
			}
			known := "undefined"
			if c.count > 0 {
				known = "{ok,[" + peerList(peers) + "]}"
			}
			want := "{ok,1} {ok,20} " + c.prevents + " " + known + "\n"
			if diff := cmp.Diff(want, string(output)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func manyNodes(count int) []string {
	peers := make([]string, 0, count)
	for i := range count {
		peers = append(peers, fmt.Sprintf("shop@shop-%d%s", i, domain))
	}
	return peers
}

func TestLongAnswers(t *testing.T) {
	var targets []string
	for i := range 200 {
		targets = append(targets, fmt.Sprintf("shop-%d%s", i, domain))
	}
	b := testBootArgs(t, startDNS(t, targets...))
	peers, err := b.peers(t.Context())
	if err != nil || len(peers) != 199 {
		t.Errorf("got %d peers (%v), want 199", len(peers), err)
	}
}

func write(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
