package registry

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func free(int) (string, error) { return "", nil }

func TestClaim(t *testing.T) {
	ctx := context.Background()
	r := Registry{Dir: filepath.Join(t.TempDir(), "registry")}
	claim := func(id string, preferred int, taken func(int) (string, error)) int {
		t.Helper()
		slot, err := r.Claim(ctx, id, "/state/"+id, preferred, 4, taken)
		if err != nil {
			t.Fatal(err)
		}
		return slot
	}
	got := []int{
		claim("a", 2, free),
		claim("b", 2, free),
		claim("a", 0, free), // keeps what it has
		claim("c", 3, func(slot int) (string, error) {
			if slot == 0 {
				return "the machine uses it", nil
			}
			return "", nil
		}),
	}
	if diff := cmp.Diff([]int{2, 3, 2, 1}, got); diff != "" {
		t.Error(diff)
	}
	if err := r.Release(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if slot := claim("d", 2, free); slot != 3 {
		t.Errorf("got slot %d, want the released 3", slot)
	}
	used := func(int) (string, error) { return "route X is in the way", nil }
	if _, err := r.Claim(ctx, "e", "/state/e", 0, 4, used); err == nil || !strings.Contains(err.Error(), "route X") {
		t.Errorf("no slot left: %v", err)
	}
	broken := errors.New("broken")
	if _, err := r.Claim(ctx, "e", "/state/e", 0, 4, func(int) (string, error) { return "", broken }); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

func TestLockClusterKeepsOthersOut(t *testing.T) {
	r := Registry{Dir: t.TempDir()}
	first, err := r.LockCluster(context.Background(), "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	owner := ""
	if _, err := r.LockCluster(ctx, "a", func(pid string) { owner = pid }); err == nil {
		t.Fatal("two have the lock")
	}
	if want := strconv.Itoa(os.Getpid()); owner != want {
		t.Errorf("the owner is said to be %q, want %q", owner, want)
	}
	other, err := r.LockCluster(context.Background(), "b", nil)
	if err != nil {
		t.Fatalf("another cluster: %v", err)
	}
	defer func() { _ = other.Close() }()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := r.LockCluster(context.Background(), "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
}

// A command can wait for the lock of a cluster that its holder removes. The file it has then locked is no longer the one
// that the next command would lock.
func TestLockOfRemovedCluster(t *testing.T) {
	ctx := context.Background()
	r := Registry{Dir: filepath.Join(t.TempDir(), "registry")}
	first, err := r.LockCluster(ctx, "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	waiting, got := make(chan string, 1), make(chan *os.File, 1)
	go func() {
		file, err := r.LockCluster(ctx, "a", func(pid string) { waiting <- pid })
		if err != nil {
			t.Error(err)
		}
		got <- file
	}()
	<-waiting
	if err := r.Forget(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := <-got
	defer func() { _ = second.Close() }()
	if !sameFile(second, filepath.Join(r.Dir, "a.lock")) {
		t.Error("the lock is on a file that nobody else can find")
	}
}

func TestMountPointsGoWithTheLastCluster(t *testing.T) {
	ctx := context.Background()
	root := t.TempDir()
	r := Registry{Dir: filepath.Join(root, "registry")}
	existing, made, used := filepath.Join(root, "existing"), filepath.Join(root, "made"), filepath.Join(root, "used")
	if err := os.Mkdir(existing, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"a", "b"} {
		if _, err := r.Claim(ctx, id, "/state/"+id, 0, 4, free); err != nil {
			t.Fatal(err)
		}
		if err := r.MakeMountPoints(ctx, []string{existing, made, used}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(used, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	there := func() []bool {
		var found []bool
		for _, path := range []string{existing, made, used} {
			_, err := os.Stat(path)
			found = append(found, err == nil)
		}
		return found
	}
	if err := r.Release(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]bool{true, true, true}, there()); diff != "" {
		t.Errorf("after the first: %s", diff)
	}
	for range 2 {
		if err := r.Release(ctx, "b"); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]bool{true, false, true}, there()); diff != "" {
		t.Errorf("after the last: %s", diff)
	}
	if err := r.Forget(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(r.Dir); !os.IsNotExist(err) {
		t.Errorf("the registry is still there: %v", err)
	}
}
