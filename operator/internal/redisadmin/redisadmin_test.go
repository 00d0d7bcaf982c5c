package redisadmin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/livestash-dev/livestash/operator/internal/fencing"
	"github.com/livestash-dev/livestash/operator/internal/succession"
)

// server keeps what it is asked, as lines, and answers each with what answer says of it.
func server(t *testing.T, answer func(line string) string) (address string, asked <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	lines := make(chan string, 16)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				reader := bufio.NewReader(conn)
				for line := read(reader); line != ""; line = read(reader) {
					lines <- line
					_, _ = io.WriteString(conn, answer(line))
				}
			}()
		}
	}()
	return listener.Addr().String(), lines
}

// unheard is a server of which nobody looks at what it is asked.
func unheard(t *testing.T, answer func(line string) string) (address string) {
	t.Helper()
	address, asked := server(t, answer)
	go func() {
		for range asked { // nobody looks at them
		}
	}()
	return address
}

// read is the words of one command. Empty when there are no more.
func read(reader *bufio.Reader) string {
	var count, length int
	if _, err := fmt.Fscanf(reader, "*%d\r\n", &count); err != nil {
		return ""
	}
	words := make([]string, count)
	for i := range words {
		if _, err := fmt.Fscanf(reader, "$%d\r\n", &length); err != nil {
			return ""
		}
		word := make([]byte, length+2)
		if _, err := io.ReadFull(reader, word); err != nil {
			return ""
		}
		words[i] = string(word[:length])
	}
	return strings.Join(words, " ")
}

// A server that accepts and says nothing is asked once, and not waited for long: there are others.
func TestSilentServersAreAskedOnce(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = listener.Close() }()
	var came atomic.Int32
	go func() {
		for {
			if _, err := listener.Accept(); err != nil {
				return
			}
			came.Add(1)
		}
	}()
	started := time.Now()
	if _, err := New().Look(t.Context(), Login{Address: listener.Addr().String(), User: "operator"}); err == nil || time.Since(started) > 10*timeout {
		t.Errorf("after %s: %v", time.Since(started), err)
	}
	if came.Load() != 1 {
		t.Errorf("it was asked %d times", came.Load())
	}
}

func TestSetPasswords(t *testing.T) {
	address, asked := server(t, func(line string) string {
		if strings.HasPrefix(line, "hello ") {
			return "*0\r\n"
		}
		return "+OK\r\n"
	})
	err := patient().SetPasswords(t.Context(), Login{Address: address, User: "operator", Password: "s3cret"}, "livestash", []string{"aa", "bb"})
	if err != nil {
		t.Fatal(err)
	}
	// The user operator may do no more than this: the library must not ask for anything else.
	got := []string{<-asked, <-asked}
	if diff := cmp.Diff([]string{"hello 2 auth operator s3cret", "ACL SETUSER livestash resetpass #aa #bb"}, got); diff != "" || len(asked) > 0 {
		t.Errorf("Redis was asked (-want +got):\n%s and %d more", diff, len(asked))
	}
}

func TestSetPasswordsFails(t *testing.T) {
	refusing, _ := server(t, func(string) string { return "-WRONGPASS invalid username-password pair\r\n" })
	for name, login := range map[string]Login{
		"refused":        {Address: refusing, User: "operator", Password: "s3cret"},
		"nobody there":   {Address: "127.0.0.1:1", User: "operator", Password: "s3cret"},
		"unknown a host": {Address: "redis.invalid:6379", User: "operator", Password: "s3cret"},
	} {
		err := patient().SetPasswords(t.Context(), login, "livestash", []string{"aa"})
		if err == nil || !strings.Contains(err.Error(), login.Address) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: got %v, want an error with the address and without the password", name, err)
		}
	}
}

// Redis repeats the arguments of a command that it does not know, or their beginning, for example in version 5, or with a command that was
// renamed. What is no Redis may repeat them in any way, the login too.
func TestErrorsRepeatNoPassword(t *testing.T) {
	for name, repeats := range map[string]func(command, arguments string) string{
		"as Redis": func(command, arguments string) string {
			return "-ERR unknown command '" + command + "', with args beginning with: " + arguments
		},
		"with another code":    func(_, arguments string) string { return "-NOPERM " + arguments },
		"without a code":       func(_, arguments string) string { return "-" + arguments },
		"as a code":            func(_, arguments string) string { return "-" + strings.ReplaceAll(arguments, " ", "_") },
		"as what it has done":  func(_, arguments string) string { return "+" + arguments },
		"as a number":          func(_, arguments string) string { return ":" + arguments },
		"as a list's length":   func(_, arguments string) string { return "*" + arguments },
		"as a text's length":   func(_, arguments string) string { return "$" + arguments },
		"in another's version": func(_, arguments string) string { return "=" + arguments },
	} {
		for _, loginToo := range []bool{false, true} {
			address := unheard(t, func(line string) string {
				command, arguments, _ := strings.Cut(line, " ")
				switch {
				case !loginToo && command == "hello":
					return "*0\r\n"
				case !loginToo && strings.Contains(line, "SETUSER operator"):
					return "+OK\r\n"
				}
				return repeats(command, arguments[:min(len(arguments), 60)]) + "\r\n"
			})
			login := Login{Address: address, User: "operator", Password: "0perat0r"}
			for doing, err := range map[string]error{
				"following":         patient().Follow(t.Context(), login, login, "s3cret-s3cret-s3cret-s3cret-s3cret"),
				"setting passwords": patient().SetPasswords(t.Context(), login, "livestash", []string{"s3cret"}),
			} {
				if err == nil {
					if loginToo || name != "as what it has done" {
						t.Errorf("repeated %s, %s: it is taken for a Redis", name, doing)
					}
					continue
				}
				if strings.Contains(err.Error(), "s3cr") || strings.Contains(err.Error(), "0per") {
					t.Errorf("repeated %s, %s: got %v, want an error without what was sent", name, doing, err)
				}
			}
		}
	}
}

// What was refused, and what is the server's state, is told by the code of the answer, and by that alone.
func TestCodesAreTold(t *testing.T) {
	address, _ := server(t, func(line string) string {
		if strings.HasPrefix(line, "hello ") {
			return "*0\r\n"
		}
		return "-NOPERM User operator has no permissions to run the 'acl|setuser' command\r\n"
	})
	want := "setting the passwords of user livestash in Redis at " + address + ": it answers NOPERM: see its log"
	if err := patient().SetPasswords(t.Context(), Login{Address: address, User: "operator"}, "livestash", nil); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// What a server has refused has not happened, whichever of its commands that was, and is told.
func TestNoRefusalIsLost(t *testing.T) {
	const info = "role:slave\r\nmaster_host:shop\r\nmaster_failover_state:no-failover\r\n"
	for _, refused := range []string{
		"ACL SETUSER operator", "set ", "CONFIG SET repl-", "ACL SETUSER replication", "CONFIG SET masteruser", "CONFIG SET masterauth", "REPLICAOF 127.0.0.1",
		"FAILOVER TIMEOUT", "CLIENT KILL", "FAILOVER ABORT", "REPLICAOF NO", "config set tls", "ACL SETUSER livestash", "INFO", "get ",
	} {
		address := unheard(t, func(line string) string {
			switch command, _, _ := strings.Cut(line, " "); {
			case strings.HasPrefix(line, refused):
				return "-READONLY You can't write against a read only replica.\r\n"
			case command == "hello":
				return "*0\r\n"
			case command == "INFO":
				return fmt.Sprintf("$%d\r\n%s\r\n", len(info), info)
			case command == "get":
				return "$-1\r\n"
			}
			return "+OK\r\n"
		})
		login, told := Login{Address: address, User: "operator"}, 0
		_, looking := patient().Look(t.Context(), login)
		_, renewing := patient().Renew(t.Context(), login, "tls.crt", nil)
		for _, err := range []error{
			looking, renewing, patient().SetPrimary(t.Context(), login, "old"), patient().Follow(t.Context(), login, login, "s3cret"), patient().FailOver(t.Context(), login),
			patient().Abort(t.Context(), login), patient().Promote(t.Context(), login), patient().SetPasswords(t.Context(), login, "livestash", nil),
		} {
			if err != nil && strings.Contains(err.Error(), "READONLY") {
				told++
			}
		}
		if told == 0 {
			t.Errorf("%s was refused, and nobody is told", refused)
		}
	}
}

// One that no longer leads would tell what it meant to tell before another one did.
func TestWhoNoLongerLeadsTellsNothing(t *testing.T) {
	var lines atomic.Int32
	login := Login{User: "operator", Address: unheard(t, func(string) string {
		lines.Add(1)
		return "+OK\r\n"
	})}
	admin := patient()
	admin.MayTell = func() error { return fencing.ErrExpired }
	_, looking := admin.Look(t.Context(), login)
	_, renewing := admin.Renew(t.Context(), login, "tls.crt", nil)
	for doing, err := range map[string]error{
		"looking": looking, "renewing": renewing, "naming the primary": admin.SetPrimary(t.Context(), login, "old"),
		"following": admin.Follow(t.Context(), login, login, "s3cret"), "failing over": admin.FailOver(t.Context(), login),
		"aborting": admin.Abort(t.Context(), login), "promoting": admin.Promote(t.Context(), login),
		"setting passwords": admin.SetPasswords(t.Context(), login, "livestash", nil),
	} {
		if !errors.Is(err, fencing.ErrExpired) || !strings.Contains(err.Error(), fencing.ErrExpired.Error()) {
			t.Errorf("%s: %v", doing, err)
		}
	}
	if lines.Load() > 0 {
		t.Errorf("the server was sent %d lines", lines.Load())
	}
}

// It may stop leading in the middle of what it tells.
func TestWhoNoLongerLeadsTellsNothingMore(t *testing.T) {
	for told := range int32(3) {
		var lines atomic.Int32
		login := Login{User: "operator", Address: unheard(t, func(line string) string {
			if strings.HasPrefix(line, "hello") {
				return "*0\r\n"
			}
			lines.Add(1)
			return "+OK\r\n"
		})}
		admin := patient()
		admin.MayTell = func() error {
			if lines.Load() >= told {
				return fencing.ErrExpired
			}
			return nil
		}
		if err := admin.Promote(t.Context(), login); errors.Is(err, fencing.ErrExpired) != (told < 2) || lines.Load() != min(told, 2) {
			t.Errorf("after %d lines, of 2 that there are to tell: %d came, and the error is %v", told, lines.Load(), err)
		}
	}
}

// What a server has not answered may have been done. It is not told again within the same breath, in which something else may be true.
func TestNothingIsToldTwice(t *testing.T) {
	var times atomic.Int32
	address := unheard(t, func(line string) string {
		switch {
		case strings.HasPrefix(line, "hello "):
			return "*0\r\n"
		case strings.HasPrefix(line, "REPLICAOF "):
			times.Add(1)
			return ""
		}
		return "+OK\r\n"
	})
	if err := New().Promote(t.Context(), Login{Address: address, User: "operator"}); err == nil || times.Load() != 1 {
		t.Errorf("told %d times, it says %v", times.Load(), err)
	}
}

// What a server says of itself may be anything, as long as it is a Redis that answers.
func TestLook(t *testing.T) {
	for name, test := range map[string]struct {
		info, primary string
		want          succession.Says
	}{
		"one that has all": {"role:master\r\nmaster_failover_state:no-failover\r\ndb0:keys=3,expires=2\r\n", "$3\r\nold\r\n", succession.Says{Primary: "old", Stashes: 2}},
		"one that begins":  {"role:master\r\n", "$-1\r\n", succession.Says{}},
		"one that copies":  {"role:slave\r\nmaster_host:shop\r\n", "-LOADING Redis is loading the dataset in memory\r\n", succession.Says{Follows: "shop"}},
		"no fail-over yet": {"role:slave\r\nmaster_host:shop\r\nmaster_link_status:down\r\n", "$-1\r\n", succession.Says{Follows: "shop"}},
		"one that lies":    {"role:master\r\n", "$3\r\nold\r\n", succession.Says{Primary: "old"}},
	} {
		address, _ := server(t, func(line string) string {
			switch command, _, _ := strings.Cut(line, " "); command {
			case "hello":
				return "*0\r\n"
			case "INFO":
				return fmt.Sprintf("$%d\r\n%s\r\n", len(test.info), test.info)
			case "get":
				return test.primary
			}
			return "+OK\r\n"
		})
		says, err := patient().Look(t.Context(), Login{Address: address, User: "operator"})
		if diff := cmp.Diff(test.want, says); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}

// A server that refuses the password is not taken for one that cannot be reached: nobody will ever log in to it again.
func TestRefused(t *testing.T) {
	real := startServer(t, testAccess())
	login := real.Login
	login.Password = "another"
	if _, err := patient().Look(t.Context(), login); !Refused(err) {
		t.Errorf("it says %v", err)
	}
	for _, address := range []string{"127.0.0.1:1", says(t, "").Address} {
		if _, err := New().Look(t.Context(), Login{Address: address}); err == nil || Refused(err) {
			t.Errorf("nobody refuses, and it says %v", err)
		}
	}
}
